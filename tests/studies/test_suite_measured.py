"""A case of the evaluation is measured with a pretended GPU's contenders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from asyncsparse_lab.errors import MemoryLimitError
from asyncsparse_lab.spmm.contender import Prepared
from asyncsparse_lab.spmm.product import Product
from asyncsparse_lab.studies import suite
from asyncsparse_lab.studies.base import Case

from .test_suite import ENTRIES, case_of


@dataclass
class Fake:
    """A contender that multiplies with NumPy, and refuses if told to."""

    role: str
    backend: str
    variant: str
    prepared: list[str]
    error: Exception | None = None
    params: dict[str, Any] = field(default_factory=dict)

    def prepare(self, product: Product) -> Prepared:
        self.prepared.append(self.variant)
        if self.error is not None:
            raise self.error
        from asyncsparse_lab.formats import bfloat16_bits
        from asyncsparse_lab.spmm.oracle import as_float64

        output = product.new_output()
        dense = as_float64(product.B).astype(np.float32)

        def run() -> None:
            C = (product.A @ dense).astype(np.float32)
            output[...] = bfloat16_bits(C) if product.dtype_out == "bfloat16" else C

        return Prepared(run, output, 1.0)


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Measure with NumPy: names of the contenders as they are prepared."""
    prepared: list[str] = []
    times = {"auto": 3.0, "bcsr-opt3": 5.0, "wcsr-paper": 4.0, "dense": 6.0, "csr-alg3": 7.0,
             "csr-alg2": 2.0}  # fmt: skip

    class Timer:
        def sample(self, run: Callable[[], None], l2: str, delay_ns: int) -> tuple[float, int]:
            run()
            return 3.0 if l2 == "warm" else 5.0, delay_ns

        def clock_mhz(self) -> float:
            return 1980.0

    from asyncsparse_lab.spmm import measure

    def fakes(case: Case) -> Sequence[Any]:
        roles = {"auto": ("planner", "asyncsparse"), "dense": ("library", "cublas")}
        roles |= {name: ("paper", "asyncsparse") for name in ("bcsr-opt3", "wcsr-paper")}
        made = [Fake(*roles.get(name, ("library", "cusparse")), name, prepared) for name in times]
        refused = MemoryLimitError("padded values would take 9,000,000,000 bytes")
        return [*made, Fake("library", "cusparse", "blocked-ell", prepared, refused)]

    original = Product.random

    def on_cpu(*arguments: Any, **options: Any) -> Product:
        return original(*arguments, **(options | {"xp": np}))

    monkeypatch.setattr(suite, "contenders", fakes)
    monkeypatch.setattr(suite, "_compile", lambda dtype_out: None)
    monkeypatch.setattr(suite, "_ceilings", lambda: None)
    monkeypatch.setattr(Product, "random", on_cpu)
    monkeypatch.setattr(measure, "device_timer", Timer)
    suite.product_and_truth.cache_clear()
    suite._converted_once.cache_clear()
    return prepared


def test_a_case_is_measured_cold_and_a_few_contenders_warm(pretended: list[str]) -> None:
    records = suite.measure(case_of("Trefethen_2000-n256"))
    cold = {record.variant: record for record in records if record.l2 == "cold"}
    warm = [record.variant for record in records if record.l2 == "warm"]
    assert len(cold) == 7
    assert cold["blocked-ell"].status == "oom"
    assert sorted(warm) == ["auto", "bcsr-opt3", "csr-alg3", "dense"]
    assert pretended.count("auto") == 1, "prepared once for both states of L2"
    entry = ENTRIES["Trefethen_2000"]
    assert cold["auto"].result["least_bytes"] == 2 * entry.nnz + 2 * 256 * (entry.rows + entry.cols)
    assert all(record.rel_err is not None for record in records if record.status == "passed")


def test_float32_and_another_n_share_the_conversions(pretended: list[str]) -> None:
    suite.measure(case_of("Trefethen_2000-n256"))
    records = suite.measure(case_of("Trefethen_2000-n256-float32"))
    assert {record.l2 for record in records} == {"cold"}
    assert {record.dtype_out for record in records} == {"float32"}
    first, truth = suite.product_and_truth("Trefethen_2000", 256)
    assert suite.product_and_truth("Trefethen_2000", 256)[1] is truth
    first.converted("format", lambda A: "made once")
    second, _ = suite.product_and_truth("Trefethen_2000", 512)
    assert second.converted("format", lambda A: "made again")[0] == "made once"
    assert second.padded_B is not None
    assert second.B.shape == (ENTRIES["Trefethen_2000"].cols, 512)
    assert np.shares_memory(second.B, second.padded_B)
