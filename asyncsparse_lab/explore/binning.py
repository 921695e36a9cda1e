"""The matrix as a picture: non-zeros counted per bin of a window, never a point a non-zero.

A window is a half-open rectangle of positions.  It is cut into at most ``bins`` x ``bins``
rectangles with integer edges, so that every bin covers whole positions and a bin's density
``count / positions`` lies between 0 and 1 whatever the zoom.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from asyncsparse_lab.errors import InputError

#: Zooming in ends at this many rows and columns.
SMALLEST_SPAN = 8


@dataclass(frozen=True, slots=True)
class Window:
    """The positions ``rows[0] <= i < rows[1]``, ``columns[0] <= j < columns[1]``."""

    rows: tuple[int, int]
    columns: tuple[int, int]

    @classmethod
    def whole(cls, shape: tuple[int, int]) -> Window:
        """Return the window that shows all of a matrix."""
        return cls((0, shape[0]), (0, shape[1]))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns that the window spans."""
        return self.rows[1] - self.rows[0], self.columns[1] - self.columns[0]

    def checked(self, shape: tuple[int, int]) -> Window:
        """Return the window itself if it lies in a matrix of that shape.

        Raises
        ------
        InputError
            If it is empty or reaches outside.
        """
        for name, (low, high), extent in zip(
            ("rows", "columns"), (self.rows, self.columns), shape, strict=True
        ):
            if not 0 <= low < high <= extent:
                raise InputError(
                    f"window of {name} {low}..{high} is empty or outside the matrix: "
                    f"choose 0 <= first < last <= {extent}"
                )
        return self

    def zoomed(self, factor: float, shape: tuple[int, int]) -> Window:
        """Return the window of `factor` times the span about the same centre.

        It is shifted to stay inside the matrix and keeps :data:`SMALLEST_SPAN` positions.
        """
        return Window(
            _zoom(self.rows, factor, shape[0]),
            _zoom(self.columns, factor, shape[1]),
        )

    def moved(self, down: float, right: float, shape: tuple[int, int]) -> Window:
        """Return the window shifted by fractions of its own span, kept inside the matrix."""
        return Window(
            _place(self.rows[0] + round(down * self.shape[0]), self.shape[0], shape[0]),
            _place(self.columns[0] + round(right * self.shape[1]), self.shape[1], shape[1]),
        )


def _place(start: int, span: int, extent: int) -> tuple[int, int]:
    start = min(max(start, 0), extent - span)
    return start, start + span


def _zoom(bounds: tuple[int, int], factor: float, extent: int) -> tuple[int, int]:
    span = bounds[1] - bounds[0]
    wanted = min(max(round(span * factor), SMALLEST_SPAN), extent)
    return _place((bounds[0] + bounds[1] - wanted) // 2, wanted, extent)


@dataclass(frozen=True, slots=True)
class Density:
    """Counts of non-zeros per bin.

    Attributes
    ----------
    window : Window
        What was counted.
    counts : int64 array, shape (row bins, column bins)
        Non-zeros in each bin.
    row_edges, column_edges : int64 arrays
        Bin b covers the positions ``edges[b] <= i < edges[b + 1]``.
    row_lengths, column_lengths : int64 arrays
        Non-zeros of each row and each column of the window.
    """

    window: Window
    counts: NDArray[np.int64]
    row_edges: NDArray[np.int64]
    column_edges: NDArray[np.int64]
    row_lengths: NDArray[np.int64]
    column_lengths: NDArray[np.int64]

    @property
    def nnz(self) -> int:
        """Non-zeros in the window."""
        return int(self.row_lengths.sum())

    @property
    def fraction(self) -> NDArray[np.float64]:
        """Non-zeros per position of each bin, 0 to 1."""
        positions = np.outer(np.diff(self.row_edges), np.diff(self.column_edges))
        fraction: NDArray[np.float64] = self.counts / positions
        return fraction


def bin_counts(A: csr_array[Any], window: Window, bins: int = 512) -> Density:
    """Count the non-zeros of a window per bin.

    The longer side of the window gets ``min(bins, span)`` bins and the other side bins of
    about the same extent, so that a bin is close to a square; a side never gets fewer bins
    than ``min(bins // 8, span)``.  Cost: one pass over the non-zeros of the window's rows.

    Parameters
    ----------
    A : csr_array
        Canonical: sorted, no duplicates, no explicit zeros.
    window : Window
        The positions to count.
    bins : int
        Bins along the longer side.

    Raises
    ------
    InputError
        If the window is empty or reaches outside the matrix.
    """
    (first_row, last_row), (first_column, last_column) = (
        window.checked(A.shape).rows,
        window.columns,
    )
    row_edges, column_edges = _edges(window, bins)
    indptr = A.indptr[first_row : last_row + 1].astype(np.int64)
    columns = A.indices[indptr[0] : indptr[-1]]
    lengths = np.diff(indptr)
    if window.columns != (0, A.shape[1]):
        inside = (columns >= first_column) & (columns < last_column)
        running = np.concatenate(([0], np.cumsum(inside)))
        lengths = np.diff(running[indptr - indptr[0]])
        columns = columns[inside]
    columns = columns - first_column
    row_bins, column_bins = row_edges.size - 1, column_edges.size - 1
    row_bin = np.repeat(np.arange(row_bins), np.diff(row_edges))
    column_bin = np.repeat(np.arange(column_bins), np.diff(column_edges))
    key = np.repeat(row_bin * column_bins, lengths) + column_bin[columns]
    counts = np.bincount(key, minlength=row_bins * column_bins)
    return Density(
        window,
        counts.reshape(row_bins, column_bins),
        row_edges,
        column_edges,
        lengths,
        np.bincount(columns, minlength=last_column - first_column),
    )


def _edges(window: Window, bins: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    longer = max(window.shape)
    edges = []
    for low, span in zip((window.rows[0], window.columns[0]), window.shape, strict=True):
        count = min(span, max(bins * span // longer, bins // 8))
        edges.append(low + (np.arange(count + 1, dtype=np.int64) * span) // count)
    return edges[0], edges[1]
