"""The solvers of study ``lsmr`` on one stand-in, each on data where it wants them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Final

import numpy as np

from asyncsparse_lab.records import Record
from asyncsparse_lab.studies.base import Case
from asyncsparse_lab.studies.lsmr_common import (
    OPTIONS,
    RESIDUALS,
    WARM_UPS,
    LeastSquares,
    cupy_lsmr,
    cupy_problem,
    floor_us,
    geometry_params,
    host_sync_us,
    lsmr_record,
    norms_of,
    params,
    quality,
    relative_difference,
    synchronize,
    wall_samples,
)

STUDY: Final = "lsmr"
X_ERROR_LIMIT: Final = 2e-3
"""Of x against the exact solution: the tolerance of 1e-6 leaves 4e-4 on these matrices."""
DOCUMENT_VARIANTS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"formats": "single"},
    {"deterministic": True},
    {"fused": False},
    {"float4": True},
)


def measure_solvers(case: Case, problem: LeastSquares) -> list[Record]:
    """Return the records of all solvers; differences of x are to CuPy's, which has A as CSC."""
    cupy_records, reference = _cupy(case, problem)
    ours = [_persistent(case, problem, scaled) for scaled in (None, "columns")]
    ours += [_document(case, problem, variant) for variant in DOCUMENT_VARIANTS]
    cpu = [_scipy(case, problem), _direct(case, problem)]
    return [_against(record, x, reference) for record, x in [*cupy_records, *ours, *cpu]]


def _against(record: Record, x: Any, reference: Any) -> Record:
    difference = {"x_diff": relative_difference(x, reference), "x_diff_against": "cupy lsmr"}
    return replace(record, result={**record.result, **difference})


def finish(
    case: Case,
    problem: LeastSquares,
    contender: tuple[str, str, str],
    samples: list[float],
    x: Any,
    result: dict[str, Any],
    **more: Any,
) -> tuple[Record, Any]:
    """Return the record of a solver with its x judged, and x."""
    found = quality(problem, x)
    expected = RESIDUALS[problem.name]
    error, fault = found["x_error"], ""
    if error > X_ERROR_LIMIT or abs(found["relative_residual"] - expected) > 1e-6:
        fault = f"x is off by {error:.1e}, the residual is {found['relative_residual']:.7f}"
    record = lsmr_record(
        STUDY,
        case.name,
        problem,
        contender,
        samples,
        fault=fault,
        rel_err=error,
        err_bound=X_ERROR_LIMIT,
        result={**result, **found, "warm_ups": WARM_UPS},
        **more,
    )
    return record, x


def _persistent(case: Case, problem: LeastSquares, scaled: str | None) -> tuple[Record, Any]:

    import cupy

    from asyncsparse_lab.gpu.timing import time_interleaved
    from asyncsparse_lab.lsmr import lsmr
    from asyncsparse_lab.lsmr.persistent import prepare

    A, b = cupy_problem(problem)
    prepare(A, precondition=scaled).group(1)  # compiles
    synchronize()
    begin = time.perf_counter()
    prepared = prepare(A, precondition=scaled)
    group = prepared.group(1)
    synchronize()
    preprocess_us = 1e6 * (time.perf_counter() - begin)
    solutions: list[Any] = []
    samples = wall_samples(lambda: solutions.append(lsmr(prepared, b, **OPTIONS)))
    last = solutions[-1]
    stream = cupy.cuda.get_current_stream()
    (kernel,) = time_interleaved([lambda: group.start(stream)], "warm", 0.05)
    geometry = prepared.geometry()
    return finish(
        case,
        problem,
        ("ours", "asyncsparse", "persistent"),
        samples,
        last.x,
        {
            **norms_of(last),
            "reported_true_normar": float(last.true_normar),
            "us_per_iteration": float(np.median(samples)) / last.itn,
            "kernel_us_per_iteration": kernel.median_us / last.itn,
            "floor_us_per_iteration": floor_us(geometry),
            "bitwise_equal": all(bool((one.x == last.x).all()) for one in solutions),
            "launches": last.launches,
            "host_syncs": last.host_syncs,
            "device_bytes": last.device_bytes,
        },
        params=params(precondition=scaled, **geometry_params(geometry)),
        preprocess_us=preprocess_us,
        kernel_hash=group.artifact.kernel_hash,
        compiler=group.artifact.compiler,
    )


def _document(case: Case, problem: LeastSquares, variant: dict[str, Any]) -> tuple[Record, Any]:

    import cupy

    from asyncsparse_lab.gpu.compile import compile_kernel
    from asyncsparse_lab.gpu.timing import time_interleaved
    from asyncsparse_lab.lsmr.document import Context, SolverOptions, SparseMatrix
    from asyncsparse_lab.lsmr.document_solver import Solver
    from asyncsparse_lab.lsmr.updates import FUSED, UNFUSED, UPDATE_SOURCE

    switches = {name: value for name, value in variant.items() if name != "formats"}
    options = SolverOptions(**switches)
    context = Context()
    matrix, b = cupy_problem(problem, "csc")
    synchronize()
    begin = time.perf_counter()
    A = SparseMatrix.from_csc(context, matrix, variant.get("formats", "dual"))
    context.synchronize()
    preprocess_us = 1e6 * (time.perf_counter() - begin)
    solver = Solver(context)
    x = cupy.empty(A.shape[1], dtype=cupy.float32)
    solutions: list[Any] = []

    def solve() -> None:
        (report,) = solver.solve(A, b, x, options)
        solutions.append((report, x.copy()))

    samples = wall_samples(solve)
    report, last = solutions[-1]
    iteration = solver.iteration(A, options)

    def enqueue() -> None:
        for call in iteration.whole():
            call()

    (busy,) = time_interleaved([enqueue], "warm", 0.05)
    sync_us = host_sync_us()
    counted = report.iterations * (busy.median_us + 2 * sync_us)
    entry = (FUSED if options.fused else UNFUSED)[0]
    artifact = compile_kernel(UPDATE_SOURCE, entry, {"WIDTH": iteration.width}, context.facts.arch)
    return finish(
        case,
        problem,
        ("paper", "asyncsparse", "document"),
        samples,
        last,
        {
            "stop_code": int(report.stop_code),
            "iterations": report.iterations,
            "normr": report.normr,
            "normar": report.normar,
            "norm_a": report.norma,
            "cond_a": report.conda,
            "norm_x": report.normx,
            "us_per_iteration": float(np.median(samples)) / report.iterations,
            "busy_us_per_iteration": busy.median_us,
            "host_sync_us": sync_us,
            "counted_us": counted,
            "bitwise_equal": all(bool((one == last).all()) for _, one in solutions),
            "launches": report.launches,
            "host_syncs": report.host_syncs,
            "device_bytes": A.nbytes + context.nbytes,
            "matrix_bytes": A.nbytes,
        },
        params=params(
            formats=A.formats,
            deterministic=options.deterministic,
            fused=options.fused,
            float4=options.float4,
        ),
        preprocess_us=preprocess_us,
        kernel_hash=artifact.kernel_hash,
        compiler=artifact.compiler,
    )


def _cupy(case: Case, problem: LeastSquares) -> tuple[list[tuple[Record, Any]], Any]:
    """Return CuPy's records, A in either format, and the x of the document's, which is CSC."""
    import cupy

    found, x = [], None
    for form in ("csr", "csc"):
        A, b = cupy_problem(problem, form)
        results: list[Any] = []
        samples = wall_samples(lambda A=A, b=b, into=results: into.append(cupy_lsmr(A, b)))  # type: ignore[misc]
        last = results[-1]
        x = last[0]
        itn = int(last[2])
        result = {
            **norms_of(last),
            "us_per_iteration": float(np.median(samples)) / itn,
            "bitwise_equal": all(bool((one[0] == x).all()) for one in results),
        }
        record = finish(
            case,
            problem,
            ("library", "cupy", "lsmr"),
            samples,
            x,
            result,
            params=params(format=form),
            compiler=f"CuPy {cupy.__version__}",
        )
        found.append(record)
    return found, x


def _scipy(case: Case, problem: LeastSquares) -> tuple[Record, Any]:
    import scipy
    from scipy.sparse.linalg import lsmr

    A, b = problem.A32, problem.b32
    x0 = np.zeros(A.shape[1], np.float32)
    results: list[Any] = []

    def solve() -> None:
        with np.errstate(over="ignore"):
            results.append(lsmr(A, b, x0=x0, **OPTIONS))

    samples = wall_samples(solve)
    last = results[-1]
    return finish(
        case,
        problem,
        ("library", "scipy", "lsmr"),
        samples,
        last[0],
        {**norms_of(last), "us_per_iteration": float(np.median(samples)) / int(last[2])},
        params=params(),
        compiler=f"SciPy {scipy.__version__}",
    )


def _direct(case: Case, problem: LeastSquares) -> tuple[Record, Any]:
    """Solve the normal equations on the CPU: the honest alternative on matrices near a tree."""
    import scipy
    from scipy.sparse import csc_array
    from scipy.sparse.linalg import splu

    A, b = problem.A, problem.b
    transposed = csc_array(A.T)
    solutions: list[Any] = []

    def solve() -> None:
        normal = splu(csc_array(transposed @ A), permc_spec="MMD_AT_PLUS_A")
        solutions.append(normal.solve(transposed @ b))

    samples = wall_samples(solve)
    return finish(
        case,
        problem,
        ("library", "scipy", "direct"),
        samples,
        solutions[-1],
        {"iterations": None, "stop_code": None},
        dtype="float64",
        params={"method": "normal equations, SuperLU, factorisation included"},
        compiler=f"SciPy {scipy.__version__}",
    )
