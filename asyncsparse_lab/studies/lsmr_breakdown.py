"""Where an iteration goes: CuPy's, the document's and ours, on short rows and on skewed ones.

What the GPU does is timed part by part, with the launches hidden; what is left of an iteration's
wall time are gaps between launches and waits of the host.  The persistent kernel cannot be taken
apart: its exchanges (barriers and norms together) are what the probe kernel takes on the same
grid, and the rest are products, updates and scalars.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

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
    times,
    wall_samples,
)
from asyncsparse_lab.studies.lsmr_common import kernel_builds as kernel_builds

if TYPE_CHECKING:
    import pandas as pd

STUDY: Final = "lsmr-breakdown"
MATRICES: Final = ("8kv-stand-in", "11kv-stand-in", "short-rows", "skewed-rows")
UNENDING: Final[dict[str, Any]] = {"atol": 0.0, "btol": 0.0, "conlim": 0.0}
SHORT, LONG = 20, 120
"""Iterations of two solves; the difference of their times has no beginning and no end."""
PAIRS: Final = 7
CUPY_SYNCS, PERSISTENT_SYNCS, DOCUMENT_SYNCS = 3, 0, 2


def cases() -> list[Case]:
    """Return a case for each matrix."""
    return [Case(name, name, seconds=3.0) for name in MATRICES]


def problem_of(name: str, seed: int = 0) -> LeastSquares:
    """Return a matrix of the study with a right-hand side that no x fits."""
    from scipy import sparse

    from asyncsparse_lab.matrices import load_matrix

    rng = np.random.default_rng(seed)
    if name == "short-rows":
        n = 20_000
        A: Any = sparse.csr_array(sparse.eye_array(n + 1, n) - sparse.eye_array(n + 1, n, k=-1))
    elif name == "skewed-rows":
        A = sparse.csr_array(
            sparse.vstack(
                [load_matrix("11kv-stand-in"), sparse.csr_array(rng.standard_normal((2, 23_394)))]
            )
        )
    else:
        A = load_matrix(name)
    return LeastSquares(
        name, A, A @ rng.standard_normal(A.shape[1]) + rng.standard_normal(A.shape[0]), None
    )


def per_iteration(solve: Callable[[int], int]) -> list[float]:
    """Return microseconds an iteration, from pairs of solves that differ in their length.

    ``solve`` takes the iteration limit and returns the iterations done.
    """
    solve(SHORT)
    done = [solve(limit) for limit in (SHORT, LONG)]
    short = wall_samples(lambda: solve(SHORT), PAIRS, 1)
    long = wall_samples(lambda: solve(LONG), PAIRS, 1)
    each = (np.array(long) - np.median(short)) / (done[1] - done[0])
    return [float(value) for value in each]


def measure(case: Case) -> list[Record]:
    """Take an iteration of the three solvers apart."""
    assert case.matrix is not None
    compile_ahead()
    problem = problem_of(case.matrix)
    return [part(case, problem) for part in (_cupy, _document, _persistent)]


def _record(
    case: Case,
    problem: LeastSquares,
    contender: tuple[str, str, str],
    wall: list[float],
    parts: dict[str, float],
    syncs: int,
    **more: Any,
) -> Record:
    busy = sum(parts.values())
    result = {f"{name.replace(' ', '_')}_us": value for name, value in parts.items()}
    result |= {
        "busy_us": busy,
        "waiting_us": max(0.0, float(np.median(wall)) - busy),
        "host_syncs": syncs,
        "host_sync_us": host_sync_us(),
        "longest_row": int(np.diff(problem.A.indptr).max()),
        "mean_row": problem.A.nnz / problem.A.shape[0],
    }
    extra = more.pop("result", {})
    return lsmr_record(
        STUDY, case.name, problem, contender, wall, result={**result, **extra}, **more
    )


def _timed(parts: dict[str, list[Callable[[], Any]]]) -> dict[str, float]:
    """Return the GPU's time of each part, with launches hidden, in microseconds."""
    from asyncsparse_lab.gpu.timing import time_interleaved

    def run_all(calls: list[Callable[[], Any]]) -> Callable[[], None]:
        def run() -> None:
            for call in calls:
                call()

        return run

    timings = time_interleaved([run_all(calls) for calls in parts.values()], "warm", 0.03)
    return {name: timing.median_us for name, timing in zip(parts, timings, strict=True)}


def _cupy(case: Case, problem: LeastSquares) -> Record:
    import cupy
    from cupy import cublas
    from cupyx.scipy.sparse.linalg import aslinearoperator

    A, b = cupy_problem(problem)
    wall = per_iteration(lambda limit: int(cupy_lsmr(A, b, maxiter=limit, **UNENDING)[2]))
    operator = aslinearoperator(A)
    m, n = A.shape
    u, v, h, x, Av, Au = (cupy.ones(size, dtype=cupy.float32) for size in (m, n, n, n, m, n))
    hbar = cupy.ones(n, dtype=cupy.float64)
    alpha = beta = cupy.ones((), dtype=cupy.float32)  # CuPy keeps these two on the device

    def updates() -> None:
        nonlocal u, v, h, x, hbar
        u *= -alpha
        u += Av
        u /= beta
        v *= -beta
        v += Au
        v /= alpha
        hbar *= -0.5
        hbar += h
        x += 1e-3 * hbar
        h *= -0.5
        h += v

    parts = _timed(
        {
            "products": [lambda: operator.matvec(v), lambda: operator.rmatvec(u)],
            "norms": [lambda: cublas.nrm2(u), lambda: cublas.nrm2(v), lambda: cublas.nrm2(x)],
            "vector updates": [updates],
        }
    )
    return _record(
        case,
        problem,
        ("library", "cupy", "lsmr"),
        wall,
        parts,
        CUPY_SYNCS,
        params=params(**UNENDING, maxiter=LONG),
        compiler=f"CuPy {cupy.__version__}",
    )


def _document(case: Case, problem: LeastSquares) -> Record:
    import cupy

    from asyncsparse_lab.gpu.compile import compile_kernel
    from asyncsparse_lab.lsmr.document import Context, SolverOptions, SparseMatrix
    from asyncsparse_lab.lsmr.document_solver import Solver
    from asyncsparse_lab.lsmr.updates import UPDATE_SOURCE

    context = Context()
    matrix, b = cupy_problem(problem, "csc")
    A = SparseMatrix.from_csc(context, matrix, "dual")
    solver = Solver(context)
    x = cupy.empty(A.shape[1], dtype=cupy.float32)

    def solve(limit: int) -> int:
        options = SolverOptions(max_iterations=limit, **UNENDING)
        return solver.solve(A, b, x, options)[0].iterations

    wall = per_iteration(solve)
    iteration = solver.iteration(A, SolverOptions())
    artifact = compile_kernel(
        UPDATE_SOURCE, "update_hbar_and_x", {"WIDTH": iteration.width}, context.facts.arch
    )
    return _record(
        case,
        problem,
        ("paper", "asyncsparse", "document"),
        wall,
        _timed(dict(iteration.parts())),
        DOCUMENT_SYNCS,
        params=params(**UNENDING, maxiter=LONG, formats=A.formats),
        kernel_hash=artifact.kernel_hash,
        compiler=artifact.compiler,
    )


def _persistent(case: Case, problem: LeastSquares) -> Record:
    from asyncsparse_lab.lsmr import lsmr
    from asyncsparse_lab.lsmr.persistent import prepare

    A, b = cupy_problem(problem)
    prepared = prepare(A)
    wall = per_iteration(lambda limit: int(lsmr(prepared, b, maxiter=limit, **UNENDING).itn))
    geometry, group = prepared.geometry(), prepared.group(1)
    whole, exchanges = float(np.median(wall)), floor_us(geometry)
    synchronize()
    return _record(
        case,
        problem,
        ("ours", "asyncsparse", "persistent"),
        wall,
        {"exchanges": min(exchanges, whole), "products and updates": max(0.0, whole - exchanges)},
        PERSISTENT_SYNCS,
        params=params(**UNENDING, maxiter=LONG, **geometry_params(geometry)),
        result={"us_per_iteration": times(wall)["median_us"]},
        kernel_hash=group.artifact.kernel_hash,
        compiler=group.artifact.compiler,
    )


def draw(frame: pd.DataFrame, claims: pd.DataFrame, *, gpu: str = "") -> dict[str, Drawing | Table]:
    """Draw an iteration of each solver in parts; tabulate them.

    Parameters
    ----------
    gpu : str
        Folder of the GPU's records; the only one there is if empty.
    """
    from asyncsparse_lab.studies import lsmr_iteration_figures
    from asyncsparse_lab.studies.spmm_common import rows_of_one_gpu

    return lsmr_iteration_figures.draw_breakdown(rows_of_one_gpu(frame, gpu))
