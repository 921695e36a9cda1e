"""The device layout of the persistent kernel: slices of rows of about the same length.

A *slice* is what one warp multiplies at a time: ``32 / lanes`` rows, each on ``lanes`` lanes (a
power of two that follows the rows' length), entry k of a lane at ``(first_step + k) * 32 + lane``,
so that a warp reads whole lines of columns and values.  Rows are ordered by length within
windows, which keeps neighbours together and the padding small; both vectors of LSMR live in this
order, so columns are renumbered too.  Rows longer than :data:`LONG_ROW` are cut into pieces,
which the whole grid sums first; the row itself then adds the sums, stored behind the vector.

One code for NumPy and CuPy arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from asyncsparse_lab.errors import UnsupportedError
from asyncsparse_lab.lsmr.problem import array_module

WARP = 32
LONG_ROW = 1024
PIECE = 256
PIECES_OF_A_ROW = 512
WINDOW = 16384
SLICE_COST = 3  # a slice costs about as much as this many more steps


@dataclass(frozen=True, slots=True)
class SlicedMatrix:
    """A matrix in slices, in the module (NumPy or CuPy) of its entries.

    Attributes
    ----------
    slices : ndarray
        int32 of shape (count, 4): first step, first row, steps, rows | log2(lanes) << 8; the
        slices of rows, then those of pieces.
    columns, values, true_values : ndarray
        Entries, 32 a step; ``values`` are scaled, ``true_values`` are not (the same array
        without scales).  Padding is column 0 with value 0.
    rows, gathered : int
        Rows of the matrix, and length of the vector that it multiplies.
    row_slices : int
        Slices of rows; the rest are pieces.
    """

    slices: Any
    columns: Any
    values: Any
    true_values: Any
    rows: int
    gathered: int
    row_slices: int

    @property
    def pieces(self) -> int:
        """Pieces of long rows: so many elements follow the gathered vector."""
        return int(self.slices.shape[0]) - self.row_slices

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        arrays = [self.slices, self.columns, self.values]
        if self.true_values is not self.values:
            arrays.append(self.true_values)
        return int(sum(array.nbytes for array in arrays))

    def block_slices(
        self, blocks: int, slice_cost: int = SLICE_COST, shares: tuple[float, ...] = (1.0,)
    ) -> Any:
        """Return where each block's slices begin, and the end: parts of about equal cost.

        A slice costs as much as its steps and ``slice_cost`` more.  Each part is cut into
        ``shares`` of its cost, which add up to 1.
        """
        xp = array_module(self.slices)
        cost = xp.cumsum(self.slices[: self.row_slices, 2].astype(np.int64) + slice_cost)
        begins = np.cumsum([0.0, *shares[:-1]])
        parts = (np.arange(blocks)[:, None] + begins).ravel()[1:]
        targets = xp.asarray(parts * (int(cost[-1]) / blocks))
        bounds = xp.zeros(targets.size + 2, dtype=np.int32)
        bounds[1:-1] = xp.searchsorted(cost, targets)
        bounds[-1] = self.row_slices
        return bounds

    def block_steps(self, block_slices: Any) -> Any:
        """Return how many steps each block's slices have."""
        xp = array_module(self.slices)
        ends = xp.zeros(self.row_slices + 1, dtype=np.int64)
        ends[1:] = xp.cumsum(self.slices[: self.row_slices, 2].astype(np.int64))
        return xp.diff(ends[block_slices])

    def staged_bytes(self, block_slices: Any) -> Any:
        """Return the bytes of shared memory that each block's slices take."""
        entry = self.columns.dtype.itemsize + self.values.dtype.itemsize
        xp = array_module(self.slices)
        return self.block_steps(block_slices) * WARP * entry + xp.diff(block_slices) * 16

    def block_rows(self, block_slices: Any) -> Any:
        """Return how many rows each block owns."""
        xp = array_module(self.slices)
        starts = xp.full(self.row_slices + 1, self.rows, dtype=np.int64)
        starts[:-1] = self.slices[: self.row_slices, 1]
        return xp.diff(starts[block_slices])


def row_order(lengths: Any) -> Any:
    """Return the rows by falling length within windows of neighbours, int64."""
    xp = array_module(lengths)
    longest = int(lengths.max())
    window = xp.arange(lengths.size) // WINDOW
    return xp.argsort(window * (longest + 1) + (longest - lengths), kind="stable")


def virtual_lengths(lengths: Any) -> tuple[Any, Any]:
    """Return the rows' lengths once long rows are cut, and the length of a row's pieces.

    The second is 0 where a row stays whole.
    """
    xp = array_module(lengths)
    is_long = lengths > LONG_ROW
    piece = xp.maximum(PIECE, -(-lengths // PIECES_OF_A_ROW))
    return xp.where(is_long, -(-lengths // piece), lengths), xp.where(is_long, piece, 0)


def slice_matrix(
    matrix: Any,
    order: Any,
    column_position: Any,
    dtype: np.dtype[Any],
    scales: Any | None,
    lane_steps: int,
) -> SlicedMatrix:
    """Lay out a CSR matrix.

    Parameters
    ----------
    matrix : csr_array or cupyx csr_matrix
        Canonical, of shape (rows, gathered).
    order : ndarray
        The original row behind each row of the layout: :func:`row_order` of the lengths that
        :func:`virtual_lengths` gives.
    column_position : ndarray
        The place of each original column in the gathered vector.
    dtype : numpy.dtype
        float32 or float64.
    scales : ndarray or None
        Factor of each entry, float64, in the order of ``matrix.data``.
    lane_steps : int
        A row gets as many lanes as it takes to finish in so many steps, 32 at most.

    Raises
    ------
    UnsupportedError
        A size that 32-bit indices cannot hold.
    """
    xp = array_module(matrix.data)
    rows, gathered = matrix.shape
    indptr = matrix.indptr.astype(np.int64)
    lengths = xp.diff(indptr)
    virtual, piece_length = virtual_lengths(lengths)

    # Every entry's row and place in it.
    entries = xp.arange(int(indptr[-1]))
    row = xp.searchsorted(indptr, entries, side="right") - 1
    place = entries - indptr[row]
    cut = piece_length[row]
    is_cut = cut > 0
    pieces_before = xp.cumsum(xp.where(piece_length > 0, virtual, 0)) - xp.where(
        piece_length > 0, virtual, 0
    )
    piece_count = int(xp.where(piece_length > 0, virtual, 0).sum())
    if max(rows, gathered) + piece_count >= 2**31:
        raise UnsupportedError(f"A has the shape {matrix.shape}: at most 2**31 - 1 are supported")

    position = xp.empty(rows, dtype=np.int64)
    position[order] = xp.arange(rows)
    sorted_lengths = virtual[order]
    row_lanes = _lanes_log2(xp, sorted_lengths, lane_steps)
    row_slices, row_home = _cut_into_slices(xp, sorted_lengths, row_lanes)
    total_steps = int(row_slices[:, 2].sum())

    # The pieces: one a slice, on all lanes.
    piece_sizes = xp.zeros(piece_count, dtype=np.int64)
    piece_of = pieces_before[row] + place // xp.maximum(cut, 1)
    if piece_count:
        xp.add.at(piece_sizes, piece_of[is_cut], 1)
    all_lanes = xp.full(piece_count, 5, dtype=np.int64)
    piece_slices, piece_home = _cut_into_slices(xp, piece_sizes, all_lanes, total_steps)
    total_steps += int(piece_slices[:, 2].sum())

    columns = xp.zeros(total_steps * WARP, dtype=np.int32)
    true_values = xp.zeros(total_steps * WARP, dtype=dtype)
    whole = ~is_cut
    target = xp.empty(entries.size, dtype=np.int64)
    where = position[row[whole]]
    target[whole] = _place(row_home, row_lanes, where, place[whole])
    in_piece = place[is_cut] % cut[is_cut]
    target[is_cut] = _place(piece_home, all_lanes, piece_of[is_cut], in_piece)
    columns[target] = column_position[matrix.indices]
    true_values[target] = matrix.data
    values = true_values
    if scales is not None:
        values = xp.zeros_like(true_values)
        values[target] = matrix.data * scales

    # A long row adds the sums of its pieces.
    if piece_count:
        pieces = xp.arange(piece_count)
        long_rows = xp.nonzero(piece_length > 0)[0]
        owner = long_rows[xp.searchsorted(pieces_before[long_rows], pieces, side="right") - 1]
        target = _place(row_home, row_lanes, position[owner], pieces - pieces_before[owner])
        columns[target] = gathered + pieces
        true_values[target] = 1
        values[target] = 1
    return SlicedMatrix(
        slices=xp.ascontiguousarray(xp.concatenate([row_slices, piece_slices]).astype(np.int32)),
        columns=columns,
        values=values,
        true_values=true_values,
        rows=rows,
        gathered=gathered,
        row_slices=int(row_slices.shape[0]),
    )


def _lanes_log2(xp: ModuleType, lengths: Any, lane_steps: int) -> Any:
    """Return log2 of the lanes that bring each row to ``lane_steps`` steps, 5 at most."""
    lanes_log2 = xp.zeros(lengths.shape, dtype=np.int64)
    for doubling in range(5):
        lanes_log2 += lengths > lane_steps << doubling
    return lanes_log2


def _cut_into_slices(
    xp: ModuleType, lengths: Any, lanes_log2: Any, first_step: int = 0
) -> tuple[Any, Any]:
    """Cut rows, in order, into slices.

    Returns
    -------
    (ndarray, ndarray)
        The slices, int64 of shape (count, 4); and for every row the index of its first entry
        (lane 0 of the row, step 0).
    """
    rows = int(lengths.size)
    if not rows:
        return xp.zeros((0, 4), dtype=np.int64), xp.zeros(0, dtype=np.int64)
    index = xp.arange(rows)
    # A slice begins where the lanes or the window change, and where the one before is full.
    begins_run = xp.ones(rows, dtype=bool)
    begins_run[1:] = (lanes_log2[1:] != lanes_log2[:-1]) | (index[1:] % WINDOW == 0)
    runs = xp.nonzero(begins_run)[0]
    in_run = index - runs[xp.searchsorted(runs, index, side="right") - 1]
    capacity = WARP >> lanes_log2
    begins = in_run % capacity == 0
    first_rows = xp.nonzero(begins)[0]
    slice_of = xp.cumsum(begins) - 1
    ends = xp.concatenate([first_rows[1:], xp.asarray([rows])])
    lanes = xp.left_shift(1, lanes_log2[first_rows])
    # Rows fall in length within a window, so the first is the longest of its slice.
    steps = -(-lengths[first_rows] // lanes)
    before = xp.cumsum(steps) - steps + first_step
    slices = xp.stack(
        [before, first_rows, steps, (ends - first_rows) | (lanes_log2[first_rows] << 8)], axis=1
    )
    home = before[slice_of] * WARP + (in_run % capacity << lanes_log2)
    return slices, home


def _place(home: Any, lanes_log2: Any, row: Any, place: Any) -> Any:
    """Return where entry number ``place`` of a row lies."""
    lanes = lanes_log2[row]
    step = place >> lanes
    return home[row] + step * WARP + (place - (step << lanes))
