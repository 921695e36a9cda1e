// TMA: bulk tensor copies between global and shared memory (PTX ISA, "cp.async.bulk.tensor").
// Coordinates are in elements, innermost first. Elements outside the tensor arrive as zeros.
#pragma once

#include "mbarrier.cuh"
#include "types.cuh"

// The 128 bytes that cuTensorMapEncodeTiled writes. 64-byte alignment is a hardware rule.
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

// Fetches a descriptor into the cache before the first copy needs it.
__device__ __forceinline__ void prefetch_tensor_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void tma_load_2d(uint32_t destination, const TensorMap* map,
                                            uint64_t* barrier, int32_t x, int32_t y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];" ::"r"(destination),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y)
      : "memory");
}

// A plain stretch of memory, without a tensor map: 16-byte aligned, a multiple of 16 bytes.
__device__ __forceinline__ void bulk_load(uint32_t destination, const void* source, uint32_t bytes,
                                          uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(destination),
      "l"(source), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// Asks L2 for a stretch of memory and waits for nothing: aligned like a bulk load.
__device__ __forceinline__ void bulk_prefetch(const void* source, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(source), "r"(bytes) : "memory");
}

__device__ __forceinline__ void tma_store_2d(const TensorMap* map, uint32_t source, int32_t x,
                                             int32_t y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
      "r"(source), "r"(x), "r"(y)
      : "memory");
}

__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until the committed stores have read their shared memory, so that it may be reused.
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

__device__ __forceinline__ void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Ordinary shared-memory stores become visible to wgmma and TMA, which read through the async
// proxy. Each writing thread calls this before the barrier that precedes the read.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
