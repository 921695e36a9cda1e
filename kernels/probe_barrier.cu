// Probes: the round trip between two warps over mbarriers, and between all blocks of a grid.
#include "mbarrier.cuh"
#include "types.cuh"

struct MbarrierArguments {
  int64_t* cycles;  // one: clock cycles of all round trips
  int32_t rounds;
};

// Warp 0 and warp 1 answer each other, as a producer and a consumer of a ring of one slot do.
extern "C" __global__ void __launch_bounds__(64)
    probe_mbarrier(const __grid_constant__ MbarrierArguments arguments) {
  __shared__ uint64_t full;
  __shared__ uint64_t empty;
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    mbarrier_init(&empty, 1);
    mbarrier_init_fence();
  }
  __syncthreads();
  const bool leads = threadIdx.x < WARP_THREADS;
  const bool is_elected = threadIdx.x % WARP_THREADS == 0;
  const int64_t start = clock64();
  for (int32_t round = 0; round < arguments.rounds; ++round) {
    const uint32_t parity = round & 1;
    if (leads) {
      if (is_elected) mbarrier_arrive(&full);
      mbarrier_wait(&empty, parity);
    } else {
      mbarrier_wait(&full, parity);
      if (is_elected) mbarrier_arrive(&empty);
    }
  }
  if (threadIdx.x == 0) *arguments.cycles = clock64() - start;
}

struct GridBarrierArguments {
  uint32_t* arrivals;  // zero before the launch
  int32_t rounds;
};

// One counter: a block arrives by a release-add and spins until all blocks of the round did.
// Launch cooperatively, so that all blocks are resident.
extern "C" __global__ void __launch_bounds__(128)
    probe_grid_barrier(const __grid_constant__ GridBarrierArguments arguments) {
  for (int32_t round = 1; round <= arguments.rounds; ++round) {
    __syncthreads();
    if (threadIdx.x == 0) {
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arguments.arrivals) : "memory");
      const uint32_t wanted = uint32_t(round) * gridDim.x;
      uint32_t arrived;
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                     : "=r"(arrived)
                     : "l"(arguments.arrivals)
                     : "memory");
      } while (arrived < wanted);
    }
    __syncthreads();
  }
}
