// opt2 = opt1 with TMA: one thread asks for the whole stage, the hardware moves and swizzles it,
// and an mbarrier tells when it is there. Still one stage: load and multiply take turns.

#include "bcsr_load.cuh"

constexpr int THREADS = CONSUMERS * WARPGROUP_THREADS;

extern "C" __global__ void __launch_bounds__(THREADS)
    bcsr_spmm(const __grid_constant__ BcsrArguments arguments) {
  extern __shared__ uint8_t dynamic_shared[];
  __shared__ uint64_t full;
  uint32_t stage = aligned_stages(dynamic_shared);
  Tile tile = tile_of(arguments, blockIdx.x);
  int consumer = threadIdx.x / WARPGROUP_THREADS;
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    mbarrier_init_fence();
  }
  __syncthreads();

  float accumulators[WGMMA_N / 2] = {};
  uint32_t parity = 0;
  int64_t end = arguments.block_row_ptr[tile.block_row + 1];
  for (int64_t block = arguments.block_row_ptr[tile.block_row]; block < end; ++block) {
    if (threadIdx.x == 0)
      tma_load_stage(arguments, stage, &full, static_cast<int32_t>(block * BLOCK),
                     arguments.block_col_idx[block], tile.first_column);
    mbarrier_wait(&full, parity);
    parity ^= 1;
    multiply_block(accumulators, stage, consumer_slices(stage, consumer));
    wgmma_wait<0>();
    __syncthreads();
  }
  pin_accumulators(accumulators);
  store_tile(arguments, accumulators, tile, consumer);
}
