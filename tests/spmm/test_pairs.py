"""Matching of block rows, and the steps through a pair's union."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncsparse_lab.spmm.pairs import PAIR_STEP, PAIR_TASK, match_block_rows, pair_schedule


def pattern_of(rows: list[set[int]]) -> tuple[np.ndarray, np.ndarray]:
    pointer = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    columns = np.array([c for row in rows for c in sorted(row)], dtype=np.int32)
    return pointer, columns


patterns = st.lists(st.sets(st.integers(0, 12)), max_size=15)


@given(patterns)
def test_each_block_row_is_in_one_pair(rows: list[set[int]]) -> None:
    pairs = match_block_rows(*pattern_of(rows))
    members = pairs[pairs >= 0]
    assert sorted(members) == list(range(len(rows)))
    assert len(pairs) == (len(rows) + 1) // 2


@given(patterns)
def test_steps_hold_each_block_once_at_its_column_and_row(rows: list[set[int]]) -> None:
    pointer, columns = pattern_of(rows)
    tasks, steps = pair_schedule(pointer, columns)
    row_of = np.repeat(np.arange(len(rows)), np.diff(pointer))
    seen = []
    for task in tasks:
        own = steps[task["begin"] : task["begin"] + task["steps"]]
        assert (np.diff(own["block_column"]) > 0).all()
        for side in (0, 1):
            blocks = own["blocks"][:, side]
            present = blocks >= 0
            assert (columns[blocks[present]] == own["block_column"][present]).all()
            assert (row_of[blocks[present]] == task["block_rows"][side]).all()
            seen += list(blocks[present])
        assert (own["blocks"] >= 0).any(axis=1).all()
    assert sorted(seen) == list(range(len(columns)))
    assert (np.diff(tasks["steps"]) <= 0).all()


def test_rows_that_share_most_are_matched_first() -> None:
    pairs = match_block_rows(*pattern_of([{0, 1, 2}, {7, 8}, {0, 1, 2}, {7, 8}]))
    assert {tuple(pair) for pair in pairs} == {(0, 2), (1, 3)}


def test_a_random_mask_shares_what_a_random_matching_does_not() -> None:
    rng = np.random.default_rng(0)
    rows = [set(rng.choice(56, 6, replace=False).tolist()) for _ in range(296)]
    tasks, _ = pair_schedule(*pattern_of(rows))
    # Two random rows of 6 among 56 share 0.64 columns: 11.4 steps. Matching finds far better.
    assert tasks["steps"].mean() < 10.0


@pytest.mark.parametrize(("dtype", "size"), [(PAIR_TASK, 24), (PAIR_STEP, 16)])
def test_the_arrays_are_packed_as_the_kernel_reads_them(dtype: np.dtype, size: int) -> None:
    assert dtype.itemsize == size
