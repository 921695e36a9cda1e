"""The probes of the study ``ceilings``: what is launched, what it moves, what it must give."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from scipy.sparse import csr_array

from asyncsparse_lab.formats import bfloat16_bits, bfloat16_from_bits, swizzled_tiles
from asyncsparse_lab.gpu.compile import KernelBuild
from asyncsparse_lab.gpu.device import require_gpu
from asyncsparse_lab.studies import l2_probes
from asyncsparse_lab.studies.trial import (
    ALIGNMENT,
    INT32,
    POINTER,
    Trial,
    loaded,
    per_second,
    structure,
    trial_of,
)

_COPY_BYTES: Final = 1 << 30
_MMA_ITERATIONS: Final = 4000
_FMA_ITERATIONS: Final = 20_000
_GEMM_SIZE: Final = 8192
_ROUNDS: Final = 2000

CopyArguments = structure(
    "CopyArguments", ("source", POINTER), ("destination", POINTER), ("count", ctypes.c_int64)
)
MmaArguments = structure(
    "MmaArguments", ("tiles", POINTER), ("sums", POINTER), ("iterations", INT32)
)
FmaArguments = structure(
    "FmaArguments",
    ("sums", POINTER),
    ("factor", ctypes.c_float),
    ("addend", ctypes.c_float),
    ("iterations", INT32),
)
EmptyArguments = structure("EmptyArguments", ("unused", POINTER))
MbarrierArguments = structure("MbarrierArguments", ("cycles", POINTER), ("rounds", INT32))
GridBarrierArguments = structure("GridBarrierArguments", ("arrivals", POINTER), ("rounds", INT32))


BUILDS: Final[dict[str, list[KernelBuild]]] = {
    "copy": [KernelBuild("probe_copy.cu", "probe_copy", {})],
    "mma": [KernelBuild("probe_mma.cu", "probe_mma", {})],
    "fma": [KernelBuild("probe_fma.cu", "probe_fma", {"CHAINS": chains}) for chains in (8, 16)],
    "empty": [KernelBuild("probe_empty.cu", "probe_empty", {})],
    "mbarrier": [KernelBuild("probe_barrier.cu", "probe_mbarrier", {})],
    "grid-barrier": [KernelBuild("probe_barrier.cu", "probe_grid_barrier", {})],
    **l2_probes.kernel_builds(),
}
"""The compilations behind each probe; cuBLAS has none."""


def _right() -> None:
    return None


def prepare_copy() -> list[Trial]:
    """Copy 1 GiB: by a kernel, and by the driver."""
    import cupy

    sm_count = require_gpu().sm_count
    source = cupy.random.default_rng(0).random(_COPY_BYTES // 8)
    target = cupy.zeros_like(source)
    rates = per_second(2 * _COPY_BYTES, "tb_per_s")
    kernel = loaded(BUILDS["copy"][0])
    arguments = CopyArguments(source.data.ptr, target.data.ptr, _COPY_BYTES // 16)

    def fault() -> str | None:
        return None if bool((source == target).all()) else "the copy differs from its source"

    trials = []
    for blocks_per_sm in (2, 4):
        launch = kernel.prepare(blocks_per_sm * sm_count, 512, 0, arguments)
        params = {"method": "kernel", "blocks_per_sm": blocks_per_sm}
        trials.append(
            trial_of(kernel, launch, (source, target), params=params, rates=rates, fault=fault)
        )

    def by_driver() -> None:
        stream = cupy.cuda.get_current_stream()
        target.data.copy_from_device_async(source.data, _COPY_BYTES, stream)

    trials.append(Trial(by_driver, {"method": "driver"}, rates, fault, backend="cupy"))
    return trials


def prepare_mma() -> list[Trial]:
    """Multiply one pair of random tiles over and over, on every SM."""
    import cupy

    sm_count = require_gpu().sm_count
    rng = np.random.default_rng(0)
    a, b = (
        bfloat16_bits(rng.standard_normal(shape, dtype=np.float32))
        for shape in ((1, 64, 64), (1, 64, 256))
    )
    tiles = cupy.asarray(np.concatenate([swizzled_tiles(x).ravel() for x in (a, b)]))
    sums = cupy.zeros(sm_count * 256, dtype=cupy.float32)
    kernel = loaded(BUILDS["mma"][0])
    arguments = MmaArguments(tiles.data.ptr, sums.data.ptr, _MMA_ITERATIONS)
    launch = kernel.prepare(sm_count, 256, tiles.nbytes + ALIGNMENT, arguments)
    flops = sm_count * _MMA_ITERATIONS * 2 * (2 * 64 * 64 * 256)

    def fault() -> str | None:
        product = bfloat16_from_bits(a[0]).astype(np.float64) @ bfloat16_from_bits(b[0])
        found = cupy.asnumpy(sums).astype(np.float64).reshape(-1, 128).sum(axis=1)
        wanted = _MMA_ITERATIONS * product.sum()
        # FP32 accumulators that grow through thousands of additions: a coarse check of layout.
        slack = 1e-2 * _MMA_ITERATIONS * np.abs(product).sum()
        off = np.abs(found - wanted).max()
        return (
            None if off <= slack else f"sums of accumulators are off by {off:.3g} of {wanted:.3g}"
        )

    params = {"tile": "64x256x64", "warpgroups": 2, "iterations": _MMA_ITERATIONS}
    return [
        trial_of(
            kernel,
            launch,
            (tiles, sums),
            params=params,
            rates=per_second(flops, "tflops"),
            fault=fault,
        )
    ]


def prepare_cublas() -> list[Trial]:
    """Multiply square dense matrices of random data."""
    import cupy

    from asyncsparse_lab.baselines import BASELINES
    from asyncsparse_lab.spmm.product import Product

    size = _GEMM_SIZE
    indices = np.tile(np.arange(size, dtype=np.int32), size)
    full = csr_array(
        (np.ones(size * size, np.float32), indices, np.arange(size + 1, dtype=np.int32) * size),
        shape=(size, size),
    )
    product = Product.random(full, size, dtype_out="bfloat16")
    prepared = BASELINES["cublas-dense"].prepare(product)

    def fault() -> str | None:
        from asyncsparse_lab.spmm.oracle import reference

        truth = reference(product.A, product.B, np.arange(0, size, 512))
        worst, bound = truth.worst(prepared.output), truth.err_bound("bfloat16")
        return None if worst.rel_err <= bound else f"rel_err {worst.rel_err:.3g} > {bound:.3g}"

    return [
        Trial(
            prepared.run,
            {"size": size, **prepared.params},
            per_second(2.0 * size**3, "tflops"),
            fault,
            backend="cublas",
            compiler=prepared.compiler,
            keep=(product, cupy),
        )
    ]


def prepare_fma() -> list[Trial]:
    """Independent chains of multiply-adds in every thread of two full blocks an SM."""
    import cupy

    blocks, threads = 2 * require_gpu().sm_count, 1024
    trials = []
    for build in BUILDS["fma"]:
        chains = build.constants["CHAINS"]
        sums = cupy.zeros(blocks * threads, dtype=cupy.float32)
        kernel = loaded(build)
        launch = kernel.prepare(
            blocks, threads, 0, FmaArguments(sums.data.ptr, 0.5, 1.0, _FMA_ITERATIONS)
        )

        def fault(sums: Any = sums, chains: int = chains) -> str | None:
            wrong = int((sums != 2.0 * chains).sum())  # every chain ends at 1 / (1 - 0.5)
            return f"{wrong} threads have another sum" if wrong else None

        flops = 2.0 * blocks * threads * chains * _FMA_ITERATIONS
        trials.append(
            trial_of(
                kernel,
                launch,
                (sums,),
                params={"chains": chains, "threads_per_sm": 2 * threads},
                rates=per_second(flops, "tflops"),
                fault=fault,
            )
        )
    return trials


def prepare_empty() -> list[Trial]:
    """One launch of a kernel that does nothing."""
    kernel = loaded(BUILDS["empty"][0])
    launch = kernel.prepare(1, 32, 0, EmptyArguments(0))
    return [trial_of(kernel, launch, (), params={}, rates=lambda median_us: {}, fault=_right)]


def prepare_mbarrier() -> list[Trial]:
    """Two warps of one block that answer each other; counted in the SM's own cycles."""
    import cupy

    cycles = cupy.zeros(1, dtype=cupy.int64)
    kernel = loaded(BUILDS["mbarrier"][0])
    launch = kernel.prepare(1, 64, 0, MbarrierArguments(cycles.data.ptr, _ROUNDS))
    return [
        trial_of(
            kernel,
            launch,
            (cycles,),
            params={"rounds": _ROUNDS},
            rates=lambda median_us: {"cycles": int(cycles[0]) / _ROUNDS},
            fault=_right,
        )
    ]


def prepare_grid_barrier() -> list[Trial]:
    """All SMs, one block each, wait for each other."""
    import cupy

    sm_count = require_gpu().sm_count
    arrivals = cupy.zeros(1, dtype=cupy.uint32)
    kernel = loaded(BUILDS["grid-barrier"][0])
    arguments = GridBarrierArguments(arrivals.data.ptr, _ROUNDS)
    launch = kernel.prepare(sm_count, 128, 0, arguments, cooperative=True)

    def run() -> None:
        arrivals.data.memset_async(0, 4, cupy.cuda.get_current_stream())
        launch()

    def fault() -> str | None:
        counted, wanted = int(arrivals[0]), sm_count * _ROUNDS
        return None if counted == wanted else f"{counted} arrivals, not {wanted}"

    return [
        trial_of(
            kernel,
            run,
            (arrivals,),
            params={"rounds": _ROUNDS, "blocks": sm_count},
            rates=lambda median_us: {"us": median_us / _ROUNDS},
            fault=fault,
        )
    ]


PREPARE: Final[dict[str, Callable[[], list[Trial]]]] = {
    "copy": prepare_copy,
    "mma": prepare_mma,
    "cublas": prepare_cublas,
    "fma": prepare_fma,
    "tma-l2": l2_probes.prepare_tma,
    "gather-l2": l2_probes.prepare_gather,
    "empty": prepare_empty,
    "mbarrier": prepare_mbarrier,
    "grid-barrier": prepare_grid_barrier,
}
"""What makes the trials of each probe."""
