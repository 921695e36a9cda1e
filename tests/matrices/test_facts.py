"""Facts of a matrix: against direct counts on small ones."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from asyncsparse_lab.matrices import load_matrix
from asyncsparse_lab.matrices.facts import Lengths, describe


def test_facts_agree_with_direct_counts() -> None:
    rng = np.random.default_rng(2)
    dense = np.where(rng.random((100, 75)) < 0.07, rng.standard_normal((100, 75)), 0.0)
    dense[40:45] = 0
    facts = describe(sp.csr_array(dense), sizes=(8, 64))
    assert (facts.rows, facts.cols, facts.nnz) == (100, 75, np.count_nonzero(dense))
    assert facts.density == pytest.approx(np.count_nonzero(dense) / 7500)
    per_row = np.count_nonzero(dense, axis=1)
    assert facts.row_lengths.empty == np.count_nonzero(per_row == 0)
    assert facts.row_lengths.mean == pytest.approx(per_row.mean())
    assert facts.row_lengths.deviation == pytest.approx(per_row.std())
    assert facts.col_lengths.largest == np.count_nonzero(dense, axis=0).max()
    rows, cols = np.nonzero(dense)
    assert facts.bandwidth == np.abs(rows - cols).max()
    for size in (8, 64):
        blocks = len(set(zip(rows // size, cols // size, strict=True)))
        assert facts.block_fill[size] == pytest.approx(facts.nnz / (blocks * size**2))
        columns = len(set(zip(rows // size, cols, strict=True)))
        assert facts.window_fill[size] == pytest.approx(facts.nnz / (columns * size))
    windows = [len(set(cols[rows // 64 == window])) for window in range(2)]
    assert (facts.window_columns.smallest, facts.window_columns.largest) == tuple(sorted(windows))
    assert facts.format_bytes["csr"] == facts.nnz * 6 + 8 * 101
    assert facts.format_bytes["dense"] == 100 * 75 * 2
    assert facts.choice.format == "wcsr"
    assert (facts.symmetry, facts.explicit_zeros) == ("unsymmetric", None)


@pytest.mark.parametrize(
    ("dense", "pattern", "value", "words"),
    [
        ([[1, 2], [2, 0]], 1, 1, "symmetric"),
        ([[1, 2], [3, 0]], 1, 0, "symmetric pattern"),
        ([[1, 2], [0, 0]], 0, 0, "unsymmetric"),
        ([[0, 2, 1], [2, 0, 0], [0, 5, 7]], 0.5, 0.5, "unsymmetric"),
        ([[1, 0], [0, 4]], 1, 1, "symmetric"),
        ([[1, 2, 3]], 0, 0, "unsymmetric"),
    ],
)
def test_symmetry(dense: list, pattern: float, value: float, words: str) -> None:
    facts = describe(sp.csr_array(np.array(dense, dtype=float)))
    assert (facts.pattern_symmetry, facts.value_symmetry, facts.symmetry) == (pattern, value, words)


def test_dense_blocks_are_for_bcsr() -> None:
    facts = describe(load_matrix("blocks(rows=512, cols=512, keep=0.25)"))
    assert facts.block_fill[64] == 1
    assert facts.choice.format == "bcsr"
    # Two bytes a value, and little else.
    assert facts.nnz * 2 < facts.format_bytes["bcsr-64x64"] < facts.nnz * 2.01
    assert facts.format_bytes["dense"] == 512 * 512 * 2


def test_nothing_in_it() -> None:
    for shape in ((0, 0), (3, 4)):
        facts = describe(sp.csr_array(shape, dtype=np.float64))
        assert facts.nnz == facts.bandwidth == facts.row_lengths.largest == 0
        assert facts.density == facts.block_fill[64] == 0


def test_complex_values() -> None:
    facts = describe(sp.csr_array(np.array([[1, 2j], [2j, 0]])))
    assert (facts.field, facts.symmetry) == ("complex", "symmetric")


def test_moments_of_lengths() -> None:
    lengths = Lengths.of(np.array([0, 2, 2, 8]))
    assert (lengths.count, lengths.smallest, lengths.largest, lengths.empty) == (4, 0, 8, 1)
    assert (lengths.mean, lengths.deviation, lengths.variation) == (3, 3, 1)
    assert lengths.skewness == pytest.approx((-27 - 1 - 1 + 125) / 4 / 27)
    assert Lengths.of(np.array([5, 5])).skewness == 0
