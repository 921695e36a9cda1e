"""Network weights, least-squares stand-ins, and the random choices behind generators."""

from __future__ import annotations

import time

import numpy as np
import pytest

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.matrices import load_blocks, load_matrix, right_hand_side
from asyncsparse_lab.matrices.generators.sampling import distinct_integers, sorted_distinct


@pytest.mark.parametrize("method", ["magnitude", "row", "random"])
def test_pruned_keeps_exactly(method):
    matrix = load_matrix(f"pruned(rows=60, cols=50, sparsity=0.83, method='{method}')")
    assert matrix.nnz == round(0.17 * 3000)
    lengths = np.diff(matrix.indptr)
    if method == "row":
        assert lengths.max() - lengths.min() <= 1
    else:
        assert lengths.max() - lengths.min() > 1
    dropped = load_matrix(f"pruned(rows=60, cols=50, sparsity=1.0, method='{method}')")
    assert dropped.nnz == 0
    kept = load_matrix(f"pruned(rows=60, cols=50, sparsity=0.0, method='{method}')")
    assert kept.nnz == 3000
    if method == "magnitude":
        left = kept - matrix
        assert abs(left).max() <= np.abs(matrix.data).min()


def test_block_case_has_exactly_the_blocks_of_its_definition():
    name = "down_proj-keep1.5-uniform-s7"
    blocks = load_blocks(name)
    assert blocks.shape == (3584, 18944)
    total = 56 * 296
    rng = np.random.default_rng(7)
    chosen = np.sort(rng.choice(total, round(0.015 * total), replace=False))
    values = rng.standard_normal((chosen.size, 64, 64), dtype=np.float32)
    rows = np.repeat(np.arange(56), np.diff(blocks.block_row_ptr))
    assert np.array_equal(rows * 296 + blocks.block_col_idx, chosen)
    assert np.array_equal(blocks.blocks, values)
    matrix = load_matrix(name)
    assert matrix.nnz == blocks.blocks.size
    sample = int(chosen[17])
    row, col = 64 * (sample // 296), 64 * (sample % 296)
    np.testing.assert_array_equal(
        matrix[row : row + 64, col : col + 64].toarray(), values[17].astype(np.float64)
    )


def test_gate_projection_of_the_headline_case_is_quick_to_make():
    started = time.perf_counter()
    matrix = load_matrix("gate_proj-keep10-uniform-s0")
    assert time.perf_counter() - started < 5
    assert matrix.shape == (18944, 3584)
    assert matrix.nnz == round(0.1 * 296 * 56) * 4096


def test_load_blocks_refuses_other_names():
    with pytest.raises(InputError, match="no block case"):
        load_blocks("bcsstk16")


@pytest.mark.parametrize(
    ("name", "shape", "nnz"),
    [("8kv-stand-in", (12351, 6177), 43221), ("11kv-stand-in", (46785, 23394), 163740)],
)
def test_stand_ins_of_the_least_squares_problems(name, shape, nnz):
    matrix = load_matrix(name)
    assert matrix.shape == shape
    assert matrix.nnz == nnz


def test_stand_in_has_the_known_condition_and_a_known_answer():
    from scipy.sparse.linalg import eigsh, splu

    matrix = load_matrix("8kv-stand-in")
    normal = (matrix.T @ matrix).tocsc()
    largest = eigsh(normal, k=1, return_eigenvectors=False, tol=1e-4)[0]
    smallest = eigsh(normal, k=1, sigma=0, return_eigenvectors=False, tol=1e-4)[0]
    assert np.sqrt(largest / smallest) == pytest.approx(33.5, rel=2e-3)

    b, x = right_hand_side(matrix, 0.25)
    residual = matrix @ x - b
    assert np.linalg.norm(residual) / np.linalg.norm(b) == pytest.approx(0.25, rel=1e-12)
    assert np.linalg.norm(matrix.T @ residual) < 1e-9 * np.linalg.norm(b)
    assert np.linalg.norm(splu(normal).solve(matrix.T @ b) - x) < 1e-9 * np.linalg.norm(x)


def test_right_hand_side_refuses():
    matrix = load_matrix("feeder(buses=5)")
    with pytest.raises(InputError, match="outside"):
        right_hand_side(matrix, 1.0)
    with pytest.raises(InputError, match="more rows"):
        right_hand_side(matrix[:15], 0.1)


@pytest.mark.parametrize(("population", "count"), [(10, 0), (10, 10), (10, 7), (10**12, 5000)])
def test_distinct_integers(population, count):
    found = distinct_integers(np.random.default_rng(1), population, count)
    assert found.size == count
    assert np.all(np.diff(found) > 0)
    assert count == 0 or (found[0] >= 0 and found[-1] < population)


def test_distinct_integers_are_uniform():
    rng = np.random.default_rng(5)
    hits = np.zeros(20)
    for _ in range(2000):
        hits[distinct_integers(rng, 20, 4)] += 1
    # 400 expected each, deviation 18
    assert np.abs(hits - 400).max() < 90


def test_sorted_distinct():
    assert list(sorted_distinct(np.array([3, 1, 3, 2, 1]))) == [1, 2, 3]
    assert sorted_distinct(np.array([], dtype=np.int64)).size == 0
