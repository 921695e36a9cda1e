"""The article's rule, and how windows are cut into tasks."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.formats import WCSR, choose_by_fill, choose_format, window_tasks


@pytest.mark.parametrize(
    ("fill", "format_", "verdict"),
    [
        (0.0, "wcsr", "unsuitable"),
        (0.5, "wcsr", "unsuitable"),
        (0.5001, "bcsr", "suitable"),
        (0.7, "bcsr", "suitable"),
        (0.7001, "bcsr", "preferred"),
        (1.0, "bcsr", "preferred"),
    ],
)
def test_thresholds(fill, format_, verdict):
    choice = choose_by_fill(fill)
    assert (choice.format, choice.verdict, choice.fill_ratio) == (format_, verdict, fill)
    assert f"{fill:.1%}" in choice.reasons[0]
    assert format_.upper() in choice.reasons[0]


def test_a_matrix_is_judged_by_the_blocks_asked_for():
    dense = np.zeros((128, 128))
    dense[:16, :64] = 1  # a quarter of a 64 x 64 block, four full 16 x 16 blocks
    A = sp.csr_array(dense)
    assert choose_format(A).fill_ratio == 0.25
    assert choose_format(A).format == "wcsr"
    assert "4.0 multiplications" in choose_format(A).reasons[1]
    assert choose_format(A, (16, 16)).verdict == "preferred"


lengths = st.lists(st.integers(0, 12).map(lambda steps: 16 * steps), max_size=20)


@given(lengths, st.sampled_from([None, 16, 32, 48, 1024]))
def test_tasks_cover_each_window_once(counts, limit):
    pointer = np.concatenate([[0], np.cumsum(np.array(counts, dtype="int64"))])
    tasks = window_tasks(pointer, limit)
    assert tasks.dtype == np.int32
    assert (np.diff(tasks[:, 2]) <= 0).all()
    assert limit is None or (tasks[:, 2] <= limit).all()
    covered = []
    for window, first, columns, pieces in tasks.tolist():
        assert pieces == (tasks[:, 0] == window).sum()
        covered += [(window, column) for column in range(first, first + columns)]
    expected = [
        (window, column)
        for window in range(len(counts))
        for column in range(pointer[window], pointer[window + 1])
    ]
    assert sorted(covered) == expected
    assert set(tasks[:, 0]) == set(range(len(counts)))  # empty windows too


def test_a_window_is_cut_into_full_tasks_and_a_rest():
    tasks = window_tasks(np.array([0, 16, 96, 96]), 32)
    assert tasks.tolist() == [[1, 16, 32, 3], [1, 48, 32, 3], [0, 0, 16, 1], [1, 80, 16, 3],
                              [2, 96, 0, 1]]  # fmt: skip


@pytest.mark.parametrize("limit", [0, -16, 8, 100])
def test_limits_that_are_no_multiple_of_16_are_refused(limit):
    with pytest.raises(InputError, match=f"max_cols_per_task is {limit}"):
        window_tasks(np.array([0, 16]), limit)


def test_windows_that_cannot_be_cut_are_refused():
    with pytest.raises(InputError, match="use pad_windows"):
        window_tasks(WCSR.from_csr(sp.csr_array(np.eye(3)), 8, 8).window_row_ptr)
    with pytest.raises(InputError, match="32 bits"):
        window_tasks(np.array([0, 2**31]))
