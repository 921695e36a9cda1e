// C leaving through the ring: the producer hands out a slot without loading it, a consumer lays its
// accumulators down there and TMA stores them while the other slots already fill for the next tile.
#pragma once

#include "bcsr_ring.cuh"
#include "output_stage.cuh"

// Offers the next slot without bytes to come; `describe(slot)` tells the consumers what it is for.
template <class Describe>
__device__ __forceinline__ void hand_out(Ring& ring, RingPosition<STAGES>& position,
                                         Describe describe) {
  mbarrier_wait(&ring.empty[position.slot], position.parity ^ 1);
  describe(position.slot);
  mbarrier_arrive(&ring.full[position.slot]);
  position.advance();
}

// The slot that a consumer's C still occupies; -1 for none. It is released once TMA has read it,
// which the consumer looks at one step later, so that nobody waits for a store.
struct HeldSlot {
  Ring& ring;
  bool leads;  // one thread of the warpgroup keeps count
  int slot = -1;

  __device__ __forceinline__ void release() {
    if (!leads || slot < 0) return;
    tma_store_wait_read();
    mbarrier_arrive(&ring.empty[slot]);
    slot = -1;
  }
};

// Starts the store of a stage that this warpgroup has just written.
template <int COLUMNS>
__device__ __forceinline__ void commit_stage(const BcsrArguments& arguments, uint32_t stage,
                                             int consumer, bool leads, int32_t first_row,
                                             int32_t first_column) {
  fence_async_proxy();
  warpgroup_sync(1 + consumer);
  if (leads) store_stage<COLUMNS>(&arguments.c_map, stage, first_row, first_column);
}

__device__ __forceinline__ void zero_accumulators(float (&accumulators)[WGMMA_N / 2]) {
#pragma unroll
  for (int i = 0; i < WGMMA_N / 2; ++i) accumulators[i] = 0.f;
}

// Tiles from a counter that all CTAs share: the first is the CTA's own number, so that nobody waits
// at the start.
__device__ __forceinline__ int32_t next_tile(const BcsrArguments& arguments) {
  return atomicAdd(&arguments.counters[0], 1) + static_cast<int32_t>(gridDim.x);
}

// The last CTA to finish zeroes the counters for the next launch.
__device__ __forceinline__ void finish_tiles(const BcsrArguments& arguments) {
  if (atomicAdd(&arguments.counters[1], 1) == static_cast<int32_t>(gridDim.x) - 1) {
    arguments.counters[0] = 0;
    arguments.counters[1] = 0;
  }
}
