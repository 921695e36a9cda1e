// Beyond the article: opt3's epilogue and prologue hidden behind loads.
//
// One persistent CTA per SM takes tiles (64 rows x 2 WGMMA_N columns) from a counter, longest block
// row first, so it evens out uneven rows. C leaves through the ring (ring_output.cuh): one slot for
// both consumers in bf16, one for each in fp32.

#include "registers.cuh"
#include "ring_output.cuh"

constexpr int CONSUMER_OUTPUT_BYTES = BLOCK * WGMMA_N * OUTPUT_BYTES;
constexpr int OUTPUT_SLOTS = CONSUMERS * CONSUMER_OUTPUT_BYTES <= STAGE_BYTES ? 1 : CONSUMERS;
static_assert(WGMMA_N >= 64, "C is stored in slices of 64 columns or less");
static_assert(CONSUMER_OUTPUT_BYTES <= STAGE_BYTES, "a consumer's C fits into one slot");
static_assert(STAGES > OUTPUT_SLOTS, "the next tile's first block needs a slot beside C's");

enum class Kind : int32_t { block, output, done };

// What a slot holds; written by the producer before the slot's full barrier, read after it.
struct Work {
  Kind kind;
  int32_t owner;  // of an output slot: the consumer, or -1 where both share it
  int32_t first_row;
  int32_t first_column;
};

struct Shared {
  Ring ring;
  Work work[STAGES];
};

__device__ __forceinline__ void produce(const BcsrArguments& arguments, Shared& shared,
                                        uint32_t stages) {
  RingPosition<STAGES> position;
  int32_t rows = static_cast<int32_t>(arguments.block_rows);
  int32_t tiles = rows * static_cast<int32_t>((arguments.n + TILE_COLUMNS - 1) / TILE_COLUMNS);
  int32_t index = blockIdx.x;
  while (index < tiles) {
    // The next tile's number is asked for now, and is there when this tile's loads are issued.
    int32_t upcoming = next_tile(arguments);
    BlockRowTask task = arguments.row_tasks[index % rows];
    int32_t first_column = index / rows * TILE_COLUMNS;
    for (BlockWalk walk(arguments, task.begin, task.begin + task.blocks); walk.left > 0;
         walk.advance()) {
      mbarrier_wait(&shared.ring.empty[position.slot], position.parity ^ 1);
      shared.work[position.slot].kind = Kind::block;
      tma_load_stage(arguments, stages + position.slot * STAGE_BYTES,
                     &shared.ring.full[position.slot], walk.a_row, walk.column, first_column);
      position.advance();
    }
    for (int owner = 0; owner < OUTPUT_SLOTS; ++owner)
      hand_out(shared.ring, position, [&](int slot) {
        shared.work[slot] = {Kind::output, OUTPUT_SLOTS == 1 ? -1 : owner, task.block_row * BLOCK,
                             first_column};
      });
    index = upcoming;
  }
  hand_out(shared.ring, position, [&](int slot) { shared.work[slot].kind = Kind::done; });
  finish_tiles(arguments);
}

__device__ __forceinline__ void consume(const BcsrArguments& arguments, Shared& shared,
                                        uint32_t stages) {
  int consumer = threadIdx.x / WARPGROUP_THREADS - 1;
  bool leads = threadIdx.x % WARPGROUP_THREADS == 0;
  HeldSlot held{shared.ring, leads};
  float accumulators[WGMMA_N / 2] = {};
  RingPosition<STAGES> position;
  while (true) {
    int slot = position.slot;
    mbarrier_wait(&shared.ring.full[slot], position.parity);
    position.advance();
    Work work = shared.work[slot];
    uint32_t stage = stages + slot * STAGE_BYTES;
    if (work.kind == Kind::block) {
      multiply_block(accumulators, stage, consumer_slices(stage, consumer));
      // A load takes several times as long as its product: waiting for the product at once frees
      // the slot early, which is worth more than having two products in flight.
      wgmma_wait<0>();
      pin_accumulators(accumulators);
      if (leads) mbarrier_arrive(&shared.ring.empty[slot]);
      held.release();
    } else if (work.kind == Kind::output) {
      if (work.owner >= 0 && work.owner != consumer) {  // the other consumer's slot
        warpgroup_sync(1 + consumer);  // all have read what it holds before it is given back
        if (leads) mbarrier_arrive(&shared.ring.empty[slot]);
        continue;
      }
      held.release();
      uint32_t output = stage + (work.owner < 0 ? consumer * CONSUMER_OUTPUT_BYTES : 0);
      stage_accumulators<WGMMA_N / 2>(output, accumulators);
      commit_stage<WGMMA_N>(arguments, output, consumer, leads, work.first_row,
                            work.first_column + consumer * WGMMA_N);
      zero_accumulators(accumulators);
      held.slot = slot;
    } else {
      break;
    }
  }
  if (leads) tma_store_wait();
}

extern "C" __global__ void __launch_bounds__(RING_THREADS, 1)
    bcsr_spmm(const __grid_constant__ BcsrArguments arguments) {
  extern __shared__ uint8_t dynamic_shared[];
  __shared__ Shared shared;
  uint32_t stages = aligned_stages(dynamic_shared);
  if (threadIdx.x == 0) initialise_ring(arguments, shared.ring, CONSUMERS);
  __syncthreads();

  if (threadIdx.x < WARPGROUP_THREADS) {
    release_registers<40>();
    if (threadIdx.x == 0) produce(arguments, shared, stages);
  } else {
    claim_registers<232>();
    consume(arguments, shared, stages);
  }
}
