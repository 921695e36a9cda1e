// C leaving through the ring, and what the kernels that do so share.
//
// After a tile's loads the producer hands out slots without loading them. A consumer lays its
// accumulators down there and TMA stores them while the other slots already fill for the next tile.
#pragma once

#include "ring_stage.cuh"

#ifndef SKIP_PRODUCT
#define SKIP_PRODUCT 0
#endif
#ifndef SKIP_STORE
#define SKIP_STORE 0
#endif

static_assert(STAGES > CONSUMERS, "the next tile needs a slot beside the one that each holds");

// In how many parts a consumer's 64 x WGMMA_N of C goes through slots of this size.
__device__ constexpr int output_parts(int slot_bytes) {
  int parts = 1;
  while (BLOCK * WGMMA_N * OUTPUT_BYTES / parts > slot_bytes) parts *= 2;
  return parts;
}

enum class Kind : int32_t { multiply, output, done };

// What a slot holds; written by the producer before the slot's full barrier, read after it.
struct Work {
  Kind kind;
  int32_t consumers;  // bit c: consumer c multiplies from it, or lays its C down there
  int32_t part;       // of an output: which part of the consumer's columns
  int32_t first_row;
  int32_t first_column;
};

// Offers the next slot without bytes to come; `describe(slot)` tells the consumers what it is for.
template <class Describe>
__device__ __forceinline__ void hand_out(Ring& ring, RingPosition<STAGES>& position,
                                         Describe describe) {
  wait_empty(ring, position);
  describe(position.slot);
  mbarrier_arrive(&ring.full[position.slot]);
  position.advance();
}

// A slot goes back when every warp of every consumer has arrived: each reads the slot's Work.
constexpr int CONSUMER_WARPS = WARPGROUP_THREADS / WARP_THREADS;
constexpr int SLOT_RELEASES = CONSUMERS * CONSUMER_WARPS;

// A consumer warpgroup's dealings with the ring. It holds at most one slot with C in it, which it
// gives back once TMA has read it; it looks at that one step later, so that nobody waits for a
// store.
struct Consumer {
  Ring& ring;
  int index = threadIdx.x / WARPGROUP_THREADS - 1;
  bool leads = threadIdx.x % WARPGROUP_THREADS == 0;  // the thread that stores
  int held = -1;

  __device__ __forceinline__ bool takes_part(const Work& work) const {
    return (work.consumers >> index & 1) != 0;
  }

  // Gives back a slot that this warp has read, and first what the warpgroup holds: a run of slots
  // once round the ring would wait for it.
  __device__ __forceinline__ void release(int slot) {
    release_output();
    __syncwarp();
    if (threadIdx.x % WARP_THREADS == 0) mbarrier_arrive(&ring.empty[slot]);
  }

  // Arrives for all four warps: they met before the store began.
  __device__ __forceinline__ void release_output() {
    if (!leads || held < 0) return;
    tma_store_wait_read();
    mbarrier_arrive_many(&ring.empty[held], CONSUMER_WARPS);
    held = -1;
  }

  // Lays a part of the accumulators down in the slot and starts its store; the last part zeroes
  // them all.
  template <int PARTS>
  __device__ __forceinline__ void store_part(const BcsrArguments& arguments,
                                             float (&accumulators)[WGMMA_N / 2], const Work& work,
                                             uint32_t stage, int slot, int32_t first_column) {
    constexpr int COUNT = WGMMA_N / 2 / PARTS;  // accumulators of one part
    static_assert(PARTS <= 4);
    release_output();
    if (work.part == 0) stage_accumulators<COUNT, 0>(stage, accumulators);
    if constexpr (PARTS > 1)
      if (work.part == 1) stage_accumulators<COUNT, COUNT>(stage, accumulators);
    if constexpr (PARTS > 2) {
      if (work.part == 2) stage_accumulators<COUNT, 2 * COUNT>(stage, accumulators);
      if (work.part == 3) stage_accumulators<COUNT, 3 * COUNT>(stage, accumulators);
    }
    fence_async_proxy();
    warpgroup_sync(1 + index);
    if (leads && SKIP_STORE == 0)
      store_stage<WGMMA_N / PARTS>(&arguments.c_map, stage, work.first_row, first_column);
    held = slot;
    if (work.part == PARTS - 1) {
#pragma unroll
      for (int i = 0; i < WGMMA_N / 2; ++i) accumulators[i] = 0.f;
    }
  }

  __device__ __forceinline__ void finish() const {
    if (leads) tma_store_wait();
  }
};

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
