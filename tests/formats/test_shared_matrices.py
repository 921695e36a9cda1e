"""All real matrices of the shared folder go through both formats and agree with its manifest."""

from __future__ import annotations

import csv
import gzip

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from asyncsparse_lab.formats import BCSR, WCSR
from asyncsparse_lab.matrices import load_matrix, matrix_folder

FOLDER = matrix_folder()


def manifest():
    if FOLDER is None or not (FOLDER / "MANIFEST.csv").is_file():
        return []
    with open(FOLDER / "MANIFEST.csv", newline="") as file:
        return [pytest.param(line, id=line["name"]) for line in csv.DictReader(file)]


def positions_of(line):
    """Return ones where the file stores anything: the manifest counts stored zeros as entries."""
    if line["explicit_zeros"] == "0":
        A = load_matrix(line["name"])
        return sp.csr_array((np.ones(A.nnz, "float32"), A.indices, A.indptr), shape=A.shape)
    with gzip.open(FOLDER / line["file"]) as file:
        stored = scipy.io.mmread(file, spmatrix=False)
    return sp.csr_array((np.ones(stored.nnz, "float32"), stored.coords), shape=stored.shape)


@pytest.mark.skipif(not manifest(), reason="no folder of shared matrices here")
@pytest.mark.parametrize("line", manifest())
def test_round_trip_and_manifest(line):
    A = positions_of(line)
    assert (*A.shape, A.nnz) == (int(line["rows"]), int(line["cols"]), int(line["nnz"]))
    # Numbers, each its own position, so that no two entries can change places unseen.
    A.data[:] = 1 + np.arange(A.nnz)
    blocks, windows = BCSR.from_csr(A), WCSR.from_csr(A)
    assert len(blocks.block_col_idx) == int(line["nonzero_blocks64"])
    # The manifest has six decimals.
    assert blocks.fill_ratio == pytest.approx(float(line["bcsr64_fill"]), rel=0, abs=5.1e-7)
    assert windows.fill_ratio == pytest.approx(float(line["wcsr64_fill"]), rel=0, abs=5.1e-7)
    for matrix in (blocks, windows):
        result = matrix.to_csr()
        assert np.array_equal(result.indptr, A.indptr)
        assert np.array_equal(result.indices, A.indices)
        assert np.array_equal(result.data, A.data)
