// mbarrier: a shared-memory barrier that counts arrivals and bytes (PTX ISA, "mbarrier").
//
// A phase completes when the expected arrivals and the expected bytes are both in. A waiter names
// the parity of the phase it waits for. try_wait.parity can tell the current phase only from the
// one before it, so a waiter must never be more than one phase behind.
#pragma once

#include "debug_delay.cuh"
#include "types.cuh"

__device__ __forceinline__ void mbarrier_init(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}

// Makes initialised barriers visible to the async proxy (TMA) and to the cluster.
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
}

// The same for barriers that no other CTA of a cluster uses: the fence above makes the thread wait
// for all its accesses to global memory (MEMBAR.ALL.GPU). A barrier of the CTA has to follow.
__device__ __forceinline__ void mbarrier_init_fence_of_cta() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint64_t* barrier) {
  debug_delay(1);
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

__device__ __forceinline__ void mbarrier_arrive_many(uint64_t* barrier, uint32_t arrivals) {
  debug_delay(1);
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}

// One arrival that also announces `bytes` to come from TMA in this phase.
__device__ __forceinline__ void mbarrier_arrive_expect(uint64_t* barrier, uint32_t bytes) {
  debug_delay(2);
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

__device__ __forceinline__ bool mbarrier_try_wait(uint64_t* barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return done != 0;
}

__device__ __forceinline__ void mbarrier_wait(uint64_t* barrier, uint32_t parity) {
  debug_delay(3);
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}

// The place of a ring's user: which slot, and the parity of that slot's current use.
template <int DEPTH>
struct RingPosition {
  int slot = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    if (++slot == DEPTH) {
      slot = 0;
      parity ^= 1;
    }
  }
};
