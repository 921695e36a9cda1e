from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.formats import BCSR, WCSR
from asyncsparse_lab.spmm.plan_structure import HEIGHTS, structure_of


def sparse(m, k, density, seed=0):
    rng = np.random.default_rng(seed)
    return csr_array(random_array((m, k), density=density, format="csr", rng=rng))


@given(
    m=st.integers(1, 700),
    k=st.integers(1, 300),
    density=st.floats(0, 0.3),
    seed=st.integers(0, 9),
)
@settings(max_examples=40, deadline=None)
def test_counts_are_those_of_the_formats(m, k, density, seed):
    A = sparse(m, k, density, seed)
    found = structure_of(A)
    assert (found.m, found.k, found.nnz) == (m, k, A.nnz)
    for height in HEIGHTS:
        assert found.columns[height].tolist() == WCSR.count_columns(A, height).tolist()
    blocks = BCSR.from_csr(A)
    pointer, columns = found.block_pattern
    assert pointer.tolist() == blocks.block_row_ptr.tolist()
    assert columns.tolist() == blocks.block_col_idx.tolist()
    assert found.blocks == len(blocks.blocks)
    assert found.block_fill == pytest.approx(blocks.fill_ratio)
    assert found.touched_rows == len(np.unique(A.indices))
    pairs = [set(columns[pointer[r] : pointer[min(r + 2, len(pointer) - 1)]])
             for r in range(0, len(pointer) - 1, 2)]  # fmt: skip
    assert found.blocks_per_pair.tolist() == [len(pair) for pair in pairs]


def test_keys_that_need_64_bits_count_the_same():
    rows = np.array([0, 63, 64, 255, 256, 300_000])
    columns = np.array([0, 0, 1_000_000, 1_000_000, 5, 999_999])
    A = csr_array((np.ones(6), (rows, columns)), shape=(300_001, 1_000_001))
    found = structure_of(A)
    assert 4 * 1_000_001 * -(-300_001 // 256) > 2**32  # the keys' range: not for uint32
    assert found.columns[64][:5].tolist() == [1, 1, 0, 1, 1]
    assert found.columns[128][:3].tolist() == [2, 1, 1]
    assert found.columns[256][:2].tolist() == [2, 1]
    assert found.columns[64].sum() == 5
    assert found.touched_rows == 4


def test_a_matrix_without_non_zeros_has_a_structure():
    found = structure_of(csr_array((130, 70)))
    assert found.columns[64].tolist() == [0, 0, 0]
    assert found.blocks == found.touched_rows == 0
    assert found.block_fill == 0
    assert structure_of(csr_array((0, 5))).density == 0


def test_malformed_arrays_are_refused():
    A = sparse(100, 100, 0.1)
    A.indices[3] = 100
    with pytest.raises(InputError, match="indices holds 100"):
        structure_of(A)


def test_duplicates_and_zeros_do_not_count():
    values, columns = np.array([1.0, 2.0, 0.0]), np.array([4, 4, 7])
    A = csr_array((values, columns, np.array([0, 3])), shape=(1, 9))
    assert structure_of(A).nnz == 1
