"""Check the persistent LSMR kernel on this GPU and time its geometries.

    PYTHONPATH=. python3 scripts/lsmr_gpu_check.py [--seconds 80] [--only TEXT]

First the solver against the host backend (shapes, precisions, long rows, scaling, several
right-hand sides, bit for bit repeatability), then microseconds an iteration for both stand-ins
under several geometries, and the floor of the same geometry (store, exchange, load).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cupy
import numpy as np
from cupyx.scipy.sparse import csr_matrix
from scipy import sparse

from asyncsparse_lab.gpu.compile import compile_kernel
from asyncsparse_lab.gpu.device import device_facts
from asyncsparse_lab.gpu.launch import load
from asyncsparse_lab.lsmr import lsmr
from asyncsparse_lab.lsmr.arguments import SolveArguments
from asyncsparse_lab.lsmr.geometry import Geometry
from asyncsparse_lab.lsmr.persistent import PersistentMatrix, prepare
from asyncsparse_lab.lsmr.problems import paige_saunders
from asyncsparse_lab.matrices import load_matrix
from asyncsparse_lab.matrices.generators.least_squares import right_hand_side

OPTIONS = {"atol": 1e-6, "btol": 1e-6, "conlim": 1e8, "maxiter": 5000}


def main() -> None:
    """Run the checks, then the timings until the seconds are over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=80.0)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.seconds
    print(device_facts())
    compile_all()
    if arguments.only in ("", "check"):
        check()
    for name in ("8kv-stand-in", "11kv-stand-in"):
        if arguments.only in ("", name):
            tune(name, deadline)
    for buses in (33_333, 100_000, 333_333):
        if arguments.only in ("", "large"):
            tune_large(buses, deadline)


def geometries() -> Iterator[Geometry]:
    """Geometries to compare, most telling first."""
    for blocks, threads in (
        (64, 288),
        (49, 256),
        (66, 256),
        (82, 256),
        (99, 256),
        (66, 384),
        (99, 384),
        (132, 384),
        (33, 640),
        (66, 640),
        (99, 640),
        (132, 640),
    ):
        for together in (1, 2):
            yield Geometry(blocks, threads, staged=True, together=together)


def compile_all() -> None:
    """Compile every variant beforehand, in parallel."""
    arch = device_facts().arch
    float32 = np.dtype(np.float32)
    builds = {
        (name, tuple(geometry.constants(float32, 1).items()))
        for geometry in (*geometries(), *large_geometries())
        for name in ("lsmr_persistent", "lsmr_probe")
    }
    start = time.monotonic()
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda b: compile_kernel(f"{b[0]}.cu", b[0], dict(b[1]), arch), builds))
    print(f"compiled {len(builds)} kernels in {time.monotonic() - start:.1f} s")


def check() -> None:
    """Compare with the host backend on small problems of every kind."""
    rng = np.random.default_rng(0)
    tall = sparse.random_array((900, 400), density=0.02, rng=rng, data_sampler=rng.standard_normal)
    tall = sparse.csr_array(tall + sparse.eye_array(900, 400))
    b = rng.standard_normal(900)
    dense_row = sparse.lil_array((3000, 2500))
    dense_row.setdiag(np.linspace(1, 3, 2500))
    dense_row[3, :] = 1 / 2500
    dense_row = sparse.csr_array(dense_row)
    saunders = paige_saunders(120, 80, 4, 2, 1e-2)
    compare("tall", tall, b)
    compare("tall float32", tall.astype(np.float32), b.astype(np.float32), rtol=1e-3)
    compare("x0", tall, b, x0=np.ones(400))
    compare("damp, x0", tall, b, x0=np.ones(400), damp=0.5)
    compare("columns", tall, b, precondition="columns")
    compare("three", tall, rng.standard_normal((900, 3)))
    compare("seven float32", tall.astype(np.float32), rng.standard_normal((900, 7)), rtol=1e-3)
    compare("dense row", dense_row, rng.standard_normal(3000))
    compare("Paige-Saunders", saunders.matrix, saunders.b, damp=1e-2)
    compare("maxiter", tall, b, maxiter=3)
    seen: list[Any] = []
    result = lsmr(tall, b, backend="persistent", callback=seen.append)
    verdict(
        f"callback {len(seen)} of {result.itn}",
        [p.itn for p in seen] == [*range(1, result.itn + 1)],
    )
    prepared = prepare(tall, np.float32)
    device_b = cupy.asarray(b, dtype=cupy.float32)
    first = lsmr(prepared, device_b)
    same = all(bool((lsmr(prepared, device_b).x == first.x).all()) for _ in range(300))
    verdict("300 solves equal bit for bit", same)


def compare(name: str, A: Any, b: Any, rtol: float = 1e-5, **options: Any) -> None:
    """Print whether the persistent and the host backend agree."""
    b = b.astype(A.dtype)
    host = lsmr(A, b, backend="host", **options)
    ours = lsmr(A, b, backend="persistent", **options)
    wide = np.linalg.norm(ours.x.astype(float) - host.x) / np.linalg.norm(host.x.astype(float))
    good = bool(
        np.all(np.asarray(ours.istop) == host.istop)
        and np.all(np.abs(np.asarray(ours.itn) - host.itn) <= 1 + 0.03 * np.asarray(host.itn))
        and wide < rtol
        and np.allclose(ours.true_normr, host.true_normr, rtol=1e-5)
    )
    verdict(
        f"{name}: istop {ours.istop} itn {ours.itn} / {host.itn} dx {wide:.1e} "
        f"|r| {ours.true_normr} / {host.true_normr}",
        good,
    )


def verdict(text: str, good: bool) -> None:
    """Print one line."""
    print(("ok    " if good else "WRONG ") + text, flush=True)


def tune(name: str, deadline: float) -> None:
    """Time a stand-in under every geometry."""
    A = load_matrix(name)
    ratio = 0.3540266 if name.startswith("8kv") else 0.2360898
    b, exact = right_hand_side(A, ratio)
    host = lsmr(A.astype(np.float32), b.astype(np.float32), backend="host", **OPTIONS)
    print(
        f"{name} {A.shape} nnz {A.nnz}: host istop {host.istop} itn {host.itn} "
        f"residual {host.true_normr / np.linalg.norm(b):.7f}"
    )
    device_matrix = csr_matrix(A.astype(np.float32))
    device_b = cupy.asarray(b, dtype=cupy.float32)
    for lane_steps in (4, 8):
        for geometry in geometries():
            if time.monotonic() > deadline:
                print("out of time")
                return
            try:
                prepared = prepare(device_matrix, geometry=geometry, lane_steps=lane_steps)
                show(prepared, geometry, lane_steps, device_b, b, exact)
            except Exception as error:
                print(f"{geometry}: {type(error).__name__}: {error}")


def large_geometries() -> Iterator[Geometry]:
    """Geometries for a matrix that does not fit into shared memory, or hardly."""
    yield Geometry(132, 640, staged=False, together=2)
    yield Geometry(132, 640, staged=False, together=1)
    yield Geometry(132, 768, staged=False, together=1)
    yield Geometry(132, 384, staged=False, together=2)
    yield Geometry(264, 256, staged=False, together=2, blocks_per_sm=2)
    yield Geometry(132, 640, staged=True, together=2)


def tune_large(buses: int, deadline: float) -> None:
    """Time a feeder for a fixed number of iterations under every geometry."""
    A = load_matrix(f"feeder(buses={buses})").astype(np.float32)
    m, n = A.shape
    rng = np.random.default_rng(0)
    b = cupy.asarray(rng.standard_normal(m, np.float32))
    matrix = csr_matrix(A)
    moved = 16 * A.nnz + 16 * m + 40 * n
    print(f"feeder {A.shape} nnz {A.nnz}: {moved / 1e6:.0f} MB an iteration")
    options = {"atol": 0.0, "btol": 0.0, "conlim": 0.0}
    for lane_steps in (8, 4, 16):
        for geometry in large_geometries():
            if time.monotonic() > deadline:
                print("out of time")
                return
            try:
                prepared = prepare(matrix, geometry=geometry, lane_steps=lane_steps)
                lsmr(prepared, b, maxiter=3)
                times = {}
                for limit in (20, 80):
                    times[limit] = median_ms(
                        lambda p=prepared, k=limit: lsmr(p, b, maxiter=k, **options)
                    )
                each = 1e3 * (times[80] - times[20]) / 60
                print(
                    f"  {geometry.blocks} x {geometry.threads} staged {geometry.staged:d} together "
                    f"{geometry.together} lane steps {lane_steps}: {each:8.2f} us/it, "
                    f"{moved / each / 1e6:.2f} TB/s",
                    flush=True,
                )
            except Exception as error:
                print(f"{geometry}: {type(error).__name__}: {error}")


def show(
    prepared: PersistentMatrix,
    geometry: Geometry,
    lane_steps: int,
    device_b: Any,
    b: Any,
    exact: Any,
) -> None:
    """Print one line of times."""
    result = lsmr(prepared, device_b, **OPTIONS)
    wall = median_ms(lambda: lsmr(prepared, device_b, **OPTIONS))
    group = prepared.group(1)

    def kernel() -> None:
        group.start(cupy.cuda.get_current_stream())
        cupy.cuda.get_current_stream().synchronize()

    only = median_ms(kernel)
    error = np.linalg.norm(cupy.asnumpy(result.x) - exact) / np.linalg.norm(exact)
    print(
        f"  {geometry.blocks:4d} x {geometry.threads:4d} staged {geometry.staged:d} "
        f"together {geometry.together} lane steps {lane_steps}: "
        f"{1e3 * only / result.itn:6.2f} us/it kernel, {1e3 * wall / result.itn:6.2f} wall, "
        f"floor {2 * floor_us(geometry):5.2f}; istop {result.istop} itn {result.itn} "
        f"residual {result.true_normr / np.linalg.norm(b):.7f} dx {error:.1e} "
        f"regs {prepared_registers(geometry)}",
        flush=True,
    )


def median_ms(run: Callable[[], Any]) -> float:
    """Return the median of seven runs after two, in milliseconds."""
    samples = []
    for _ in range(9):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        run()
        cupy.cuda.Device().synchronize()
        samples.append(1e3 * (time.perf_counter() - start))
    return statistics.median(samples[2:])


def prepared_registers(geometry: Geometry) -> int:
    """Return the registers of a thread."""
    constants = geometry.constants(np.dtype(np.float32), 1)
    arch = device_facts().arch
    artifact = compile_kernel("lsmr_persistent.cu", "lsmr_persistent", constants, arch)
    return artifact.resources.registers


def floor_us(geometry: Geometry, rounds: int = 2000) -> float:
    """Return the time of one store, exchange and load in microseconds."""
    constants = geometry.constants(np.dtype(np.float32), 1)
    kernel = load(compile_kernel("lsmr_probe.cu", "lsmr_probe", constants, device_facts().arch))
    slots = cupy.full(3 * geometry.copies * geometry.blocks, -1, dtype=cupy.int64)
    data = cupy.zeros(geometry.blocks * geometry.threads, dtype=cupy.float32)
    outcome = cupy.zeros(12)
    arguments = SolveArguments(
        slots=slots.data.ptr,
        u=data.data.ptr,
        outcomes=outcome.data.ptr,
        maxiter=rounds,
        spin_limit=1 << 22,
    )
    launch = kernel.prepare(geometry.blocks, geometry.threads, 0, arguments, cooperative=True)
    times = []
    for _ in range(3):
        slots[...] = -1
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        launch()
        cupy.cuda.Device().synchronize()
        times.append(1e6 * (time.perf_counter() - start))
    return (min(times) - 5) / rounds if float(outcome[0]) >= 0 else float("nan")


if __name__ == "__main__":
    main()
