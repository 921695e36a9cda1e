// Probe: the rate of wgmma m64 n256 k16 on bf16 tiles in shared memory. Two warpgroups share one
// tile of B, as the consumers of the BCSR kernels share a stage; nothing is loaded meanwhile.
#include "tma.cuh"
#include "types.cuh"
#include "wgmma.cuh"

constexpr int WARPGROUPS = 2;
constexpr int TILE_N = 256;
constexpr int TILE_K = 64;
constexpr int A_BYTES = 64 * TILE_K * 2;
constexpr int B_BYTES = TILE_K * TILE_N * 2;

struct MmaArguments {
  const uint4* tiles;  // A, then B: already in the swizzled order of shared memory
  float* sums;         // one a thread: the sum of its accumulators
  int32_t iterations;
};

extern "C" __global__ void __launch_bounds__(WARPGROUPS* WARPGROUP_THREADS, 1)
    probe_mma(const __grid_constant__ MmaArguments arguments) {
  extern __shared__ unsigned char dynamic_shared[];
  const uint32_t a = (shared_address(dynamic_shared) + 1023u) & ~1023u;
  const uint32_t b = a + A_BYTES;
  auto* pieces = reinterpret_cast<uint4*>(dynamic_shared + (a - shared_address(dynamic_shared)));
  for (int i = threadIdx.x; i < (A_BYTES + B_BYTES) / 16; i += blockDim.x)
    pieces[i] = arguments.tiles[i];
  fence_async_proxy();
  __syncthreads();

  float accumulators[TILE_N / 2] = {};
  for (int i = 0; i < arguments.iterations; ++i) {
    pin_accumulators(accumulators);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < TILE_K / 16; ++step)
      WgmmaInstruction<TILE_N, Bf16, 1>::issue(accumulators,
                                               matrix_descriptor<128>(a + step * 32, 16, 1024),
                                               matrix_descriptor<128>(b + step * 2048, 8192, 1024));
    wgmma_commit();
    pin_accumulators(accumulators);
    wgmma_wait<1>();
  }
  wgmma_wait<0>();
  pin_accumulators(accumulators);

  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < TILE_N / 2; ++i) sum += accumulators[i];
  arguments.sums[int64_t(blockIdx.x) * blockDim.x + threadIdx.x] = sum;
}
