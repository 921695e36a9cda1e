"""Block CSR: the non-empty, aligned blocks of a matrix, stored dense."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.formats.arrays import (
    INT32_LIMIT,
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
class BCSR:
    """A sparse matrix as dense blocks of bm x bk values.

    Block ``b`` of block row ``R`` (``block_row_ptr[R] <= b < block_row_ptr[R + 1]``) holds
    ``A[R*bm + i, block_col_idx[b]*bk + j] = blocks[b, i, j]``.  Blocks without a non-zero are not
    stored.  The last block row and column may reach past the matrix; they hold zeros there.

    Attributes
    ----------
    shape : (int, int)
        m, k.
    block : (int, int)
        bm, bk, each a multiple of 8.
    block_row_ptr : int64 array, ceil(m / bm) + 1
    block_col_idx : int32 array, nb
        Ascending within a block row.
    blocks : array, nb x bm x bk

    Raises
    ------
    InputError
        The arrays do not describe a matrix of this shape.
    """

    shape: tuple[int, int]
    block: tuple[int, int]
    block_row_ptr: Array
    block_col_idx: Array
    blocks: Array

    def __post_init__(self) -> None:
        xp = same_module((self.blocks, self.block_row_ptr, self.block_col_idx))
        bm, bk = _checked_block(self.block)
        block_rows, block_cols = _block_counts(self.shape, self.block)
        check_pointer("block_row_ptr", self.block_row_ptr, block_rows)
        count = int(self.block_row_ptr[-1])
        if self.block_col_idx.shape != (count,) or self.blocks.shape != (count, bm, bk):
            raise InputError(
                f"block_row_ptr ends at {count}, so block_col_idx must be ({count},) and blocks "
                f"({count}, {bm}, {bk}), got {self.block_col_idx.shape} and {self.blocks.shape}"
            )
        check_range("block_col_idx", self.block_col_idx, 0, block_cols)
        keys = self._block_rows() * block_cols + self.block_col_idx
        if bool((keys[1:] <= keys[:-1]).any()):
            raise InputError("block_col_idx must ascend within each block row: sort the blocks")
        m, k = self.shape
        outside = [self.blocks[int(self.block_row_ptr[m // bm]) :, m % bm :]] if m % bm else []
        if k % bk:
            outside.append(self.blocks[self.block_col_idx == k // bk][:, :, k % bk :])
        if any(bool(xp.any(part != 0)) for part in outside):
            raise InputError(f"blocks hold a non-zero outside the {m} x {k} matrix")

    @classmethod
    def from_csr(
        cls, A: Any, block: tuple[int, int] = (64, 64), max_bytes: int | None = None
    ) -> BCSR:
        """Convert a CSR matrix.

        Unsorted rows and duplicates are brought into order on a copy (duplicates summed), and
        explicit zeros are dropped.

        Parameters
        ----------
        A : scipy.sparse CSR or cupyx.scipy.sparse.csr_matrix
            m x k; the values keep their type.
        block : (int, int)
            bm, bk, each a multiple of 8.
        max_bytes : int, optional
            Limit for the bytes of the result; by default what the machine has free.

        Raises
        ------
        InputError
            Malformed `A` or `block`.
        MemoryLimitError
            The predicted bytes exceed `max_bytes`.  Nothing of that size was allocated.
        """
        block = _checked_block(block)
        csr = canonical_csr(A)
        xp, (bm, bk) = csr.xp, block
        block_rows, block_cols = _block_counts(csr.shape, block)
        keys = _block_keys(csr, block)
        order = xp.argsort(keys, kind="stable")
        keys = keys[order]
        first = xp.ones(len(keys), dtype=bool)
        first[1:] = keys[1:] != keys[:-1]
        unique = keys[first]
        size = _size(csr.shape, block, len(unique), len(keys), csr.data.dtype.itemsize)
        refuse_beyond(size, max_bytes, xp, f"BCSR with {bm} x {bk} blocks")
        inside = csr.rows % bm
        inside *= bk
        inside += csr.indices % bk
        # Writing in the order of the blocks keeps the stores close together.
        address = xp.cumsum(first, dtype=xp.int64) - 1
        address *= bm * bk
        address += inside[order]
        values = xp.zeros(size.values, dtype=csr.data.dtype)
        values[address] = csr.data[order]
        starts = xp.arange(block_rows + 1, dtype=xp.int64) * block_cols
        return cls(
            csr.shape,
            block,
            xp.searchsorted(unique, starts).astype(xp.int64),
            (unique % max(block_cols, 1)).astype(xp.int32),
            values.reshape(-1, bm, bk),
        )

    @staticmethod
    def predict(
        A: Any, block: tuple[int, int] = (64, 64), value_bytes: int | None = None
    ) -> FormatSize:
        """Count the blocks and bytes of `A` in this format without allocating the values.

        Parameters
        ----------
        A, block
            As for :meth:`from_csr`.
        value_bytes : int, optional
            Bytes of a stored value (2 for bfloat16); by default those of `A`'s type.
        """
        block = _checked_block(block)
        csr = canonical_csr(A)
        keys = csr.xp.sort(_block_keys(csr, block))
        stored = int((keys[1:] != keys[:-1]).sum()) + 1 if len(keys) else 0
        value_bytes = csr.data.dtype.itemsize if value_bytes is None else value_bytes
        return _size(csr.shape, block, stored, len(keys), value_bytes)

    def to_csr(self) -> Any:
        """Convert to canonical CSR: the non-zero values, sorted.

        Returns
        -------
        scipy.sparse.csr_array, or cupyx.scipy.sparse.csr_matrix for CuPy arrays
        """
        xp = same_module((self.blocks,))
        bm, bk = self.block
        values = self.blocks.reshape(-1)
        position = xp.flatnonzero(values != 0)  # faster than on floats
        b, i, j = position // (bm * bk), position // bk % bm, position % bk
        rows = self._block_rows()[b] * bm + i
        cols = self.block_col_idx[b].astype(xp.int64) * bk + j
        return csr_class(xp)((values[position], (rows, cols)), shape=self.shape)

    def __matmul__(self, B: Array) -> Array:
        """Multiply with a dense k x n matrix: the reference for kernels on this format.

        Every stored value takes part, zeros inside a block too, as on a tensor core: a NaN in B
        reaches all rows of a block that covers its row.  What lies outside the matrix does not.
        The result has NumPy's type for the product and is m x n.
        """
        xp = same_module((self.blocks,))
        (m, k), (bm, bk) = self.shape, self.block
        dense_operand(B, k, xp)
        block_rows, block_cols = _block_counts(self.shape, self.block)
        padded = xp.zeros((block_cols * bk, B.shape[1]), dtype=B.dtype)
        padded[:k] = B
        padded = padded.reshape(block_cols, bk, B.shape[1])
        result = xp.zeros(
            (block_rows * bm, B.shape[1]), dtype=xp.result_type(self.blocks.dtype, B.dtype)
        )
        pointer = self.block_row_ptr.tolist()
        for row in range(block_rows):
            part = slice(pointer[row], pointer[row + 1])
            strip = self.blocks[part].transpose(1, 0, 2).reshape(bm, bk * (part.stop - part.start))
            gathered = padded[self.block_col_idx[part]].reshape(strip.shape[1], B.shape[1])
            result[row * bm : (row + 1) * bm] = strip @ gathered
        return result[:m]

    @cached_property
    def nnz(self) -> int:
        """Non-zero values among the stored ones."""
        return int(same_module((self.blocks,)).count_nonzero(self.blocks))

    @property
    def fill_ratio(self) -> float:
        """Non-zeros over stored values, nnz / (nb * bm * bk); 0 for a matrix without blocks."""
        return self.nnz / self.blocks.size if self.blocks.size else 0.0

    @property
    def nbytes(self) -> int:
        """Bytes of the three arrays."""
        return int(self.block_row_ptr.nbytes + self.block_col_idx.nbytes + self.blocks.nbytes)

    def _block_rows(self) -> Array:
        """Block row of each block."""
        pointer = self.block_row_ptr
        xp = same_module((pointer,))
        return xp.searchsorted(pointer, xp.arange(int(pointer[-1])), side="right") - 1


def _checked_block(block: tuple[int, int]) -> tuple[int, int]:
    if not isinstance(block, tuple) or len(block) != 2:
        raise InputError(f"block is {block!r}, but must be a pair such as (64, 64)")
    return check_multiple_of_8("block height", block[0]), check_multiple_of_8(
        "block width", block[1]
    )


def _block_counts(shape: tuple[int, int], block: tuple[int, int]) -> tuple[int, int]:
    return -(-shape[0] // block[0]), -(-shape[1] // block[1])


def _block_keys(csr: CanonicalCSR, block: tuple[int, int]) -> Array:
    """Return the number of each entry's block, counted row by row: int64."""
    keys = csr.rows // block[0]
    keys *= _block_counts(csr.shape, block)[1]
    keys += csr.indices // block[1]
    return keys


def _size(
    shape: tuple[int, int], block: tuple[int, int], stored: int, nnz: int, value_bytes: int
) -> FormatSize:
    if stored >= INT32_LIMIT:
        raise InputError(f"{stored} blocks of {block[0]} x {block[1]}: choose larger blocks")
    values = stored * block[0] * block[1]
    pointers = 8 * (_block_counts(shape, block)[0] + 1)
    total = values * value_bytes + 4 * stored + pointers
    return FormatSize(stored, values, total, nnz / values if values else 0.0)
