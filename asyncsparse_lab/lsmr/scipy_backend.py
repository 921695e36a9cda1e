"""LSMR by SciPy: the reference that runs anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator
from scipy.sparse.linalg import lsmr as scipy_lsmr

from asyncsparse_lab.lsmr.host import (
    ColumnOutcome,
    largest,
    norm,
    power_of_two,
    starting_point,
    unscaled,
)
from asyncsparse_lab.lsmr.operator import Products, products_of
from asyncsparse_lab.lsmr.problem import Problem
from asyncsparse_lab.lsmr.result import StopCode


def solve(problem: Problem) -> list[ColumnOutcome]:
    """Solve for one right-hand side after the other."""
    products = products_of(problem, problem.dtype, scaled=True)
    starts = problem.starts or [None] * len(problem.columns)
    return [
        _solve_column(problem, products, b, x0)
        for b, x0 in zip(problem.columns, starts, strict=True)
    ]


def _size_of_matrix(problem: Problem, products: Products, residual: Any) -> float:
    """Return a power of two near |A'u|, u the normalised residual; 1 where that is 0."""
    beta = norm(residual)
    if beta == 0:
        return 1.0
    return power_of_two(largest(products.adjoint((residual / beta).astype(problem.dtype))))


def _divided(problem: Problem, products: Products, size: float) -> LinearOperator:
    """Return A / size as an operator."""
    divisor = problem.dtype.type(size)
    return LinearOperator(
        problem.shape,
        matvec=lambda x: products.forward(x) / divisor,
        rmatvec=lambda y: products.adjoint(y) / divisor,
        dtype=problem.dtype,
    )


def _solve_column(problem: Problem, products: Products, b: Any, x0: Any | None) -> ColumnOutcome:
    tolerances = problem.tolerances
    start = starting_point(problem, x0)
    normb = norm(b)
    if not start.any() or (normb == 0 and problem.damp == 0):
        start = None
    # SciPy's norms of FP32 vectors over- and underflow: LSMR is homogeneous in b and in A.
    residual = b if start is None else b - products.forward(start)
    size = power_of_two(max(largest(b), largest(residual)))
    size_of_matrix = _size_of_matrix(problem, products, residual)
    size_of_x = size / size_of_matrix
    # SciPy 1.x: min(1e100, float32) overflows in the estimate of the condition number.
    with np.errstate(over="ignore", invalid="ignore"):
        found = scipy_lsmr(
            _divided(problem, products, size_of_matrix),
            b / problem.dtype.type(size),
            damp=problem.damp / size_of_matrix,
            atol=tolerances.atol,
            btol=tolerances.btol,
            conlim=tolerances.conlim,
            maxiter=tolerances.maxiter,
            x0=None if start is None else (start / size_of_x).astype(problem.dtype),
        )
    y, istop, itn, normr, normar, norma, conda, normx = found
    code = StopCode(int(istop))
    if code is StopCode.STARTS_SOLVED:
        # SciPy answers 0 for maxiter=0 too, and a norm of 0 for every early exit.
        normx = norm(y)
        if float(normar) > 0:
            code = StopCode.ITERATION_LIMIT
    return ColumnOutcome(
        unscaled(problem, (y * size_of_x).astype(problem.dtype)),
        code,
        int(itn),
        float(normr) * size,
        float(normar) * size * size_of_matrix,
        float(norma) * size_of_matrix,
        float(conda),
        float(normx) * size_of_x,
    )
