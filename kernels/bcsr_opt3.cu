// opt3 = opt2 with warp specialisation: a producer warpgroup fills a ring of STAGES slots by TMA
// while two consumer warpgroups multiply from it, and registers move from the one to the others.

#include "bcsr_ring.cuh"
#include "registers.cuh"

extern "C" __global__ void __launch_bounds__(RING_THREADS, 1)
    bcsr_spmm(const __grid_constant__ Clocked<BcsrArguments> arguments) {
  RoleClock clock;
  extern __shared__ uint8_t dynamic_shared[];
  __shared__ Ring ring;
  uint32_t stages = aligned_stages(dynamic_shared);
  Tile tile = tile_of(arguments, blockIdx.x);
  if (threadIdx.x == 0) {
    ring.begin_noting(clock);
    initialise_ring(arguments, ring, CONSUMERS);
  }
  __syncthreads();
  clock.lap(&RoleRow::setup);

  int64_t begin = arguments.block_row_ptr[tile.block_row];
  int64_t end = arguments.block_row_ptr[tile.block_row + 1];
  RingPosition<STAGES> position;
  if (threadIdx.x < WARPGROUP_THREADS) {
    release_registers<PRODUCER_REGISTERS>();
    clock.read_both_early(arguments, 1 + CONSUMERS);
    if (threadIdx.x == 0)
      produce_tile(arguments, ring, stages, position, tile.first_column, begin, end, clock);
    clock.read_both_late(arguments, 1 + CONSUMERS);
  } else {
    claim_registers<CONSUMER_REGISTERS>();
    int consumer = threadIdx.x / WARPGROUP_THREADS - 1;
    clock.fetched(end - begin);
    float accumulators[WGMMA_N / 2] = {};
    clock.zeroed(accumulators);
    consume_tile(accumulators, ring, stages, position, consumer, end - begin, LocalRelease{ring},
                 clock);
    store_tile(arguments, accumulators, tile, consumer);
    clock.stored(end - begin);
  }
  clock.write(arguments, 1 + CONSUMERS);
}
