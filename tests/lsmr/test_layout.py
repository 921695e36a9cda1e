"""The sliced layout: products by a plain reading of it, lanes, pieces and blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from asyncsparse_lab.lsmr.layout import (
    LONG_ROW,
    SlicedMatrix,
    row_order,
    slice_matrix,
    virtual_lengths,
)


def lay_out(A: sparse.csr_array, scales: Any = None, lane_steps: int = 4) -> tuple[Any, Any]:
    order = row_order(virtual_lengths(np.diff(A.indptr))[0])
    columns = np.arange(A.shape[1])[::-1]
    sliced = slice_matrix(A, order, columns, np.dtype(np.float64), scales, lane_steps)
    return sliced, order


def product(sliced: SlicedMatrix, values: Any, x: Any) -> Any:
    """Multiply as the kernel does: pieces first, a lane's entries, then the lanes of a row."""
    vector = np.concatenate([x, np.zeros(sliced.pieces)])
    result = np.full(sliced.rows, np.nan)
    pieces, rows = sliced.slices[sliced.row_slices :], sliced.slices[: sliced.row_slices]
    for slices, target in ((pieces, vector[sliced.gathered :]), (rows, result)):
        for first_step, first_row, steps, packed in slices:
            count, lanes = packed & 0xFF, 1 << (packed >> 8)
            entries = slice(first_step * 32, (first_step + steps) * 32)
            terms = values[entries] * vector[sliced.columns[entries]]
            sums = terms.reshape(steps, 32).sum(axis=0).reshape(-1, lanes).sum(axis=1)
            target[first_row : first_row + count] = sums[:count]
    return result


def random_matrix(m: int, n: int, density: float, seed: int) -> sparse.csr_array:
    rng = np.random.default_rng(seed)
    A = sparse.random_array((m, n), density=density, rng=rng, data_sampler=rng.standard_normal)
    return sparse.csr_array(A)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 150),
    st.integers(1, 90),
    st.sampled_from([0.0, 0.02, 0.2, 1.0]),
    st.sampled_from([1, 2, 4, 8]),
)
def test_products_are_those_of_the_matrix(m: int, n: int, density: float, lane_steps: int) -> None:
    A = random_matrix(m, n, density, m)
    sliced, order = lay_out(A, lane_steps=lane_steps)
    x = np.random.default_rng(0).standard_normal(n)
    y = product(sliced, sliced.values, x)
    np.testing.assert_allclose(y, (A @ x[::-1])[order], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("length", [LONG_ROW, LONG_ROW + 1, 5000])
def test_long_rows_are_cut(length: int) -> None:
    n = 6000
    A = sparse.lil_array(random_matrix(40, n, 0.001, 1))
    A[[7, 23]] = 0.0
    A[7, :length] = np.arange(1, length + 1) / length
    A[23, n - length :] = 1.0
    A = sparse.csr_array(A)
    sliced, order = lay_out(A)
    assert bool(sliced.pieces) == (length > LONG_ROW)
    x = np.random.default_rng(0).standard_normal(n)
    y = product(sliced, sliced.values, x)
    np.testing.assert_allclose(y, (A @ x[::-1])[order], rtol=1e-12, atol=1e-11)
    assert sliced.slices[:, 2].max() <= LONG_ROW / 32


def test_scales_touch_the_values_alone() -> None:
    A = random_matrix(50, 30, 0.2, 2)
    scales = np.arange(1.0, 31)
    sliced, order = lay_out(A, scales[A.indices])
    x = np.random.default_rng(0).standard_normal(30)
    scaled = product(sliced, sliced.values, x)
    np.testing.assert_allclose(scaled, (A @ (scales * x[::-1]))[order], rtol=1e-12)
    plain = product(sliced, sliced.true_values, x)
    np.testing.assert_allclose(plain, (A @ x[::-1])[order], rtol=1e-12)


def test_lanes_follow_the_length_of_the_rows() -> None:
    lengths = [1, 4, 5, 8, 9, 100, 500]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = np.concatenate([np.arange(length) for length in lengths])
    A = sparse.csr_array((np.ones(indptr[-1]), indices, indptr), shape=(7, 500))
    sliced, order = lay_out(A)
    lanes = {}
    for _, first_row, _, packed in sliced.slices:
        for row in range(first_row, first_row + (packed & 0xFF)):
            lanes[lengths[order[row]]] = 1 << (packed >> 8)
    assert lanes == {1: 1, 4: 1, 5: 2, 8: 2, 9: 4, 100: 32, 500: 32}


@pytest.mark.parametrize("blocks", [1, 3, 8, 200])
def test_blocks_share_the_cost(blocks: int) -> None:
    sliced, _ = lay_out(random_matrix(3000, 500, 0.01, 3))
    bounds = sliced.block_slices(blocks)
    assert bounds[0] == 0
    assert bounds[-1] == sliced.row_slices
    assert (np.diff(bounds) >= 0).all()
    assert sliced.block_rows(bounds).sum() == 3000
    steps = np.add.reduceat(
        np.append(sliced.slices[: sliced.row_slices, 2], 0), np.minimum(bounds[:-1], bounds[-1])
    )
    if blocks == 8:
        assert steps.max() <= 1.3 * steps.mean()
    entries = sliced.staged_bytes(bounds)
    assert entries.sum() == sliced.slices[:, 2].sum() * 32 * 12 + sliced.row_slices * 16


def test_the_order_is_by_length_within_windows() -> None:
    lengths = np.random.default_rng(0).integers(0, 9, 40_000)
    order = row_order(lengths)
    for begin in range(0, 40_000, 16384):
        window = order[begin : begin + 16384]
        assert window.min() >= begin
        assert (np.diff(lengths[window]) <= 0).all()
