"""What each kernel and library moves and computes for a product: the model's input.

Each function returns a :class:`~asyncsparse_lab.spmm.cost.Work` and the bytes of A's format on the
device.  They count what the kernels' designs say: which rows of B a task gathers, how wide its
tile of C is, how many thread blocks an SM holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from asyncsparse_lab.spmm.cost import HIDDEN, IN_TURN, OVERLAPPING, Work
from asyncsparse_lab.spmm.plan_rates import Rates
from asyncsparse_lab.spmm.plan_structure import BLOCK, Structure

if TYPE_CHECKING:
    from asyncsparse_lab.spmm.csr import RowTasks

IntArray = npt.NDArray[np.int64]

VALUE_BYTES: Final = 2
INDEX_BYTES: Final = 4
POINTER_BYTES: Final = 8
TENSOR_CORES: Final = "tensor cores"
FP32_UNITS: Final = "FP32 units"

_STEP_COLUMNS: Final = 16  # windows are padded to whole steps of WGMMA along k
_USUAL_TILE: Final = 64 * 128  # of C: half of a task's overhead grows with its tile
_LIBRARY_WARPS: Final = 16  # per SM
_LIBRARY_TILE: Final = 128  # columns of a warp
_ELL_TILE: Final = 64
_ELL_CTAS: Final = 4
_DENSE_TILE: Final = 128
_DENSE_STEP: Final = 64
# cuSPARSE's tiles and slots, and cuBLAS's, are what fits their recorded times best: the longest
# row decides ALG3's time at the rate of one of 16 warps an SM with 128 columns each; Blocked-ELL's
# times are whole waves of tiles of 64 columns, four an SM.


@dataclass(frozen=True)
class Problem:
    """A product to be costed.

    Attributes
    ----------
    structure : Structure
        Of A.
    n : int
        Columns of B.
    output_bytes : int
        Of an element of C.
    rates : Rates
    """

    structure: Structure
    n: int
    output_bytes: int
    rates: Rates

    def hbm_us(self, a_bytes: float, extra_bytes: float = 0.0) -> float:
        """Return the microseconds of reading A and the touched rows of B, and writing C."""
        structure = self.structure
        b_bytes = VALUE_BYTES * structure.touched_rows * self.n
        c_bytes = self.output_bytes * structure.m * self.n
        return (a_bytes + b_bytes + c_bytes + extra_bytes) / self.rates.hbm_bytes_per_us

    def tiles(self, columns: int) -> int:
        """Return the tiles along N."""
        return max(1, -(-self.n // columns))

    def stored(self, rows: int, columns: int) -> float:
        """Return the bytes of a tile of C, averaged over the tiles along N."""
        return rows * self.n / self.tiles(columns) * self.output_bytes


def blocks_work(
    problem: Problem, tile_columns: int, *, overlapping: bool = False
) -> tuple[Work, int]:
    """Return the work of BCSR: a block row and a tile of C each task, B by TMA.

    Parameters
    ----------
    overlapping : bool
        Whether C leaves while the next tile is loaded.
    """
    per_row = problem.structure.blocks_per_row
    a_bytes = bcsr_bytes(problem.structure)
    slice_bytes = VALUE_BYTES * BLOCK * problem.n / problem.tiles(tile_columns)
    block_bytes = VALUE_BYTES * BLOCK * BLOCK
    moved = per_row * (block_bytes + slice_bytes) + problem.stored(BLOCK, tile_columns)
    flops = per_row * (2.0 * BLOCK * BLOCK * tile_columns)
    if not overlapping:
        return _ring_work(problem, moved, flops, a_bytes, tile_columns, IN_TURN), a_bytes
    steps = problem.structure.blocks
    return _overlapping_work(problem, moved, flops, a_bytes, steps, tile_columns), a_bytes


def _overlapping_work(
    problem: Problem,
    moved: npt.NDArray[np.floating[Any]],
    flops: npt.NDArray[np.floating[Any]],
    a_bytes: int,
    steps: int,
    tile_columns: int,
) -> Work:
    """Return the work of a ring that loads while C leaves, and B again where L2 did not keep it."""
    read_bytes = a_bytes + _reread_bytes(problem, steps, len(moved), tile_columns)
    return _ring_work(problem, moved, flops, read_bytes, tile_columns, OVERLAPPING)


def _reread_bytes(problem: Problem, steps: int, tasks: int, tile_columns: int) -> float:
    """Return the bytes of B that come from memory again, since L2 did not keep them.

    All tasks of some columns come before the next columns.  Where there are fewer of them than SMs,
    several tiles' columns of B are wanted at a time, by tasks at any place along K.  Where there
    are more, 0: what the tasks of one tile's columns want together depends on the pattern.

    Parameters
    ----------
    steps, tasks : int
        Block columns that the tasks of a tile's columns load, and the tasks.
    """
    rates, tiles = problem.rates, problem.tiles(tile_columns)
    if tasks >= rates.sm_count:
        return 0.0
    b_bytes = float(VALUE_BYTES * problem.structure.touched_rows * problem.n)
    wanted = b_bytes / tiles * min(tiles, rates.sm_count / max(1, tasks))
    # Each of L2's two parts keeps lines of its own for the SMs beside it.
    missed = max(0.0, 1.0 - rates.l2_bytes / 2 / max(1.0, wanted))
    return missed * max(0.0, VALUE_BYTES * BLOCK * problem.n * float(steps) - b_bytes)


def _ring_work(
    problem: Problem,
    moved: npt.NDArray[np.floating[Any]],
    flops: npt.NDArray[np.floating[Any]],
    read_bytes: float,
    tile_columns: int,
    hbm_exponent: float,
) -> Work:
    """Return the work of a kernel that loads by TMA, from the bytes and operations of its tasks."""
    rates = problem.rates
    return Work(
        moved / rates.tma_bytes_per_us,
        flops / rates.mma_flops_per_us,
        TENSOR_CORES,
        rates.sm_count,
        problem.hbm_us(read_bytes),
        repeats=problem.tiles(tile_columns),
        hbm_exponent=hbm_exponent,
    )


def pairs_work(problem: Problem, tile_columns: int, steps: IntArray) -> tuple[Work, int]:
    """Return the work of block rows in pairs: each slice of B of a pair is loaded once.

    Parameters
    ----------
    steps : int64 array, pairs
        Block columns in the union of both rows.
    """
    structure = problem.structure
    a_bytes = bcsr_bytes(structure) + 16 * int(steps.sum())
    slice_bytes = VALUE_BYTES * BLOCK * problem.n / problem.tiles(tile_columns)
    block_bytes = VALUE_BYTES * BLOCK * BLOCK
    per_step = structure.blocks / max(1, int(steps.sum()))
    moved = steps * (per_step * block_bytes + slice_bytes)
    moved = moved + problem.stored(2 * BLOCK, tile_columns)
    flops = steps * (2.0 * per_step * BLOCK * BLOCK * tile_columns)
    total = int(steps.sum())
    return _overlapping_work(problem, moved, flops, a_bytes, total, tile_columns), a_bytes


def windows_work(
    problem: Problem,
    height: int,
    tile_columns: int,
    limit: int,
    ctas_per_sm: int,
    ring_bytes: int,
    stage_columns: int,
    *,
    overlapped: bool = True,
    cut_launches: int = 1,
) -> tuple[Work, int]:
    """Return the work of WCSR: a piece of a window and a tile of C each task, B gathered.

    Parameters
    ----------
    height : int
        Rows of a window: 64, 128 or 256.
    limit : int
        Columns at which windows are cut; 0 leaves them whole.
    ring_bytes : int
        That a thread block has in flight.
    stage_columns : int
        Columns of A that a stage holds.
    overlapped : bool
        Whether a thread block gathers while it multiplies, and others while it stores.
    cut_launches : int
        Kernels where a window is cut.
    """
    rates = problem.rates
    padded = padded_columns(problem.structure, height)
    lengths, parts = cut(padded, limit)
    a_bytes = wcsr_bytes(problem.structure, height)
    tiles = problem.tiles(tile_columns)
    width = problem.n / tiles
    moved = lengths * (VALUE_BYTES * (height + width) + INDEX_BYTES)
    # Pieces of a cut window meet in float32, each written and read once; the last writes C.
    moved = moved + np.where(parts > 1, 8.0 * height * width, 0.0)
    moved = moved + problem.stored(height, tile_columns) / parts
    work = Work(
        moved / rates.gather_rate(ctas_per_sm * ring_bytes),
        lengths * (2.0 * height * tile_columns) / rates.mma_flops_per_us,
        TENSOR_CORES,
        rates.sm_count * ctas_per_sm,
        problem.hbm_us(a_bytes),
        repeats=tiles,
        steps=0.5 + 0.5 * height * tile_columns / _USUAL_TILE,
        stages=lengths / stage_columns,
        merges=np.log2(parts),
        overlapped=overlapped,
        launches=cut_launches if bool((parts > 1).any()) else 1,
    )
    return work, a_bytes


def rows_work(
    problem: Problem, tasks: RowTasks, column_tiles: int, places: int
) -> tuple[Work, int]:
    """Return the work of CSR on CUDA cores: some lanes' rows, or a piece of a long one, each task.

    Parameters
    ----------
    tasks : RowTasks
        As the kernel shares them out.
    column_tiles : int
        Tiles along N.
    places : int
        Tasks that run at a time.
    """
    rates, structure = problem.rates, problem.structure
    a_bytes = csr_bytes(structure) + 16 * (0 if tasks.tasks is None else tasks.count)
    nonzeros, rows, merged = _shared_out(structure, tasks)
    width = problem.n / column_tiles
    moved = nonzeros * (VALUE_BYTES * width + VALUE_BYTES + INDEX_BYTES)
    moved = moved + rows * (width * problem.output_bytes + POINTER_BYTES)
    work = Work(
        moved / rates.gather_bytes_per_us,
        nonzeros * (2.0 * width) / rates.fma_flops_per_us,
        FP32_UNITS,
        places,
        problem.hbm_us(a_bytes, 2 * 4 * tasks.slots * problem.n),
        repeats=column_tiles,
        merges=merged,
    )
    return work, a_bytes


def _shared_out(structure: Structure, tasks: RowTasks) -> tuple[IntArray, IntArray, IntArray]:
    """Return the non-zeros, the rows and the partial sums of each task.

    A piece of a row writes one; who comes last, here the first piece, adds those of all pieces, one
    after the other.
    """
    indptr, m = structure.indptr, structure.m
    if tasks.tasks is None:
        first = np.arange(0, m, tasks.rows_per_task)
        last = np.minimum(first + tasks.rows_per_task, m)
        return indptr[last] - indptr[first], last - first, np.zeros(len(first), dtype=np.int64)
    first, rows, piece, _ = tasks.tasks.T.astype(np.int64)
    begin = indptr[first] + piece * tasks.piece_length
    end = indptr[first + np.maximum(rows, 1)]
    pieces = -(-(end - indptr[first]) // tasks.piece_length)
    end = np.where(rows > 0, end, np.minimum(end, begin + tasks.piece_length))
    merged = np.where(rows > 0, 0, np.where(piece == 0, pieces + 1, 1))
    return end - begin, np.maximum(rows, 1), merged


def csr_library_work(problem: Problem, algorithm: int) -> tuple[Work, int]:
    """Return the work of cuSPARSE on CSR: ALG2 shares non-zeros, ALG3 gives rows to warps."""
    rates, structure = problem.rates, problem.structure
    lengths: npt.NDArray[np.float64] = structure.row_lengths.astype(np.float64)
    if algorithm == 2:
        lengths = np.full(structure.m, structure.nnz / max(1, structure.m))
    tiles = problem.tiles(_LIBRARY_TILE)
    width = problem.n / tiles
    a_bytes = csr_bytes(structure)
    work = Work(
        lengths * (VALUE_BYTES * width) / rates.gather_bytes_per_us,
        lengths * (2.0 * width) / rates.fma_flops_per_us,
        FP32_UNITS,
        rates.sm_count * _LIBRARY_WARPS,
        problem.hbm_us(a_bytes),
        repeats=tiles,
    )
    return work, a_bytes


def blocked_ell_work(problem: Problem) -> tuple[Work, int]:
    """Return the work of cuSPARSE on Blocked-ELL: every block row as long as the longest."""
    rates, per_row = problem.rates, problem.structure.blocks_per_row
    width = max(1, int(per_row.max(initial=0)))
    block_bytes = VALUE_BYTES * BLOCK * BLOCK
    a_bytes = len(per_row) * width * (block_bytes + INDEX_BYTES)
    lengths = np.full(len(per_row), float(width))
    slice_bytes = VALUE_BYTES * BLOCK * _ELL_TILE
    work = Work(
        lengths * (block_bytes + slice_bytes) / rates.tma_bytes_per_us,
        lengths * (2.0 * BLOCK * BLOCK * _ELL_TILE) / rates.mma_flops_per_us,
        TENSOR_CORES,
        rates.sm_count * _ELL_CTAS,
        problem.hbm_us(a_bytes),
        repeats=problem.tiles(_ELL_TILE),
    )
    return work, a_bytes


def dense_work(problem: Problem) -> tuple[Work, int]:
    """Return the work of cuBLAS: one task, m and n rounded to whole tiles; k steps in a row."""
    rates, structure = problem.rates, problem.structure
    m = -(-structure.m // _DENSE_TILE) * _DENSE_TILE
    k = structure.k + -structure.k % 8
    n = problem.tiles(_DENSE_TILE) * _DENSE_TILE
    a_bytes = VALUE_BYTES * structure.m * k
    untouched = VALUE_BYTES * (k - structure.touched_rows) * problem.n
    work = Work(
        np.zeros(1),
        np.array([2.0 * m * k * n / rates.cublas_flops_per_us]),
        TENSOR_CORES,
        1,
        problem.hbm_us(a_bytes, untouched),
        steps=k / _DENSE_STEP,
        hbm_exponent=HIDDEN,
    )
    return work, a_bytes


def cut(lengths: IntArray, limit: int) -> tuple[IntArray, IntArray]:
    """Return the lengths of the pieces, and for each how many pieces its window has.

    One of length c gives max(1, ceil(c / limit)) pieces, all but the last of the whole limit.
    """
    if not limit:
        return lengths, np.ones(len(lengths), dtype=np.int64)
    pieces = np.maximum(-(-lengths // limit), 1)
    parts = np.repeat(pieces, pieces)
    last = np.cumsum(pieces) - 1
    cut_lengths = np.full(len(parts), limit, dtype=np.int64)
    cut_lengths[last] = lengths - (pieces - 1) * limit
    return cut_lengths, parts


def padded_columns(structure: Structure, height: int) -> IntArray:
    """Return the stored columns of each window: whole steps of 16."""
    return -(-structure.columns[height] // _STEP_COLUMNS) * _STEP_COLUMNS


def bcsr_bytes(structure: Structure) -> int:
    """Return the bytes of BCSR on the device, with its tasks."""
    block = VALUE_BYTES * BLOCK * BLOCK + INDEX_BYTES
    return structure.blocks * block + (POINTER_BYTES + 16) * len(structure.blocks_per_row)


def wcsr_bytes(structure: Structure, height: int) -> int:
    """Return the bytes of WCSR on the device, windows padded to 16 columns."""
    columns = padded_columns(structure, height)
    stored = int(columns.sum())
    return stored * (VALUE_BYTES * height + INDEX_BYTES) + POINTER_BYTES * (len(columns) + 1)


def csr_bytes(structure: Structure) -> int:
    """Return the bytes of CSR on the device."""
    pointer = INDEX_BYTES if structure.nnz < 2**31 else POINTER_BYTES
    return structure.nnz * (VALUE_BYTES + INDEX_BYTES) + pointer * (structure.m + 1)
