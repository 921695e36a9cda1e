"""Columns of windows in the order of the groups of 64 rows that they touch."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from asyncsparse_lab.formats import WCSR
from asyncsparse_lab.formats.layouts import K16, core_matrices
from asyncsparse_lab.formats.rounding import bfloat16_bits
from asyncsparse_lab.spmm.column_groups import (
    SPARE,
    column_groups,
    in_order_of_groups,
    step_groups,
)


def stored(height: int) -> tuple[WCSR, np.ndarray, np.ndarray]:
    """Return windows of a matrix with an empty window, their core matrices, a window a step."""
    rng = np.random.default_rng(3)
    dense = rng.standard_normal((500, 900)) * (rng.random((500, 900)) < 0.02)
    dense[height : 2 * height] = 0
    windows = WCSR.from_csr(csr_array(dense.astype(np.float32)), height, K16)
    values = core_matrices(bfloat16_bits(windows.values))
    steps = np.diff(windows.window_row_ptr) // K16
    return windows, values, np.repeat(np.arange(len(steps)), steps)


def dense_columns(values: np.ndarray) -> np.ndarray:
    """Return core matrices as columns x rows."""
    return values.transpose(0, 2, 5, 1, 3, 4).reshape(len(values) * K16, -1)


@pytest.mark.parametrize("height", [128, 256])
def test_groups_are_those_with_a_non_zero(height: int) -> None:
    windows, values, _ = stored(height)
    bits = column_groups(values)
    for group in range(height // 64):
        rows = windows.values[:, 64 * group : 64 * (group + 1)]
        np.testing.assert_array_equal(bits.reshape(-1) >> group & 1, (rows != 0).any(axis=1))
    found = step_groups(bits)
    np.testing.assert_array_equal(found[:-SPARE], np.bitwise_or.reduce(bits, axis=1))
    assert not found[-SPARE:].any()


@pytest.mark.parametrize("height", [128, 256])
def test_the_order_keeps_columns_whole_and_in_their_window(height: int) -> None:
    windows, values, window = stored(height)
    bits, indices, ordered = in_order_of_groups(
        window, column_groups(values), windows.window_col_idx, values
    )
    np.testing.assert_array_equal(column_groups(ordered), bits)
    before, after = dense_columns(values), dense_columns(ordered)
    of_column = np.repeat(window, K16)
    for one in np.unique(window):
        mine = of_column == one
        keys = bits.reshape(-1)[mine]
        used = np.count_nonzero(keys)
        assert (np.diff(keys[:used].astype(int)) >= 0).all()
        assert not keys[used:].any(), "padding is not last"
        was = {
            int(index): column.tobytes()
            for index, column in zip(windows.window_col_idx[mine], before[mine], strict=True)
        }
        for index, column in zip(indices[mine][:used], after[mine][:used], strict=True):
            assert was[int(index)] == column.tobytes()


def test_the_order_leaves_fewer_tiles() -> None:
    windows, values, window = stored(128)
    bits = column_groups(values)
    ordered, _, _ = in_order_of_groups(window, bits, windows.window_col_idx, values)

    def tiles(of: np.ndarray) -> int:
        return sum(int(step).bit_count() for step in step_groups(of))

    assert tiles(ordered) < tiles(bits)
