from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = """\
#include "twice.cuh"
namespace {
__device__ __noinline__ float shifted(float value) { return value * value + 1.0f; }
}  // namespace
struct Arguments {
  const float* x;
  float* y;
  long long n;
};
extern "C" __global__ void __launch_bounds__(128) scale(const __grid_constant__ Arguments a) {
  __shared__ float tile[64];
  long long i = blockIdx.x * 128LL + threadIdx.x;
  tile[threadIdx.x & 63] = a.x[i];
  __syncthreads();
  if (i < a.n) a.y[i] = shifted(tile[(threadIdx.x + 1) & 63] * FACTOR) + twice(a.x[i]);
}
"""
HEADER = """\
#pragma once
__device__ inline float twice(float value) { return 2 * value; }
"""


@pytest.fixture
def kernel_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache: what the compiler's own tests build stays theirs."""
    monkeypatch.setenv("ASYNCSPARSE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


@pytest.fixture
def write_kernel(tmp_path: Path) -> Callable[..., Path]:
    """Write a small kernel and its header, in a folder of their own if asked."""

    def write(source: str = SOURCE, header: str = HEADER, folder: str = "sources") -> Path:
        place = tmp_path / folder
        place.mkdir(exist_ok=True)
        (place / "twice.cuh").write_text(header)
        (place / "scale.cu").write_text(source)
        return place / "scale.cu"

    return write


@pytest.fixture
def scale_source() -> str:
    return SOURCE


@pytest.fixture
def scale_header() -> str:
    return HEADER
