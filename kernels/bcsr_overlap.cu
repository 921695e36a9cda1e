// Beyond the article: opt3's epilogue and prologue hidden behind loads and stores of other tiles.
//
// One persistent CTA per SM takes tiles of C (overlap_schedule.cuh). Its producer thread fills a
// ring of slots by TMA; two consumer warpgroups multiply, and lay C down in the slot that they read
// last, from which TMA stores it while the other slots fill for the next tile (overlap_output.cuh).
// Block rows without blocks need no consumer: the producer stores zeros.
//
// PAIRED: fewer bytes of B for each output. Block rows that share block columns are matched on the
// host, and one CTA computes both, so that a shared slice of B is read once; each consumer owns a
// block row. The host sees to it that the last step of a row is of no use to the other one.
// STAGE_K = 32 cuts blocks in half along k: more and smaller slots.

#include "elect.cuh"
#include "overlap_output.cuh"
#include "overlap_schedule.cuh"
#include "registers.cuh"

constexpr int THREADS = (1 + CONSUMERS) * WARPGROUP_THREADS;
constexpr int SLOT_RELEASES = CONSUMERS * WARPGROUP_THREADS / WARP_THREADS;  // one of each warp
constexpr int BLOCK_PARTS = BLOCK / TILE_K;

// What a slot holds; written by the producer before the slot's full barrier, read after it.
struct alignas(16) Work {
  int32_t control;
  int32_t block_rows[2];
  int32_t first_column;
};

struct Shared {
  Work work[STAGES];
  uint64_t full[STAGES];   // one arrival, and the slot's bytes
  uint64_t empty[STAGES];  // one arrival of each consumer warp

  __device__ __forceinline__ void initialise() {
    for (int slot = 0; slot < STAGES; ++slot) {
      mbarrier_init(&full[slot], 1);
      mbarrier_init(&empty[slot], SLOT_RELEASES);
    }
    mbarrier_init_fence();
  }

  // A fresh slot counts as empty: waiting for the parity before the first returns at once.
  __device__ __forceinline__ void wait_empty(const RingPosition<STAGES>& position) {
    mbarrier_wait(&empty[position.slot], position.parity ^ 1);
  }
};

__device__ __forceinline__ void produce(const RingArguments& arguments, Shared& shared,
                                        uint32_t slots, uint32_t zeros) {
  RingPosition<STAGES> position;
  Lookahead tile(arguments);
  while (!tile.is_over()) {
    Lookahead::Request asked = tile.ask(arguments);
    TilePlace place = place_of(arguments, tile.index);
    int32_t first_column = place.first_column;
#pragma unroll
    for (int i = 0; i < A_BLOCKS; ++i)
      if (tile.rows.block_rows[i] <= EMPTY_ROW)
        for (int part = 0; part < place.parts; ++part)
          store_boxes<WGMMA_N>(&arguments.c_map, zeros, 0,
                               (EMPTY_ROW - tile.rows.block_rows[i]) * BLOCK,
                               first_column + part * WGMMA_N);
    // Steps are read two ahead of their use.
    const TileStep* steps = arguments.steps + tile.rows.begin;
    TileStep ahead = tile.step;
    TileStep far = {};
    if (tile.rows.steps > 1) far = steps[1];
    for (int32_t i = 0; i < tile.rows.steps; ++i) {
      TileStep step = ahead;
      ahead = far;
      if (i + 2 < tile.rows.steps) far = steps[i + 2];
#pragma unroll
      for (int part = 0; part < BLOCK_PARTS; ++part) {
        int32_t control = step.control;
        if (place.parts < TILE_PARTS) control &= MULTIPLIES | BEGINS | ENDS;  // of consumer 0
        if (part > 0) control &= ~(BEGINS | BEGINS << 1);
        if (part + 1 < BLOCK_PARTS) control &= ~(ENDS | ENDS << 1);
        shared.wait_empty(position);
        shared.work[position.slot] = {
            control, {tile.rows.block_rows[0], tile.rows.block_rows[1]}, first_column};
        load_slot(arguments, slots + position.slot * SLOT_BYTES, &shared.full[position.slot], step,
                  part, first_column, place.parts);
        position.advance();
      }
    }
    tile.advance(asked);
  }
  shared.wait_empty(position);
  shared.work[position.slot].control = DONE;
  mbarrier_arrive(&shared.full[position.slot]);
  Lookahead::finish(arguments);
  tma_store_wait();
}

// One lane reads for its warp, the one that gives the slot back: whoever reads then also arrives
// at the barrier before the next write, as racecheck wants to see it.
__device__ __forceinline__ Work read_work(const Work& shared) {
  Work work = {};
  if (threadIdx.x % WARP_THREADS == 0) work = shared;
  work.control = __shfl_sync(~0u, work.control, 0);
  work.block_rows[0] = __shfl_sync(~0u, work.block_rows[0], 0);
  work.block_rows[1] = __shfl_sync(~0u, work.block_rows[1], 0);
  work.first_column = __shfl_sync(~0u, work.first_column, 0);
  return work;
}

__device__ __forceinline__ void consume(const RingArguments& arguments, Shared& shared,
                                        uint32_t slots) {
  int index = threadIdx.x / WARPGROUP_THREADS - 1;
  Output output{1 + index};
  float accumulators[WGMMA_N / 2] = {};
  for (RingPosition<STAGES> position;; position.advance()) {
    uint32_t slot = slots + position.slot * SLOT_BYTES;
    uint64_t* empty = &shared.empty[position.slot];
    output.wait_full(&shared.full[position.slot], position.parity);
    Work work = read_work(shared.work[position.slot]);
    if (work.control == DONE) break;
    if (SKIP_PRODUCT == 0 && (work.control >> index & MULTIPLIES) != 0)
      multiply_slot(accumulators, slot, index, (work.control >> index & BEGINS) != 0);
    output.release();
    if ((work.control >> index & ENDS) != 0) {
      int32_t block_row = PAIRED != 0 && index == 1 ? work.block_rows[1] : work.block_rows[0];
      output.store(&arguments.c_map, own_rows(slot, index), empty, accumulators, block_row * BLOCK,
                   work.first_column + (PAIRED != 0 ? 0 : index * WGMMA_N));
    } else {
      __syncwarp();
      if (threadIdx.x % WARP_THREADS == 0) mbarrier_arrive(empty);
    }
  }
  output.finish();
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bcsr_spmm(const __grid_constant__ RingArguments arguments) {
  extern __shared__ uint8_t dynamic_shared[];
  __shared__ Shared shared;
  uint32_t slots = aligned_stages(dynamic_shared);
  uint32_t zeros = slots + STAGES * SLOT_BYTES;
  if (threadIdx.x == 0) {
    prefetch_tensor_map(&arguments.a_map);
    prefetch_tensor_map(&arguments.b_map);
    prefetch_tensor_map(&arguments.c_map);
    shared.initialise();
  }
  for (uint32_t at = threadIdx.x * 16; at < ZERO_BYTES; at += THREADS * 16)
    store_shared(zeros + at, make_uint4(0, 0, 0, 0));
  fence_async_proxy();
  __syncthreads();

  if (threadIdx.x < WARPGROUP_THREADS) {
    release_registers<56>();
    if (threadIdx.x < WARP_THREADS && is_elected()) produce(arguments, shared, slots, zeros);
  } else {
    claim_registers<224>();
    consume(arguments, shared, slots);
  }
}
