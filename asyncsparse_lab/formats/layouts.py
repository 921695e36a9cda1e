"""How stored values lie in memory for WGMMA to read them: a step after the conversion.

Shared-memory layouts of 16-bit matrix operands on sm_90, in bytes from the start of a tile:

128-byte swizzle
    A tile has rows of 64 values, 128 bytes, as 8 chunks of 16 bytes.  Chunk c of row r lies at
    ``r*128 + ((c ^ (r & 7)) << 4)``, so that 8 rows' chunks of one column fall into different
    banks.  TMA writes this by itself; global memory in this order lets plain bulk copies feed
    the same consumer.  The tile must start at a multiple of 1024.
core matrices
    Without a swizzle the unit is 8 rows x 8 values, 128 contiguous bytes.

Source: NVIDIA, PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.formats.arrays import Array, array_module
from asyncsparse_lab.formats.wcsr import WCSR

K16 = 16
"""Values along the inner dimension that one WGMMA instruction takes: columns are padded to it."""


def swizzled_tiles(blocks: Array) -> Array:
    """Cut dense blocks into tiles 64 values wide and swizzle each with the 128-byte pattern.

    Parameters
    ----------
    blocks : array of a 16-bit type, nb x rows x cols
        ``rows`` a multiple of 8, ``cols`` of 64: blocks of A (K-major), or slices of B
        (MN-major, rows along K).

    Returns
    -------
    array of the same type, nb x cols/64 x rows x 64
        Tile t of a block holds its columns 64*t .. 64*t + 63, in memory order.

    Raises
    ------
    InputError
        The type is not 16-bit or a size does not fit.
    """
    xp = _module_of_16_bit(blocks)
    nb, rows, cols = blocks.shape
    if rows % 8 or cols % 64:
        raise InputError(f"blocks of {rows} x {cols}: rows must fill 8, columns 64")
    chunks = blocks.reshape(nb, rows, cols // 64, 8, 8).transpose(0, 2, 1, 3, 4)
    row = xp.arange(rows).reshape(rows, 1)
    # The pattern is its own inverse, so a gather writes what the definition scatters.
    tiles = chunks[:, :, row, xp.arange(8).reshape(1, 8) ^ (row & 7)]
    return xp.ascontiguousarray(tiles).reshape(nb, cols // 64, rows, 64)


def core_matrices(values: Array) -> Array:
    """Order the columns of WCSR as core matrices, 16 columns (one WGMMA step) at a time.

    Parameters
    ----------
    values : array of a 16-bit type, columns x window
        As :attr:`WCSR.values`, padded to 16 columns (:func:`pad_windows`), with window heights
        that are multiples of 64, the rows of a WGMMA.

    Returns
    -------
    array of the same type, steps x window/64 x 2 x 8 x 8 x 8
        ``[k16 step][64 rows][k8][m8][row][value]``: per 64 rows, LBO 1024 and SBO 128 bytes.  The
        values of successive steps are contiguous, so one bulk copy brings a whole stage.

    Raises
    ------
    InputError
        The type is not 16-bit or a size does not fit.
    """
    xp = _module_of_16_bit(values)
    columns, window = values.shape
    if columns % K16 or window % 64:
        raise InputError(
            f"{columns} columns and a window of {window}: pad columns to {K16} with "
            "pad_windows, and take a window that is a multiple of 64"
        )
    parts = values.reshape(columns // K16, 2, 8, window // 64, 8, 8)
    return xp.ascontiguousarray(parts.transpose(0, 3, 1, 4, 5, 2))


def pad_windows(matrix: WCSR, multiple: int = K16) -> WCSR:
    """Return `matrix` with each window's columns padded to a multiple of `multiple`.

    Columns that hold a non-zero keep their order; padding has index -1 and zeros.
    """
    if multiple < 1:
        raise InputError(f"multiple is {multiple}, but must be at least 1")
    xp = array_module(matrix.values)
    counts = matrix.columns_per_window
    used = xp.nonzero(matrix.window_col_idx >= 0)[0]
    starts = xp.zeros(len(counts) + 1, dtype=xp.int64)
    starts[1:] = xp.cumsum(counts)
    pointer = xp.zeros_like(starts)
    pointer[1:] = xp.cumsum(-(-counts // multiple) * multiple)
    position = xp.arange(len(used))
    window = xp.searchsorted(starts, position, side="right") - 1
    slots = position + (pointer - starts)[window]
    columns = xp.full(int(pointer[-1]), -1, dtype=xp.int32)
    columns[slots] = matrix.window_col_idx[used]
    values = xp.zeros((int(pointer[-1]), matrix.window), dtype=matrix.values.dtype)
    values[slots] = matrix.values[used]
    return replace(matrix, window_row_ptr=pointer, window_col_idx=columns, values=values)


def _module_of_16_bit(array: Array) -> Any:
    xp = array_module(array)
    if array.dtype.itemsize != 2:
        raise InputError(f"values of type {array.dtype}: round to 16 bits first (bfloat16_bits)")
    return xp
