// Thread block clusters: ranks, cluster-wide barriers, remote mbarrier arrival, TMA multicast
// (PTX ISA, "barrier.cluster", "mapa", "cp.async.bulk.tensor ... .multicast::cluster").
#pragma once

#include "tma.cuh"

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// Arrives on the barrier at the same place in the shared memory of CTA `rank`.
__device__ __forceinline__ void mbarrier_arrive_remote(uint64_t* barrier, uint32_t rank) {
  debug_delay(4);
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n}" ::"r"(
          shared_address(barrier)),
      "r"(rank)
      : "memory");
}

// The same without a fence. The release at cluster scope above is compiled to a fence of the whole
// GPU (SASS: MEMBAR.ALL.GPU); at the scope of a CTA it is the arrival alone. That is enough where
// what came before it are reads of wgmma, which have been waited for.
__device__ __forceinline__ void mbarrier_arrive_remote_unfenced(uint64_t* barrier, uint32_t rank) {
  debug_delay(4);
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.release.cta.shared::cluster.b64 _, [remote];\n}" ::"r"(
          shared_address(barrier)),
      "r"(rank)
      : "memory");
}

// One load whose box lands at the same offset in every CTA of `mask`, and is counted on the
// barrier at the same offset in each.
__device__ __forceinline__ void tma_multicast_2d(uint32_t destination, const TensorMap* map,
                                                 uint64_t* barrier, int32_t x, int32_t y,
                                                 uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(destination),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "h"(mask)
      : "memory");
}
