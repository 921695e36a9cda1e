"""One body of tests for every backend; those of the GPU carry its marker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse

from asyncsparse_lab.lsmr import LsmrResult, lsmr

Solve = Callable[..., LsmrResult]


def solver(backend: str) -> Solve:
    """Return ``lsmr`` for one backend; the persistent one gets dense matrices as sparse."""

    def solve(A: Any, b: Any, **options: Any) -> LsmrResult:
        if backend == "persistent" and not issparse(A) and not hasattr(A, "rmatvec"):
            A = csr_array(np.asarray(A))
        return lsmr(A, b, backend=backend, **options)  # type: ignore[arg-type]

    return solve


@pytest.fixture(params=["host", "scipy", pytest.param("persistent", marks=pytest.mark.gpu)])
def solve(request: pytest.FixtureRequest) -> Solve:
    """Solve real problems by each backend that takes all of them."""
    return solver(request.param)


@pytest.fixture(params=["host", "scipy"])
def solve_any(request: pytest.FixtureRequest) -> Solve:
    """Solve complex problems and operators."""
    return solver(request.param)
