"""LSMR with the loop on the host: any A, real or complex, on NumPy and CuPy alike.

The vectors have the precision of the data, norms and scalars FP64.  The right-hand side is
scaled by a power of two at entry (LSMR is homogeneous in b), so that no norm of finite data
over- or underflows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncsparse_lab.lsmr.operator import Products, products_of
from asyncsparse_lab.lsmr.problem import Problem, array_module
from asyncsparse_lab.lsmr.recurrence import Recurrence, stop_code
from asyncsparse_lab.lsmr.result import Progress, StopCode


@dataclass(frozen=True, slots=True)
class ColumnOutcome:
    """What the iteration reached for one right-hand side; the audit adds the true norms."""

    x: Any
    istop: StopCode
    itn: int
    normr: float
    normar: float
    norma: float
    conda: float
    normx: float


def norm(vector: Any) -> float:
    """Return the Euclidean norm in FP64, free of overflow and underflow."""
    xp = array_module(vector)
    scale = power_of_two(largest(vector))
    wide = vector.astype(np.complex128 if vector.dtype.kind == "c" else np.float64)
    return float(xp.linalg.norm(wide / scale)) * scale


def largest(vector: Any) -> float:
    """Return the largest magnitude."""
    return float(array_module(vector).abs(vector).max())


def power_of_two(size: float) -> float:
    """Return the power of two next below a positive size, 1 for 0."""
    return math.ldexp(1.0, math.frexp(size)[1] - 1) if size > 0 else 1.0


def solve(problem: Problem) -> list[ColumnOutcome]:
    """Solve for one right-hand side after the other."""
    products = products_of(problem, problem.dtype, scaled=True)
    starts = problem.starts or [None] * len(problem.columns)
    return [
        _solve_column(problem, products, column, b, x0)
        for column, (b, x0) in enumerate(zip(problem.columns, starts, strict=True))
    ]


def starting_point(problem: Problem, x0: Any | None) -> Any:
    """Return the first iterate of the scaled problem, a new array."""
    if x0 is None:
        return problem.xp.zeros(problem.shape[1], dtype=problem.dtype)
    if problem.scales is None:
        return x0.copy()
    return (x0 / problem.scales).astype(problem.dtype)


def unscaled(problem: Problem, y: Any) -> Any:
    """Return x = D y."""
    return y if problem.scales is None else (problem.scales * y).astype(problem.dtype)


def _solve_column(
    problem: Problem, products: Products, column: int, b: Any, x0: Any | None
) -> ColumnOutcome:
    xp, dtype = problem.xp, problem.dtype
    x = starting_point(problem, x0)
    has_start = bool(x.any())
    normb = norm(b)
    if normb == 0 and has_start and problem.damp == 0:
        # x = 0 solves A x = 0 exactly, whatever x0 is.
        x, has_start = xp.zeros_like(x), False
    u = b - products.forward(x) if has_start else b.copy()
    size = power_of_two(max(largest(b), largest(u)))
    u, x, normb = u / dtype.type(size), x / dtype.type(size), normb / size

    beta = norm(u)
    v = xp.zeros_like(x)
    alpha = 0.0
    if beta > 0:
        u /= dtype.type(beta)
        v = products.adjoint(u)
        alpha = norm(v)
    if alpha > 0:
        v /= dtype.type(alpha)
    state = Recurrence(alpha, beta, problem.damp)
    normx = norm(x)
    code: StopCode | None = None
    if alpha * beta == 0:
        code = StopCode.STARTS_SOLVED
    elif problem.tolerances.maxiter == 0:
        code = StopCode.ITERATION_LIMIT
    h, hbar = v.copy(), xp.zeros_like(x)
    while code is None:
        u = products.forward(v) - dtype.type(alpha) * u
        beta = norm(u)
        if beta > 0:
            u /= dtype.type(beta)
            v = products.adjoint(u) - dtype.type(beta) * v
            alpha = norm(v)
            if alpha > 0:
                v /= dtype.type(alpha)
        hbar_factor, step, h_factor = state.advance(beta, alpha)
        hbar = h - dtype.type(hbar_factor) * hbar
        x += dtype.type(step) * hbar
        h = v - dtype.type(h_factor) * h
        normx = norm(x)
        code = stop_code(
            state.itn,
            normb,
            state.normr,
            state.normar,
            state.norma,
            state.conda,
            normx,
            problem.tolerances,
        )
        if problem.observer is not None:
            problem.observer(
                Progress(
                    column,
                    state.itn,
                    state.normr * size,
                    state.normar * size,
                    state.norma,
                    state.conda,
                    normx * size,
                )
            )
    return ColumnOutcome(
        unscaled(problem, x * dtype.type(size)),
        code,
        state.itn,
        state.normr * size,
        state.normar * size,
        state.norma,
        state.conda,
        normx * size,
    )
