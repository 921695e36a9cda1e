"""B and C as a library wants them, with padding where it cannot take them as they are.

A product may have any row stride and any n.  Where a library needs a multiple of 8 columns and
rows on 16-byte boundaries, or whole blocks of rows, it gets workspaces; copying B in and C out is
then part of each run, and the record says ``padded``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from asyncsparse_lab.formats.arrays import Array
from asyncsparse_lab.spmm.product import ITEM_BYTES, Product, require_memory

ALIGNMENT_BYTES: Final = 16
ALIGNED_COLUMNS: Final = 8  # of bf16 in 16 bytes

T = TypeVar("T")
_compiled: set[str] = set()


@dataclass(slots=True)
class Operands:
    """Dense operands of one library call.

    Attributes
    ----------
    B : array of a 16-bit type, padded k x padded n
        Zero beyond k x n.
    C : array, padded m x padded n
        Where the library writes.  Both have the product's layout.
    output : array, m x n
        Where the product is in the end: a view of C, or memory of its own.
    padded : bool
        Whether ``run`` copies.
    """

    B: Array
    C: Array
    output: Array
    padded: bool
    _product: Product
    _copies_in: bool
    _copies_out: bool

    def around(self, call: Callable[[], None]) -> Callable[[], None]:
        """Return ``call`` with the copies that it needs before and after."""
        if not self.padded:
            return call
        source, m, k, n = self._product.B, self._product.m, self._product.k, self._product.n
        target, result = self.B[:k, :n], self.C[:m, :n]

        def run() -> None:
            if self._copies_in:
                target[...] = source
            call()
            if self._copies_out:
                self.output[...] = result

        return run


def library_operands(
    product: Product,
    *,
    row_multiple: int = 1,
    k_multiple: int = 1,
    column_multiple: int = 1,
    dtypes_in: tuple[str, ...] = ("bfloat16",),
    layouts: tuple[str, ...] = ("row-major",),
) -> Operands:
    """Return B and C with padded sizes; in place where they already fit.

    Parameters
    ----------
    row_multiple, k_multiple, column_multiple : int
        What m, k and n have to be multiples of.  With ``column_multiple`` of 8 or more, rows
        begin on 16-byte boundaries too; those of a column-major product's B^T with
        ``k_multiple`` of 8 or more.
    dtypes_in, layouts : tuple of str
        What the library's adapter takes.

    Raises
    ------
    MemoryLimitError
        The workspaces would not fit; nothing was allocated.
    UnsupportedError
        The product has another type or layout.
    """
    product.require("this library's adapter", dtypes_in, layouts)
    xp, m, k, n = product.xp, product.m, product.k, product.n
    rows, inner, columns = (
        m + -m % row_multiple,
        k + -k % k_multiple,
        n + -n % column_multiple,
    )
    is_transposed = product.layout == "column-major"
    in_place = product.B if inner == k else product.padded_B
    aligned_multiple = k_multiple if is_transposed else column_multiple
    copies_in = (
        in_place is None
        or in_place.shape[0] < inner
        or columns != n
        or (aligned_multiple >= ALIGNED_COLUMNS and not is_aligned(in_place, is_transposed))
    )
    copies_out = columns != n or (is_transposed and rows != m)
    needed = ITEM_BYTES[product.dtype_out] * (rows * columns + (m * n if copies_out else 0))
    needed += 2 * inner * columns if copies_in else 0
    require_memory(needed, "C and its workspaces", xp)
    if in_place is None or copies_in:
        dtype = product.B.dtype
        B = (
            xp.zeros((columns, inner), dtype).T
            if is_transposed
            else xp.zeros((inner, columns), dtype)
        )
    else:
        B = in_place[:inner]
    C = product.new_output(rows, columns)
    output = product.new_output() if copies_out else C[:m]
    return Operands(B, C, output, copies_in or copies_out, product, copies_in, copies_out)


def is_aligned(array: Array, is_transposed: bool = False) -> bool:
    """Return whether each row of an array, or each column, begins on a 16-byte boundary."""
    address = array.data.ptr if hasattr(array.data, "ptr") else array.ctypes.data
    stride = array.strides[int(is_transposed)]
    return bool(address % ALIGNMENT_BYTES == 0 and stride % ALIGNMENT_BYTES == 0)


def timed_conversion(name: str, convert: Callable[[], T], xp: Any) -> tuple[T, float]:
    """Run a conversion, return its result and its wall time in microseconds.

    CuPy compiles its own kernels when they are first used: the first conversion of a kind is
    done twice, and the second one counts.
    """
    if name not in _compiled:
        convert()
        _compiled.add(name)
    _synchronize(xp)
    begin = time.perf_counter()
    result = convert()
    _synchronize(xp)
    return result, 1e6 * (time.perf_counter() - begin)


def _synchronize(xp: Any) -> None:
    if hasattr(xp, "cuda"):
        xp.cuda.get_current_stream().synchronize()
