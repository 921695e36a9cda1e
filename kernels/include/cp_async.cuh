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

// The same of all 16 bytes: sizes are computed where they may be others.
__device__ __forceinline__ void cp_async_whole(uint32_t destination, const void* source) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(destination), "l"(source)
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
