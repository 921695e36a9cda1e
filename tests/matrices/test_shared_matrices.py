"""The folder of real matrices, where there is one: every file agrees with the manifest."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from asyncsparse_lab.matrices import load_matrix, load_right_hand_side, matrix_folder
from asyncsparse_lab.matrices.facts import describe
from asyncsparse_lab.matrices.matrix_market import read_matrix_market


def manifest() -> list:
    folder = matrix_folder()
    if folder is None or not (folder / "MANIFEST.csv").is_file():
        reason = pytest.mark.skip(reason="no folder of shared matrices (ASYNCSPARSE_MATRICES)")
        return [pytest.param({}, marks=reason, id="none")]
    with open(folder / "MANIFEST.csv", newline="", encoding="utf-8") as file:
        return [pytest.param(row, id=row["name"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("row", manifest())
def test_matrix_agrees_with_the_manifest(row: dict[str, str]) -> None:
    loaded = read_matrix_market(matrix_folder() / row["file"])
    matrix = loaded.matrix
    assert matrix.shape == (int(row["rows"]), int(row["cols"]))
    assert loaded.duplicates == 0
    assert matrix.nnz + loaded.explicit_zeros == int(row["nnz"])
    assert loaded.stored_entries == int(row["stored_entries"])
    assert (loaded.field, loaded.symmetry) == (row["field"], row["symmetry"])
    lengths = np.diff(matrix.indptr)
    if loaded.symmetry == "symmetric":
        assert (matrix != matrix.T).nnz == 0
    if loaded.explicit_zeros:
        return  # the manifest's next columns count explicit zeros
    assert lengths.max() == int(row["max_row_nnz"])
    assert np.count_nonzero(lengths == 0) == int(row["empty_rows"])
    facts = describe(loaded, sizes=(64,))
    assert facts.block_fill[64] == pytest.approx(float(row["bcsr64_fill"]), abs=1e-6)
    assert facts.window_fill[64] == pytest.approx(float(row["wcsr64_fill"]), abs=1e-6)
    assert facts.row_lengths.variation == pytest.approx(float(row["row_nnz_cv"]), abs=1e-4)


@pytest.mark.skipif(matrix_folder() is None, reason="no folder of shared matrices")
@pytest.mark.parametrize("name", ["mycielskian11", "mycielskian13", "Trefethen_2000"])
def test_generated_members_are_identical_to_the_files(name: str) -> None:
    from_file = read_matrix_market(matrix_folder() / f"{name}.mtx.gz").matrix
    made = load_matrix(name)
    assert made.shape == from_file.shape
    assert (made != from_file).nnz == 0


@pytest.mark.skipif(matrix_folder() is None, reason="no folder of shared matrices")
@pytest.mark.parametrize("name", ["well1033", "illc1033", "illc1850"])
def test_right_hand_sides_fit_their_matrices(name: str) -> None:
    vector = load_right_hand_side(name)
    assert vector is not None
    assert vector.shape == (load_matrix(name).shape[0],)
