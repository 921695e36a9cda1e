// The ring of opt3 and of the kernels that build on it: one producer thread fills slots by TMA,
// two consumer warpgroups multiply from them. A slot has a full barrier (one arrival and the
// stage's bytes) and an empty barrier (one arrival a consumer).
#pragma once

#include "bcsr_load.cuh"
#include "role_clock.cuh"

#ifndef STAGES
#define STAGES 3
#endif

// A consumer releases a slot only after it has issued the next one, so one slot would deadlock.
static_assert(STAGES >= 2, "the ring needs two slots or more");

// The article's numbers; a probe's producer needs some for its counts.
constexpr int PRODUCER_REGISTERS = INSTRUMENT != 0 ? 40 : 24;
constexpr int CONSUMER_REGISTERS = INSTRUMENT != 0 ? 232 : 240;

constexpr int RING_THREADS = (1 + CONSUMERS) * WARPGROUP_THREADS;

struct Ring : ReleaseTimes<STAGES> {
  uint64_t full[STAGES];
  uint64_t empty[STAGES];
};

// Walks the blocks of a block row. Block columns are read one block ahead of their use, so that the
// latency of the read hides behind the wait for a slot. Few and narrow members: a producer that
// gave its registers away has 24.
struct BlockWalk {
  const int32_t* next;
  int32_t left;    // blocks still to load, this one included
  int32_t a_row;   // first row of this block in the array of blocks
  int32_t column;  // its block column
  int32_t ahead;   // the next one's

  __device__ __forceinline__ BlockWalk(const BcsrArguments& arguments, int64_t begin, int64_t end)
      : next(arguments.block_col_idx + begin),
        left(static_cast<int32_t>(end - begin)),
        a_row(static_cast<int32_t>(begin * BLOCK)),
        column(0),
        ahead(0) {
    if (left > 0) column = *next++;
    if (left > 1) ahead = *next++;
  }

  __device__ __forceinline__ void advance() {
    --left;
    a_row += BLOCK;
    column = ahead;
    if (left > 1) ahead = *next++;
  }
};

// Called by one thread; the caller's __syncthreads makes it known to the others.
__device__ __forceinline__ void initialise_ring(const BcsrArguments& arguments, Ring& ring,
                                                int releases) {
  prefetch_tensor_map(&arguments.a_map);
  prefetch_tensor_map(&arguments.b_map);
  for (int slot = 0; slot < STAGES; ++slot) {
    mbarrier_init(&ring.full[slot], 1);
    mbarrier_init(&ring.empty[slot], releases);
  }
  mbarrier_init_fence();
}

// Waits until the consumers have read what a slot held. A fresh slot counts as empty: waiting for
// the parity before the first returns at once.
__device__ __forceinline__ void wait_empty(Ring& ring, const RingPosition<STAGES>& position) {
  mbarrier_wait(&ring.empty[position.slot], position.parity ^ 1);
}

// Fills slots with the blocks begin .. end - 1 of a block row. `position` lives on from tile to
// tile in kernels that compute several. `clock` is what a probe counts with, see role_clock.cuh; a
// kernel that is never probed leaves it out.
__device__ __forceinline__ void produce_tile(const BcsrArguments& arguments, Ring& ring,
                                             uint32_t stages, RingPosition<STAGES>& position,
                                             int64_t first_column, int64_t begin, int64_t end,
                                             RoleClock& clock) {
  for (BlockWalk walk(arguments, begin, end); walk.left > 0; walk.advance()) {
    clock.wait_begins();
    wait_empty(ring, position);
    clock.wait_ended();
    tma_load_stage(arguments, stages + position.slot * STAGE_BYTES, &ring.full[position.slot],
                   walk.a_row, walk.column, first_column);
    clock.count_wait();
    ring.count_remote_wait(position.slot, clock);
    position.advance();
  }
}

__device__ __forceinline__ void produce_tile(const BcsrArguments& arguments, Ring& ring,
                                             uint32_t stages, RingPosition<STAGES>& position,
                                             int64_t first_column, int64_t begin, int64_t end) {
  RoleClock unread;
  produce_tile(arguments, ring, stages, position, first_column, begin, end, unread);
}

// Multiplies `blocks` slots into the accumulators of warpgroup `consumer`; `release(slot)` is
// called once for each slot when wgmma has read it.
template <class Release>
__device__ __forceinline__ void consume_tile(float (&accumulators)[WGMMA_N / 2], Ring& ring,
                                             uint32_t stages, RingPosition<STAGES>& position,
                                             int consumer, int64_t blocks, Release release,
                                             RoleClock& clock) {
  pin_accumulators(accumulators);
  int previous = -1;
  for (int64_t block = 0; block < blocks; ++block) {
    uint32_t stage = stages + position.slot * STAGE_BYTES;
    mbarrier_wait(&ring.full[position.slot], position.parity);
    clock.waited_full(block == 0);
    multiply_block(accumulators, stage, consumer_slices(stage, consumer));
    // One group stays in flight; the one before it is done, and so is its slot.
    wgmma_wait<1>();
    clock.multiplied();
    if (previous >= 0) {
      ring.note_release(previous, clock);
      release(previous);
    }
    clock.released();
    previous = position.slot;
    position.advance();
  }
  wgmma_wait<0>();
  pin_accumulators(accumulators);
  clock.lap(&RoleRow::drain);
  if (previous >= 0) {
    ring.note_release(previous, clock);
    release(previous);
  }
  clock.released();
}

template <class Release>
__device__ __forceinline__ void consume_tile(float (&accumulators)[WGMMA_N / 2], Ring& ring,
                                             uint32_t stages, RingPosition<STAGES>& position,
                                             int consumer, int64_t blocks, Release release) {
  RoleClock unread;
  consume_tile(accumulators, ring, stages, position, consumer, blocks, release, unread);
}

// The release within one CTA: one thread of the warpgroup arrives.
struct LocalRelease {
  Ring& ring;

  __device__ __forceinline__ void operator()(int slot) const {
    if (threadIdx.x % WARPGROUP_THREADS == 0) mbarrier_arrive(&ring.empty[slot]);
  }
};
