// The CTAs of a cluster share a window's columns: each multiplies its part, then adds up its part
// of C's columns from the shared memory of all, in the order of their ranks.
#pragma once

#include "window_output.cuh"

constexpr int QUADS = WGMMA_N / 8;  // of accumulators of a lane: 16 bytes each

__device__ __forceinline__ float4 load_remote(uint32_t address, uint32_t rank) {
  float4 value;
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n}"
      : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
      : "r"(address), "r"(rank)
      : "memory");
  return value;
}

// `ring` is free: its last stage was multiplied, in every consumer. What lies there stays until all
// CTAs of the cluster have met again.
__device__ __forceinline__ void share_sums(uint32_t ring, const float (&accumulators)[WGMMA_N / 2],
                                           float (&sums)[OWN_COLUMNS / 2]) {
  if constexpr (CLUSTER == 1) {
#pragma unroll
    for (int i = 0; i < OWN_COLUMNS / 2; ++i) sums[i] = accumulators[i];
    return;
  }
  uint32_t own =
      ring + (threadIdx.x / WARP_THREADS * QUADS * WARP_THREADS + threadIdx.x % WARP_THREADS) * 16;
#pragma unroll
  for (int i = 0; i < QUADS; ++i)
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(own + i * (WARP_THREADS * 16)),
                 "f"(accumulators[4 * i]), "f"(accumulators[4 * i + 1]),
                 "f"(accumulators[4 * i + 2]), "f"(accumulators[4 * i + 3])
                 : "memory");
  debug_delay(7);
  cluster_sync();  // producers have exited, or will without another access
  uint32_t first = own + cluster_rank() * (QUADS / CLUSTER * WARP_THREADS * 16);
#pragma unroll
  for (int i = 0; i < QUADS / CLUSTER; ++i) {
    float4 total = load_remote(first + i * (WARP_THREADS * 16), 0);
#pragma unroll
    for (int rank = 1; rank < CLUSTER; ++rank) {
      float4 more = load_remote(first + i * (WARP_THREADS * 16), rank);
      total = {total.x + more.x, total.y + more.y, total.z + more.z, total.w + more.w};
    }
    sums[4 * i] = total.x;
    sums[4 * i + 1] = total.y;
    sums[4 * i + 2] = total.z;
    sums[4 * i + 3] = total.w;
  }
}
