"""Which contenders can be planned with, and the model of each.

Who adds a kernel that ``auto`` may choose adds its configurations to :func:`configurations` and
its model to :data:`MODELS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.spmm import plan_works as works
from asyncsparse_lab.spmm.cost import Work
from asyncsparse_lab.spmm.geometry import ALIGNMENT_BYTES
from asyncsparse_lab.spmm.orders import AS_STORED, NAMES
from asyncsparse_lab.spmm.plan_works import IntArray, Problem
from asyncsparse_lab.spmm.variants import VARIANTS, Variant

if TYPE_CHECKING:
    from asyncsparse_lab.spmm.contender import Contender

LIBRARIES: Final = (
    "cublas-dense",
    "cusparse-csr-alg2",
    "cusparse-csr-alg3",
    "cusparse-blocked-ell",
)
"""Names in ``baselines.BASELINES`` that are candidates."""

MATCHED_CANDIDATES: Final = 500_000
"""Pairs of block rows with a common column, above which the model takes neighbours as pairs:
matching them would take longer than planning may."""
NEAR_OPTIMAL: Final = 1.15
"""Neighbours are taken, too, where they need at most so many times the fewest possible steps."""

WINDOW_LIMITS: Final = (-1, 0, 768)
"""Columns at which windows of the pipelined kernel may be cut: by its rule, never, at 768."""

_THREADS_PER_SM: Final = 2048
_REGISTERS_PER_SM: Final = 65_536
_OTHER_REGISTERS: Final = 64  # of a thread, besides its accumulators

Params = dict[str, Any]


def configurations() -> Iterator[Variant]:
    """Yield every variant of ours that may be chosen; each must be among ``builds.all_builds``."""
    from asyncsparse_lab.spmm.builds import pipelined_builds

    for name in ("bcsr-opt3", "bcsr-overlap", "bcsr-overlap-narrow", "bcsr-paired", "csr-vector"):
        yield VARIANTS[name]
    for tile in pipelined_builds():
        for limit in WINDOW_LIMITS:
            yield tile.with_options(max_cols_per_task=limit)


def kernel_name(contender: Contender) -> str:
    """Return the key of a contender's coefficients: a variant's name, or backend and variant."""
    name = contender.variant
    return name if contender.backend == "asyncsparse" else f"{contender.backend}-{name}"


def order_name(contender: Contender) -> str:
    """Return the name of a contender's order of A's rows; empty where they are as stored."""
    code = int(contender.params.get("row_order", AS_STORED))
    return "" if code == AS_STORED else NAMES[code]


def work_of(name: str, params: Params, problem: Problem) -> tuple[Work, int]:
    """Return what a kernel does for a product, and the bytes of its format of A.

    Parameters
    ----------
    name : str
        As :func:`kernel_name` gives it.
    params : dict
        Of the contender, or of its record.
    problem : Problem
        With A's rows in the order in which the kernel takes them.

    Raises
    ------
    InputError
        There is no model of this kernel.
    """
    if name not in MODELS:
        raise InputError(f"no cost model of {name!r}; there are {', '.join(MODELS)}")
    return MODELS[name](name, params, problem)


def variant_of(name: str, params: Params) -> Variant:
    """Return a variant with the constants and options that a record names."""
    variant = VARIANTS[name]
    constants = {
        key: int(params[key.lower()]) for key in variant.constants if key.lower() in params
    }
    options = {key: int(params[key]) for key in variant.options if key in params}
    return variant.with_constants(**constants).with_options(**options)


def ctas_per_sm(variant: Variant, shared_bytes: int) -> int:
    """Return the thread blocks that an SM holds, by shared memory, threads and accumulators."""
    geometry = variant.launch_geometry
    if geometry.persistent:
        return 1
    accumulators = variant.constants.get("WGMMA_N", 0) // 2
    registers = geometry.threads * (accumulators + _OTHER_REGISTERS)
    by_shared = shared_bytes // max(1, geometry.shared_bytes)
    return max(
        1, min(by_shared, _THREADS_PER_SM // geometry.threads, _REGISTERS_PER_SM // registers)
    )


def _blocks(name: str, params: Params, problem: Problem) -> tuple[Work, int]:
    variant = variant_of(name, params)
    geometry = variant.launch_geometry
    return works.blocks_work(problem, geometry.tile_columns, overlapping=geometry.stores_by_tma)


def _pairs(name: str, params: Params, problem: Problem) -> tuple[Work, int]:
    variant = variant_of(name, params)
    return works.pairs_work(problem, variant.launch_geometry.tile_columns, _pair_steps(problem))


def _pair_steps(problem: Problem) -> IntArray:
    """Return the steps of each pair: of the matching, or of neighbours where that takes long."""
    structure = problem.structure
    neighbours = structure.blocks_per_pair
    if structure.blocks > MATCHED_CANDIDATES:
        return neighbours
    if 2 * neighbours.sum() <= NEAR_OPTIMAL * structure.blocks:
        return neighbours
    pointer, columns = structure.block_pattern
    counts = np.bincount(columns).astype(np.int64)
    if int((counts * counts).sum()) // 2 > MATCHED_CANDIDATES:
        return neighbours
    from asyncsparse_lab.spmm.pairs import pair_schedule

    tasks, _ = pair_schedule(pointer, columns)
    return tasks["steps"].astype(np.int64)


def _serial_windows(name: str, params: Params, problem: Problem) -> tuple[Work, int]:
    variant = variant_of(name, params)
    geometry = variant.launch_geometry
    return works.windows_work(
        problem,
        64,
        geometry.tile_columns,
        variant.options["max_cols_per_task"],
        ctas_per_sm(variant, problem.rates.shared_bytes),
        geometry.shared_bytes - ALIGNMENT_BYTES,
        geometry.stage_k,
        overlapped=False,
        cut_launches=2 if problem.output_bytes == 4 else 3,
    )


def _pipelined_windows(name: str, params: Params, problem: Problem) -> tuple[Work, int]:
    from asyncsparse_lab.spmm.windows import AUTO_LIMIT, choose_limit

    variant = variant_of(name, params)
    height, ctas = variant.constants["HEIGHT"], variant.constants["MINIMUM_CTAS"]
    geometry = variant.launch_geometry
    tile_columns = geometry.tile_columns
    limit = variant.options["max_cols_per_task"]
    if limit == AUTO_LIMIT:
        pointer = np.concatenate([[0], np.cumsum(works.padded_columns(problem.structure, height))])
        places = problem.rates.sm_count * ctas
        limit = choose_limit(pointer, problem.tiles(tile_columns), places)
    ring_bytes = geometry.shared_bytes - ALIGNMENT_BYTES
    return works.windows_work(
        problem, height, tile_columns, limit, ctas, ring_bytes, geometry.stage_k
    )


def _rows(name: str, params: Params, problem: Problem) -> tuple[Work, int]:
    from asyncsparse_lab.spmm.csr import WARP, WARPS_PER_SM, CsrPlan, RowTasks

    structure, options = problem.structure, variant_of(name, params).options
    aligned = problem.n % 8 == 0
    plan = CsrPlan.of(structure.k, problem.n, aligned, options["tile_columns"], options["order"])
    places = problem.rates.sm_count * WARPS_PER_SM * plan.groups(WARP)
    tasks = RowTasks.of(
        structure.indptr,
        plan.column_tiles,
        places,
        options["rows_per_task"],
        options["piece_length"],
    )
    return works.rows_work(problem, tasks, plan.column_tiles, places)


def _csr_library(algorithm: int) -> Callable[[str, Params, Problem], tuple[Work, int]]:
    return lambda name, params, problem: works.csr_library_work(problem, algorithm)


MODELS: Final[dict[str, Callable[[str, Params, Problem], tuple[Work, int]]]] = {
    "bcsr-opt3": _blocks,
    "bcsr-overlap": _blocks,
    "bcsr-overlap-narrow": _blocks,
    "bcsr-paired": _pairs,
    "wcsr-paper": _serial_windows,
    "wcsr-paper-unsplit": _serial_windows,
    "wcsr-pipelined": _pipelined_windows,
    "csr-vector": _rows,
    "cublas-dense": lambda name, params, problem: works.dense_work(problem),
    "cusparse-csr-alg2": _csr_library(2),
    "cusparse-csr-alg3": _csr_library(3),
    "cusparse-blocked-ell": lambda name, params, problem: works.blocked_ell_work(problem),
}
"""Kernel to its model; a kernel without one is never chosen."""
