"""Products with A and its adjoint for any kind of A, on NumPy and CuPy alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.lsmr.problem import Problem, array_module

Product = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Products:
    """``forward(x)`` is A x and ``adjoint(y)`` the product of A's adjoint with y."""

    forward: Product
    adjoint: Product


def products_of(problem: Problem, dtype: np.dtype[Any], *, scaled: bool) -> Products:
    """Return the products with A, or with A diag(scales), in the precision of ``dtype``.

    Raises
    ------
    InputError
        Later, from a product whose result is not finite or has a wrong shape.
    """
    matrix, (m, n) = problem.matrix, problem.shape
    if problem.kind == "operator":
        forward, adjoint = matrix.matvec, matrix.rmatvec
    else:
        matrix = matrix.astype(dtype, copy=False)
        transposed = matrix.conj().T
        if problem.kind == "sparse":
            matrix, transposed = matrix.tocsr(), transposed.tocsr()
        forward, adjoint = matrix.__matmul__, transposed.__matmul__
    if scaled and problem.scales is not None:
        scales = problem.scales.astype(dtype)
        forward, adjoint = _scale(forward, adjoint, scales)
    return Products(_checked(forward, m, dtype, "A v"), _checked(adjoint, n, dtype, "A'u"))


def _scale(forward: Product, adjoint: Product, scales: Any) -> tuple[Product, Product]:
    return (lambda x: forward(scales * x)), (lambda y: scales * adjoint(y))


def _checked(product: Product, length: int, dtype: np.dtype[Any], name: str) -> Product:
    def run(vector: Any) -> Any:
        result = product(vector)
        xp = array_module(result)
        result = xp.asarray(result).reshape(-1)
        if result.shape != (length,):
            raise InputError(
                f"the product {name} has {result.shape[0]} entries: A's shape asks for {length}"
            )
        if result.dtype.kind == "c" and dtype.kind != "c":
            raise InputError(
                f"the product {name} is complex: give b as complex, or the operator a dtype"
            )
        if not bool(xp.isfinite(result).all()):
            raise InputError(f"the product {name} is not finite: scale A or mend the operator")
        return result.astype(dtype, copy=False)

    return run
