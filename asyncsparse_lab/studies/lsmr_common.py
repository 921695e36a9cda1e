"""What the LSMR studies share: the problems, who solves them, times, records."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncsparse_lab.gpu.timing import Timing
from asyncsparse_lab.lsmr import builds
from asyncsparse_lab.records import Record
from asyncsparse_lab.records.record import MAX_SAMPLES

if TYPE_CHECKING:
    from asyncsparse_lab.gpu.compile import KernelBuild
    from asyncsparse_lab.lsmr.geometry import Geometry

OPTIONS: Final[Mapping[str, Any]] = {
    "damp": 0.0,
    "atol": 1e-6,
    "btol": 1e-6,
    "conlim": 1e8,
    "maxiter": 5000,
}
"""The document's stopping parameters."""
WARM_UPS: Final = 2
SOLVES: Final = 7
"""The document's protocol: the median of 7 synchronised solves after 2."""

RESIDUALS: Final[Mapping[str, float]] = {"8kv-stand-in": 0.3540266, "11kv-stand-in": 0.2360898}
"""The relative residuals that the document states, and the stand-ins therefore have."""


@dataclass(frozen=True, slots=True)
class LeastSquares:
    """A least-squares problem with what is known of its answer.

    Attributes
    ----------
    name : str
        Of the matrix.
    A : csr_array
        FP64.
    b : ndarray
        FP64.
    x : ndarray or None
        The least-squares solution, where it is known.
    """

    name: str
    A: Any
    b: Any
    x: Any | None

    @property
    def A32(self) -> Any:
        """A in FP32."""
        return self.A.astype(np.float32)

    @property
    def b32(self) -> Any:
        """Return b in FP32."""
        return self.b.astype(np.float32)


@lru_cache(maxsize=2)
def stand_in(name: str) -> LeastSquares:
    """Return a stand-in for one of the document's two problems."""
    from asyncsparse_lab.matrices import load_matrix, right_hand_side

    A = load_matrix(name)
    b, x = right_hand_side(A, RESIDUALS[name])
    return LeastSquares(name, A, b, x)


def wall_samples(
    run: Callable[[], Any], count: int = SOLVES, warm_ups: int = WARM_UPS
) -> list[float]:
    """Return wall times of synchronised runs in microseconds, after some that do not count."""
    samples = []
    for number in range(warm_ups + count):
        synchronize()
        begin = time.perf_counter()
        run()
        synchronize()
        if number >= warm_ups:
            samples.append(1e6 * (time.perf_counter() - begin))
    return samples


def synchronize() -> None:
    """Wait for the GPU; does nothing on a machine that has none."""
    from asyncsparse_lab.gpu.device import driver_is_loadable

    if driver_is_loadable():
        import cupy

        cupy.cuda.get_current_stream().synchronize()


def times(samples_us: list[float]) -> dict[str, Any]:
    """Return a record's times from samples."""
    timing = Timing.from_samples(samples_us, 0.0, 0.0)
    return {
        "median_us": timing.median_us,
        "q1_us": timing.q1_us,
        "q3_us": timing.q3_us,
        "sample_count": len(samples_us),
        "samples_us": timing.samples_us[:MAX_SAMPLES],
    }


def lsmr_record(
    study: str,
    case: str,
    problem: LeastSquares,
    contender: tuple[str, str, str],
    samples_us: list[float],
    *,
    dtype: str = "float32",
    fault: str = "",
    clock: str = "wall",
    **more: Any,
) -> Record:
    """Return the record of a contender: (role, backend, variant); a fault leaves the times out."""
    role, backend, variant = contender
    m, k = problem.A.shape
    timed = {"status": "passed", **times(samples_us)}
    outcome = {"status": "wrong", "reason": fault} if fault else timed
    return Record(
        study=study,
        case=case,
        op="lsmr",
        role=role,
        backend=backend,
        variant=variant,
        matrix=problem.name,
        m=m,
        k=k,
        n=1,
        nnz=problem.A.nnz,
        dtype_in=dtype,
        dtype_out=dtype,
        l2="warm",
        clock=clock,
        **outcome,
        **more,
    )


def quality(problem: LeastSquares, x: Any) -> dict[str, Any]:
    """Return what x is worth, in FP64 and with one and the same A for all contenders."""
    x = to_host(x).astype(np.float64).ravel()
    residual = problem.b - problem.A @ x
    found: dict[str, Any] = {
        "relative_residual": float(np.linalg.norm(residual) / np.linalg.norm(problem.b)),
        "true_normr": float(np.linalg.norm(residual)),
        "true_normar": float(np.linalg.norm(problem.A.T @ residual)),
    }
    if problem.x is not None:
        found["x_error"] = relative_difference(x, problem.x)
    return found


def relative_difference(x: Any, y: Any) -> float:
    """Return |x - y| / |y| in FP64."""
    x, y = (to_host(z).astype(np.float64).ravel() for z in (x, y))
    return float(np.linalg.norm(x - y) / np.linalg.norm(y))


def to_host(array: Any) -> Any:
    """Return an array of NumPy."""
    return array.get() if hasattr(array, "get") else np.asarray(array)


def norms_of(result: Any) -> dict[str, Any]:
    """Return what a result of ours or a tuple of SciPy's kind says about itself."""
    _, istop, itn, normr, normar, norma, conda, normx = (to_host(value) for value in result)
    return {
        "stop_code": int(istop),
        "iterations": int(itn),
        "normr": float(normr),
        "normar": float(normar),
        "norm_a": float(norma),
        "cond_a": float(conda),
        "norm_x": float(normx),
    }


def params(**changes: Any) -> dict[str, Any]:
    """Return the stopping parameters as a record names them, and what else was chosen."""
    return {**OPTIONS, "precondition": None, **changes}


def cupy_problem(problem: LeastSquares, form: str = "csr") -> tuple[Any, Any]:
    """Return A and b on the device in FP32, A in CuPy's CSR or CSC."""
    import cupy
    from cupyx.scipy import sparse

    kind = sparse.csc_matrix if form == "csc" else sparse.csr_matrix
    return kind(problem.A32.asformat(form)), cupy.asarray(problem.b32)


def cupy_lsmr(A: Any, b: Any, **options: Any) -> Any:
    """Solve by CuPy with the explicit FP32 zero x0 that the document gives it."""
    import cupy
    from cupyx.scipy.sparse.linalg import lsmr

    return lsmr(A, b, x0=cupy.zeros(A.shape[1], dtype=cupy.float32), **{**OPTIONS, **options})


def floor_us(geometry: Geometry, rounds: int = 2000) -> float:
    """Return the floor of an iteration in microseconds: two rounds of the probe kernel.

    In a round every thread stores a value, the grid exchanges its sums, and the thread loads what
    another block stored: what no product can do without.
    """
    import cupy

    from asyncsparse_lab.gpu.compile import compile_kernel
    from asyncsparse_lab.gpu.device import device_facts
    from asyncsparse_lab.gpu.launch import load
    from asyncsparse_lab.lsmr.arguments import OUTCOME_FIELDS, SolveArguments

    build = probe_build(geometry, device_facts().arch)
    kernel = load(compile_kernel(build.source, build.entry, build.constants, build.arch))
    slots = cupy.empty(3 * geometry.copies * geometry.blocks, dtype=cupy.int64)
    data = cupy.zeros(geometry.blocks * geometry.threads, dtype=cupy.float32)
    outcome = cupy.zeros(len(OUTCOME_FIELDS))
    arguments = SolveArguments(
        slots=slots.data.ptr,
        u=data.data.ptr,
        outcomes=outcome.data.ptr,
        maxiter=rounds,
        spin_limit=1 << 22,
    )
    launch = kernel.prepare(
        geometry.blocks, geometry.threads, 0, arguments, cooperative=not geometry.cluster
    )
    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    found = []
    for _ in range(3):
        slots.fill(-1)
        start.record()
        launch()
        end.record()
        end.synchronize()
        found.append(1e3 * cupy.cuda.get_elapsed_time(start, end) / rounds)
    return 2.0 * min(found) if float(outcome[0]) >= 0 else float("nan")


@cache
def compile_ahead() -> None:
    """Compile all that the solvers may need, on all cores."""
    from asyncsparse_lab.gpu.compile import compile_many
    from asyncsparse_lab.gpu.device import device_facts

    found = kernel_builds(device_facts().arch)
    compile_many(build for group in found.values() for build in group)


def compile_geometries(geometries: Sequence[Geometry]) -> None:
    """Compile the persistent kernel and the probe for FP32 and these geometries."""
    from asyncsparse_lab.gpu.compile import compile_many
    from asyncsparse_lab.gpu.device import device_facts

    arch = device_facts().arch
    compile_many(
        build
        for geometry in geometries
        for build in (
            geometry.build(np.dtype(np.float32), 1, arch),
            probe_build(geometry, arch),
        )
    )


def probe_build(geometry: Geometry, arch: str) -> KernelBuild:
    """Return the compilation of the probe for a geometry."""
    from asyncsparse_lab.gpu.compile import KernelBuild

    constants = geometry.constants(np.dtype(np.float32), 1)
    return KernelBuild("lsmr_probe.cu", "lsmr_probe", constants, arch)


def geometry_params(geometry: Geometry) -> dict[str, Any]:
    """Return a geometry as a record names it."""
    return {
        "blocks": geometry.blocks,
        "threads": geometry.threads,
        "staged": geometry.staged,
        "together": geometry.together,
        "batched": geometry.batched,
        "cluster": geometry.cluster,
        "ring_steps": geometry.ring_steps,
        "slice_cost": geometry.slice_cost,
        "units": geometry.units,
    }


def host_sync_us(count: int = 200) -> float:
    """Return what a wait costs: an empty kernel is launched, and the host waits for its end."""
    import cupy

    from asyncsparse_lab.gpu.compile import compile_kernel
    from asyncsparse_lab.gpu.device import device_facts
    from asyncsparse_lab.gpu.launch import load
    from asyncsparse_lab.lsmr.updates import ScatterArguments

    kernel = load(compile_kernel("lsmr_scatter.cu", "lsmr_scatter", {}, device_facts().arch))
    launch = kernel.prepare(1, 32, 0, ScatterArguments())
    stream = cupy.cuda.get_current_stream()

    def once() -> None:
        launch()
        cupy.cuda.runtime.streamSynchronize(stream.ptr)

    return float(np.median(wall_samples(once, count, 20)))


def kernel_builds(arch: str = "sm_90") -> dict[str, list[KernelBuild]]:
    """Return the compilations behind the records of the LSMR studies, by variant.

    They solve for one right-hand side at a time.
    """
    found = builds.kernel_builds(arch)
    single = [build for build in found["persistent"] if build.constants["RHS"] == 1]
    return {**found, "persistent": single}
