"""Time of an iteration against n, from a thousand to ten million, beside its floors.

The floors are those of an iteration that reads each entry of A once by rows and once by columns
and each vector as often as it must: its bytes over the rate of a copy that the same case measures;
and two exchanges over the grid.  A third is measured where A streams from memory: the bytes that
DRAM moved in an iteration, by the profiler, over the same rate.  There a gathered element that L2
does not hold counts as the sectors that it moves, and what L2 keeps between phases not at all.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncsparse_lab.errors import DeviceError
from asyncsparse_lab.records import Record
from asyncsparse_lab.studies.base import Case, Drawing, Table
from asyncsparse_lab.studies.lsmr_common import (
    LeastSquares,
    compile_ahead,
    cupy_lsmr,
    cupy_problem,
    floor_us,
    geometry_params,
    host_sync_us,
    lsmr_record,
    params,
    synchronize,
    wall_samples,
)
from asyncsparse_lab.studies.lsmr_common import kernel_builds as kernel_builds
from asyncsparse_lab.studies.lsmr_counters import count_launches

if TYPE_CHECKING:
    import pandas as pd

STUDY: Final = "lsmr-scaling"
BUSES: Final = (333, 2_059, 7_798, 33_333, 100_000, 333_333, 1_000_000, 3_333_333)
"""Of the feeders; n is three times as many, with seven non-zeros a column."""
UNENDING: Final[dict[str, Any]] = {"atol": 0.0, "btol": 0.0, "conlim": 0.0}
COPY_BYTES: Final = 1 << 30
SCIPY_LIMIT: Final = 40_000  # buses
STREAMING: Final = 100_000  # buses from which on A streams from memory
_ARRAYS: Final = ("data", "indices", "indptr")


def cases() -> list[Case]:
    """Return a case for each size."""
    seconds = dict(zip(BUSES, (3.0, 3.0, 3.0, 3.0, 12.0, 15.0, 24.0, 60.0), strict=True))
    return [
        Case(f"n{3 * buses}", f"feeder(buses={buses})", params={"buses": buses}, seconds=took)
        for buses, took in seconds.items()
    ]


def iteration_bytes(m: int, n: int, nnz: int) -> int:
    """Return what an iteration must move in FP32, in bytes.

    Both formats of A (8 an entry, 4 a row), u and v each read by one product and read and
    written by the other's result, h, hbar and x read and written.
    """
    matrix = 2 * 8 * nnz + 4 * (m + n)
    return matrix + 12 * m + 12 * n + 24 * n


def limits(buses: int) -> tuple[int, int]:
    """Return the iterations of the two solves whose difference is timed."""
    return (10, 110) if buses < 1_000_000 else (5, 25)


def measure(case: Case) -> list[Record]:
    """Time an iteration of the persistent kernel, the document's design, CuPy and SciPy."""
    from asyncsparse_lab.matrices import load_matrix

    assert case.matrix is not None
    compile_ahead()
    buses = int(case.params["buses"])
    A: Any = load_matrix(case.matrix).astype(np.float32)
    rng = np.random.default_rng(0)
    b = A @ rng.standard_normal(A.shape[1], np.float32) + rng.standard_normal(
        A.shape[0], np.float32
    )
    problem = LeastSquares(case.matrix, A, b, None)
    device = cupy_problem(problem)
    floors = {
        "bytes_per_iteration": iteration_bytes(A.shape[0], A.shape[1], A.nnz),
        "copy_tb_per_s": copy_rate() / 1e12,
    }
    floors["bandwidth_floor_us"] = floors["bytes_per_iteration"] / floors["copy_tb_per_s"] / 1e6
    moved = read_traffic(A, buses) if buses >= STREAMING else {}
    if "dram_bytes" in moved:
        moved["traffic_floor_us"] = moved["dram_bytes"] / floors["copy_tb_per_s"] / 1e6
    ours = _persistent(case, problem, device, floors | moved)
    records = [ours, _document(case, problem, device, floors)]
    records.append(_cupy(case, problem, device, floors))
    if buses <= SCIPY_LIMIT:
        records.append(_scipy(case, problem, floors))
    return records


def per_iteration(solve: Callable[[int], int], buses: int, pairs: int) -> tuple[list[float], int]:
    """Return microseconds an iteration and the iterations of the longer solve."""
    short, long = limits(buses)
    done = [solve(limit) for limit in (short, long)]
    low = float(np.median(wall_samples(lambda: solve(short), pairs, 1)))
    high = wall_samples(lambda: solve(long), pairs, 1)
    return [(value - low) / (done[1] - done[0]) for value in high], done[1]


def read_traffic(A: Any, buses: int) -> dict[str, Any]:
    """Return the bytes of an iteration of the persistent kernel, as the profiler counts them.

    ``dram_bytes``, and ``l2_bytes`` between SMs and L2: the difference of two solves, so that what
    a solve begins and ends with is left out.  Where nothing can be counted, ``counters`` says why.
    """
    short, long = limits(buses)
    with tempfile.TemporaryDirectory() as folder:
        for name in _ARRAYS:
            np.save(Path(folder) / f"{name}.npy", getattr(A, name))
        job = {"folder": folder, "shape": A.shape, "limits": (short, long)}
        try:
            low, high = count_launches("lsmr_scaling", job, "^lsmr_persistent$", 2)
        except DeviceError as error:
            return {"counters": str(error)}
    return {name: (high[name] - low[name]) / (long - short) for name in low}


def solve_watched(job: dict[str, Any]) -> None:
    """Solve twice, with the iteration limits of a job of :func:`read_traffic`."""
    import cupy
    from scipy.sparse import csr_array

    from asyncsparse_lab.lsmr import lsmr
    from asyncsparse_lab.lsmr.persistent import prepare

    arrays = (np.load(Path(job["folder"]) / f"{name}.npy") for name in _ARRAYS)
    prepared = prepare(csr_array(tuple(arrays), shape=tuple(job["shape"])))
    b = cupy.random.default_rng(0).standard_normal(prepared.shape[0], dtype=cupy.float32)
    for limit in job["limits"]:
        lsmr(prepared, b, maxiter=limit, **UNENDING)


def copy_rate() -> float:
    """Return the rate of a copy on the device, bytes read and written by second."""
    import cupy

    source = cupy.zeros(COPY_BYTES, dtype=cupy.uint8)
    target = cupy.empty_like(source)
    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    best = np.inf
    for _ in range(6):
        start.record()
        cupy.cuda.runtime.memcpyAsync(
            target.data.ptr, source.data.ptr, COPY_BYTES, 3, cupy.cuda.get_current_stream().ptr
        )
        end.record()
        end.synchronize()
        best = min(best, 1e-3 * cupy.cuda.get_elapsed_time(start, end))
    return 2 * COPY_BYTES / best


def _persistent(
    case: Case, problem: LeastSquares, device: tuple[Any, Any], floors: dict[str, Any]
) -> Record:
    from asyncsparse_lab.lsmr import lsmr
    from asyncsparse_lab.lsmr.persistent import prepare

    A, b = device
    begin = time.perf_counter()
    prepared = prepare(A)
    synchronize()
    preprocess_us = 1e6 * (time.perf_counter() - begin)
    geometry, group = prepared.geometry(), prepared.group(1)

    def solve(limit: int) -> int:
        return int(lsmr(prepared, b, maxiter=limit, **UNENDING).itn)

    samples, done = per_iteration(solve, case.params["buses"], 7)
    exchanges, median = floor_us(geometry), float(np.median(samples))
    floor = max(exchanges, floors["bandwidth_floor_us"])
    traffic = floors.get("traffic_floor_us")
    return lsmr_record(
        STUDY,
        case.name,
        problem,
        ("ours", "asyncsparse", "persistent"),
        samples,
        params=params(**UNENDING, maxiter=done, **geometry_params(geometry)),
        result={
            **floors,
            "exchange_floor_us": exchanges,
            "share_of_floor": floor / median,
            "share_of_bandwidth": floors["bandwidth_floor_us"] / median,
            "share_of_traffic": None if traffic is None else traffic / median,
            "device_bytes": prepared.nbytes,
        },
        preprocess_us=preprocess_us,
        kernel_hash=group.artifact.kernel_hash,
        compiler=group.artifact.compiler,
    )


def _document(
    case: Case, problem: LeastSquares, device: tuple[Any, Any], floors: dict[str, float]
) -> Record:
    import cupy

    from asyncsparse_lab.gpu.compile import compile_kernel
    from asyncsparse_lab.gpu.timing import time_interleaved
    from asyncsparse_lab.lsmr.document import Context, SolverOptions, SparseMatrix
    from asyncsparse_lab.lsmr.document_solver import Solver
    from asyncsparse_lab.lsmr.updates import UPDATE_SOURCE

    matrix, b = device
    context = Context()
    A = SparseMatrix.from_csr(context, matrix, "dual")
    solver = Solver(context)
    x = cupy.empty(A.shape[1], dtype=cupy.float32)

    def solve(limit: int) -> int:
        options = SolverOptions(max_iterations=limit, **UNENDING)
        return solver.solve(A, b, x, options)[0].iterations

    samples, done = per_iteration(solve, case.params["buses"], 5)
    iteration = solver.iteration(A, SolverOptions())

    def enqueue() -> None:
        for call in iteration.whole():
            call()

    (busy,) = time_interleaved([enqueue], "warm", 0.03)
    sync_us = host_sync_us()
    artifact = compile_kernel(
        UPDATE_SOURCE, "update_hbar_and_x", {"WIDTH": iteration.width}, context.facts.arch
    )
    return lsmr_record(
        STUDY,
        case.name,
        problem,
        ("paper", "asyncsparse", "document"),
        samples,
        params=params(**UNENDING, maxiter=done, formats=A.formats),
        result={
            **floors,
            "busy_us": busy.median_us,
            "host_sync_us": sync_us,
            "counted_us": busy.median_us + 2 * sync_us,
            "device_bytes": A.nbytes + context.nbytes,
        },
        kernel_hash=artifact.kernel_hash,
        compiler=artifact.compiler,
    )


def _cupy(
    case: Case, problem: LeastSquares, device: tuple[Any, Any], floors: dict[str, float]
) -> Record:
    import cupy

    A, b = device
    samples, done = per_iteration(
        lambda limit: int(cupy_lsmr(A, b, maxiter=limit, **UNENDING)[2]), case.params["buses"], 3
    )
    return lsmr_record(
        STUDY,
        case.name,
        problem,
        ("library", "cupy", "lsmr"),
        samples,
        params=params(**UNENDING, maxiter=done, format="csr"),
        result=floors,
        compiler=f"CuPy {cupy.__version__}",
    )


def _scipy(case: Case, problem: LeastSquares, floors: dict[str, float]) -> Record:
    import scipy
    from scipy.sparse.linalg import lsmr

    def solve(limit: int) -> int:
        with np.errstate(over="ignore"):
            return int(lsmr(problem.A, problem.b, maxiter=limit, **UNENDING)[2])

    samples, done = per_iteration(solve, case.params["buses"], 3)
    return lsmr_record(
        STUDY,
        case.name,
        problem,
        ("library", "scipy", "lsmr"),
        samples,
        params=params(**UNENDING, maxiter=done),
        result=floors,
        compiler=f"SciPy {scipy.__version__}",
    )


def draw(frame: pd.DataFrame, claims: pd.DataFrame, *, gpu: str = "") -> dict[str, Drawing | Table]:
    """Draw the time of an iteration against n with its floors; tabulate it.

    Parameters
    ----------
    gpu : str
        Folder of the GPU's records; the only one there is if empty.
    """
    from asyncsparse_lab.studies import lsmr_iteration_figures
    from asyncsparse_lab.studies.spmm_common import rows_of_one_gpu

    return lsmr_iteration_figures.draw_scaling(rows_of_one_gpu(frame, gpu))


if __name__ == "__main__":
    solve_watched(json.loads(sys.argv[1]))
