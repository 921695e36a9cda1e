// Beyond the article: opt3's epilogue and prologue hidden behind loads.
//
// One persistent CTA per SM takes tiles (64 rows x 2 WGMMA_N columns) from a counter, longest block
// row first, so it evens out uneven rows. C leaves through the ring (ring_output.cuh): through one
// slot for both consumers where it fits, else a slot for each consumer and part of its columns.

#include "registers.cuh"
#include "ring_output.cuh"

constexpr int PARTS = output_parts(STAGE_BYTES);
constexpr int PART_COLUMNS = WGMMA_N / PARTS;
constexpr int PART_BYTES = BLOCK * PART_COLUMNS * OUTPUT_BYTES;
constexpr bool TOGETHER = PARTS == 1 && CONSUMERS * PART_BYTES <= STAGE_BYTES;
constexpr int OUTPUT_SLOTS = TOGETHER ? 1 : CONSUMERS * PARTS;

struct Shared {
  Ring ring;
  Work work[STAGES];
};

__device__ __forceinline__ void load_slot(const BcsrArguments& arguments, uint32_t stage,
                                          uint64_t* full, int32_t a_row, int32_t block_column,
                                          int32_t first_column) {
  if constexpr (SKIP_LOAD != 0) {
    mbarrier_arrive(full);
    return;
  }
  mbarrier_arrive_expect(full, STAGE_BYTES);
  tma_load_2d(stage, &arguments.a_map, full, 0, a_row);
  load_rows<TILE_COLUMNS>(arguments, stage + A_BYTES, full, block_column, first_column);
}

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
      wait_empty(shared.ring, position);
      shared.work[position.slot].kind = Kind::multiply;
      load_slot(arguments, stages + position.slot * STAGE_BYTES, &shared.ring.full[position.slot],
                walk.a_row, walk.column, first_column);
      position.advance();
    }
    for (int output = 0; output < OUTPUT_SLOTS; ++output) {
      int32_t consumers = TOGETHER ? (1 << CONSUMERS) - 1 : 1 << output / PARTS;
      int part = output % PARTS;
      hand_out(shared.ring, position, [&](int slot) {
        shared.work[slot] = {Kind::output, consumers, part, task.block_row * BLOCK,
                             first_column + part * PART_COLUMNS};
      });
    }
    index = upcoming;
  }
  hand_out(shared.ring, position, [&](int slot) { shared.work[slot].kind = Kind::done; });
  finish_tiles(arguments);
}

__device__ __forceinline__ void consume(const BcsrArguments& arguments, Shared& shared,
                                        uint32_t stages) {
  Consumer self{shared.ring};
  float accumulators[WGMMA_N / 2] = {};
  RingPosition<STAGES> position;
  while (true) {
    int slot = position.slot;
    mbarrier_wait(&shared.ring.full[slot], position.parity);
    position.advance();
    const Work work = shared.work[slot];  // a copy: the slot may be given back before all have read
    if (work.kind == Kind::done) break;
    uint32_t stage = stages + slot * STAGE_BYTES;
    if (work.kind == Kind::multiply) {
      if constexpr (SKIP_PRODUCT == 0)
        multiply_slot(accumulators, stage, consumer_slices(stage, self.index));
      self.release(slot);
    } else if (self.takes_part(work)) {
      self.store_part<PARTS>(arguments, accumulators, work,
                             stage + (TOGETHER ? self.index * PART_BYTES : 0), slot,
                             work.first_column + self.index * WGMMA_N);
    } else {
      self.release(slot);
    }
  }
  self.finish();
}

extern "C" __global__ void __launch_bounds__(RING_THREADS, 1)
    bcsr_spmm(const __grid_constant__ BcsrArguments arguments) {
  extern __shared__ uint8_t dynamic_shared[];
  __shared__ Shared shared;
  uint32_t stages = aligned_stages(dynamic_shared);
  if (threadIdx.x == 0) initialise_ring(arguments, shared.ring, SLOT_RELEASES);
  __syncthreads();

  if (threadIdx.x < WARPGROUP_THREADS) {
    release_registers<40>();
    if (threadIdx.x == 0) produce(arguments, shared, stages);
  } else {
    claim_registers<232>();
    consume(arguments, shared, stages);
  }
}
