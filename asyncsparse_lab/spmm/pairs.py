"""Pairs of block rows that share block columns, for the kernel that loads shared slices once.

Two block rows with column sets P and Q, computed together, load |P u Q| slices of B instead of
|P| + |Q|.  The best total is a maximum-weight matching of the graph whose weights are |P n Q|; the
greedy matching here is within a factor of two of it (Avis 1983) and needs a sparse product and a
few passes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

IntArray = npt.NDArray[np.int64]

PAIR_TASK = np.dtype(
    [("begin", np.int64), ("steps", np.int32), ("block_rows", np.int32, 2), ("padding", np.int32)]
)
PAIR_STEP = np.dtype([("block_column", np.int32), ("blocks", np.int32, 2), ("padding", np.int32)])
MAX_CANDIDATES = 20_000_000
"""Pairs of block rows that share a column, above which neighbours are paired instead."""


def match_block_rows(block_row_ptr: IntArray, block_col_idx: npt.NDArray[np.int32]) -> IntArray:
    """Match block rows by the number of block columns that they share.

    Parameters
    ----------
    block_row_ptr : int64 array, block rows + 1
    block_col_idx : int32 array, blocks

    Returns
    -------
    int64 array, ceil(block rows / 2) x 2
        Each block row once; -1 as the partner of an odd one.
    """
    rows = len(block_row_ptr) - 1
    columns = int(block_col_idx.max()) + 1 if len(block_col_idx) else 0
    partner = np.full(rows, -1, dtype=np.int64)
    if columns and _candidates(block_col_idx, columns) <= MAX_CANDIDATES:
        pattern = csr_array(
            (np.ones(len(block_col_idx), dtype=np.int32), block_col_idx, block_row_ptr),
            shape=(rows, columns),
        )
        shared = (pattern @ pattern.T).tocoo()
        above = shared.row < shared.col
        low, high = shared.row[above].astype(np.int64), shared.col[above].astype(np.int64)
        _match_best_first(partner, low, high, shared.data[above].astype(np.int64))
    single = np.flatnonzero(partner < 0)
    partner[single[: len(single) // 2 * 2 : 2]] = single[1::2]
    partner[single[1::2]] = single[: len(single) // 2 * 2 : 2]
    first = np.flatnonzero((partner < 0) | (np.arange(rows) < partner))
    return np.stack([first, partner[first]], axis=1)


def _candidates(block_col_idx: npt.NDArray[np.int32], columns: int) -> int:
    counts = np.bincount(block_col_idx, minlength=columns).astype(np.int64)
    return int((counts * counts).sum()) // 2


def _match_best_first(partner: IntArray, low: IntArray, high: IntArray, shared: IntArray) -> None:
    """Match in order of (most shared, nearest); each pass takes the mutually best pairs."""
    order = np.lexsort((low, high - low, -shared))
    low, high = low[order], high[order]
    while len(low):
        rank = np.arange(len(low))
        best = np.full(len(partner), len(low))
        np.minimum.at(best, low, rank)
        np.minimum.at(best, high, rank)
        mutual = (best[low] == rank) & (best[high] == rank)
        partner[low[mutual]], partner[high[mutual]] = high[mutual], low[mutual]
        free = (partner[low] < 0) & (partner[high] < 0)
        low, high = low[free], high[free]


def pair_schedule(
    block_row_ptr: IntArray, block_col_idx: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
    """List, for every pair, the steps through the union of its block columns.

    Returns
    -------
    tasks : array of PAIR_TASK
        Longest first.
    steps : array of PAIR_STEP
        Block columns ascending within a pair; the two blocks that meet each, -1 for none.
    """
    pairs = match_block_rows(block_row_ptr, block_col_idx)
    rows = len(block_row_ptr) - 1
    pair_of, side_of = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
    for side in (0, 1):
        present = pairs[:, side] >= 0
        pair_of[pairs[present, side]] = np.flatnonzero(present)
        side_of[pairs[present, side]] = side
    row = np.repeat(np.arange(rows), np.diff(block_row_ptr))
    span = int(block_col_idx.max()) + 1 if len(block_col_idx) else 1
    keys, step_of = np.unique(pair_of[row] * span + block_col_idx, return_inverse=True)

    steps = np.zeros(len(keys), dtype=PAIR_STEP)
    steps["block_column"] = keys % span
    steps["blocks"] = -1
    steps["blocks"][step_of, side_of[row]] = np.arange(len(row))

    tasks = np.zeros(len(pairs), dtype=PAIR_TASK)
    tasks["steps"] = np.bincount(keys // span, minlength=len(pairs))
    tasks["begin"] = np.cumsum(tasks["steps"]) - tasks["steps"]
    tasks["block_rows"] = pairs
    return tasks[np.argsort(-tasks["steps"], kind="stable")], steps
