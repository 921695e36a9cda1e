"""How kernels are launched: threads, tiles and shared memory, by rule from their constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from asyncsparse_lab.errors import InputError

BLOCK = 64
"""Rows and columns of a block of A in every BCSR kernel."""
WINDOW = 64
"""Rows of a window of A in every WCSR kernel."""
WGMMA_COLUMNS = (8, 16, 32, 64, 128, 192, 256)
"""Values of WGMMA_N that the kernels are built for."""
MAX_SHARED_BYTES = 232_448
"""Shared memory that one thread block may use on sm_90 (CUDA C++ Programming Guide, table of
compute capabilities)."""
ALIGNMENT_BYTES = 1024
"""Extra dynamic shared memory, since 128-byte swizzle wants 1024-byte alignment."""
STATIC_BYTES = 1024
"""Room kept for barriers and scheduling state in static shared memory."""
SM_SHARED_BYTES = 233_472
"""Shared memory of an SM, of which each thread block also takes 1 KiB for the system (same)."""
SM_REGISTERS = 65_536
CONSUMERS = 2

Constants = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Geometry:
    """How a kernel is launched.

    Attributes
    ----------
    threads : int
        Threads per block.
    tile_columns : int
        Columns of C that one tile covers; a tile has 64 rows.
    slice_columns : int
        Columns of the box of B's tensor map; 0 where the kernel uses none.
    shared_bytes : int
        Dynamic shared memory in bytes.
    cluster : int
        Thread blocks in a cluster, neighbours along N.
    persistent : bool
        One thread block an SM, each taking several tiles.
    stores_by_tma : bool
        C needs 16-byte rows; other outputs go through a workspace.
    schedules : bool
        The kernel takes tiles from a counter and needs zeroed memory for it.
    pairs : bool
        The kernel computes matched pairs of block rows.
    stage_k : int
        Rows of B, and columns of a block of A, in one stage.
    """

    threads: int
    tile_columns: int
    slice_columns: int
    shared_bytes: int
    cluster: int = 1
    persistent: bool = False
    stores_by_tma: bool = False
    schedules: bool = False
    pairs: bool = False
    stage_k: int = BLOCK

    def grid(self, block_rows: int, n: int, sm_count: int) -> int:
        """Return the thread blocks of a launch: one a tile, or one an SM."""
        if self.persistent:
            return sm_count
        column_tiles = -(-n // self.tile_columns)
        return block_rows * (column_tiles + -column_tiles % self.cluster)


def stage_bytes(wgmma_n: int) -> int:
    """Return the bytes of one ring slot: a 64 x 64 block of A and 64 rows of B, in bf16."""
    return BLOCK * BLOCK * 2 + BLOCK * CONSUMERS * wgmma_n * 2


def max_stages(wgmma_n: int) -> int:
    """Return how many ring slots fit into shared memory at this WGMMA_N."""
    room = MAX_SHARED_BYTES - ALIGNMENT_BYTES - STATIC_BYTES
    return room // stage_bytes(wgmma_n)


def scalar_geometry(constants: Constants) -> Geometry:
    """Return the geometry of opt0: one thread computes one column."""
    return Geometry(threads=128, tile_columns=128, slice_columns=0, shared_bytes=0)


def tile_geometry(constants: Constants, threads: int, stages: int) -> Geometry:
    """Return the geometry of a tile of 64 rows x 2 WGMMA_N columns."""
    wgmma_n = constants["WGMMA_N"]
    return Geometry(
        threads=threads,
        tile_columns=CONSUMERS * wgmma_n,
        slice_columns=min(64, wgmma_n),
        shared_bytes=stages * stage_bytes(wgmma_n) + ALIGNMENT_BYTES,
    )


def serial_geometry(constants: Constants) -> Geometry:
    """Return the geometry of opt1 and opt2: one stage, no ring."""
    return tile_geometry(constants, threads=256, stages=1)


def ring_geometry(constants: Constants) -> Geometry:
    """Return the geometry of opt3: one producer and two consumer warpgroups."""
    return tile_geometry(constants, threads=384, stages=constants["STAGES"])


def multicast_geometry(constants: Constants) -> Geometry:
    """Return opt3's geometry in clusters."""
    return replace(ring_geometry(constants), cluster=constants["CLUSTER"])


def persistent_geometry(constants: Constants) -> Geometry:
    """Return opt3's geometry with one thread block an SM."""
    return replace(ring_geometry(constants), persistent=True)


def overlap_geometry(constants: Constants) -> Geometry:
    """Return the geometry of a persistent ring through which C leaves.

    Two consumers have WGMMA_N columns of a block row each, in STAGES slots of their own; blocks of
    A have one slot more.
    """
    return _output_ring(constants, CONSUMERS * constants["WGMMA_N"], more_blocks=1)


def paired_geometry(constants: Constants) -> Geometry:
    """Return the geometry of the same where each consumer has a block row, in the same columns.

    Some steps need two blocks of A, which have three slots more.
    """
    return replace(_output_ring(constants, constants["WGMMA_N"], more_blocks=3), pairs=True)


def _output_ring(constants: Constants, tile_columns: int, more_blocks: int) -> Geometry:
    stages = constants["STAGES"]
    slots_bytes = 2 * BLOCK * ((stages + more_blocks) * BLOCK + stages * tile_columns)
    return Geometry(
        threads=384,
        tile_columns=tile_columns,
        slice_columns=64,
        shared_bytes=slots_bytes + ALIGNMENT_BYTES,
        persistent=True,
        stores_by_tma=True,
        schedules=True,
    )


def window_geometry(constants: Constants) -> Geometry:
    """Return the geometry of the article's WCSR kernel."""
    wgmma_n = constants["WGMMA_N"]
    return Geometry(
        threads=128,
        tile_columns=wgmma_n,
        slice_columns=0,
        shared_bytes=2 * BLOCK * (WINDOW + wgmma_n) + ALIGNMENT_BYTES,
    )


def pipelined_geometry(constants: Constants) -> Geometry:
    """Return the geometry of the pipelined WCSR kernel.

    A consumer warpgroup for each 64 rows of a window and each of COLUMN_GROUPS times WGMMA_N
    columns, and PRODUCERS producer warps; MINIMUM_CTAS thread blocks share an SM's registers and
    shared memory.

    Raises
    ------
    InputError
        The constants do not fit together, or not so many blocks fit on an SM.
    """
    height, wgmma_n, producers = (constants[key] for key in ("HEIGHT", "WGMMA_N", "PRODUCERS"))
    groups, stages, ctas = (constants[key] for key in ("COLUMN_GROUPS", "STAGES", "MINIMUM_CTAS"))
    columns = groups * wgmma_n
    for name, value, offered in (
        ("HEIGHT", height, (64, 128, 256)),
        ("WGMMA_N", wgmma_n, (64, 128, 256)),
        ("COLUMN_GROUPS", groups, [count for count in (1, 2) if count * wgmma_n <= 256]),
        # A producer warp copies whole rows, several at once where they are short, of the
        # 16 / PRODUCERS that are its own.
        ("PRODUCERS", producers, [count for count in (2, 4, 8) if count <= columns // 16]),
    ):
        if value not in offered:
            raise InputError(f"{name} = {value}: use one of {', '.join(map(str, offered))}")
    threads = height * 2 * groups + producers * 32
    registers = SM_REGISTERS // (ctas * threads) // 8 * 8
    if threads > 1024 or registers < wgmma_n // 2 + 26:  # beside the accumulators of a wgmma
        raise InputError(
            f"MINIMUM_CTAS = {ctas} of {threads} threads leave {registers} registers a thread, and "
            f"WGMMA_N = {wgmma_n} needs {wgmma_n // 2 + 26}: use fewer blocks or producers"
        )
    slot_bytes = 2 * BLOCK * (height + columns)
    room = SM_SHARED_BYTES // ctas - 1024 - STATIC_BYTES - ALIGNMENT_BYTES
    if stages > room // slot_bytes:
        raise InputError(
            f"STAGES = {stages} of {slot_bytes} bytes do not fit {ctas} times on an SM: use at "
            f"most {room // slot_bytes}"
        )
    if stages * slot_bytes < 4 * height * columns:
        raise InputError(
            f"STAGES = {stages} of {slot_bytes} bytes cannot hold {height} x {columns} of C: use "
            f"at least {-(-4 * height * columns // slot_bytes)}"
        )
    return Geometry(
        threads=threads,
        tile_columns=columns,
        slice_columns=0,
        shared_bytes=stages * slot_bytes + ALIGNMENT_BYTES,
    )


def rows_geometry(constants: Constants) -> Geometry:
    """Return the geometry of CSR on CUDA cores: warps that share nothing but their own memory."""
    return Geometry(threads=constants["THREADS"], tile_columns=256, slice_columns=0, shared_bytes=0)
