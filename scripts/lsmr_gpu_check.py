"""Check the persistent LSMR kernel on this GPU and time its geometries.

    PYTHONPATH=. python3 scripts/lsmr_gpu_check.py [--seconds 80] [--only TEXT]

First the solver against the host backend (shapes, precisions, long rows, scaling, several
right-hand sides, bit for bit repeatability), then microseconds an iteration for both stand-ins
under several geometries, then large feeders: the time of an iteration and the share of the
bandwidth floor, and x after 20 iterations against the geometry that loads directly.
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

from asyncsparse_lab.errors import CompileError
from asyncsparse_lab.gpu.compile import compile_kernel
from asyncsparse_lab.gpu.device import device_facts
from asyncsparse_lab.lsmr import lsmr
from asyncsparse_lab.lsmr.geometry import Geometry
from asyncsparse_lab.lsmr.persistent import prepare
from asyncsparse_lab.lsmr.problems import paige_saunders
from asyncsparse_lab.matrices import load_matrix
from asyncsparse_lab.studies.lsmr_common import (
    OPTIONS,
    RESIDUALS,
    cupy_problem,
    quality,
    stand_in,
)
from asyncsparse_lab.studies.lsmr_scaling import copy_rate, iteration_bytes


def main() -> None:
    """Run the checks, then the timings until the seconds are over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=65.0)
    parser.add_argument("--only", default="check,small,large")
    parser.add_argument("--buses", default="33333,100000,333333,1000000,3333333")
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.seconds
    print(device_facts().name)
    only = arguments.only.split(",")
    sizes = [int(size) for size in arguments.buses.split(",")] if "large" in only else []
    with ThreadPoolExecutor(4) as pool:
        feeders = [pool.submit(load_feeder, size) for size in sizes]
        compile_all()
        if "check" in only:
            check()
        if "small" in only:
            for name in RESIDUALS:
                tune(name)
        for feeder in feeders:
            if time.monotonic() > deadline:
                print("out of time")
                break
            tune_large(*feeder.result(), deadline=deadline)


def small_geometries() -> Iterator[Geometry]:
    """Geometries of the stand-ins: grids, then clusters."""
    for blocks in (33, 66, 99):
        yield Geometry(blocks, 640, staged=True, batched=1)
    yield Geometry(16, 640, staged=True, batched=2, cluster=True)


def large_geometries() -> Iterator[Geometry]:
    """Geometries of a matrix that does not fit into shared memory; the first is the reference."""
    yield Geometry(132, 640, staged=False, together=2)
    yield Geometry(132, 640, staged=True, together=2)
    yield Geometry(132, 640, staged=True, batched=1)
    yield Geometry(132, 640, staged=True, batched=2)
    for threads, slice_cost in ((736, 12), (736, 10), (736, 16), (704, 12), (672, 12)):
        yield Geometry(132, threads, staged=False, ring_steps=32, slice_cost=slice_cost)


def compile_all() -> None:
    """Compile every variant beforehand, in parallel."""
    arch = device_facts().arch
    float32 = np.dtype(np.float32)
    builds = {
        tuple(sorted(build.constants.items())): build
        for geometry in (*small_geometries(), *large_geometries())
        for build in [geometry.build(float32, 1, arch)]
    }
    start = time.monotonic()

    def compile_one(build: Any) -> None:
        try:
            compile_kernel(build.source, build.entry, build.constants, build.arch)
        except CompileError as error:
            print(error)

    with ThreadPoolExecutor(14) as pool:
        list(pool.map(compile_one, builds.values()))
    print(f"compiled {len(builds)} kernels in {time.monotonic() - start:.1f} s", flush=True)


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
    streams = [
        Geometry(7, 96, staged=False, ring_steps=16),
        Geometry(132, 640, staged=False, ring_steps=32),
        Geometry(16, 640, staged=True, batched=2, cluster=True),
        Geometry(4, 96, staged=True, together=2, cluster=True),
    ]
    uneven: Any = sparse.csr_array(
        sparse.vstack(
            [tall, sparse.csr_array((50, 400)), dense_row[:700, :400], dense_row[3:4, :400]]
        )
    )
    for geometry in streams:
        for dtype in (np.float32, np.float64):
            if dtype == np.float64 and geometry.ring_steps == 32:
                continue
            for name, A in (("tall", tall), ("dense row", dense_row), ("uneven", uneven)):
                right = rng.standard_normal(A.shape[0]).astype(dtype)
                host = lsmr(A.astype(dtype), right, backend="host", damp=0.1)
                ours = lsmr(prepare(A, dtype, geometry=geometry), cupy.asarray(right), damp=0.1)
                apart = np.abs(cupy.asnumpy(ours.x) - host.x).max() / np.abs(host.x).max()
                verdict(
                    f"{short(geometry)} {name} {np.dtype(dtype)}: istop {ours.istop} itn "
                    f"{ours.itn} / {host.itn} dx {apart:.1e}",
                    bool(ours.istop == host.istop and apart < 1e-3),
                )
    block = rng.standard_normal((900, 4))
    four = lsmr(prepare(tall, geometry=Geometry(8, 256, True, cluster=True)), cupy.asarray(block))
    host = lsmr(tall, block, backend="host")
    apart = np.abs(cupy.asnumpy(four.x) - host.x).max() / np.abs(host.x).max()
    verdict(f"four in a cluster: itn {four.itn} / {host.itn} dx {apart:.1e}", apart < 1e-8)
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


def tune(name: str) -> None:
    """Time a stand-in under every geometry."""
    problem = stand_in(name)
    A, b = cupy_problem(problem)
    best: tuple[float, Any] = (np.inf, None)
    chosen = prepare(A).geometry()
    results: dict[str, list[str]] = {}
    for lane_steps in (8,):
        for geometry in (chosen, *small_geometries()):
            name_of = ("chosen " if geometry is chosen else "") + short(geometry)
            try:
                prepared = prepare(A, geometry=geometry, lane_steps=lane_steps)
                result = lsmr(prepared, b, **OPTIONS)
                group = prepared.group(1)
                stream = cupy.cuda.get_current_stream()
                each = kernel_us(lambda g=group, s=stream: g.start(s)) / result.itn
                good = quality(problem, result.x)["relative_residual"]
                again = lsmr(prepared, b, **OPTIONS)
                bad = abs(good - RESIDUALS[name]) > 1e-6 or result.istop != 2
                bad = bad or not bool((again.x == result.x).all())
                text = f"{each:.2f}{' WRONG' * bad}"
                if each < best[0]:
                    best = each, prepared
            except Exception as error:
                text = f"{type(error).__name__}: {str(error)[:60]}"
            results.setdefault(name_of, []).append(text)
    print(f"{name}: us/it of the kernel")
    for name_of, texts in results.items():
        print(f"  {name_of:34s} " + "  ".join(texts), flush=True)
    wall = median_ms(lambda: lsmr(best[1], b, **OPTIONS))
    result = lsmr(best[1], b, **OPTIONS)
    print(
        f"  best {short(best[1].geometry())}: kernel {best[0]:.2f}, "
        f"wall {1e3 * wall / result.itn:.2f}, itn {result.itn}"
    )


def short(geometry: Geometry) -> str:
    """Return a geometry in a few letters."""
    text = f"{geometry.blocks}x{geometry.threads} t{geometry.together}"
    text += " staged" * geometry.staged + f" b{geometry.batched}" + " cluster" * geometry.cluster
    text += f" ring {geometry.ring_steps}" * geometry.streamed
    text += f" c{geometry.slice_cost}" * (geometry.slice_cost != 3)
    return text


def kernel_us(run: Callable[[], Any]) -> float:
    """Return the median of 15 launches after three, in microseconds, by events."""
    samples = []
    for _ in range(18):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        run()
        end.record()
        end.synchronize()
        samples.append(1e3 * cupy.cuda.get_elapsed_time(start, end))
    return statistics.median(samples[3:])


def load_feeder(buses: int) -> tuple[int, Any, Any]:
    """Return a feeder in FP32 and a right-hand side."""
    A = load_matrix(f"feeder(buses={buses})").astype(np.float32)
    return buses, A, np.random.default_rng(0).standard_normal(A.shape[0], np.float32)


def tune_large(buses: int, A: Any, host_b: Any, *, deadline: float) -> None:
    """Time a feeder for a fixed number of iterations under every geometry."""
    m, n = A.shape
    start = time.monotonic()
    b = cupy.asarray(host_b)
    matrix = csr_matrix(A)
    floor = iteration_bytes(m, n, A.nnz) / copy_rate() * 1e6
    print(
        f"n {n} nnz {A.nnz}: bandwidth floor {floor:.1f} us; "
        f"to the GPU {time.monotonic() - start:.1f} s",
        flush=True,
    )
    options: Any = {"atol": 0.0, "btol": 0.0, "conlim": 0.0}
    low, high = (10, 70) if n < 5_000_000 else (5, 20)
    reference = None
    for geometry in large_geometries():
        if time.monotonic() > deadline:
            print("out of time")
            return
        if geometry.staged and buses > 40_000:
            continue  # does not fit
        try:
            begin = time.monotonic()
            prepared = prepare(matrix, geometry=geometry)
            x = lsmr(prepared, b, maxiter=20, **options).x
            seconds = time.monotonic() - begin
            same = bool((lsmr(prepared, b, maxiter=20, **options).x == x).all())
            reference = x if reference is None else reference
            apart = float(cupy.linalg.norm(x - reference) / cupy.linalg.norm(reference))
            times = [
                median_ms(lambda p=prepared, k=limit: lsmr(p, b, maxiter=k, **options), 5)
                for limit in (low, high)
            ]
            each = 1e3 * (times[1] - times[0]) / (high - low)
            verdict(
                f"  {short(geometry):36s} {each:8.2f} us/it  {100 * floor / each:4.0f} % of floor  "
                f"dx {apart:.0e} repeats {same:d}  prepared in {seconds:.1f} s",
                same and apart < 1e-4,
            )
        except Exception as error:
            print(f"  {short(geometry)}: {type(error).__name__}: {str(error)[:200]}")


def median_ms(run: Callable[[], Any], count: int = 7) -> float:
    """Return the median of runs after two, in milliseconds."""
    samples = []
    for _ in range(count + 2):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        run()
        cupy.cuda.Device().synchronize()
        samples.append(1e3 * (time.perf_counter() - start))
    return statistics.median(samples[2:])


if __name__ == "__main__":
    main()
