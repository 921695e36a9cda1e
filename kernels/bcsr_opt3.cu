// opt3 = opt2 with warp specialisation: a producer warpgroup fills a ring of STAGES slots by TMA
// while two consumer warpgroups multiply from it, and registers move from the one to the others.

#include "bcsr_ring.cuh"
#include "registers.cuh"

extern "C" __global__ void __launch_bounds__(RING_THREADS, 1)
    bcsr_spmm(const __grid_constant__ Instrumented<BcsrArguments> arguments) {
  Arrival arrival;
  extern __shared__ uint8_t dynamic_shared[];
  __shared__ Ring ring;
  uint32_t stages = aligned_stages(dynamic_shared);
  Tile tile = tile_of(arguments, blockIdx.x);
  if (threadIdx.x == 0) {
    ring.open(arguments, 1 + CONSUMERS);
    initialise_ring(arguments, ring, CONSUMERS);
  }
  __syncthreads();
  ring.enter(arrival);

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
    ring.settle(end - begin);
    Stopwatch resetting;
    float accumulators[WGMMA_N / 2] = {};
    ring.reset(resetting, accumulators);
    consume_tile(accumulators, ring, stages, position, consumer, end - begin, LocalRelease{ring});
    Stopwatch storing;
    store_tile(arguments, accumulators, tile, consumer);
    ring.stored(storing);
  }
  ring.exit();
}
