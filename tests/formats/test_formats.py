"""What BCSR and WCSR have in common: round trips, sizes, products, refusal of bad input."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from asyncsparse_lab.errors import InputError, MemoryLimitError
from asyncsparse_lab.formats import BCSR, WCSR

FORMATS = [BCSR, WCSR]
sizes = st.sampled_from([8, 16, 24, 64])


@st.composite
def csr_matrices(draw: st.DrawFn, max_rows: int = 150, max_cols: int = 150) -> sp.csr_array:
    """Canonical CSR with small integers as values, so that sums are exact in any order."""
    m, k = draw(st.integers(0, max_rows)), draw(st.integers(0, max_cols))
    seed = draw(st.integers(0, 2**32 - 1))
    density = draw(st.sampled_from([0.0, 0.002, 0.05, 0.5, 1.0]))
    dtype = draw(st.sampled_from(["float32", "float64", "complex128", "int32"]))
    rng = np.random.default_rng(seed)
    dense = rng.integers(1, 9, (m, k)) * (rng.random((m, k)) < density)
    if m:
        dense[rng.random(m) < draw(st.sampled_from([0.0, 0.5]))] = 0
    return sp.csr_array(dense.astype(dtype))


def same_matrix(result: sp.csr_array, expected: sp.csr_array) -> bool:
    """Say whether two CSR matrices are equal in every array and in type."""
    return (
        result.shape == expected.shape
        and result.dtype == expected.dtype
        and np.array_equal(result.indptr, expected.indptr)
        and np.array_equal(result.indices, expected.indices)
        and np.array_equal(result.data, expected.data)
    )


@given(csr_matrices(), sizes, sizes)
def test_bcsr_returns_what_went_in(A, bm, bk):
    assert same_matrix(BCSR.from_csr(A, (bm, bk)).to_csr(), A)


@given(csr_matrices(), sizes, st.sampled_from([1, 8, 16]))
def test_wcsr_returns_what_went_in(A, window, pad):
    assert same_matrix(WCSR.from_csr(A, window, pad).to_csr(), A)


@given(csr_matrices(), sizes, sizes)
def test_bcsr_stores_exactly_the_blocks_that_hold_a_non_zero(A, bm, bk):
    matrix = BCSR.from_csr(A, (bm, bk))
    dense = A.toarray()
    expected = [
        (r, c)
        for r in range(-(-A.shape[0] // bm))
        for c in range(-(-A.shape[1] // bk))
        if dense[r * bm : (r + 1) * bm, c * bk : (c + 1) * bk].any()
    ]
    rows = np.repeat(np.arange(-(-A.shape[0] // bm)), np.diff(matrix.block_row_ptr))
    assert list(zip(rows, matrix.block_col_idx, strict=True)) == expected
    for (r, c), block in zip(expected, matrix.blocks, strict=True):
        part = dense[r * bm : (r + 1) * bm, c * bk : (c + 1) * bk]
        assert np.array_equal(block[: part.shape[0], : part.shape[1]], part)


@given(csr_matrices(), sizes, st.sampled_from([1, 8, 16]))
def test_wcsr_stores_exactly_the_columns_that_hold_a_non_zero(A, window, pad):
    matrix = WCSR.from_csr(A, window, pad)
    dense = A.toarray()
    for w in range(-(-A.shape[0] // window)):
        part = dense[w * window : (w + 1) * window]
        start, end = matrix.window_row_ptr[w : w + 2]
        used = np.flatnonzero(part.any(axis=0))
        columns = matrix.window_col_idx[start:end]
        assert (end - start) == -(-len(used) // pad) * pad
        assert matrix.columns_per_window[w] == len(used)
        assert np.array_equal(columns[: len(used)], used)
        assert (columns[len(used) :] == -1).all()
        stored = matrix.values[start : start + len(used), : len(part)]
        assert np.array_equal(stored.T, part[:, used])
    assert np.array_equal(WCSR.count_columns(A, window), matrix.columns_per_window)


@given(csr_matrices(), sizes, sizes)
def test_predicted_size_is_the_size(A, height, other):
    for predicted, matrix in (
        (BCSR.predict(A, (height, other)), BCSR.from_csr(A, (height, other))),
        (WCSR.predict(A, height, other), WCSR.from_csr(A, height, other)),
    ):
        assert predicted.bytes == matrix.nbytes
        assert predicted.fill_ratio == matrix.fill_ratio
        assert matrix.nnz == A.nnz
        values = matrix.blocks if isinstance(matrix, BCSR) else matrix.values
        assert (predicted.stored, predicted.values) == (len(values), values.size)
    halved = BCSR.predict(A, (height, other), value_bytes=2)
    whole = BCSR.predict(A, (height, other), value_bytes=4)
    assert whole.bytes - halved.bytes == 2 * halved.values


@given(csr_matrices(max_rows=80, max_cols=80), sizes, st.integers(0, 5))
def test_products_agree_with_scipy(A, size, n):
    B = np.random.default_rng(n).integers(-8, 9, (A.shape[1], n)).astype("float64")
    expected = A @ B
    for matrix in (BCSR.from_csr(A, (size, 16)), WCSR.from_csr(A, size)):
        result = matrix @ B
        assert result.dtype == expected.dtype
        assert np.array_equal(result, expected)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("n", [1, 3])
def test_padding_reads_nothing_of_b(poison, n):
    # One entry per window in column 5: padding that read column 0, or the last, would be seen.
    A = sp.csr_array((np.array([2.0, 3.0]), (np.array([0, 70]), np.array([5, 5]))), shape=(75, 9))
    B = np.full((9, n), poison)
    B[5] = 1.0
    result = WCSR.from_csr(A, 64, 8) @ B
    expected = np.zeros((75, n))
    expected[0], expected[70] = 2.0, 3.0
    assert np.array_equal(result, expected)


def test_a_block_reads_only_its_own_rows_of_b():
    A = sp.csr_array(([1.0], ([0], [9])), shape=(4, 12))
    B = np.full((12, 1), np.nan)
    B[8:12] = 1.0
    assert np.array_equal(BCSR.from_csr(A, (8, 8)) @ B, [[1.0], [0], [0], [0]])


@pytest.mark.parametrize("convert", [BCSR.from_csr, WCSR.from_csr])
@pytest.mark.parametrize("shape", [(0, 0), (0, 7), (7, 0), (1, 1), (64, 64), (65, 129)])
def test_matrix_without_entries(convert, shape):
    matrix = convert(sp.csr_array(shape, dtype="float32"))
    assert matrix.nnz == 0
    assert matrix.fill_ratio == 0.0
    assert same_matrix(matrix.to_csr(), sp.csr_array(shape, dtype="float32"))
    product = matrix @ np.full((shape[1], 3), np.nan, "float32")
    assert np.array_equal(product, np.zeros((shape[0], 3)))


@pytest.mark.parametrize("place", [(0, 0), (63, 64), (64, 0), (129, 200)])
def test_one_element(place):
    A = sp.csr_array(([3.5], ([place[0]], [place[1]])), shape=(130, 201))
    blocks, windows = BCSR.from_csr(A), WCSR.from_csr(A)
    assert blocks.fill_ratio == 1 / 4096
    assert windows.fill_ratio == 1 / 64
    assert windows.window_col_idx.tolist() == [place[1]] + [-1] * 7
    assert same_matrix(blocks.to_csr(), A)
    assert same_matrix(windows.to_csr(), A)


@pytest.mark.parametrize("convert", [BCSR.from_csr, WCSR.from_csr])
def test_untidy_input_is_put_in_order_on_a_copy(convert):
    # Row 0: unsorted, a duplicate that sums to 5, one that cancels; row 1: a stored zero.
    data = np.array([4.0, 2.0, 3.0, 1.0, -1.0, 0.0])
    indices, indptr = np.array([7, 2, 2, 5, 5, 1]), np.array([0, 5, 6, 6])
    A = sp.csr_array((data, indices, indptr), shape=(3, 9))
    result = convert(A).to_csr()
    expected = sp.csr_array(([5.0, 4.0], ([0, 0], [2, 7])), shape=(3, 9))
    assert same_matrix(result, expected)
    assert A.data.tolist() == [4.0, 2.0, 3.0, 1.0, -1.0, 0.0]
    assert A.indices.tolist() == [7, 2, 2, 5, 5, 1]


@pytest.mark.parametrize("convert", [BCSR.from_csr, WCSR.from_csr])
def test_nan_and_infinity_are_kept_as_values(convert):
    A = sp.csr_array(([np.nan, np.inf, 1.0], ([0, 1, 1], [3, 0, 2])), shape=(2, 4))
    result = convert(A).to_csr()
    assert np.array_equal(result.toarray(), A.toarray(), equal_nan=True)


@pytest.mark.parametrize("convert", [BCSR.from_csr, WCSR.from_csr])
def test_too_large_a_result_is_refused_with_its_size(convert):
    A = sp.csr_array(np.eye(200))
    needed = convert(A).nbytes
    assert convert(A, max_bytes=needed).nbytes == needed
    with pytest.raises(MemoryLimitError, match=f"{needed:,} bytes"):
        convert(A, max_bytes=needed - 1)


def test_a_result_beyond_all_memory_is_refused_without_being_asked():
    # 1.5 million blocks of 4096 x 4096 doubles: 200 terabytes.
    n = 4096 * 1200
    A = sp.diags_array([np.ones(n // 4096)], offsets=[0], shape=(1200, 1200)).tocsr()
    spread = sp.csr_array((A.data, A.indices * 4096, A.indptr), shape=(1200, n))
    with pytest.raises(MemoryLimitError, match="max_bytes"):
        BCSR.from_csr(spread, (32768, 32768))


def malformed(**changes):
    """Build a CSR matrix whose arrays are then overwritten behind SciPy's back."""
    A = sp.csr_array(np.array([[1.0, 0, 2], [0, 3, 0]]))
    for name, value in changes.items():
        setattr(A, name, np.asarray(value))
    return A


@pytest.mark.parametrize("convert", [BCSR.from_csr, WCSR.from_csr, BCSR.predict, WCSR.predict])
@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (malformed(indptr=[0, 2]), "indptr must be 3 integers"),
        (malformed(indptr=[0.0, 2.0, 3.0]), "indptr must be 3 integers, got float64"),
        (malformed(indptr=[1, 2, 3]), "indptr must start at 0, got 1"),
        (malformed(indptr=[0, 3, 2]), "indptr must not fall, but does after entry 1"),
        (malformed(indptr=[0, 2, 4]), "truncated"),
        (malformed(indices=[0, 3, 1]), "indices holds 3, outside 0 <= value < 3"),
        (malformed(indices=[0, -1, 1]), "indices holds -1"),
        (malformed(indices=[0.0, 2.0, 1.0]), "indices must be integers"),
        (malformed(data=[True, True, False]), "values of type bool"),
        (sp.coo_array(np.eye(2)), r"got coo: convert it with \.tocsr"),
        (np.eye(2), "got ndarray"),
    ],
)
def test_malformed_csr_is_refused(convert, matrix, message):
    with pytest.raises(InputError, match=message):
        convert(matrix)


@pytest.mark.parametrize("size", [0, -8, 12, 8.0, "64"])
def test_sizes_that_are_no_multiple_of_8_are_refused(size):
    A = sp.csr_array(np.eye(3))
    with pytest.raises(InputError, match="multiple of 8"):
        BCSR.from_csr(A, (8, size))
    with pytest.raises(InputError, match="multiple of 8"):
        WCSR.from_csr(A, size)


def test_other_bad_arguments_are_refused():
    A = sp.csr_array(np.eye(3))
    with pytest.raises(InputError, match="pair"):
        BCSR.from_csr(A, 64)
    for pad in (0, 8.0, "8"):
        with pytest.raises(InputError, match=f"pad is {pad!r}"):
            WCSR.from_csr(A, 64, pad)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("shape", [(3,), (4, 2), (3, 2, 2)])
def test_a_product_of_the_wrong_shape_is_refused(kind, shape):
    with pytest.raises(InputError, match=r"shape \(3, n\)"):
        kind.from_csr(sp.csr_array(np.eye(3))) @ np.ones(shape)
