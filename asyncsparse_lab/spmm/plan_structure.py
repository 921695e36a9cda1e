r"""What the cost model must know of a sparse matrix, counted once for all kernels and heights.

For windows of 256 rows let ``w(i) = floor(i / 256)`` and ``s(i) = floor(i / 64) mod 4``.  One sort
of the keys ``4 (w(i) k + j) + s(i)`` over all non-zeros (i, j) brings the entries of a column of a
window together; the set of its quarters s is then a mask of four bits.  A histogram of the masks
per window gives the distinct columns of the windows of 64, 128 and 256 rows at once: a window of
64 rows is one bit, of 128 two neighbouring ones, of 256 any.  The masks of the columns of a block
column, joined, give the 64 x 64 blocks in the same way.

CPU only: NumPy, from CSR's ``indptr`` and ``indices``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from asyncsparse_lab.formats.arrays import CanonicalCSR, canonical_csr
from asyncsparse_lab.spmm.orders import order_rows

IntArray = npt.NDArray[np.int64]

HEIGHTS: Final = (64, 128, 256)
"""Heights of windows that are counted."""
BLOCK: Final = 64

_TALL: Final = 256
_QUARTERS: Final = _TALL // BLOCK
_MASKS: Final = np.arange(1 << _QUARTERS)
_PART_NONZEROS: Final = 1 << 20


@dataclass(frozen=True, eq=False)
class Structure:
    """The pattern of a sparse m x k matrix, as far as costs depend on it.

    Attributes
    ----------
    m, k, nnz : int
    row_lengths : int64 array, m
        Non-zeros of each row.
    columns : mapping
        For each height of :data:`HEIGHTS` the columns with a non-zero in each window of so many
        rows: int64 array, ceil(m / height).
    blocks_per_row : int64 array, ceil(m / 64)
        Non-empty 64 x 64 blocks of each block row.
    blocks_per_pair : int64 array, ceil(m / 128)
        Block columns in the union of each two neighbouring block rows.
    touched_rows : int
        Columns of A with a non-zero: rows of B that any kernel must read.
    counted_us : float
        What counting took.
    csr : CanonicalCSR or None
        What was counted; None where that is not A, whose rows then stay in their order.
    """

    m: int
    k: int
    nnz: int
    row_lengths: IntArray
    columns: dict[int, IntArray]
    blocks_per_row: IntArray
    blocks_per_pair: IntArray
    touched_rows: int
    counted_us: float
    csr: CanonicalCSR | None = field(repr=False)
    _block_masks: tuple[IntArray, npt.NDArray[np.uint8]] = field(repr=False)
    _ordered: dict[int, Ordered] = field(default_factory=dict, repr=False)

    @cached_property
    def indptr(self) -> IntArray:
        """Of CSR: int64, m + 1."""
        return _offsets(self.row_lengths)

    @property
    def blocks(self) -> int:
        """Non-empty 64 x 64 blocks."""
        return int(self.blocks_per_row.sum())

    @property
    def density(self) -> float:
        """Share of non-zeros; 0 for a matrix without elements."""
        return self.nnz / (self.m * self.k) if self.m and self.k else 0.0

    @property
    def block_fill(self) -> float:
        """Non-zeros over stored values of BCSR: what the article's rule looks at."""
        return self.nnz / (self.blocks * BLOCK * BLOCK) if self.blocks else 0.0

    def ordered(self, code: int) -> Ordered:
        """Put the rows into an order of :func:`asyncsparse_lab.spmm.orders.row_order`, once."""
        if code not in self._ordered:
            assert self.csr is not None
            arrays = (self.csr.data, self.csr.indices, self.csr.indptr)
            A, ordering_us = order_rows(csr_array(arrays, shape=self.csr.shape), code)
            self._ordered[code] = Ordered(replace(structure_of(A), csr=None), ordering_us)
        return self._ordered[code]

    @cached_property
    def block_pattern(self) -> tuple[IntArray, npt.NDArray[np.int32]]:
        """``block_row_ptr`` and ``block_col_idx`` of BCSR with 64 x 64 blocks."""
        keys, masks = self._block_masks
        width = max(1, -(-self.k // BLOCK))
        window, column = keys // width, keys % width
        quarters = [np.flatnonzero(masks >> quarter & 1) for quarter in range(_QUARTERS)]
        rows = np.concatenate([_QUARTERS * window[q] + s for s, q in enumerate(quarters)])
        order = np.argsort(rows, kind="stable")  # columns ascend within each quarter already
        columns = np.concatenate([column[q] for q in quarters])[order].astype(np.int32)
        return _offsets(self.blocks_per_row), columns


@dataclass(frozen=True, slots=True)
class Ordered:
    """A matrix with its rows in another order, and what it took to put them so."""

    structure: Structure
    ordering_us: float


def structure_of(A: Any) -> Structure:
    """Count what the cost model needs, in one sort of the non-zeros.

    Whole windows are taken together, about a million non-zeros at a time: that much stays in the
    caches.

    Parameters
    ----------
    A : scipy.sparse.csr_array, m x k

    Raises
    ------
    InputError
        ``indptr`` and ``indices`` do not describe an m x k matrix.
    """
    begin = time.perf_counter()
    csr = canonical_csr(A)
    (m, k), row_lengths = csr.shape, np.diff(csr.indptr)
    touched = np.zeros(k, dtype=bool)
    parts = [_count_part(csr, row_lengths, part, touched) for part in _parts(csr)]
    column_masks, block_masks, keys, masks = (
        np.concatenate(found) for found in zip(_nothing(), *parts, strict=True)
    )
    return Structure(
        m,
        k,
        len(csr.indices),
        row_lengths,
        {height: _count(column_masks, height, m) for height in HEIGHTS},
        _count(block_masks, BLOCK, m),
        _count(block_masks, 2 * BLOCK, m),
        int(touched.sum()),
        1e6 * (time.perf_counter() - begin),
        csr,
        (keys, masks),
    )


_Part = tuple[IntArray, IntArray, IntArray, npt.NDArray[np.uint8]]


def _nothing() -> _Part:
    """Return what a part without windows would give."""
    masks, none = np.zeros((0, len(_MASKS)), dtype=np.int64), np.zeros(0, dtype=np.int64)
    return masks, masks, none, none.astype(np.uint8)


def _parts(csr: CanonicalCSR) -> list[range]:
    """Cut the windows of 256 rows into ranges of about :data:`_PART_NONZEROS` non-zeros."""
    m = csr.shape[0]
    windows = -(-m // _TALL)
    ends = csr.indptr[np.minimum(np.arange(1, windows + 1) * _TALL, m)]
    part = (ends - 1) // _PART_NONZEROS
    starts = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), windows]
    return [range(a, b) for a, b in pairwise(starts) if b > a]


def _count_part(
    csr: CanonicalCSR, row_lengths: IntArray, windows: range, touched: npt.NDArray[np.bool_]
) -> _Part:
    """Return how often each mask occurs among columns and blocks, and the masks of the blocks."""
    k, count = csr.shape[1], len(windows)
    columns, masks = _columns(csr, row_lengths, windows)
    ends = np.searchsorted(columns, np.arange(count + 1, dtype=columns.dtype) * k)
    window = np.repeat(np.arange(count, dtype=np.int64), np.diff(ends))
    within = columns.astype(np.int64) - window * k
    touched[within] = True
    width = max(1, -(-k // BLOCK))
    block_keys, block_masks = _joined(window * width + within // BLOCK, masks)
    return (
        _histogram(window, masks, count),
        _histogram(block_keys // width, block_masks, count),
        block_keys + windows.start * width,
        block_masks,
    )


def _columns(
    csr: CanonicalCSR, row_lengths: IntArray, windows: range
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Return the distinct columns of windows, counted from the first, and the quarters of each."""
    m, k = csr.shape
    rows = np.arange(windows.start * _TALL, min(windows.stop * _TALL, m), dtype=np.int64)
    begin, end = int(csr.indptr[rows[0]]), int(csr.indptr[rows[-1] + 1])
    # Half the bytes, where they hold the keys, are sorted in half the time.
    dtype = np.uint32 if _QUARTERS * k * len(windows) < 2**32 else np.int64
    starts = _QUARTERS * k * (rows // _TALL - windows.start) + rows // BLOCK % _QUARTERS
    keys = np.repeat(starts.astype(dtype), row_lengths[rows[0] : rows[-1] + 1])
    keys += csr.indices[begin:end].astype(dtype) * dtype(_QUARTERS)
    keys.sort()
    quarters = keys.astype(np.uint8) & np.uint8(_QUARTERS - 1)
    keys >>= dtype(_QUARTERS.bit_length() - 1)
    return _joined(keys, np.left_shift(np.uint8(1), quarters))


def _joined(
    keys: npt.NDArray[Any], masks: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Return sorted keys once each, and the union of their masks."""
    if not len(keys):
        return keys, masks
    first = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    return keys[starts], np.bitwise_or.reduceat(masks, starts)


def _histogram(window: IntArray, masks: npt.NDArray[np.uint8], windows: int) -> IntArray:
    """Return how often each mask occurs in each window: windows x 16."""
    size = len(_MASKS)
    return np.bincount(window * size + masks, minlength=windows * size).reshape(windows, size)


def _count(histogram: IntArray, height: int, m: int) -> IntArray:
    """Return the entries with a bit among those of each window of this height."""
    bits = height // BLOCK
    members = [(_MASKS >> first) % (1 << bits) > 0 for first in range(0, _QUARTERS, bits)]
    counts = np.stack([histogram[:, member].sum(axis=1) for member in members], axis=1)
    return counts.ravel()[: -(-m // height)]


def _offsets(counts: IntArray) -> IntArray:
    pointer = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=pointer[1:])
    return pointer
