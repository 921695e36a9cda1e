// opt3 with persistent CTAs: one CTA per SM takes tiles blockIdx.x, blockIdx.x + gridDim.x, ...
// (static round-robin). Each CTA keeps its ring across tiles, so loads of the next tile start
// while the last one is stored; nothing evens out unequal block rows. COLUMN_MAJOR renumbers the
// tiles so that CTAs that run together share a column tile of B.

#include "bcsr_ring.cuh"
#include "registers.cuh"

#ifndef COLUMN_MAJOR
#define COLUMN_MAJOR 0
#endif

__device__ __forceinline__ Tile persistent_tile(const BcsrArguments& arguments, int64_t index) {
  if constexpr (COLUMN_MAJOR == 0) return tile_of(arguments, index);
  return {index % arguments.block_rows, index / arguments.block_rows * TILE_COLUMNS};
}

extern "C" __global__ void __launch_bounds__(RING_THREADS, 1)
    bcsr_spmm(const __grid_constant__ Clocked<BcsrArguments> arguments) {
  RoleClock clock;
  extern __shared__ uint8_t dynamic_shared[];
  __shared__ Ring ring;
  uint32_t stages = aligned_stages(dynamic_shared);
  if (threadIdx.x == 0) {
    ring.begin_noting(clock);
    initialise_ring(arguments, ring, CONSUMERS);
  }
  __syncthreads();
  clock.lap(&RoleRow::setup);

  int64_t tiles = arguments.block_rows * ((arguments.n + TILE_COLUMNS - 1) / TILE_COLUMNS);
  RingPosition<STAGES> position;
  if (threadIdx.x < WARPGROUP_THREADS) {
    release_registers<PRODUCER_REGISTERS>();
    clock.read_both_early(arguments, 1 + CONSUMERS);
    if (threadIdx.x != 0) return;
    for (int64_t index = blockIdx.x; index < tiles; index += gridDim.x) {
      Tile tile = persistent_tile(arguments, index);
      produce_tile(arguments, ring, stages, position, tile.first_column,
                   arguments.block_row_ptr[tile.block_row],
                   arguments.block_row_ptr[tile.block_row + 1], clock);
    }
    clock.read_both_late(arguments, 1 + CONSUMERS);
  } else {
    claim_registers<CONSUMER_REGISTERS>();
    int consumer = threadIdx.x / WARPGROUP_THREADS - 1;
    for (int64_t index = blockIdx.x; index < tiles; index += gridDim.x) {
      Tile tile = persistent_tile(arguments, index);
      int64_t blocks =
          arguments.block_row_ptr[tile.block_row + 1] - arguments.block_row_ptr[tile.block_row];
      clock.fetched(blocks);
      float accumulators[WGMMA_N / 2] = {};
      clock.zeroed(accumulators);
      consume_tile(accumulators, ring, stages, position, consumer, blocks, LocalRelease{ring},
                   clock);
      store_tile(arguments, accumulators, tile, consumer);
      clock.stored(blocks);
    }
  }
  clock.write(arguments, 1 + CONSUMERS);
}
