"""Device layouts, read back the way that a WGMMA matrix descriptor addresses shared memory."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.formats import (
    WCSR,
    bfloat16_bits,
    core_matrices,
    pad_windows,
    swizzled_tiles,
)


def numbered(*shape):
    """Return distinct 16-bit patterns, so that an exchange of any two is seen."""
    assert np.prod(shape) <= 2**16
    return np.arange(np.prod(shape), dtype="uint16").reshape(shape)


def load(memory, address):
    return int.from_bytes(memory[address : address + 2], "little")


def xor_128(address):
    """Apply the 128-byte swizzle to an absolute address: bits 4-6 take bits 7-9 as well."""
    return address ^ ((address >> 3) & 0x70)


def read_k_major(memory, start, lead, stride, rows, *, swizzle):
    """Read a rows x 16 operand whose 16 values of k are contiguous in groups of 8.

    `start` is the descriptor's start address, `lead` and `stride` its byte offsets: with a
    swizzle the second group of 8 follows inside the 128-byte row and `lead` is unused.
    """
    result = np.zeros((rows, 16), int)
    for m in range(rows):
        for k in range(16):
            if swizzle:
                address = xor_128(start + m // 8 * stride + m % 8 * 128 + k * 2)
            else:
                address = start + k // 8 * lead + m // 8 * stride + m % 8 * 16 + k % 8 * 2
            result[m, k] = load(memory, address)
    return result


def read_mn_major(memory, start, lead, stride, cols):
    """Read a 16 x cols operand, swizzled, whose columns are contiguous in groups of 64."""
    result = np.zeros((16, cols), int)
    for k in range(16):
        for n in range(cols):
            inside = k // 8 * stride + k % 8 * 128 + n % 64 * 2
            result[k, n] = load(memory, xor_128(start + n // 64 * lead + inside))
    return result


def test_a_chunk_lies_where_the_pattern_says():
    block = numbered(1, 16, 64)
    memory = swizzled_tiles(block).tobytes()
    for r in range(16):
        for c in range(8):
            address = r * 128 + ((c ^ (r & 7)) << 4)
            assert load(memory, address) == block[0, r, c * 8]


@pytest.mark.parametrize("rows", [64, 128])
def test_descriptors_read_blocks_of_a(rows):
    blocks = numbered(2, rows, 64)
    tiles = swizzled_tiles(blocks)
    assert tiles.shape == (2, 1, rows, 64)
    for block, tile in zip(blocks, tiles, strict=True):
        for step in range(4):
            start = step * 32
            read = read_k_major(tile.tobytes(), start, 0, 1024, rows, swizzle=True)
            assert np.array_equal(read, block[:, step * 16 : step * 16 + 16])


def test_descriptors_read_slices_of_b():
    blocks = numbered(1, 64, 256)
    memory = swizzled_tiles(blocks).tobytes()
    for step in range(4):
        read = read_mn_major(memory, step * 2048, 8192, 1024, 256)
        assert np.array_equal(read, blocks[0, step * 16 : step * 16 + 16])


@pytest.mark.parametrize("window", [64, 128])
def test_descriptors_read_core_matrices(window):
    values = numbered(48, window)
    cores = core_matrices(values)
    assert cores.shape == (3, window // 64, 2, 8, 8, 8)
    memory = cores.tobytes()
    for step in range(3):
        for group in range(window // 64):
            start = (step * (window // 64) + group) * 2048
            read = read_k_major(memory, start, 1024, 128, 64, swizzle=False)
            part = values[step * 16 : step * 16 + 16, group * 64 : group * 64 + 64]
            assert np.array_equal(read, part.T)


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        (np.zeros((1, 64, 64), "float32"), "type float32: round to 16 bits first"),
        (np.zeros((1, 12, 64), "uint16"), "12 x 64"),
        (np.zeros((1, 64, 32), "uint16"), "64 x 32"),
    ],
)
def test_blocks_that_do_not_swizzle_are_refused(blocks, message):
    with pytest.raises(InputError, match=message):
        swizzled_tiles(blocks)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((16, 64)), "type float64"),
        (np.zeros((8, 64), "uint16"), "8 columns .* pad_windows"),
        (np.zeros((16, 32), "uint16"), "window of 32"),
    ],
)
def test_columns_that_fill_no_core_matrix_are_refused(values, message):
    with pytest.raises(InputError, match=message):
        core_matrices(values)


def test_nothing_stored_has_a_layout_too():
    assert swizzled_tiles(np.zeros((0, 64, 64), "uint16")).shape == (0, 1, 64, 64)
    assert core_matrices(np.zeros((0, 64), "uint16")).shape == (0, 1, 2, 8, 8, 8)


@given(
    st.integers(0, 200),
    st.integers(0, 60),
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 8, 16]),
    st.sampled_from([1, 8, 16, 24]),
)
def test_padding_again_is_as_if_padded_so_at_once(m, k, seed, first, second):
    rng = np.random.default_rng(seed)
    A = sp.csr_array((rng.random((m, k)) * (rng.random((m, k)) < 0.1)).astype("float32"))
    result, expected = (
        pad_windows(WCSR.from_csr(A, 64, first), second),
        WCSR.from_csr(A, 64, second),
    )
    assert np.array_equal(result.window_row_ptr, expected.window_row_ptr)
    assert np.array_equal(result.window_col_idx, expected.window_col_idx)
    assert np.array_equal(result.values, expected.values)


def test_padding_to_nothing_is_refused():
    with pytest.raises(InputError, match="multiple is 0"):
        pad_windows(WCSR.from_csr(sp.csr_array(np.eye(3))), 0)


def test_a_product_from_device_layouts_is_the_product():
    """Convert, pad, round, order; then multiply step by step from what a kernel would read."""
    rng = np.random.default_rng(1)
    dense = rng.integers(-4, 5, (150, 90)) * (rng.random((150, 90)) < 0.2)
    A = sp.csr_array(dense.astype("float32"))
    B = rng.integers(-4, 5, (90, 7)).astype("float32")
    matrix = pad_windows(WCSR.from_csr(A, 64))
    cores = core_matrices(bfloat16_bits(matrix.values))
    result = np.zeros((192, 7), "float32")
    for w in range(3):
        for step in range(matrix.window_row_ptr[w] // 16, matrix.window_row_ptr[w + 1] // 16):
            columns = matrix.window_col_idx[step * 16 : step * 16 + 16]
            gathered = np.where(columns[:, None] < 0, 0, B[columns])
            bits = read_k_major(cores[step].tobytes(), 0, 1024, 128, 64, swizzle=False)
            strip = (bits.astype("uint32") << 16).view("float32")
            result[w * 64 : w * 64 + 64] += strip @ gathered
    assert np.array_equal(result[:150], A @ B)
