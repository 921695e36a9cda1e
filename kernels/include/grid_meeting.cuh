// Thread blocks of a cooperative launch, which run at once, meet: what was written before is seen
// after.
#pragma once

#include "types.cuh"

// By all threads of a block: whether it is the last of those that add to a counter, which is
// `all` then. What the others wrote before is seen by the last one; others do not wait.
__device__ __forceinline__ bool is_last_to_come(int32_t* come, int32_t own, int32_t all) {
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicAdd(come, own) == all - own;
    __threadfence();
  }
  __syncthreads();
  return is_last;
}

// Of all blocks; made at its beginning, so that nobody waits for the count of what was before.
struct Meetings {
  int32_t* come;   // blocks that have; behind it, how many meetings there were
  int32_t so_far;  // thread 0 alone

  __device__ __forceinline__ explicit Meetings(int32_t* meetings) : come(meetings), so_far(0) {
    if (threadIdx.x == 0) so_far = count();
  }

  __device__ __forceinline__ int32_t count() const {
    int32_t meetings;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(meetings) : "l"(come + 1) : "memory");
    return meetings;
  }

  // By all threads: whether all other blocks have come before. Then this one may do something for
  // all, and lets them go; others wait, or leave for good.
  __device__ __forceinline__ bool arrive() {
    return is_last_to_come(come, 1, static_cast<int32_t>(gridDim.x));
  }

  __device__ __forceinline__ void let_go() {
    __syncthreads();
    if (threadIdx.x != 0) return;
    come[0] = 0;  // for the next one
    __threadfence();
    atomicAdd(come + 1, 1);
    ++so_far;
  }

  __device__ __forceinline__ void wait() {
    if (threadIdx.x == 0) {
      while (count() == so_far) {
      }
      ++so_far;
    }
    __syncthreads();
  }
};
