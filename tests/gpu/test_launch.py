"""Loading, checking and launching of cubins, and tensor maps that the driver encodes."""

import ctypes
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asyncsparse_lab.errors import DeviceError, InputError
from asyncsparse_lab.gpu import device
from asyncsparse_lab.gpu.compile import compile_kernel
from asyncsparse_lab.gpu.describe import TensorMap
from asyncsparse_lab.gpu.launch import Kernel, load

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default"),  # those of CuPy are not ours
]

SCALE = """
struct Arguments { const float* x; float* y; long long n; float factor; int unused; };
extern "C" __global__ void __launch_bounds__(256) scale(const __grid_constant__ Arguments a) {
  extern __shared__ float tile[];
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  tile[threadIdx.x] = i < a.n ? a.x[i] : 0.0f;
  __syncthreads();
  if (i < a.n) a.y[i] = a.factor * tile[threadIdx.x];
}
"""


class ScaleArguments(ctypes.Structure):
    _fields_ = (
        ("x", ctypes.c_uint64),
        ("y", ctypes.c_uint64),
        ("n", ctypes.c_int64),
        ("factor", ctypes.c_float),
        ("unused", ctypes.c_int32),
    )


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Kernel]:
    def build_kernel(source: str, entry: str, **constants: int) -> Kernel:
        path = tmp_path / f"{entry}.cu"
        path.write_text(source)
        return load(compile_kernel(path, entry, constants, device.device_facts().arch + "a"))

    return build_kernel


@pytest.fixture
def scale(build: Callable[..., Kernel]) -> Kernel:
    return build(SCALE, "scale")


@pytest.fixture
def arrays() -> tuple[Any, Any, ScaleArguments]:
    import cupy

    x = cupy.arange(1000, dtype=cupy.float32)
    y = cupy.zeros_like(x)
    return x, y, ScaleArguments(x.data.ptr, y.data.ptr, x.size, 3.0, 0)


def test_launch_computes(scale: Kernel, arrays: tuple[Any, Any, ScaleArguments]) -> None:
    x, y, arguments = arrays
    scale.launch(4, 256, 1024, arguments)
    assert (y == 3 * x).all()


def test_prepared_launch_reads_the_struct_anew(
    scale: Kernel, arrays: tuple[Any, Any, ScaleArguments]
) -> None:
    x, y, arguments = arrays
    run = scale.prepare((4, 1, 1), 256, 1024, arguments)
    run()
    arguments.factor = 5.0
    run()
    assert (y == 5 * x).all()


def test_launch_runs_on_the_current_stream(
    scale: Kernel, arrays: tuple[Any, Any, ScaleArguments]
) -> None:
    import cupy

    x, y, arguments = arrays
    run = scale.prepare(4, 256, 1024, arguments)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        run()
        graph = stream.end_capture()
    assert not y.any()  # captured by the stream, so not executed
    graph.launch(stream)
    stream.synchronize()
    assert (y == 3 * x).all()
    y.fill(0)
    cupy.cuda.Device().synchronize()
    scale.launch(4, 256, 1024, arguments, stream=stream)
    stream.synchronize()
    assert (y == 3 * x).all()


def test_launch_from_another_thread(scale: Kernel, arrays: tuple[Any, Any, ScaleArguments]) -> None:
    x, y, arguments = arrays
    failures: list[Exception] = []

    def work() -> None:
        try:
            load(scale.artifact).launch(4, 256, 1024, arguments)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failures
    assert (y == 3 * x).all()


def test_a_prepared_launch_is_the_first_call_of_a_thread(
    scale: Kernel, arrays: tuple[Any, Any, ScaleArguments]
) -> None:
    x, y, arguments = arrays
    run = scale.prepare(4, 256, 1024, arguments)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(run).result()
    assert (y == 3 * x).all()


def test_shared_memory_above_48_kib(scale: Kernel, arrays: tuple[Any, Any, ScaleArguments]) -> None:
    x, y, arguments = arrays
    scale.launch(4, 256, scale.limits.shared_bytes, arguments)
    assert (y == 3 * x).all()
    with pytest.raises(InputError, match=f"at most {scale.limits.shared_bytes} fit"):
        scale.launch(4, 256, scale.limits.shared_bytes + 1, arguments)


def test_launch_bounds_limit_the_block(
    scale: Kernel, arrays: tuple[Any, Any, ScaleArguments]
) -> None:
    with pytest.raises(InputError, match="launch bounds' limit is 256"):
        scale.launch(4, 257, 2048, arrays[2])


def test_struct_of_another_size_is_refused(scale: Kernel) -> None:
    class TooSmall(ctypes.Structure):
        _fields_ = (("x", ctypes.c_uint64),)

    with pytest.raises(InputError, match="scale takes 32 bytes of arguments, TooSmall has 8"):
        scale.launch(1, 32, 128, TooSmall())


def test_several_parameters_are_refused(build: Callable[..., Kernel]) -> None:
    with pytest.raises(InputError, match="several parameters"):
        build('extern "C" __global__ void pair(int* x, int n) { *x = n; }', "pair")


def test_occupancy_follows_shared_memory(scale: Kernel) -> None:
    assert scale.blocks_per_sm(256, 1024) == 8  # 2048 threads an SM
    assert scale.blocks_per_sm(256, scale.limits.shared_bytes) == 1


def test_cooperative_launch_is_limited_to_resident_blocks(
    scale: Kernel, arrays: tuple[Any, Any, ScaleArguments]
) -> None:
    x, y, arguments = arrays
    resident = scale.blocks_per_sm(256, 1024) * device.device_facts().sm_count
    scale.launch(resident, 256, 1024, arguments, cooperative=True)
    assert (y == 3 * x).all()
    with pytest.raises(InputError, match=f"takes {resident} at most"):
        scale.launch(resident + 1, 256, 1024, arguments, cooperative=True)


def test_cluster_of_the_source_sets_the_grid(build: Callable[..., Kernel]) -> None:
    import cupy

    kernel = build(
        """
        struct Arguments { unsigned* ranks; };
        extern "C" __global__ void __cluster_dims__(2, 1, 1)
            ranks(const __grid_constant__ Arguments a) {
          unsigned rank;
          asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
          if (threadIdx.x == 0) a.ranks[blockIdx.x] = rank;
        }""",
        "ranks",
    )

    class Arguments(ctypes.Structure):
        _fields_ = (("ranks", ctypes.c_uint64),)

    assert kernel.limits.cluster == (2, 1, 1)
    ranks = cupy.full(6, 9, dtype=cupy.uint32)
    kernel.launch(6, 32, 0, Arguments(ranks.data.ptr))
    assert ranks.tolist() == [0, 1, 0, 1, 0, 1]
    with pytest.raises(InputError, match=r"grid\.x = 5 is no multiple of the 2 blocks"):
        kernel.launch(5, 32, 0, Arguments(ranks.data.ptr))


TMA = """
#include "tma.cuh"
struct Arguments { TensorMap map; uint16_t* tile; int32_t x; int32_t y; int32_t pad[12]; };
extern "C" __global__ void copy_tile(const __grid_constant__ Arguments a) {
  __shared__ alignas(1024) uint16_t tile[ROWS * COLUMNS];
  __shared__ uint64_t barrier;
  if (threadIdx.x == 0) {
    mbarrier_init(&barrier, 1);
    mbarrier_init_fence();
    mbarrier_arrive_expect(&barrier, sizeof(tile));
    tma_load_2d(shared_address(tile), &a.map, &barrier, a.x, a.y);
  }
  __syncthreads();
  mbarrier_wait(&barrier, 0);
  for (int i = threadIdx.x; i < ROWS * COLUMNS; i += blockDim.x) a.tile[i] = tile[i];
}
"""


class TileArguments(ctypes.Structure):
    _fields_ = (
        ("map", ctypes.c_uint8 * 128),
        ("tile", ctypes.c_uint64),
        ("x", ctypes.c_int32),
        ("y", ctypes.c_int32),
        ("pad", ctypes.c_int32 * 12),
    )


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_tensor_map_moves_the_box_that_it_describes(
    build: Callable[..., Kernel], swizzle: Any
) -> None:
    import cupy

    rows, columns = 16, (swizzle or 128) // 2
    kernel = build(TMA, "copy_tile", ROWS=rows, COLUMNS=columns)
    # A view with a row stride of its own, whose last tile hangs over both edges.
    host = cupy.arange(1, 1 + 40 * 208, dtype=cupy.uint16).reshape(40, 208)[:, 8:200]
    tile = cupy.full((rows, columns), 7, dtype=cupy.uint16)
    described = TensorMap.over(host, (rows, columns), "bfloat16", swizzle=swizzle)
    y, x = 30, host.shape[1] - columns // 2
    encoded = described.encode()
    assert encoded.ctypes.data % 128 == 0
    arguments = TileArguments(
        (ctypes.c_uint8 * 128)(*encoded.tolist()), tile.data.ptr, x, y, (ctypes.c_int32 * 12)()
    )
    kernel.launch(1, 128, 0, arguments)

    expected = cupy.zeros((rows, columns), dtype=cupy.uint16)
    inside = host[y:, x:]
    expected[: inside.shape[0], : inside.shape[1]] = inside
    # The swizzle exchanges the 16-byte pieces of a row by an XOR with the row's number, which
    # counts 128-byte lines.
    pieces = expected.reshape(rows, columns // 8, 8)
    moved = cupy.empty_like(pieces)
    for row in range(rows):
        mask = (row * swizzle // 128) % (swizzle // 16) if swizzle else 0
        for piece in range(columns // 8):
            moved[row, piece ^ mask] = pieces[row, piece]
    assert (tile == moved.reshape(rows, columns)).all()


def test_host_cost_of_a_prepared_launch(
    scale: Kernel, arrays: tuple[Any, Any, ScaleArguments]
) -> None:
    import cupy

    run = scale.prepare(4, 256, 1024, arrays[2])
    times = []
    for _ in range(20):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        for _ in range(100):
            run()
        times.append((time.perf_counter() - start) / 100)
    best_us = 1e6 * min(times)
    print(f"host time of a prepared launch: {best_us:.2f} us")
    assert best_us < 20


def test_kernel_is_loaded_once(scale: Kernel) -> None:
    assert load(scale.artifact) is scale


def test_damaged_cubin_is_a_device_error(scale: Kernel, tmp_path: Path) -> None:
    folder = tmp_path / "damaged"
    folder.mkdir()
    (folder / "kernel.cubin").write_bytes(bytes(4096))
    with pytest.raises(DeviceError, match="cuModuleLoadData of scale: CUDA_ERROR"):
        load(replace(scale.artifact, folder=folder, kernel_hash="damaged"))


def test_facts_of_the_device() -> None:
    facts = device.require_gpu((9, 0))
    assert facts.capability == (9, 0)
    assert facts.arch == "sm_90"
    assert facts.shared_bytes_per_block == 232_448
    assert facts.sm_count > 100
    assert facts.l2_bytes > 2**25
    assert 0 < device.free_memory() <= facts.memory_bytes
    assert facts.cuda_driver is not None
    assert facts.slug == device.slug_of(facts.name)


def test_clock_state_is_told_or_none() -> None:
    state = device.clock_state()
    clock = device.sm_clock_mhz()
    assert set(state) >= {"sm_clock_mhz", "throttle_reasons", "power_w"}
    assert clock is None or 100 < clock < 4000
