"""The norms of the residual and of the gradient, recomputed in FP64 from the returned x."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncsparse_lab.lsmr.host import ColumnOutcome, norm
from asyncsparse_lab.lsmr.operator import products_of
from asyncsparse_lab.lsmr.problem import Problem
from asyncsparse_lab.lsmr.recurrence import Tolerances
from asyncsparse_lab.lsmr.result import StopCode

ROUNDING_FACTOR = 16.0


@dataclass(frozen=True, slots=True)
class TrueNorms:
    """Recomputed norms of one right-hand side, in the meaning of ``LsmrResult``."""

    normr: float
    normar: float
    normar_scaled: float
    normb: float


def true_norms(problem: Problem, solutions: Sequence[Any]) -> list[TrueNorms]:
    """Recompute the norms for every right-hand side with A, b and x in FP64."""
    wide = np.dtype(np.complex128 if problem.is_complex else np.float64)
    products = products_of(problem, wide, scaled=False)
    starts = problem.starts or [None] * len(problem.columns)
    norms = []
    for b, x0, solution in zip(problem.columns, starts, solutions, strict=True):
        residual = b.astype(wide) - products.forward(solution.astype(wide))
        gradient = products.adjoint(residual)
        normr = norm(residual)
        if problem.damp:
            moved = solution.astype(wide)
            if x0 is not None:
                moved = moved - x0
            gradient = gradient - problem.damp**2 * moved
            normr = float(np.hypot(normr, problem.damp * norm(moved)))
        scaled = gradient if problem.scales is None else problem.scales * gradient
        norms.append(TrueNorms(normr, norm(gradient), norm(scaled), norm(b)))
    return norms


def is_confirmed(
    outcome: ColumnOutcome, norms: TrueNorms, tolerances: Tolerances, dtype: np.dtype[Any]
) -> bool:
    """Whether the true norms pass the test of the stop code.

    A tenth of the tolerance and a small multiple of the rounding of the data's precision are
    forgiven: FP32 data cannot hold the gradient to more.
    """
    rounding = ROUNDING_FACTOR * float(np.finfo(dtype).eps)
    size = norms.normb + outcome.norma * outcome.normx
    match outcome.istop:
        case StopCode.CONSISTENT | StopCode.CONSISTENT_AT_ROUNDING:
            allowed = (
                tolerances.btol * norms.normb + tolerances.atol * outcome.norma * outcome.normx
            )
            return norms.normr <= 1.1 * allowed + rounding * size
        case StopCode.LEAST_SQUARES | StopCode.LEAST_SQUARES_AT_ROUNDING:
            allowed = tolerances.atol * outcome.norma * norms.normr
            return norms.normar_scaled <= 1.1 * allowed + rounding * outcome.norma * size
        case StopCode.STARTS_SOLVED:
            # Exact up to the rounding of the products that showed it.
            return norms.normar_scaled <= rounding * max(outcome.norma, 1.0) * max(
                size, norms.normr
            )
        case _:
            return False
