"""Arrays that do not describe a matrix are refused when a format is built from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.formats import BCSR, WCSR
from asyncsparse_lab.formats.arrays import canonical_csr

A = sp.csr_array(np.arange(1, 131).reshape(10, 13).astype("float32"))


def changed(array, place, value):
    result = array.copy()
    result[place] = value
    return result


@pytest.fixture
def blocks():
    return BCSR.from_csr(A, (8, 8))


@pytest.fixture
def windows():
    return WCSR.from_csr(A, 8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: {"block_row_ptr": x.block_row_ptr[:-1]}, "block_row_ptr must be 3 integers"),
        (lambda x: {"block_row_ptr": changed(x.block_row_ptr, 1, 5)}, "must not fall"),
        (lambda x: {"blocks": x.blocks[:-1]}, "blocks"),
        (lambda x: {"block": (8, 16)}, r"\(4, 8, 16\)"),
        (lambda x: {"block_col_idx": changed(x.block_col_idx, 0, 2)}, "holds 2"),
        (lambda x: {"block_col_idx": changed(x.block_col_idx, 1, 0)}, "must ascend"),
        (lambda x: {"block_col_idx": x.block_col_idx[::-1]}, "must ascend"),
        (lambda x: {"blocks": changed(x.blocks, (3, 2, 0), 1)}, "outside the 10 x 13"),
        (lambda x: {"blocks": changed(x.blocks, (1, 0, 5), np.nan)}, "outside the 10 x 13"),
        (lambda x: {"blocks": [[1.0]]}, "expected a NumPy or CuPy array, got list"),
    ],
)
def test_bcsr(blocks, change, message):
    with pytest.raises(InputError, match=message):
        replace(blocks, **change(blocks))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: {"window_row_ptr": x.window_row_ptr[1:]}, "must be 3 integers"),
        (lambda x: {"window_row_ptr": changed(x.window_row_ptr, 0, 1)}, "must start at 0"),
        (lambda x: {"values": x.values[:, :4]}, "values"),
        (lambda x: {"window": 16}, "window_row_ptr must be 2 integers"),
        (lambda x: {"window_col_idx": changed(x.window_col_idx, 0, -2)}, "holds -2"),
        (lambda x: {"window_col_idx": changed(x.window_col_idx, 12, 13)}, "holds 13"),
        (lambda x: {"window_col_idx": changed(x.window_col_idx, 1, 0)}, "must ascend"),
        (lambda x: {"window_col_idx": changed(x.window_col_idx, 4, -1)}, "-1 at its end"),
        (lambda x: {"values": changed(x.values, (13, 0), 1)}, "in padding"),
        (lambda x: {"values": changed(x.values, (16, 2), 1)}, "below the last of 10 rows"),
    ],
)
def test_wcsr(windows, change, message):
    with pytest.raises(InputError, match=message):
        replace(windows, **change(windows))


def test_explicit_zeros_are_dropped_and_the_matrix_stays() -> None:
    dense = np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [3.0, 4.0, 0.0]])
    A = sp.csr_array(dense)
    A.data[[1, 2]] = 0.0
    canonical = canonical_csr(A)
    assert (canonical.data != 0).all()
    rebuilt = sp.csr_array((canonical.data, canonical.indices, canonical.indptr), shape=A.shape)
    assert (rebuilt.toarray() == A.toarray()).all()
    assert A.nnz == 4
