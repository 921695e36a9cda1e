"""What the persistent kernel needs to know of a matrix before any solve; needs no GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncsparse_lab.lsmr.layout import (
    SLICE_COST,
    SlicedMatrix,
    row_order,
    slice_matrix,
    virtual_lengths,
)
from asyncsparse_lab.lsmr.problem import array_module

LANE_STEPS = 8
"""Entries of a row that a lane takes before the row gets more lanes: fewer finish a row sooner,
more leave fewer slices to a warp; what is loaded at once is 8 at most."""
MAX_SHARED_STATE = 3  # h, hbar and x of a block's columns


@dataclass(frozen=True, slots=True)
class Plan:
    """Both directions of a matrix, laid out, in one module (NumPy or CuPy).

    Attributes
    ----------
    shape : (int, int)
        m and n.
    dtype : numpy.dtype
        float32 or float64.
    forward, adjoint : SlicedMatrix
        A and its transpose.
    row_order, column_order : ndarray
        int32: the original row (column) behind each of the layout's.
    scales : ndarray or None
        Column scales, float64, in the layout's order.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    forward: SlicedMatrix
    adjoint: SlicedMatrix
    row_order: Any
    column_order: Any
    scales: Any | None

    def bounds(
        self, parts: int, slice_cost: int = SLICE_COST, shares: tuple[float, ...] = (1.0,)
    ) -> tuple[Any, Any]:
        """Return the first slice of each block, or other part, in both directions."""
        return (
            self.forward.block_slices(parts, slice_cost, shares),
            self.adjoint.block_slices(parts, slice_cost, shares),
        )

    def shortest(self, bounds: tuple[Any, Any]) -> int:
        """Return the steps of the shortest of these parts in either direction."""
        forward, adjoint = bounds
        steps = (self.forward.block_steps(forward), self.adjoint.block_steps(adjoint))
        return min(int(of.min()) for of in steps)

    def shared_bytes(self, bounds: tuple[Any, Any], rhs: int) -> int:
        """Return the dynamic shared memory that the largest block needs if it stages."""
        forward, adjoint = bounds
        state = self.adjoint.block_rows(adjoint) * (MAX_SHARED_STATE * rhs * self.dtype.itemsize)
        matrix = self.forward.staged_bytes(forward) + self.adjoint.staged_bytes(adjoint)
        return int((matrix + state).max())

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        orders = 4 * (self.shape[0] + self.shape[1])
        return self.forward.nbytes + self.adjoint.nbytes + orders


def build_plan(
    matrix: Any, dtype: np.dtype[Any], scales: Any | None, lane_steps: int | None = None
) -> Plan:
    """Lay out a sparse matrix of NumPy or CuPy arrays for the kernel.

    Parameters
    ----------
    matrix : sparse array
        A, of any format.
    dtype : numpy.dtype
        float32 or float64.
    scales : ndarray or None
        Column scales in the original order.
    lane_steps : int, optional
        See :func:`slice_matrix`; by default :data:`LANE_STEPS`.

    Raises
    ------
    UnsupportedError
        A size that 32-bit indices cannot hold.
    """
    rows = _canonical(matrix.tocsr())
    columns = _canonical(matrix.T.tocsr())
    xp = array_module(rows.data)
    m, n = rows.shape
    lane_steps = LANE_STEPS if lane_steps is None else lane_steps
    forward_order = row_order(virtual_lengths(xp.diff(rows.indptr.astype(np.int64)))[0])
    adjoint_order = row_order(virtual_lengths(xp.diff(columns.indptr.astype(np.int64)))[0])
    row_position = _inverse(forward_order)
    column_position = _inverse(adjoint_order)
    by_row = by_column = None
    if scales is not None:
        by_row = scales[rows.indices]
        entries = xp.arange(columns.indices.size)
        by_column = scales[xp.searchsorted(columns.indptr, entries, side="right") - 1]
    return Plan(
        shape=(m, n),
        dtype=dtype,
        forward=slice_matrix(rows, forward_order, column_position, dtype, by_row, lane_steps),
        adjoint=slice_matrix(columns, adjoint_order, row_position, dtype, by_column, lane_steps),
        row_order=forward_order.astype(np.int32),
        column_order=adjoint_order.astype(np.int32),
        scales=None if scales is None else xp.ascontiguousarray(scales[adjoint_order]),
    )


def _canonical(matrix: Any) -> Any:
    """Return a CSR matrix with sorted indices and no duplicates, never changing the input."""
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def _inverse(order: Any) -> Any:
    xp = array_module(order)
    inverse = xp.empty_like(order)
    inverse[order] = xp.arange(order.size)
    return inverse
