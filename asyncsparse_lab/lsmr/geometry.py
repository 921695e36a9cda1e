r"""How the persistent kernel is compiled and launched for a matrix, and what was built for that.

The choice follows a small model of an iteration, in microseconds, fitted to what twelve grids and
four clusters took on both stand-ins on an H200 (all within 0.3 us of 4.7 to 8.6):

* exchanges and scalars: 3.95 on a grid, and 0.014 for every block, since every block polls the
  slots of all others; 3.2 in a cluster;
* products: 0.65 (in a cluster 0.68) for every slice that a warp multiplies one after the other, in
  both directions (a chain of dependent loads), and on a grid 0.022 for every slice of a block.

A cluster of 16 blocks is best up to some 600 slices, half of the SMs up to some 3000.  What does
not fit into shared memory streams through it.
Registers are shared out by quarters of an SM, so blocks of 256, 384 and 640 threads have the most
warps for what a thread needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.gpu.compile import KernelBuild
from asyncsparse_lab.lsmr.layout import SLICE_COST, WARP

if TYPE_CHECKING:
    from asyncsparse_lab.lsmr.plan import Plan

SOURCE: Final = "lsmr_persistent.cu"
ENTRY: Final = "lsmr_persistent"

THREADS: Final = (256, 384, 640)
MANY_THREADS: Final = 640  # of a block that streams the matrix from memory
FEW_THREADS: Final = 256  # several right-hand sides need many registers
GROUPS: Final = {4: (4, 2, 1), 8: (2, 1)}
"""Right-hand sides that are solved together, by the bytes of an element."""

CLUSTERS: Final = (4, 8, 16)  # blocks; more than 8 are not portable (CUDA programming guide)
STREAMING_SLICE_COST: Final = 8
"""A warp that streams waits for the vector once a slice, however few steps that has."""
MIN_RING_STEPS: Final = 16  # two chunks of 8
SHARED: Final = 0.5
"""Of a streaming block's part of the matrix: not its warps' own, but whoever's is free first."""
MOST_SHARED: Final = 5  # units of a warp's part
STREAMING: Final = {4: (736, 32), 8: (640, 16)}
"""Threads of a block, and steps of a warp's ring, by the bytes of an element: as many warps as
leave the L1 cache the quarter of an SM's memory that the gathered vectors need."""

_QUARTERS = 4  # grids that are tried: quarters of the SMs
_GRID_US, _BLOCK_US, _SLICE_IN_TURN_US, _SLICE_OF_BLOCK_US = 3.95, 0.0143, 0.653, 0.0222
_CLUSTER_US, _CLUSTER_SLICE_US = 3.2, 0.68
_CLUSTER_SM = 64  # an instance of fewer SMs need not have 16 of them in one cluster's reach


@dataclass(frozen=True, slots=True)
class Geometry:
    """How the kernel is compiled and launched.

    Attributes
    ----------
    blocks, threads : int
        Grid and block; of a block's threads one warp runs the scalar recurrence.
    staged : bool
        Whether each block keeps its slices and its part of h, hbar and x in shared memory.
    together : int
        Slices that a warp multiplies at a time.
    copies : int
        Copies of the slots that blocks poll.
    poll_relaxed : bool
        Poll with relaxed loads and one fence instead of acquiring loads.
    blocks_per_sm : int
        Blocks that an SM must hold, for the compiler.
    batched : int
        1 loads up to 8 entries of a lane before the first is used, 2 exactly as many as there are.
    ring_steps : int
        Where it is not 0, each warp streams its slices through a ring of so many steps: a power
        of two, at least 16; a slice at a time.  Compute capability 9.0; one right-hand side.
    cluster : bool
        Whether all blocks are one cluster, of 16 at most.  Compute capability 9.0.
    slice_cost : int
        What a slice costs beside its steps, where the slices are shared out.
    units : int
        Of each streaming warp's part: the first is its own, and the block's warps take the others
        as they get free.
    watched : bool
        Whether it is compiled for racecheck, see ``WATCHED`` in ``lsmr_exchange.cuh``.
    """

    blocks: int
    threads: int
    staged: bool
    together: int = 1
    copies: int = 1
    poll_relaxed: bool = False
    blocks_per_sm: int = 1
    batched: int = 0
    ring_steps: int = 0
    cluster: bool = False
    slice_cost: int = SLICE_COST
    units: int = 1
    watched: bool = False

    @property
    def workers(self) -> int:
        """Warps of a block that multiply."""
        return self.threads // WARP - 1

    @property
    def streamed(self) -> bool:
        """Whether each warp streams its slices through a ring in shared memory."""
        return self.ring_steps > 0

    @property
    def parts(self) -> int:
        """Parts of the matrix: one a block, or one a warp that streams."""
        return self.blocks * (self.workers if self.streamed else 1)

    @property
    def block_parts(self) -> int:
        """Parts of a block, or units of its parts."""
        return self.parts // self.blocks * self.units

    @property
    def chunk_steps(self) -> int:
        """Steps that come by one bulk copy."""
        return chunk_steps(self.ring_steps)

    def bounds(self, plan: Plan) -> tuple[Any, Any]:
        """Return the first slice of each block, or of each unit of a warp's part.

        Raises
        ------
        InputError
            A unit does not fill a warp's ring, in which the next one must not begin before the
            warp knows it.
        """
        if self.units == 1:
            return plan.bounds(self.parts, self.slice_cost)
        others = self.units - 1
        shares = (1.0 - SHARED, *others * (SHARED / others,))
        bounds = plan.bounds(self.parts, self.slice_cost, shares)
        shortest, least = plan.shortest(bounds), self.ring_steps - self.chunk_steps + 1
        if shortest < least:
            raise InputError(
                f"units={self.units}: one has {shortest} steps of the {least} that it needs here"
            )
        return bounds

    def constants(self, dtype: np.dtype[Any], rhs: int) -> Mapping[str, int]:
        """Return the kernel's macros."""
        return {
            "REAL_BITS": 8 * dtype.itemsize,
            "RHS": rhs,
            "THREADS": self.threads,
            "MIN_BLOCKS": self.blocks_per_sm,
            "STAGED": int(self.staged),
            "TOGETHER": self.together,
            "COPIES": self.copies,
            "POLL_RELAXED": int(self.poll_relaxed),
            "BATCHED": self.batched,
            "CLUSTER": self.blocks if self.cluster else 0,
            "STREAMED": int(self.streamed),
            **self._ring_constants(dtype),
            **({"WATCHED": 1} if self.watched else {}),
        }

    def _ring_constants(self, dtype: np.dtype[Any]) -> dict[str, int]:
        if not self.streamed:
            return {}
        bytes_of_ring = ring_bytes(self.ring_steps, dtype.itemsize)
        return {
            "RING_STEPS": self.ring_steps,
            "RING_CHUNK": self.chunk_steps,
            "RING_BYTES": bytes_of_ring,
        }

    def shared_bytes(self, plan: Plan, rhs: int) -> int:
        """Return the dynamic shared memory of a block."""
        if self.streamed:
            rings = self.workers * ring_bytes(self.ring_steps, plan.dtype.itemsize)
            return rings + pool_bytes(self.workers, self.units)
        return plan.shared_bytes(self.bounds(plan), rhs) if self.staged else 0

    def build(self, dtype: np.dtype[Any], rhs: int, arch: str) -> KernelBuild:
        """Return the compilation of the kernel for this geometry."""
        return KernelBuild(SOURCE, ENTRY, self.constants(dtype, rhs), arch)


def chunk_steps(ring_steps: int) -> int:
    """Return how many steps come into a ring by one bulk copy: two chunks or more are in it."""
    return 8 if ring_steps < 32 else 16


def ring_bytes(steps: int, itemsize: int) -> int:
    """Return the size of a warp's ``Ring`` in ``lsmr_stream.cuh``."""
    entries = steps * WARP * (4 + itemsize)
    chunks = steps // chunk_steps(steps)
    heads, barriers, rest = 2 * WARP * 4, 8 * chunks, 8 + 2 * 20 + 16
    return -(-(entries + heads + barriers + rest) // 16) * 16


def pool_bytes(warps: int, units: int) -> int:
    """Return the size of what a block's ``Pool`` points to."""
    sums, descriptions, taken = 2 * 8 * units, 2 * 20 * (units - 1), 2 * 4
    return warps * (sums + descriptions) + taken


def choose_geometry(
    plan: Plan,
    sm_count: int,
    shared_limit: int,
    rhs: int,
    *,
    capability: tuple[int, int] = (8, 0),
) -> Geometry:
    """Choose grid, block and staging.

    Parameters
    ----------
    plan : Plan
        The layout.
    sm_count : int
        Multiprocessors of the GPU.
    shared_limit : int
        Dynamic shared memory that a block can have, in bytes.
    rhs : int
        Right-hand sides solved together.
    capability : (int, int)
        Compute capability: 9.0 has clusters and bulk copies.

    Returns
    -------
    Geometry
        The fastest by the model among those whose blocks hold their part of the matrix in shared
        memory; if it fits into none, a grid that fills the GPU, and streams where it can.
    """
    best, best_us = None, np.inf
    modern = capability >= (9, 0)
    for geometry in _staged_geometries(plan, sm_count, rhs, modern):
        us = predict_us(plan, geometry)
        if us < best_us and plan.shared_bytes(plan.bounds(geometry.blocks), rhs) <= shared_limit:
            best, best_us = geometry, us
    if best is not None:
        return best
    if rhs > 1:
        return Geometry(sm_count, FEW_THREADS, staged=False)
    streaming = _streaming(plan.dtype, sm_count)
    if modern and replace(streaming, units=1 + MOST_SHARED).shared_bytes(plan, rhs) <= shared_limit:
        return _shared_out(streaming, plan)
    return Geometry(sm_count, MANY_THREADS, staged=False, together=2)


def _streaming(dtype: np.dtype[Any], blocks: int) -> Geometry:
    threads, ring_steps = STREAMING[dtype.itemsize]
    return Geometry(
        blocks, threads, staged=False, ring_steps=ring_steps, slice_cost=STREAMING_SLICE_COST
    )


def _shared_out(geometry: Geometry, plan: Plan) -> Geometry:
    """Return the geometry with as many units as the warps' parts of the matrix can have."""
    shortest = plan.shortest(plan.bounds(geometry.parts, geometry.slice_cost))
    most = int(SHARED * shortest / (geometry.ring_steps - geometry.chunk_steps + 1))
    for others in range(min(most, MOST_SHARED), 0, -1):
        cut = replace(geometry, units=1 + others)
        with suppress(InputError):
            cut.bounds(plan)
            return cut
    return geometry


def predict_us(plan: Plan, geometry: Geometry) -> float:
    """Return what an iteration of a staged geometry takes by the model, in microseconds."""
    slices = (plan.forward.row_slices, plan.adjoint.row_slices)
    of_block = [count / geometry.blocks for count in slices]
    in_turn = sum(max(1.0, count / geometry.workers) for count in of_block)
    if geometry.cluster:
        return _CLUSTER_US + _CLUSTER_SLICE_US * in_turn
    exchanges = _GRID_US + _BLOCK_US * geometry.blocks
    return exchanges + _SLICE_IN_TURN_US * in_turn + _SLICE_OF_BLOCK_US * sum(of_block)


def _staged_geometries(
    plan: Plan, sm_count: int, rhs: int, has_clusters: bool
) -> Iterator[Geometry]:
    slices = max(plan.forward.row_slices, plan.adjoint.row_slices)

    if has_clusters and rhs == 1 and sm_count > _CLUSTER_SM:
        workers = MANY_THREADS // WARP - 1
        count = next((size for size in CLUSTERS if size * workers >= slices), max(CLUSTERS))
        yield Geometry(count, MANY_THREADS, staged=True, batched=2, cluster=True)
    for quarters in range(1, _QUARTERS + 1):
        for threads in THREADS if rhs == 1 else (FEW_THREADS,):
            count, enough = sm_count * quarters // _QUARTERS, -(-slices // (threads // WARP - 1))
            if quarters == 1 or count < enough:
                count = max(1, min(count, enough))
                yield Geometry(count, threads, staged=True, batched=int(rhs == 1))


def check_geometry(geometry: Geometry) -> None:
    """Refuse a geometry that the kernel cannot have.

    Raises
    ------
    InputError
        Threads that are no whole warps between 2 and 32, copies that are not 1 to 8, a ring that
        does not work, or units without one.
    """
    if geometry.threads % WARP or not 2 * WARP <= geometry.threads <= 32 * WARP:
        raise InputError(f"threads={geometry.threads}: give a multiple of 32 from 64 to 1024")
    if not 1 <= geometry.copies <= 8:
        raise InputError(f"copies={geometry.copies}: give 1 to 8")
    if geometry.cluster and geometry.blocks > max(CLUSTERS):
        raise InputError(f"blocks={geometry.blocks}: a cluster has {max(CLUSTERS)} at most")
    if geometry.together not in (1, 2):
        raise InputError(f"together={geometry.together}: give 1 or 2")
    steps = geometry.ring_steps
    alone = not geometry.staged and geometry.together == 1
    if steps and (steps < MIN_RING_STEPS or steps & (steps - 1) or not alone):
        raise InputError(
            f"ring_steps={steps}: give a power of two, at least {MIN_RING_STEPS}, with "
            "staged=False and together=1"
        )
    if not 1 <= geometry.units <= WARP or (geometry.units > 1 and not steps):
        raise InputError(f"units={geometry.units}: give 1 to {WARP}, above 1 with ring_steps")
    if geometry.blocks < 1:
        raise InputError(f"blocks={geometry.blocks}: give at least 1")


def persistent_builds(arch: str = "sm_90") -> list[KernelBuild]:
    """Return every compilation of the persistent kernel that :func:`choose_geometry` can need."""
    builds = []
    modern = int(arch.removeprefix("sm_").rstrip("a")) >= 90
    for itemsize, sizes in GROUPS.items():
        dtype = np.dtype(f"f{itemsize}")
        for rhs in sizes:
            if rhs > 1:
                shapes = [Geometry(1, FEW_THREADS, staged) for staged in (True, False)]
            else:
                shapes = [Geometry(1, threads, staged=True, batched=1) for threads in THREADS]
                shapes.append(Geometry(1, MANY_THREADS, staged=False, together=2))
            if rhs == 1 and modern:
                shapes.append(_streaming(dtype, 1))
                shapes += [
                    Geometry(blocks, MANY_THREADS, staged=True, batched=2, cluster=True)
                    for blocks in CLUSTERS
                ]
            builds += [shape.build(dtype, rhs, arch) for shape in shapes]
    return builds
