// All blocks of a cooperative launch, which run at once, meet: what was written before is seen
// after.
#pragma once

#include "types.cuh"

struct Meeting {
  int32_t* come;  // blocks that have; behind it, how many meetings there were
  int32_t before;
  bool is_last;

  // By all threads; the block that comes last may do something for all, then it lets them go.
  __device__ __forceinline__ explicit Meeting(int32_t* meetings) : come(meetings) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
      before = meetings_so_far();
      __threadfence();
      last = atomicAdd(come, 1) == static_cast<int32_t>(gridDim.x) - 1;
      __threadfence();
    }
    __syncthreads();
    is_last = last;
  }

  __device__ __forceinline__ int32_t meetings_so_far() const {
    int32_t count;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(count) : "l"(come + 1) : "memory");
    return count;
  }

  __device__ __forceinline__ void let_go() const {
    __syncthreads();
    if (threadIdx.x != 0) return;
    come[0] = 0;  // for the next one
    __threadfence();
    atomicAdd(come + 1, 1);
  }

  __device__ __forceinline__ void wait() const {
    if (threadIdx.x == 0)
      while (meetings_so_far() == before) {
      }
    __syncthreads();
  }
};
