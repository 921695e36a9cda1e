// C leaving through the ring, and what the kernels that do so share.
//
// After a tile's loads the producer hands out slots without loading them. A consumer lays its
// accumulators down there and TMA stores them while the other slots already fill for the next tile.
#pragma once

#include "probe_parts.cuh"
#include "registers.cuh"
#include "ring_stage.cuh"

// In how many parts a consumer's 64 x WGMMA_N of C goes through slots of this size.
__device__ constexpr int output_parts(int slot_bytes) {
  int parts = 1;
  while (BLOCK * WGMMA_N * OUTPUT_BYTES / parts > slot_bytes) parts *= 2;
  return parts;
}

enum class Kind : int32_t { multiply, output, done };

// What a slot holds; written by the producer before the slot's full barrier, read after it by all
// threads of the consumers. Each of them gives the slot back itself: no write overtakes a read.
struct Work {
  Kind kind;
  int32_t consumers;  // bit c: consumer c multiplies from it, or lays its C down there
  int32_t part;  // of an output: which part of the consumer's columns; else what a kernel likes
  int32_t first_row;
  int32_t first_column;
};

// Slots that are filled and read in turn, by the producer and those who read all of them.
struct SlotRing {
  uint64_t full[STAGES];
  uint64_t empty[STAGES];
  Work work[STAGES];

  // By one thread; a slot goes back when `readers` threads have arrived.
  __device__ __forceinline__ void initialise(int readers) {
    for (int slot = 0; slot < STAGES; ++slot) {
      mbarrier_init(&full[slot], 1);
      mbarrier_init(&empty[slot], readers);
    }
  }

  // Waits until the producer may fill the slot: a fresh one counts as empty.
  __device__ __forceinline__ void wait_free(const RingPosition<STAGES>& position) {
    uint64_t* barriers = MOVE_ONLY != 0 ? full : empty;
    mbarrier_wait(&barriers[position.slot], position.parity ^ 1);
  }

  // Offers the slot without bytes to come.
  __device__ __forceinline__ void hand_out(const RingPosition<STAGES>& position, const Work& what) {
    wait_free(position);
    work[position.slot] = what;
    mbarrier_arrive(&full[position.slot]);
  }

  // Tells the readers that nothing follows; a producer alone waits for what is on its way.
  __device__ __forceinline__ void close(RingPosition<STAGES> position) {
    for (int slot = 0; slot < (MOVE_ONLY != 0 ? STAGES : 1); ++slot) {
      hand_out(position, {Kind::done});
      position.advance();
    }
    if constexpr (MOVE_ONLY != 0) tma_store_wait();
  }
};

// A consumer warpgroup's dealings with the ring that it reads. It holds at most one slot with C in
// it, which it gives back once TMA has read it; it looks at that one step later, so that nobody
// waits for a store.
struct Consumer {
  const BcsrArguments& arguments;
  SlotRing& ring;
  int index = threadIdx.x / WARPGROUP_THREADS - 1;
  bool leads = threadIdx.x % WARPGROUP_THREADS == 0;  // the thread that stores
  int held = -1;

  // Takes slots in turn until there are no more. `stage_of(slot)`: where C may be laid down;
  // `multiply(accumulators, work, slot)` adds what lies there, and returns when it has been read.
  template <int PARTS, class StageOf, class Multiply>
  __device__ __forceinline__ void run(StageOf stage_of, Multiply multiply) {
    float accumulators[WGMMA_N / 2] = {};
    RingPosition<STAGES> position;
    while (true) {
      int slot = position.slot;
      mbarrier_wait(&ring.full[slot], position.parity);
      position.advance();
      const Work work = ring.work[slot];
      if (work.kind == Kind::done) break;
      if ((work.consumers >> index & 1) == 0) {
        release(slot);
      } else if (work.kind == Kind::multiply) {
        multiply(accumulators, work, slot);
        release(slot);
      } else {
        store_part<PARTS>(accumulators, work, stage_of(slot), slot);
      }
    }
    if (leads) tma_store_wait();
  }

  // Gives back a slot that this thread has read, and first what the warpgroup holds: a run of
  // slots once round the ring would wait for it.
  __device__ __forceinline__ void release(int slot) {
    release_output();
    mbarrier_arrive(&ring.empty[slot]);
  }

  __device__ __forceinline__ void release_output() {
    if (!leads || held < 0) return;
    tma_store_wait_read();
    mbarrier_arrive(&ring.empty[held]);
    held = -1;
  }

  // Lays a part of the accumulators down in the slot and starts its store; the last part zeroes
  // them all. The thread that stores arrives later.
  template <int PARTS>
  __device__ __forceinline__ void store_part(float (&accumulators)[WGMMA_N / 2], const Work& work,
                                             uint32_t stage, int slot) {
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
      store_stage<WGMMA_N / PARTS>(&arguments.c_map, stage, work.first_row, work.first_column);
    held = slot;
    if (!leads) mbarrier_arrive(&ring.empty[slot]);
    if (work.part == PARTS - 1) {
#pragma unroll
      for (int i = 0; i < WGMMA_N / 2; ++i) accumulators[i] = 0.f;
    }
  }
};

// Calls visit(task, first column) for the tiles that this CTA draws: from a counter that all share,
// the first by the CTA's own number, so that nobody waits at the start. All tasks of some columns
// come before the next columns, whose rows of B then stay in L2.
template <int COLUMNS, class Visit>
__device__ __forceinline__ void draw_tiles(const BcsrArguments& arguments, int64_t task_count,
                                           Visit visit) {
  int32_t tasks = static_cast<int32_t>(task_count);
  int32_t tiles = tasks * static_cast<int32_t>((arguments.n + COLUMNS - 1) / COLUMNS);
  int32_t index = blockIdx.x;
  while (index < tiles) {
    // The next tile's number is asked for now, and is there when this tile's loads are issued.
    int32_t upcoming = atomicAdd(&arguments.counters[0], 1) + static_cast<int32_t>(gridDim.x);
    visit(index % tasks, index / tasks * COLUMNS);
    index = upcoming;
  }
}

// The last CTA to finish zeroes the counters for the next launch.
__device__ __forceinline__ void finish_tiles(const BcsrArguments& arguments) {
  if (atomicAdd(&arguments.counters[1], 1) == static_cast<int32_t>(gridDim.x) - 1) {
    arguments.counters[0] = 0;
    arguments.counters[1] = 0;
  }
}

// A CTA's warpgroups take their roles; `initialise` and `produce` are for one thread.
template <class Initialise, class Produce, class Consume>
__device__ __forceinline__ void part_roles(const BcsrArguments& arguments, Initialise initialise,
                                           Produce produce, Consume consume) {
  if (threadIdx.x == 0) {
    prefetch_tensor_map(&arguments.a_map);
    prefetch_tensor_map(&arguments.b_map);
    initialise();
    mbarrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x < WARPGROUP_THREADS) {
    release_registers<40>();
    if (threadIdx.x == 0) produce();
  } else {
    claim_registers<232>();
    if constexpr (MOVE_ONLY == 0) consume();
  }
}
