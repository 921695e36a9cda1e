"""Orders of A's rows: each row once, similar rows together, the same each time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from asyncsparse_lab.errors import InputError, UnsupportedError
from asyncsparse_lab.formats import WCSR
from asyncsparse_lab.matrices import load_matrix
from asyncsparse_lab.spmm.orders import CUTHILL_MCKEE, ORDERS, SIMILARITY, orders_of, row_order


def columns(A, code, height=64):
    return int(WCSR.count_columns(A[row_order(A, code)], height).sum())


@given(
    m=st.integers(0, 300),
    k=st.integers(0, 200),
    density=st.sampled_from([0.0, 0.002, 0.1]),
    code=st.sampled_from(list(ORDERS.values())),
)
@settings(max_examples=60, deadline=None)
def test_an_order_has_every_row_once_and_is_the_same_again(m, k, density, code):
    k = m if code == CUTHILL_MCKEE else k
    A = csr_array(random_array((m, k), density=density, format="csr", rng=0))
    order = row_order(A, code)
    assert order.dtype == np.int64
    np.testing.assert_array_equal(np.sort(order), np.arange(m))
    other = A.copy()
    other.data = -2 * other.data  # the pattern alone decides
    np.testing.assert_array_equal(row_order(other, code), order)


def test_equal_rows_come_together():
    group = np.random.default_rng(0).permutation(512) % 8
    A = csr_array(np.kron(np.eye(8), np.ones((1, 300)))[group])
    order = row_order(A, SIMILARITY)
    assert (np.diff(group[order]) != 0).sum() == 7
    assert columns(A, SIMILARITY) == A.shape[1]


@pytest.mark.parametrize(
    ("name", "better"),
    [("mycielskian11", 0.8), ("rmat(scale=12)", 0.9), ("hub_rows(rows=2000,cols=2000)", 1.01)],
)
def test_similar_rows_need_fewer_columns(name, better):
    A = load_matrix(name)
    assert columns(A, SIMILARITY) <= better * columns(A, ORDERS["as-stored"])


def test_the_band_of_a_shuffled_mesh_comes_back():
    A = load_matrix("stencil2d(nx=40,ny=40)")
    rows = np.random.default_rng(0).permutation(A.shape[0])
    shuffled = csr_array(A[rows][:, rows])
    assert columns(shuffled, CUTHILL_MCKEE) < 0.5 * columns(shuffled, ORDERS["as-stored"])


def test_only_square_matrices_have_a_cuthill_mckee_order():
    assert orders_of((5, 5)) == {"similarity": SIMILARITY, "cuthill-mckee": CUTHILL_MCKEE}
    assert orders_of((5, 6)) == {"similarity": SIMILARITY}
    with pytest.raises(UnsupportedError, match="5 x 6: only square"):
        row_order(csr_array((5, 6)), CUTHILL_MCKEE)


def test_another_code_is_refused():
    with pytest.raises(InputError, match=r"row_order=3: use 0 \(as-stored\)"):
        row_order(csr_array((5, 5)), 3)
