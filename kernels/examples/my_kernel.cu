// One's own kernel, to start from: opt3 with another order of tiles. In opt3 neighbouring blocks
// of the grid share a block of A; here they share slices of B, of which there are more bytes.
// Measure it against opt3 with notebooks/02_bcsr_ablation.ipynb, or with
//   asyncsparse measure bcsr-ablation --only own-kernel

#include "bcsr_ring.cuh"
#include "registers.cuh"

__device__ __forceinline__ Tile column_major_tile(const BcsrArguments& arguments, int64_t index) {
  return {index % arguments.block_rows, index / arguments.block_rows * TILE_COLUMNS};
}

extern "C" __global__ void __launch_bounds__(RING_THREADS, 1)
    bcsr_spmm(const __grid_constant__ BcsrArguments arguments) {
  extern __shared__ uint8_t dynamic_shared[];
  __shared__ Ring ring;
  uint32_t stages = aligned_stages(dynamic_shared);
  Tile tile = column_major_tile(arguments, blockIdx.x);
  if (threadIdx.x == 0) initialise_ring(arguments, ring, CONSUMERS);
  __syncthreads();

  int64_t begin = arguments.block_row_ptr[tile.block_row];
  int64_t end = arguments.block_row_ptr[tile.block_row + 1];
  RingPosition<STAGES> position;
  if (threadIdx.x < WARPGROUP_THREADS) {
    release_registers<PRODUCER_REGISTERS>();
    if (threadIdx.x == 0)
      produce_tile(arguments, ring, stages, position, tile.first_column, begin, end);
  } else {
    claim_registers<CONSUMER_REGISTERS>();
    int consumer = threadIdx.x / WARPGROUP_THREADS - 1;
    float accumulators[WGMMA_N / 2] = {};
    consume_tile(accumulators, ring, stages, position, consumer, end - begin, LocalRelease{ring});
    store_tile(arguments, accumulators, tile, consumer);
  }
}
