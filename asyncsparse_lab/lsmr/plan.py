"""What the persistent kernel needs to know of a matrix before any solve; needs no GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.lsmr.layout import (
    LANE_STEPS,
    WARP,
    SlicedMatrix,
    row_order,
    slice_matrix,
    virtual_lengths,
)
from asyncsparse_lab.lsmr.problem import array_module

MAX_SHARED_STATE = 3  # h, hbar and x of a block's columns


@dataclass(frozen=True, slots=True)
class Geometry:
    """How the kernel is compiled and launched.

    Attributes
    ----------
    blocks, threads : int
        Grid and block; of a block's threads one warp runs the scalar recurrence.
    staged : bool
        Whether each block keeps its slices and its part of h, hbar and x in shared memory.
    copies : int
        Copies of the slots that blocks poll.
    poll_relaxed : bool
        Poll with relaxed loads and one fence instead of acquiring loads.
    blocks_per_sm : int
        Blocks that an SM must hold, for the compiler.
    """

    blocks: int
    threads: int
    staged: bool
    copies: int = 1
    poll_relaxed: bool = False
    blocks_per_sm: int = 1

    def constants(self, dtype: np.dtype[Any], rhs: int) -> Mapping[str, int]:
        """Return the kernel's macros."""
        return {
            "REAL_BITS": 8 * dtype.itemsize,
            "RHS": rhs,
            "THREADS": self.threads,
            "MIN_BLOCKS": self.blocks_per_sm,
            "STAGED": int(self.staged),
            "COPIES": self.copies,
            "POLL_RELAXED": int(self.poll_relaxed),
        }


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

    def bounds(self, blocks: int) -> tuple[Any, Any]:
        """Return the first slice of each block in both directions."""
        return self.forward.block_slices(blocks), self.adjoint.block_slices(blocks)

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
    matrix: Any, dtype: np.dtype[Any], scales: Any | None, lane_steps: int = LANE_STEPS
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
    lane_steps : int
        See :func:`slice_matrix`.

    Raises
    ------
    UnsupportedError
        A size that 32-bit indices cannot hold.
    """
    rows = _canonical(matrix.tocsr())
    columns = _canonical(matrix.T.tocsr())
    xp = array_module(rows.data)
    m, n = rows.shape
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


def choose_geometry(plan: Plan, sm_count: int, shared_limit: int, rhs: int) -> Geometry:
    """Choose grid, block and staging.

    A small matrix gets about a warp a slice: more blocks make the barrier slower, fewer leave
    slices waiting for each other.  A matrix that fits into the shared memory of all SMs is
    staged; else the SMs are filled with blocks.
    """
    slices = max(plan.forward.row_slices, plan.adjoint.row_slices)
    # More than 8 worker warps would leave too few registers for several right-hand sides.
    most = 16 if rhs == 1 else 8
    warps = 8 if slices <= 8 * sm_count else most
    blocks = max(1, min(sm_count, -(-slices // warps)))
    geometry = Geometry(blocks, (warps + 1) * WARP, staged=True)
    if plan.shared_bytes(plan.bounds(geometry.blocks), rhs) <= shared_limit:
        return geometry
    if rhs == 1:
        return Geometry(2 * sm_count, 9 * WARP, staged=False, blocks_per_sm=2)
    return Geometry(sm_count, 9 * WARP, staged=False)


def check_geometry(geometry: Geometry) -> None:
    """Refuse a geometry that the kernel cannot have.

    Raises
    ------
    InputError
        Threads that are no whole warps between 2 and 32, or copies that are not 1 to 8.
    """
    if geometry.threads % WARP or not 2 * WARP <= geometry.threads <= 32 * WARP:
        raise InputError(f"threads={geometry.threads}: give a multiple of 32 from 64 to 1024")
    if not 1 <= geometry.copies <= 8:
        raise InputError(f"copies={geometry.copies}: give 1 to 8")
    if geometry.blocks < 1:
        raise InputError(f"blocks={geometry.blocks}: give at least 1")
