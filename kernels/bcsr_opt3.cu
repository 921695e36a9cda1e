// opt3 = opt2 with warp specialisation: a producer warpgroup fills a ring of STAGES slots by TMA
// while two consumer warpgroups multiply from it, and registers move from the one to the others.

#include "bcsr_ring.cuh"
#include "registers.cuh"

#ifndef MINIMUM_CTAS
#define MINIMUM_CTAS 1
#endif

extern "C" __global__ void __launch_bounds__(RING_THREADS, MINIMUM_CTAS)
    bcsr_spmm(const __grid_constant__ BcsrArguments arguments) {
  extern __shared__ uint8_t dynamic_shared[];
  __shared__ Ring ring;
  uint32_t stages = aligned_stages(dynamic_shared);
  Tile tile = tile_of(arguments, blockIdx.x);
  if (threadIdx.x == 0) initialise_ring(arguments, ring, CONSUMERS);
  __syncthreads();

  int64_t begin = arguments.block_row_ptr[tile.block_row];
  int64_t end = arguments.block_row_ptr[tile.block_row + 1];
  RingPosition<STAGES> position;
  if (threadIdx.x < WARPGROUP_THREADS) {
    release_registers<24>();
    if (threadIdx.x == 0)
      produce_tile(arguments, ring, stages, position, tile.first_column, begin, end);
  } else {
    claim_registers<240>();
    int consumer = threadIdx.x / WARPGROUP_THREADS - 1;
    float accumulators[WGMMA_N / 2] = {};
    consume_tile(accumulators, ring, stages, position, consumer, end - begin, LocalRelease{ring});
    store_tile(arguments, accumulators, tile, consumer);
  }
}
