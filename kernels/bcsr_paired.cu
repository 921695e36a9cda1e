// Fewer bytes of B for each output: block rows that share block columns are matched on the host,
// and one CTA computes both, 2 x 64 rows x WGMMA_N columns. A step is one block column of their
// union: 64 rows of B, and the one or two blocks of A that meet them. Each consumer owns a block
// row. Otherwise as bcsr_overlap.cu: persistent, longest pair first, C through the ring.

#include "registers.cuh"
#include "ring_output.cuh"

constexpr int B_BYTES = WGMMA_SLICES * SLICE_BYTES;  // which both consumers read
constexpr int PAIR_SLOT_BYTES = B_BYTES + CONSUMERS * A_BYTES;
constexpr int PARTS = output_parts(PAIR_SLOT_BYTES);
constexpr int PART_COLUMNS = WGMMA_N / PARTS;

struct Shared {
  Ring ring;
  Work work[STAGES];
};

__device__ __forceinline__ void load_step(const BcsrArguments& arguments, Shared& shared,
                                          uint32_t stages, int slot, const int4& step,
                                          int32_t first_column) {
  int32_t blocks[CONSUMERS] = {step.y, step.z};
  int32_t used = (blocks[0] >= 0 ? 1 : 0) | (blocks[1] >= 0 ? 2 : 0);
  shared.work[slot].kind = Kind::multiply;
  shared.work[slot].consumers = used;
  uint64_t* full = &shared.ring.full[slot];
  uint32_t stage = stages + slot * PAIR_SLOT_BYTES;
  if constexpr (SKIP_LOAD != 0) {
    mbarrier_arrive(full);
    return;
  }
  mbarrier_arrive_expect(full, B_BYTES + (used == 3 ? 2 : 1) * A_BYTES);
  load_rows<WGMMA_N>(arguments, stage, full, step.x, first_column);
#pragma unroll
  for (int row = 0; row < CONSUMERS; ++row)
    if (blocks[row] >= 0)
      tma_load_2d(stage + B_BYTES + row * A_BYTES, &arguments.a_map, full, 0, blocks[row] * BLOCK);
}

__device__ __forceinline__ void produce(const BcsrArguments& arguments, Shared& shared,
                                        uint32_t stages) {
  RingPosition<STAGES> position;
  int32_t pairs = static_cast<int32_t>(arguments.pair_count);
  int32_t tiles = pairs * static_cast<int32_t>((arguments.n + WGMMA_N - 1) / WGMMA_N);
  int32_t index = blockIdx.x;
  while (index < tiles) {
    // The next tile's number is asked for now, and is there when this tile's loads are issued.
    int32_t upcoming = next_tile(arguments);
    const PairTask& task = arguments.pair_tasks[index % pairs];
    int32_t first_column = index / pairs * WGMMA_N;
    // Steps are read one ahead of their use.
    const auto* steps = reinterpret_cast<const int4*>(arguments.pair_steps + task.begin);
    int32_t count = task.steps;
    int4 ahead = count > 0 ? steps[0] : int4{};
    for (int32_t i = 0; i < count; ++i) {
      int4 step = ahead;
      if (i + 1 < count) ahead = steps[i + 1];
      wait_empty(shared.ring, position);
      load_step(arguments, shared, stages, position.slot, step, first_column);
      position.advance();
    }
    for (int output = 0; output < CONSUMERS * PARTS; ++output) {
      int owner = output / PARTS;
      int part = output % PARTS;
      // The missing partner of an odd row is stored nowhere: beyond m, TMA drops it.
      int32_t block_row = task.block_rows[owner];
      if (block_row < 0) block_row = static_cast<int32_t>(arguments.block_rows);
      hand_out(shared.ring, position, [&](int slot) {
        shared.work[slot] = {Kind::output, 1 << owner, part, block_row * BLOCK,
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
    uint32_t stage = stages + slot * PAIR_SLOT_BYTES;
    if (!self.takes_part(work)) {
      self.release(slot);
    } else if (work.kind == Kind::multiply) {
      if constexpr (SKIP_PRODUCT == 0)
        multiply_slot(accumulators, stage + B_BYTES + self.index * A_BYTES, stage);
      self.release(slot);
    } else {
      self.store_part<PARTS>(arguments, accumulators, work, stage, slot, work.first_column);
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
