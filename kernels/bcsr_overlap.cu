// Beyond the article: opt3's epilogue and prologue hidden behind loads.
//
// One persistent CTA per SM takes tiles (64 rows x 2 WGMMA_N columns) from a counter, longest block
// row first, so it evens out uneven rows. C leaves through the ring (ring_output.cuh). Each of the
// two consumers has a ring of its own for its columns of B and of C: it gives a slot back as soon
// as it has read it, whatever the other does, and more bytes stay on their way. Blocks of A, which
// both read, have a third.

#include "ring_output.cuh"

constexpr int B_BYTES = WGMMA_SLICES * SLICE_BYTES;
constexpr int PARTS = output_parts(B_BYTES);
constexpr int PART_COLUMNS = WGMMA_N / PARTS;

// One more than a consumer's slots: then a block's slot is free without a barrier of its own. It
// was read before the consumers gave back the slots that the producer has waited for since.
constexpr int A_STAGES = STAGES + 1;

struct Shared {
  uint64_t a_full[A_STAGES];
  SlotRing columns[CONSUMERS];
};

__device__ __forceinline__ uint32_t b_slot(uint32_t stages, int consumer, int slot) {
  return stages + A_STAGES * A_BYTES + (consumer * STAGES + slot) * B_BYTES;
}

__device__ __forceinline__ void load_block(const BcsrArguments& arguments, Shared& shared,
                                           uint32_t stages, RingPosition<A_STAGES>& position,
                                           int32_t a_row) {
  uint64_t* full = &shared.a_full[position.slot];
  if constexpr (MOVE_ONLY != 0) mbarrier_wait(full, position.parity ^ 1);
  if constexpr (SKIP_LOAD != 0) {
    mbarrier_arrive(full);
  } else {
    mbarrier_arrive_expect(full, A_BYTES);
    tma_load_2d(stages + position.slot * A_BYTES, &arguments.a_map, full, 0, a_row);
  }
  position.advance();
}

__device__ __forceinline__ void load_columns(const BcsrArguments& arguments, SlotRing& ring,
                                             const RingPosition<STAGES>& position, uint32_t stage,
                                             int32_t block_column, int32_t first_column) {
  ring.wait_free(position);
  ring.work[position.slot].kind = Kind::multiply;
  ring.work[position.slot].consumers = (1 << CONSUMERS) - 1;
  uint64_t* full = &ring.full[position.slot];
  if constexpr (SKIP_LOAD != 0) {
    mbarrier_arrive(full);
  } else {
    mbarrier_arrive_expect(full, B_BYTES);
    load_rows<WGMMA_N>(arguments, stage, full, block_column, first_column);
  }
}

__device__ __forceinline__ void produce(const BcsrArguments& arguments, Shared& shared,
                                        uint32_t stages) {
  RingPosition<A_STAGES> a;
  RingPosition<STAGES> position;
  draw_tiles<TILE_COLUMNS>(
      arguments, arguments.block_rows, [&](int32_t index, int32_t first_column) {
        BlockRowTask task = arguments.row_tasks[index];
        for (BlockWalk walk(arguments, task.begin, task.begin + task.blocks); walk.left > 0;
             walk.advance()) {
          load_block(arguments, shared, stages, a, walk.a_row);
#pragma unroll
          for (int c = 0; c < CONSUMERS; ++c)
            load_columns(arguments, shared.columns[c], position, b_slot(stages, c, position.slot),
                         walk.column, first_column + c * WGMMA_N);
          position.advance();
        }
        for (int part = 0; part < PARTS; ++part) {
#pragma unroll
          for (int c = 0; c < CONSUMERS; ++c) {
            int32_t row = task.block_row * BLOCK;
            int32_t column = first_column + c * WGMMA_N + part * PART_COLUMNS;
            shared.columns[c].hand_out(position, {Kind::output, 1 << c, part, row, column});
            if constexpr (MOVE_ONLY != 0)
              store_stage<PART_COLUMNS>(&arguments.c_map, b_slot(stages, c, position.slot), row,
                                        column);
          }
          position.advance();
        }
      });
  for (SlotRing& ring : shared.columns) ring.close(position);
  if constexpr (MOVE_ONLY != 0)  // nobody else waits for the last blocks
    for (int slot = 0; slot < A_STAGES; ++slot, a.advance())
      mbarrier_wait(&shared.a_full[a.slot], a.parity ^ 1);
  finish_tiles(arguments);
}

__device__ __forceinline__ void consume(const BcsrArguments& arguments, Shared& shared,
                                        uint32_t stages) {
  int index = threadIdx.x / WARPGROUP_THREADS - 1;
  Consumer self{arguments, shared.columns[index]};
  RingPosition<A_STAGES> a;
  self.run<PARTS>([&](int slot) { return b_slot(stages, index, slot); },
                  [&](float (&accumulators)[WGMMA_N / 2], const Work&, int slot) {
                    mbarrier_wait(&shared.a_full[a.slot], a.parity);
                    if constexpr (SKIP_PRODUCT == 0)
                      multiply_slot(accumulators, stages + a.slot * A_BYTES,
                                    b_slot(stages, index, slot));
                    a.advance();
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
        for (uint64_t& full : shared.a_full) mbarrier_init(&full, 1);
        for (SlotRing& ring : shared.columns) ring.initialise(WARPGROUP_THREADS);
      },
      [&] { produce(arguments, shared, stages); }, [&] { consume(arguments, shared, stages); });
}
