// Fewer bytes of B for each output: block rows that share block columns are matched on the host,
// and one CTA computes both, 2 x 64 rows x WGMMA_N columns. A step is one block column of their
// union: 64 rows of B, and the one or two blocks of A that meet them. Each consumer owns a block
// row. Otherwise as bcsr_overlap.cu: persistent, longest pair first, C through the ring, which here
// both consumers read. Blocks of A have a ring beside it, since most steps need only one.

#include "ring_output.cuh"

static_assert(STAGES > CONSUMERS, "the next tile needs a slot beside the one that each holds");

constexpr int B_BYTES = WGMMA_SLICES * SLICE_BYTES;
constexpr int PARTS = output_parts(B_BYTES);
constexpr int PART_COLUMNS = WGMMA_N / PARTS;
constexpr int A_STAGES = STAGES + 3;  // for STAGES steps, as many of which need two blocks

struct Shared {
  SlotRing ring;
  uint64_t a_empty[A_STAGES];  // a block arrives together with its step's rows of B
};

__device__ __forceinline__ uint32_t a_slot(uint32_t stages, int slot) {
  return stages + slot * A_BYTES;
}

__device__ __forceinline__ uint32_t b_slot(uint32_t stages, int slot) {
  return stages + A_STAGES * A_BYTES + slot * B_BYTES;
}

__device__ __forceinline__ void load_step(const BcsrArguments& arguments, Shared& shared,
                                          uint32_t stages, int slot, RingPosition<A_STAGES>& a,
                                          const int4& step, int32_t first_column) {
  int32_t blocks[CONSUMERS] = {step.y, step.z};
  int32_t used = (blocks[0] >= 0 ? 1 : 0) | (blocks[1] >= 0 ? 2 : 0);
  shared.ring.work[slot] = {Kind::multiply, used, a.slot};
  uint64_t* full = &shared.ring.full[slot];
  if constexpr (SKIP_LOAD == 0) {
    mbarrier_arrive_expect(full, B_BYTES + (used == 3 ? 2 : 1) * A_BYTES);
    load_rows<WGMMA_N>(arguments, b_slot(stages, slot), full, step.x, first_column);
  }
#pragma unroll
  for (int row = 0; row < CONSUMERS; ++row) {
    if (blocks[row] < 0) continue;
    if constexpr (MOVE_ONLY == 0) mbarrier_wait(&shared.a_empty[a.slot], a.parity ^ 1);
    if constexpr (SKIP_LOAD == 0)
      tma_load_2d(a_slot(stages, a.slot), &arguments.a_map, full, 0, blocks[row] * BLOCK);
    a.advance();
  }
  if constexpr (SKIP_LOAD != 0) mbarrier_arrive(full);
}

__device__ __forceinline__ void produce(const BcsrArguments& arguments, Shared& shared,
                                        uint32_t stages) {
  SlotRing& ring = shared.ring;
  RingPosition<A_STAGES> a;
  RingPosition<STAGES> position;
  draw_tiles<WGMMA_N>(arguments, arguments.pair_count, [&](int32_t index, int32_t first_column) {
    const PairTask& task = arguments.pair_tasks[index];
    // Steps are read one ahead of their use.
    const auto* steps = reinterpret_cast<const int4*>(arguments.pair_steps + task.begin);
    int32_t count = task.steps;
    int4 ahead = count > 0 ? steps[0] : int4{};
    for (int32_t i = 0; i < count; ++i) {
      int4 step = ahead;
      if (i + 1 < count) ahead = steps[i + 1];
      ring.wait_free(position);
      load_step(arguments, shared, stages, position.slot, a, step, first_column);
      position.advance();
    }
    for (int output = 0; output < CONSUMERS * PARTS; ++output) {
      int owner = output / PARTS;
      int part = output % PARTS;
      // The missing partner of an odd row is stored nowhere: beyond m, TMA drops it.
      int32_t block_row = task.block_rows[owner];
      if (block_row < 0) block_row = static_cast<int32_t>(arguments.block_rows);
      int32_t row = block_row * BLOCK;
      int32_t column = first_column + part * PART_COLUMNS;
      ring.hand_out(position, {Kind::output, 1 << owner, part, row, column});
      if constexpr (MOVE_ONLY != 0)
        store_stage<PART_COLUMNS>(&arguments.c_map, b_slot(stages, position.slot), row, column);
      position.advance();
    }
  });
  ring.close(position);
  finish_tiles(arguments);
}

__device__ __forceinline__ void consume(const BcsrArguments& arguments, Shared& shared,
                                        uint32_t stages) {
  Consumer self{arguments, shared.ring};
  self.run<PARTS>([&](int slot) { return b_slot(stages, slot); },
                  [&](float (&accumulators)[WGMMA_N / 2], const Work& work, int slot) {
                    // Of two blocks, the second is in the next slot.
                    int block = (work.part + (work.consumers == 3 ? self.index : 0)) % A_STAGES;
                    if constexpr (SKIP_PRODUCT == 0)
                      multiply_slot(accumulators, a_slot(stages, block), b_slot(stages, slot));
                    mbarrier_arrive(&shared.a_empty[block]);
                  });
}

extern "C" __global__ void __launch_bounds__(RING_THREADS, 1)
    bcsr_spmm(const __grid_constant__ BcsrArguments arguments) {
  extern __shared__ uint8_t dynamic_shared[];
  __shared__ Shared shared;
  uint32_t stages = aligned_stages(dynamic_shared);
  part_roles(
      arguments,
      [&] {
        shared.ring.initialise(CONSUMERS * WARPGROUP_THREADS);
        for (uint64_t& empty : shared.a_empty) mbarrier_init(&empty, WARPGROUP_THREADS);
      },
      [&] { produce(arguments, shared, stages); }, [&] { consume(arguments, shared, stages); });
}
