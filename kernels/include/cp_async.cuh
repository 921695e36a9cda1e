// cp.async: 16 bytes from global to shared memory without a register between, and the mbarrier that
// they arrive on (PTX ISA, "cp.async" and "cp.async.mbarrier.arrive").
#pragma once

#include "debug_delay.cuh"
#include "types.cuh"

// Copies `bytes` (0 .. 16) and fills the rest of the 16 with zeros; with 0 nothing is read. Both
// addresses are 16-byte aligned. Rows are used from shared memory, so L1 is passed by (.cg).
__device__ __forceinline__ void cp_async(uint32_t destination, const void* source, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(destination), "l"(source),
               "r"(bytes)
               : "memory");
}

// Which accesses tell L2 how long to keep what they touch (PTX ISA, "createpolicy"): bits of HINTS.
#ifndef HINTS
#define HINTS 0
#endif
constexpr int HINT_C = 1;       // first to go: C is not read again
constexpr int HINT_A = 2;       // first to go
constexpr int HINT_B = 4;       // last to go: other windows read the row too
constexpr int FETCH_B_256 = 8;  // B from memory in stretches of 256 bytes

__device__ __forceinline__ uint64_t evict_last_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ uint64_t evict_first_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ void cp_async_hinted(uint32_t destination, const void* source,
                                                uint32_t bytes, uint64_t policy) {
  if constexpr ((HINTS & HINT_B) != 0)
    asm volatile(
        "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(destination),
        "l"(source), "r"(bytes), "l"(policy)
        : "memory");
  else if constexpr ((HINTS & FETCH_B_256) != 0)
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(destination),
                 "l"(source), "r"(bytes)
                 : "memory");
  else
    cp_async(destination, source, bytes);
}

__device__ __forceinline__ void bulk_load_hinted(uint32_t destination, const void* source,
                                                 uint32_t bytes, uint64_t* barrier,
                                                 uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1], %2, [%3], %4;" ::"r"(destination),
      "l"(source), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

// This thread's arrival, made by the hardware when all its copies so far have landed. The barrier
// counts it among those that it was initialised for (.noinc).
//
// The copies are writes of the generic proxy and nobody runs between their landing and the arrival,
// so who reads them through the async proxy (wgmma) fences after its wait: the fence has to lie on
// the path from the write to the read, on either side of the barrier (PTX ISA, memory consistency
// model, "Causality order").
__device__ __forceinline__ void cp_async_arrive(uint64_t* barrier) {
  debug_delay(4);
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
