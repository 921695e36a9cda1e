"""Blocked-ELL: every block row padded to the longest one, as cuSPARSE defines it.

With width w, the most blocks in any block row, ``column_indices[R, s]`` is the block column of
slot s of block row R, or -1 for padding, and ``values`` is a dense row-major matrix of
(block rows * block) x (w * block) that holds the block of slot s in its columns
``s * block ...``.  One long block row makes the whole matrix long: the bytes are predicted first.

Source: NVIDIA cuSPARSE documentation, "Blocked-Ellpack (Blocked-ELL)".
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncsparse_lab.formats import BCSR, bfloat16_bits
from asyncsparse_lab.formats.arrays import Array, canonical_csr, same_module
from asyncsparse_lab.spmm.product import Product


@dataclass(frozen=True, slots=True)
class BlockedEll:
    """A matrix in Blocked-ELL, rows and columns rounded up to whole blocks.

    Attributes
    ----------
    column_indices : array of int32, block rows x width
    values : array of uint16, (block rows * block) x (width * block)
        bf16 bits.
    """

    column_indices: Array
    values: Array


def longest_block_row(product: Product, block: int) -> int:
    """Return the most blocks with a non-zero in any block row; 1 for an empty matrix."""
    csr = canonical_csr(product.device_matrix)
    xp = csr.xp
    if not len(csr.data):
        return 1
    block_columns = -(-product.k // block)
    keys = xp.unique(csr.rows // block * block_columns + csr.indices // block)
    _, counts = xp.unique(keys // block_columns, return_counts=True)
    return int(counts.max())


def predicted_bytes(m: int, width: int, block: int) -> int:
    """Return the bytes of both arrays, with bf16 values."""
    block_rows = -(-m // block)
    return block_rows * width * (4 + 2 * block * block)


def blocked_ell_from_bcsr(matrix: BCSR, width: int) -> BlockedEll:
    """Pad the block rows of a BCSR matrix with square blocks to a width.

    Parameters
    ----------
    matrix : BCSR
        float32 values that bf16 represents exactly; NumPy or CuPy.
    width : int
        At least the blocks of the longest block row.
    """
    xp = same_module((matrix.blocks,))
    block = matrix.block[0]
    pointer = matrix.block_row_ptr
    block_rows = len(pointer) - 1
    place = xp.arange(int(pointer[-1]))
    rows = xp.searchsorted(pointer, place, side="right") - 1
    slots = place - pointer[rows]
    column_indices = xp.full((block_rows, width), -1, dtype=xp.int32)
    column_indices[rows, slots] = matrix.block_col_idx
    # One index a row of a block, into contiguous memory: NumPy and CuPy store this alike.
    values = xp.zeros((block_rows * block * width, block), dtype=xp.uint16)
    first_row = rows * block
    places = (first_row[:, None] + xp.arange(block)) * width + slots[:, None]
    values[places.ravel()] = bfloat16_bits(matrix.blocks).reshape(-1, block)
    return BlockedEll(column_indices, values.reshape(block_rows * block, width * block))
