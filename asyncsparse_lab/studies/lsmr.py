"""The document's measurement: 7 synchronised solves after 2, on stand-ins for 8kv and 11kv.

A case has all solvers of one stand-in: the persistent kernel, the document's design in its
variants, CuPy, SciPy on the CPU, and a direct solver on the CPU, each on data where it wants them.
Further cases solve ten thousand times and compare bits, and compare the geometries of the kernel.

The document's two matrices are not public; the stand-ins have the same n, the same residual to
seven digits, its stop code, and about its iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncsparse_lab.records import Record
from asyncsparse_lab.studies import lsmr_common
from asyncsparse_lab.studies.base import Case, Drawing, Table
from asyncsparse_lab.studies.lsmr_common import (
    OPTIONS,
    RESIDUALS,
    LeastSquares,
    compile_ahead,
    compile_geometries,
    cupy_problem,
    floor_us,
    geometry_params,
    norms_of,
    params,
    stand_in,
    wall_samples,
)
from asyncsparse_lab.studies.lsmr_solvers import finish, measure_solvers

if TYPE_CHECKING:
    import pandas as pd

    from asyncsparse_lab.gpu.compile import KernelBuild
    from asyncsparse_lab.lsmr.geometry import Geometry

REPEATS: Final = 10_000
GRIDS: Final = tuple(
    (blocks, threads, batched)
    for blocks, threads in ((33, 640), (64, 288), (66, 384), (66, 640), (99, 384), (132, 640))
    for batched in (0, 2)
)
"""Blocks and threads, and how entries are loaded: in a loop, or as many as there are at once."""
CLUSTERS: Final = ((8, 1024), (16, 640), (16, 1024))


def cases() -> list[Case]:
    """Return a case a stand-in with all solvers, one with the geometries, and the long run."""
    main = [
        Case(name, name, params={"kind": "solvers"}, seconds=seconds)
        for name, seconds in (("8kv-stand-in", 11.0), ("11kv-stand-in", 7.0))
    ]
    tuned = [
        Case(f"{name}-geometry", name, params={"kind": "geometry"}, seconds=seconds)
        for name, seconds in zip(RESIDUALS, (8.0, 2.0), strict=True)
    ]
    long = Case("ten-thousand-solves", "8kv-stand-in", params={"kind": "repeats"}, seconds=12.0)
    return [*main, *tuned, long]


def geometries() -> list[Geometry]:
    """Return the geometries that are compared."""
    from asyncsparse_lab.lsmr.geometry import Geometry

    grids = [
        Geometry(blocks, threads, staged=True, batched=batched)
        for blocks, threads, batched in GRIDS
    ]
    clusters = [
        Geometry(blocks, threads, staged=True, batched=2, cluster=True)
        for blocks, threads in CLUSTERS
    ]
    return [*grids, *clusters]


def _filling(sm_count: int) -> Geometry:
    """Return the grid of all SMs that the long run takes."""
    from asyncsparse_lab.lsmr.geometry import Geometry

    return Geometry(sm_count, 256, staged=True)


def kernel_builds() -> dict[str, list[KernelBuild]]:
    """Return the compilations behind the records of this study, by variant."""
    found = lsmr_common.kernel_builds()
    shapes = [*geometries(), _filling(1)]
    compared = [shape.build(np.dtype(np.float32), 1, "sm_90") for shape in shapes]
    return {**found, "persistent": [*found["persistent"], *compared]}


def measure(case: Case) -> list[Record]:
    """Measure one case, whole."""
    compile_ahead()
    assert case.matrix is not None
    problem = stand_in(case.matrix)
    kinds: dict[str, Callable[[Case, LeastSquares], list[Record]]] = {
        "solvers": measure_solvers,
        "geometry": _measure_geometries,
        "repeats": _measure_repeats,
    }
    return kinds[case.params["kind"]](case, problem)


def _measure_geometries(case: Case, problem: LeastSquares) -> list[Record]:
    import cupy

    from asyncsparse_lab.gpu.timing import time_interleaved
    from asyncsparse_lab.lsmr import lsmr
    from asyncsparse_lab.lsmr.geometry import predict_us
    from asyncsparse_lab.lsmr.persistent import prepare

    A, b = cupy_problem(problem)
    compile_geometries(geometries())
    default = prepare(A)
    chosen = [(default, True)]
    chosen += [
        (prepare(A, geometry=geometry), False)
        for geometry in geometries()
        if geometry.shared_bytes(default.plan, 1) <= default.facts.shared_bytes_per_block - 4096
    ]
    results = [lsmr(prepared, b, **OPTIONS) for prepared, _ in chosen]
    stream = cupy.cuda.get_current_stream()
    runs = [partial(prepared.group(1).start, stream) for prepared, _ in chosen]
    timings = time_interleaved(runs, "warm", 0.05)
    records = []
    for (prepared, is_default), result, timing in zip(chosen, results, timings, strict=True):
        geometry, group = prepared.geometry(), prepared.group(1)
        record, _ = finish(
            case,
            problem,
            ("ours", "asyncsparse", "persistent"),
            list(timing.samples_us),
            result.x,
            {
                **norms_of(result),
                "us_per_iteration": timing.median_us / result.itn,
                "floor_us_per_iteration": floor_us(geometry),
                "predicted_us_per_iteration": predict_us(prepared.plan, geometry),
                "registers": group.artifact.resources.registers,
            },
            clock="events",
            params=params(chosen=is_default, **geometry_params(geometry)),
            kernel_hash=group.artifact.kernel_hash,
            compiler=group.artifact.compiler,
        )
        records.append(record)
    return records


def _measure_repeats(case: Case, problem: LeastSquares) -> list[Record]:
    """Solve ten thousand times, on grids that fill the GPU and not, and beside another kernel."""
    import cupy

    from asyncsparse_lab.lsmr import lsmr
    from asyncsparse_lab.lsmr.geometry import Geometry
    from asyncsparse_lab.lsmr.persistent import prepare

    A, b = cupy_problem(problem)
    sm_count = prepare(A).facts.sm_count
    square = cupy.ones((1024, 1024), dtype=cupy.float32)
    product = square @ square
    other, own = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    records = []
    for where, geometry, beside, share in (
        ("a grid that fills the GPU", _filling(sm_count), False, 0.4),
        ("a quarter of the GPU", Geometry(max(1, sm_count // 4), 640, staged=True), False, 0.2),
        ("one cluster", Geometry(*CLUSTERS[1], staged=True, batched=2, cluster=True), False, 0.2),
        ("beside another kernel", None, True, 0.2),
    ):
        prepared = prepare(A, geometry=geometry)
        count = int(REPEATS * share)
        first = lsmr(prepared, b, **OPTIONS)
        differing = 0

        def once(prepared: Any = prepared, beside: bool = beside) -> Any:
            if not beside:
                return lsmr(prepared, b, **OPTIONS)
            with other:
                cupy.matmul(square, square, out=product)
            with own:
                return lsmr(prepared, b, **OPTIONS)

        cupy.cuda.Device().synchronize()
        for _ in range(count):
            again = once()
            differing += again[1:] != first[1:]
        differing += not bool((again.x == first.x).all())
        samples = wall_samples(once)
        record, _ = finish(
            case,
            problem,
            ("ours", "asyncsparse", "persistent"),
            samples,
            again.x,
            {**norms_of(again), "solves": count, "differing": differing},
            params=params(where=where, **geometry_params(prepared.geometry())),
            kernel_hash=prepared.group(1).artifact.kernel_hash,
            compiler=prepared.group(1).artifact.compiler,
        )
        records.append(record)
    return records


def draw(
    frame: pd.DataFrame,
    claims: pd.DataFrame,
    *,
    matrices: tuple[str, ...] = (),
    backends: tuple[str, ...] = (),
    gpu: str = "",
) -> dict[str, Drawing | Table]:
    """Draw the solvers' times and the geometries; tabulate what was reached and the variants.

    Parameters
    ----------
    matrices : tuple of str
        Only these stand-ins; both if empty.
    backends : tuple of str
        Only these solvers: ``persistent``, ``document``, ``lsmr`` (of the libraries), ``direct``;
        all if empty.
    gpu : str
        Folder of the GPU's records; the only one there is if empty.
    """
    from asyncsparse_lab.studies import lsmr_figures
    from asyncsparse_lab.studies.spmm_common import rows_of_one_gpu

    rows = rows_of_one_gpu(frame, gpu)
    rows = rows[rows["matrix"].isin(matrices)] if matrices else rows
    rows = rows[rows["variant"].isin(backends)] if backends else rows
    return lsmr_figures.draw_solvers(rows, claims)
