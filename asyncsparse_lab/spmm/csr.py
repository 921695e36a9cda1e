"""CSR on CUDA cores: how rows are shared out to lanes, the launch arguments, the launch.

Part of the ``host_hash`` of every record of the family: a change here makes them stale.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from asyncsparse_lab.errors import UnsupportedError
from asyncsparse_lab.formats.arrays import INT32_LIMIT
from asyncsparse_lab.gpu.compile import Artifact
from asyncsparse_lab.spmm.instrument import Launch
from asyncsparse_lab.spmm.layout import is_aligned
from asyncsparse_lab.spmm.product import DeviceCsr, Product, require_memory
from asyncsparse_lab.spmm.variants import Variant

CHUNK: Final = 8  # columns that a lane reads at once
WARPS_PER_SM: Final = 20
"""Warps that the registers of the kernel leave room for, at eight rows of B on their way."""
WARP: Final = 32
ENTRIES: Final = {64: "csr_spmm_64", 128: "csr_spmm_128", 256: "csr_spmm", 512: "csr_spmm_512"}
"""Columns of a tile -> kernel; half a warp or less shares the warp with other rows."""
UNALIGNED_ENTRY: Final = "csr_spmm_unaligned"
UNALIGNED_COLUMNS: Final = 256

_AHEAD: Final = 4 * WARP  # how far beyond the last non-zero positions are counted
# Non-zeros that a task of short rows should have: enough to pay for its first loads, of which each
# waits for the one before, and few enough that places which are done early find another task.
_LEAST_STREAM: Final = 32
_LONGEST_STREAM: Final = 128
_TASKS_OF_A_PLACE: Final = 3
_ONE_WAVE_STREAM: Final = 64  # up to here all tasks run at once: a second wave would cost more
_MOST_ROWS: Final = 32
_WARPS_BY_UNROLL: Final = {4: 32, 8: WARPS_PER_SM, 16: 16}  # what there are registers for
_LEAST_PIECE: Final = 32
_LONGEST_PIECE: Final = 128  # eight rows of B at a time, a longer one keeps the others waiting
_UNEVEN: Final = 2  # times the mean: tasks of so many rows that differ more are listed one by one
_ROW_COST: Final = 2  # of writing a row of C, in non-zeros
_L2_SHARE_BYTES: Final = 12 << 20  # of B: this much stays in the near half of L2 in any order


class CsrArguments(ctypes.Structure):
    """Mirror of ``CsrArguments`` in ``kernels/include/csr_arguments.cuh`` (112 bytes)."""

    _fields_ = (
        *((name, ctypes.c_uint64)
          for name in ("indptr", "indices", "values", "tasks", "b", "c", "partials", "counters")),
        ("m", ctypes.c_int64),
        ("n", ctypes.c_int64),
        ("c_row_bytes", ctypes.c_int64),
        ("b_row_bytes", ctypes.c_uint32),
        *((name, ctypes.c_int32)
          for name in ("task_count", "rows_per_task", "slots", "column_tiles", "columns_first")),
    )  # fmt: skip


@dataclass(frozen=True)
class RowTasks:
    """What some lanes of a warp compute, for one tile of columns.

    Attributes
    ----------
    tasks : array of int32, count x 4, or None
        First row, rows (0: a piece of one row), piece, slot of the row's first piece among the
        partial sums.  None: task t is ``rows_per_task`` rows from ``t * rows_per_task`` on.
    count : int
    rows_per_task : int
    piece_length : int
        Non-zeros of a piece; all of a row's but the last have so many.
    slots : int
        Pieces of all long rows.
    """

    tasks: Any
    count: int
    rows_per_task: int
    piece_length: int
    slots: int

    @classmethod
    def of(
        cls,
        indptr: Any,
        column_tiles: int,
        places: int,
        rows_per_task: int = 0,
        piece_length: int = 0,
    ) -> RowTasks:
        """Share out the rows.

        A row of more than one and a half pieces is cut.  Where rows differ much, tasks are listed:
        pieces come first, then the other rows in
        their order, so that neighbours find each other's rows of B in L1.

        Parameters
        ----------
        indptr : integer array, m + 1
            NumPy.
        column_tiles : int
            Every row is computed for each of them.
        places : int
            Tasks that the device runs at once.
        rows_per_task, piece_length : int
            0: by rule.
        """
        lengths = np.diff(indptr)
        m, nnz = len(lengths), int(indptr[-1])
        fair = nnz * column_tiles // max(places, 1)  # non-zeros of a task if each place had one
        # One place multiplies a piece while the others multiply their share: half of that is short.
        piece = piece_length or -(-min(max(fair // 2, _LEAST_PIECE), _LONGEST_PIECE) // WARP) * WARP
        stream = min(max(fair // _TASKS_OF_A_PLACE, _LEAST_STREAM), _LONGEST_STREAM)
        rows = rows_per_task or _rows_of_a_task(m, nnz, column_tiles, places, stream)
        ends = indptr[np.minimum(np.arange(rows, m + rows, rows), m)]
        longest = int(np.diff(ends, prepend=0).max(initial=0))
        limit = 3 * piece // 2
        if longest <= min(limit, _UNEVEN * rows * nnz // max(m, 1)):
            return cls(None, -(-m // rows), rows, piece, 0)
        pieces, slots = _pieces(lengths, piece, limit)
        cost = (nnz + _ROW_COST * m) * column_tiles
        wave = -(-cost // max(places - slots * column_tiles, places // 2, 1))
        budget = wave if wave <= _ONE_WAVE_STREAM else stream
        runs = _runs(lengths, limit, _ROW_COST + budget)
        tasks = np.concatenate([pieces, runs])
        return cls(tasks, len(tasks), rows, piece, slots)

    def table(self, indptr: Any) -> Any:
        """Return the tasks as the kernel reads them, int32 count x 8; there have to be any."""
        first, rows, piece, slot = self.tasks.T
        table = np.zeros((self.count, 8), dtype=np.int32)
        is_piece = rows == 0
        table[:, 0], table[:, 1] = first, np.maximum(rows, 1)
        begin = indptr[first] + piece * self.piece_length
        end = indptr[first + table[:, 1]]
        table[:, 5] = np.where(is_piece, -(-(end - indptr[first]) // self.piece_length), 0)
        table[:, 2] = begin
        table[:, 3] = np.where(is_piece, np.minimum(end, begin + self.piece_length), end)
        table[:, 4], table[:, 6] = piece, slot
        return table


def _rows_of_a_task(m: int, nnz: int, column_tiles: int, places: int, stream: int) -> int:
    """Return how many rows a task has where all are short."""
    in_one_wave = max(1, -(-m * column_tiles // max(places, 1)))
    if in_one_wave * nnz <= _ONE_WAVE_STREAM * m:
        return in_one_wave
    return max(1, min(_MOST_ROWS, stream * m // max(nnz, 1)))


def _pieces(lengths: Any, piece: int, limit: int) -> tuple[Any, int]:
    """Return the tasks of the rows that are cut, and how many slots they take."""
    rows = np.flatnonzero(lengths > limit)
    counts = -(-lengths[rows] // piece)
    firsts = np.cumsum(counts) - counts
    slots = int(counts.sum())
    tasks = np.zeros((slots, 4), dtype=np.int32)
    tasks[:, 0] = np.repeat(rows, counts)
    tasks[:, 2] = np.arange(slots) - np.repeat(firsts, counts)
    tasks[:, 3] = np.repeat(firsts, counts)
    return tasks, slots


def _runs(lengths: Any, limit: int, budget: int) -> Any:
    """Return the tasks of rows up to the limit: successive ones until their cost is the budget."""
    is_long = lengths > limit
    cost = np.where(is_long, 0, lengths + _ROW_COST)
    part = (np.cumsum(cost) - cost) // budget
    begins = np.ones(len(lengths), dtype=bool)
    begins[1:] = (part[1:] != part[:-1]) | is_long[1:] | is_long[:-1]
    firsts = np.flatnonzero(begins)
    counts = np.diff(firsts, append=len(lengths))
    short = ~is_long[firsts]
    tasks = np.zeros((int(short.sum()), 4), dtype=np.int32)
    tasks[:, 0], tasks[:, 1] = firsts[short], counts[short]
    return tasks


def choose_tile(n: int) -> int:
    """Return the widest tile, of a warp or less, that wastes at most a quarter of its lanes."""
    return next((c for c in (256, 128) if -(-n // c) * c * 3 <= 4 * n), 64)


@dataclass(frozen=True)
class CsrPlan:
    """How a product of some shape is launched.

    Attributes
    ----------
    entry : str
        Kernel.
    columns, column_tiles : int
        Of a tile, and tiles.
    columns_first : bool
        Whether the tiles of the same rows run at the same time, and not those of the same columns.
    """

    entry: str
    columns: int
    column_tiles: int
    columns_first: bool

    @classmethod
    def of(cls, k: int, n: int, aligned: bool, tile_columns: int = 0, order: int = 0) -> CsrPlan:
        """Choose tile and order.

        Parameters
        ----------
        aligned : bool
            Rows of B and C are whole 16-byte chunks, and so is n.
        tile_columns : int
            Columns of a tile; 0: by rule.
        order : {0, 1, 2}
            0: by rule; 1: all rows of one tile of columns before the next; 2: columns first.
        """
        columns = (tile_columns or choose_tile(n)) if aligned else UNALIGNED_COLUMNS
        entry = ENTRIES[columns] if aligned else UNALIGNED_ENTRY
        # Where B outgrows the half of L2 that is near, a tile's columns of it may still fit.
        columns_first = order == 2 if order else 2 * k * n <= _L2_SHARE_BYTES
        return cls(entry, columns, -(-n // columns), columns_first)

    def groups(self, threads: int) -> int:
        """Return how many tasks a thread block of so many threads takes."""
        lanes = min(WARP, self.columns // CHUNK)
        return threads // lanes


def launch_csr(kernel: Variant, artifact: Artifact, product: Product, output: Any) -> Launch:
    """Share out A's rows and make the product a function to be called: one launch.

    Raises
    ------
    DeviceError, MemoryLimitError, UnsupportedError
        Before anything is launched.
    """
    from asyncsparse_lab.gpu.device import device_facts

    if max(product.A.nnz, product.m) + _AHEAD >= INT32_LIMIT:
        raise UnsupportedError(
            f"A has {product.A.nnz:,} non-zeros in {product.m:,} rows: {kernel.name} counts both "
            "in 32 bits; cut A into parts of fewer rows"
        )
    B, options = product.B, kernel.options
    aligned = product.n % CHUNK == 0 and is_aligned(B) and is_aligned(output)
    plan = CsrPlan.of(product.k, product.n, aligned, options["tile_columns"], options["order"])
    warps = _WARPS_BY_UNROLL.get(kernel.constants["UNROLL"], WARPS_PER_SM)
    places = device_facts().sm_count * warps * plan.groups(WARP)
    key = (plan.column_tiles, places, options["rows_per_task"], options["piece_length"])

    def share_out(A: Any) -> RowTasks:
        import cupy

        tasks = RowTasks.of(A.indptr, *key)
        if tasks.tasks is None:
            return tasks
        return replace(tasks, tasks=cupy.asarray(tasks.table(A.indptr)))

    A = product.device_csr
    tasks, preprocess_us = product.converted(f"csr-tasks{key}", share_out)
    params = {
        "padded": False,
        "columns": plan.columns,
        "aligned": aligned,
        "columns_first": plan.columns_first,
        "rows": tasks.rows_per_task,
        "piece": tasks.piece_length,
        "pieces": tasks.slots,
    }
    launch = _open(artifact, kernel, A, tasks, plan, B, output)
    return replace(launch, preprocess_us=preprocess_us, params=params)


def _open(
    artifact: Artifact,
    kernel: Variant,
    A: DeviceCsr,
    tasks: RowTasks,
    plan: CsrPlan,
    B: Any,
    C: Any,
) -> Launch:
    import cupy

    from asyncsparse_lab.gpu.launch import load

    if not C.size:
        return Launch(lambda: None)
    if not B.size:
        return Launch(lambda: C.fill(0))
    sums = tasks.slots * plan.column_tiles
    require_memory(4 * sums * (plan.columns + 1), "partial sums of long rows", cupy)
    partials = cupy.empty(sums * plan.columns, dtype=cupy.float32)
    counters = cupy.zeros(sums, dtype=cupy.int32)
    arguments = csr_arguments(A, tasks, plan, B, C)
    arguments.partials, arguments.counters = partials.data.ptr, counters.data.ptr
    threads = kernel.launch_geometry.threads
    grid = -(-tasks.count // plan.groups(threads)) * plan.column_tiles
    enqueue = load(replace(artifact, entry=plan.entry)).prepare(grid, threads, 0, arguments)

    def run(_alive: tuple[object, ...] = (A, tasks, B, C, partials, counters)) -> None:
        enqueue()

    return Launch(run)


def csr_arguments(A: DeviceCsr, tasks: RowTasks, plan: CsrPlan, B: Any, C: Any) -> CsrArguments:
    """Fill the argument struct for C = A B, but for the memory of partial sums.

    Parameters
    ----------
    A : DeviceCsr, m x k
        32-bit offsets.
    tasks : RowTasks
        With CuPy arrays.
    plan : CsrPlan
    B : cupy.ndarray of a 16-bit type, k x n
    C : cupy.ndarray, m x n
        Both row-major, any row stride.

    Raises
    ------
    UnsupportedError
        If C's columns are not contiguous, or a row of B has 4 GiB or more.
    """
    n = B.shape[1]
    if n > 1 and C.strides[1] != C.itemsize:
        raise UnsupportedError(f"C has strides {C.strides}: pass a row-major out")
    if not 0 <= B.strides[0] < 2**32:
        raise UnsupportedError(f"B has strides {B.strides}: pass rows of less than 4 GiB, in order")
    return CsrArguments(
        indptr=A.indptr.data.ptr,
        indices=A.indices.data.ptr,
        values=A.values.data.ptr,
        tasks=0 if tasks.tasks is None else tasks.tasks.data.ptr,
        b=B.data.ptr,
        c=C.data.ptr,
        m=C.shape[0],
        n=n,
        c_row_bytes=C.strides[0],
        b_row_bytes=B.strides[0],
        task_count=tasks.count,
        rows_per_task=tasks.rows_per_task,
        slots=tasks.slots,
        column_tiles=plan.column_tiles,
        columns_first=plan.columns_first,
    )
