"""Window CSR: per window of rows, the columns that hold a non-zero there, stored dense."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.formats.arrays import (
    Array,
    CanonicalCSR,
    canonical_csr,
    check_multiple_of_8,
    check_pointer,
    check_range,
    csr_class,
    dense_operand,
    same_module,
)
from asyncsparse_lab.formats.size import FormatSize, refuse_beyond


@dataclass(frozen=True, eq=False)
class WCSR:
    """A sparse matrix as windows of rows with their empty columns squeezed out.

    Stored column ``c`` of window ``W`` (``window_row_ptr[W] <= c < window_row_ptr[W + 1]``) holds
    ``A[W*window + i, window_col_idx[c]] = values[c, i]``.  Each window's columns are padded to a
    multiple of `pad` with columns of zeros whose index is -1.  The last window may reach past the
    matrix; it holds zeros there.

    Attributes
    ----------
    shape : (int, int)
        m, k.
    window : int
        Rows of a window, a multiple of 8.
    window_row_ptr : int64 array, ceil(m / window) + 1
        In stored columns, padding included.
    window_col_idx : int32 array, stored columns
        Ascending within a window, then -1.
    values : array, stored columns x window

    Raises
    ------
    InputError
        The arrays do not describe a matrix of this shape.
    """

    shape: tuple[int, int]
    window: int
    window_row_ptr: Array
    window_col_idx: Array
    values: Array

    def __post_init__(self) -> None:
        xp = same_module((self.values, self.window_row_ptr, self.window_col_idx))
        height = check_multiple_of_8("window", self.window)
        m, k = self.shape
        check_pointer("window_row_ptr", self.window_row_ptr, -(-m // height))
        count = int(self.window_row_ptr[-1])
        if self.window_col_idx.shape != (count,) or self.values.shape != (count, height):
            raise InputError(
                f"window_row_ptr ends at {count}, so window_col_idx must be ({count},) and values "
                f"({count}, {height}), got {self.window_col_idx.shape} and {self.values.shape}"
            )
        check_range("window_col_idx", self.window_col_idx, -1, k)
        # With -1 read as k, each window must ascend until it reaches k, and stay there.
        cols = xp.where(self.window_col_idx < 0, k, self.window_col_idx).astype(xp.int64)
        keys = self._windows() * (k + 1) + cols
        if bool(((keys[1:] <= keys[:-1]) & ~((keys[1:] == keys[:-1]) & (cols[1:] == k))).any()):
            raise InputError("window_col_idx must ascend within each window, with -1 at its end")
        padding = self.values[self.window_col_idx < 0]
        last = int(self.window_row_ptr[m // height])
        outside = self.values[last:, m % height :] if m % height else self.values[:0]
        if bool(xp.any(padding != 0)) or bool(xp.any(outside != 0)):
            raise InputError(f"values hold a non-zero in padding or below the last of {m} rows")

    @classmethod
    def from_csr(cls, A: Any, window: int = 64, pad: int = 8, max_bytes: int | None = None) -> WCSR:
        """Convert a CSR matrix.

        Unsorted rows and duplicates are brought into order on a copy (duplicates summed), and
        explicit zeros are dropped.

        Parameters
        ----------
        A : scipy.sparse CSR or cupyx.scipy.sparse.csr_matrix
            m x k; the values keep their type.
        window : int
            Rows of a window, a multiple of 8.
        pad : int
            Each window's columns are padded to a multiple of this; an empty window stays empty.
        max_bytes : int, optional
            Limit for the bytes of the result; by default what the machine has free.

        Raises
        ------
        InputError
            Malformed `A`, `window` or `pad`.
        MemoryLimitError
            The predicted bytes exceed `max_bytes`.  Nothing of that size was allocated.
        """
        window, pad = check_multiple_of_8("window", window), _checked_pad(pad)
        csr = canonical_csr(A)
        xp, (m, k) = csr.xp, csr.shape
        keys = _column_keys(csr, window)
        order = xp.argsort(keys, kind="stable")
        keys = keys[order]
        first = xp.ones(len(keys), dtype=bool)
        first[1:] = keys[1:] != keys[:-1]
        unique = keys[first]
        starts = _window_starts(csr, window, unique)
        pointer = _padded_pointer(xp, starts, pad)
        size = _size(pointer, len(unique), len(keys), window, csr.data.dtype.itemsize)
        refuse_beyond(size, max_bytes, xp, f"WCSR with windows of {window} rows")
        # Where each window's columns move to, to make room for the padding of those before it.
        slots = xp.arange(len(unique)) + (pointer - starts)[unique // max(k, 1)]
        columns = xp.full(size.stored, -1, dtype=xp.int32)
        columns[slots] = (unique % max(k, 1)).astype(xp.int32)
        # Writing in the order of the columns keeps the stores close together.
        address = slots[xp.cumsum(first, dtype=xp.int64) - 1]
        address *= window
        address += (csr.rows % window)[order]
        values = xp.zeros(size.values, dtype=csr.data.dtype)
        values[address] = csr.data[order]
        return cls((m, k), window, pointer, columns, values.reshape(-1, window))

    @staticmethod
    def predict(
        A: Any, window: int = 64, pad: int = 8, value_bytes: int | None = None
    ) -> FormatSize:
        """Count the columns and bytes of `A` in this format without allocating the values.

        Parameters
        ----------
        A, window, pad
            As for :meth:`from_csr`.
        value_bytes : int, optional
            Bytes of a stored value (2 for bfloat16); by default those of `A`'s type.
        """
        window, pad = check_multiple_of_8("window", window), _checked_pad(pad)
        csr = canonical_csr(A)
        starts = _starts_of(csr, window)
        value_bytes = csr.data.dtype.itemsize if value_bytes is None else value_bytes
        pointer = _padded_pointer(csr.xp, starts, pad)
        return _size(pointer, int(starts[-1]), len(csr.data), window, value_bytes)

    @staticmethod
    def count_columns(A: Any, window: int = 64) -> Array:
        """Count the columns that hold a non-zero in each window, without converting.

        Returns
        -------
        int64 array, ceil(m / window)
        """
        csr = canonical_csr(A)
        starts = _starts_of(csr, check_multiple_of_8("window", window))
        return starts[1:] - starts[:-1]

    def to_csr(self) -> Any:
        """Convert to canonical CSR: the non-zero values, sorted.

        Returns
        -------
        scipy.sparse.csr_array, or cupyx.scipy.sparse.csr_matrix for CuPy arrays
        """
        xp = same_module((self.values,))
        values = self.values.reshape(-1)
        position = xp.flatnonzero(values != 0)  # faster than on floats
        c, i = position // self.window, position % self.window
        rows = self._windows()[c] * self.window + i
        cols = self.window_col_idx[c].astype(xp.int64)
        return csr_class(xp)((values[position], (rows, cols)), shape=self.shape)

    def __matmul__(self, B: Array) -> Array:
        """Multiply with a dense k x n matrix: the reference for kernels on this format.

        Every stored column takes part, its zeros too, as on a tensor core: a NaN in row j of B
        reaches all rows of a window that stores column j.  Padding reads nothing of B.
        The result has NumPy's type for the product and is m x n.
        """
        xp = same_module((self.values,))
        m, k = self.shape
        dense_operand(B, k, xp)
        pointer = self.window_row_ptr.tolist()
        result = xp.zeros(
            ((len(pointer) - 1) * self.window, B.shape[1]),
            dtype=xp.result_type(self.values.dtype, B.dtype),
        )
        for w in range(len(pointer) - 1):
            part = slice(pointer[w], pointer[w + 1])
            columns = self.window_col_idx[part]
            used = columns >= 0
            strip = self.values[part][used].T
            result[w * self.window : (w + 1) * self.window] = strip @ B[columns[used]]
        return result[:m]

    @cached_property
    def nnz(self) -> int:
        """Non-zero values among the stored ones."""
        return int(same_module((self.values,)).count_nonzero(self.values))

    @cached_property
    def columns_per_window(self) -> Array:
        """Columns with a non-zero in each window, padding not counted: int64."""
        xp = same_module((self.values,))
        used = xp.concatenate([xp.zeros(1, dtype=bool), self.window_col_idx >= 0])
        ends = xp.cumsum(used, dtype=xp.int64)[self.window_row_ptr]
        return ends[1:] - ends[:-1]

    @property
    def fill_ratio(self) -> float:
        """Non-zeros over stored values, padding columns not counted; 0 without columns."""
        columns = int(self.columns_per_window.sum())
        return self.nnz / (columns * self.window) if columns else 0.0

    @property
    def nbytes(self) -> int:
        """Bytes of the three arrays."""
        return int(self.window_row_ptr.nbytes + self.window_col_idx.nbytes + self.values.nbytes)

    def _windows(self) -> Array:
        """Window of each stored column."""
        pointer = self.window_row_ptr
        xp = same_module((pointer,))
        return xp.searchsorted(pointer, xp.arange(int(pointer[-1])), side="right") - 1


def _checked_pad(pad: int) -> int:
    if not isinstance(pad, int | np.integer) or pad < 1:
        raise InputError(f"pad is {pad!r}, but must be a whole number of at least 1")
    return int(pad)


def _column_keys(csr: CanonicalCSR, window: int) -> Array:
    """Return the number of each entry's column, counted window by window: int64."""
    keys = csr.rows // window
    keys *= csr.shape[1]
    keys += csr.indices
    return keys


def _window_starts(csr: CanonicalCSR, window: int, unique: Array) -> Array:
    """First of the unpadded columns of each window, and the end: int64."""
    xp, (m, k) = csr.xp, csr.shape
    bounds = xp.arange(-(-m // window) + 1, dtype=xp.int64) * k
    return xp.searchsorted(unique, bounds).astype(xp.int64)


def _starts_of(csr: CanonicalCSR, window: int) -> Array:
    keys = csr.xp.sort(_column_keys(csr, window))
    first = csr.xp.ones(len(keys), dtype=bool)
    first[1:] = keys[1:] != keys[:-1]
    return _window_starts(csr, window, keys[first])


def _padded_pointer(xp: Any, starts: Array, pad: int) -> Array:
    counts = starts[1:] - starts[:-1]
    pointer = xp.zeros(len(starts), dtype=xp.int64)
    pointer[1:] = xp.cumsum(-(-counts // pad) * pad)
    return pointer


def _size(pointer: Array, columns: int, nnz: int, window: int, value_bytes: int) -> FormatSize:
    stored = int(pointer[-1])
    total = stored * (window * value_bytes + 4) + 8 * len(pointer)
    fill = nnz / (columns * window) if columns else 0.0
    return FormatSize(stored, stored * window, total, fill)
