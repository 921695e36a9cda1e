"""What a call of a plan is checked for before anything is launched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.formats.arrays import INT32_LIMIT
from asyncsparse_lab.spmm.operands import Dense
from asyncsparse_lab.spmm.product import INPUT_TYPES, LAYOUTS


@dataclass(frozen=True, slots=True)
class Call:
    """The matrices of a product, found good.

    Attributes
    ----------
    B : Dense
    out : Dense or None
        None: to be made.
    layout, dtype_out : str
        Of C.
    shape : (int, int)
        Of C.
    """

    B: Dense
    out: Dense | None
    layout: str
    dtype_out: str
    shape: tuple[int, int]

    def without_owners(self) -> Call:
        """Return the same, keeping no matrix of the caller alive."""
        out = None if self.out is None else replace(self.out, owner=None)
        return replace(self, B=replace(self.B, owner=None), out=out)


@dataclass(frozen=True, slots=True)
class Rules:
    """What a plan fixes for its products.

    Attributes
    ----------
    shape : (int, int)
        m, k of A.
    dtype : str
        Type of the caller's A.
    compute : str
        Type that A and B are multiplied in.
    rounds : bool
        Whether the caller asked for it, so that B may be rounded.
    out_dtype : str or None
        Type of C; None: that of the computation, or what the caller can read.
    layout : str
        Preferred, where B is both.
    products : int
        How many are to come.
    """

    shape: tuple[int, int]
    dtype: str
    compute: str
    rounds: bool
    out_dtype: str | None
    layout: str
    products: int = 1

    def __post_init__(self) -> None:
        outputs = (None, self.compute, "float32")
        if self.out_dtype not in outputs:
            raise InputError(
                f"out_dtype={self.out_dtype!r}: products in {self.compute} are written as "
                f"{self.compute} or float32"
            )
        if self.layout not in LAYOUTS:
            raise InputError(f"layout={self.layout!r} is not one of {', '.join(LAYOUTS)}")

    def check(self, B: Dense, out: Dense | None) -> tuple[str, str]:
        """Return layout and type of C.

        Raises
        ------
        InputError
            B or out has a wrong shape, type, place or stride, or they share memory.
        """
        (m, k), n = self.shape, B.shape[1]
        if B.shape[0] != k:
            hint = ": pass B.T" if n == k else f": B must have {k} rows"
            raise InputError(f"B is {B.shape[0]} x {n} and A {m} x {k}{hint}")
        if B.dtype != self.compute and not self.rounds:
            raise InputError(
                f"A holds {self.dtype} and B {B.dtype}: pass B in {self.compute}, or "
                f'compute="{self.compute}" to have it rounded'
            )
        layouts = B.layouts
        if not layouts and B.dtype == self.compute and B.device is not None:
            raise InputError(
                f"B has strides {B.strides} bytes, which no kernel takes: pass B.contiguous() of "
                "torch, or cupy.ascontiguousarray(B)"
            )
        layouts = layouts or LAYOUTS
        if out is None:
            chosen = self.layout if self.layout in layouts else layouts[0]
            return chosen, self.out_dtype or B.output_type(self.compute)
        return self._check_out(B, out, layouts)

    def _check_out(self, B: Dense, out: Dense, layouts: tuple[str, ...]) -> tuple[str, str]:
        shape = self.shape[0], B.shape[1]
        if out.shape != shape:
            raise InputError(f"out is {out.shape}, but A B is {shape}")
        if out.device != B.device:
            raise InputError(f"out is on {_place(out)} and B on {_place(B)}: put both on one")
        outputs = (self.compute, "float32") if self.out_dtype is None else (self.out_dtype,)
        if out.dtype not in outputs:
            raise InputError(f"out holds {out.dtype}: this product gives {' or '.join(outputs)}")
        if out.device is None and not _is_writeable(out):
            raise InputError("out is read-only: pass an array that can be written")
        refuse_overlap(out, B, "B")
        if out.device is None:
            return layouts[0], out.dtype
        if not out.layouts:
            raise InputError(f"out has strides {out.strides} bytes: make its rows contiguous")
        common = [layout for layout in layouts if layout in out.layouts]
        if not common:
            raise InputError(f"B is {layouts[0]} and out {out.layouts[0]}: give both one layout")
        return (self.layout if self.layout in common else common[0]), out.dtype


def compute_type(compute: str | None, A: str, B: str | None = None) -> str:
    """Return the type to multiply in.

    Parameters
    ----------
    compute : str or None
        What the caller asks for.
    A, B : str
        Types that the operands have; B may not be known yet.

    Raises
    ------
    InputError
        Something would be rounded that the caller did not ask for.
    """
    choices = '"bfloat16" or "float16"'
    if compute is not None:
        if compute not in INPUT_TYPES:
            raise InputError(f"compute={compute!r}: the kernels multiply in {choices}")
        return compute
    if A in INPUT_TYPES and B in (A, None):
        return A
    held = f"A holds {A}" if B is None else f"A holds {A} and B {B}"
    raise InputError(f"{held}: pass compute={choices}, the type they are to be rounded to")


def check_columns(n: object) -> int:
    """Return the columns of B to plan for as an int.

    Raises
    ------
    InputError
        It is no integer from 1 to 2^31 - 1, which is what the kernels count columns in.
    """
    if _is_count(n):
        return int(n)
    raise InputError(f"n={n!r}: pass the columns of B, an integer from 1 to 2^31 - 1")


def check_products(products: object) -> int:
    """Return how many products are to come, 1 where that was not said.

    Raises
    ------
    InputError
        It is no integer from 1 to 2^31 - 1.
    """
    if products is None:
        return 1
    if _is_count(products):
        return int(products)
    raise InputError(f"products={products!r}: pass how many are to come, from 1 to 2^31 - 1")


def _is_count(value: object) -> TypeGuard[int]:
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return is_whole and 1 <= value < INT32_LIMIT  # type: ignore[operator]  # a number, then


def check_scalar(name: str, value: object) -> float:
    """Return alpha or beta as a float."""
    try:
        if not isinstance(value, str):
            return float(value)  # type: ignore[arg-type]  # whatever float() takes
    except (TypeError, ValueError):
        pass
    raise InputError(f"{name} is {value!r}: pass a real number")


def refuse_overlap(out: Dense, other: Dense, name: str) -> None:
    """Refuse an output that shares memory with an operand, which the kernels still read."""
    if out.device != other.device:
        return
    (first, end), (other_first, other_end) = out.extent, other.extent
    if first < other_end and other_first < end:
        raise InputError(f"out and {name} share memory: pass an out of its own")


def _place(x: Dense) -> str:
    return "the CPU" if x.device is None else f"GPU {x.device}"


def _is_writeable(out: Dense) -> bool:
    return out.library != "numpy" or bool(out.owner.flags.writeable)
