// opt3 = opt2 with warp specialisation: a producer warpgroup fills a ring of STAGES slots by TMA
// while two consumer warpgroups multiply from it. Each slot has a full barrier (one arrival and
// the bytes) and an empty barrier (one arrival a consumer).

#include "bcsr_load.cuh"
#include "registers.cuh"

#ifndef STAGES
#define STAGES 3
#endif
#ifndef MINIMUM_CTAS
#define MINIMUM_CTAS 1
#endif

// A consumer releases a slot only after it has issued the next one, so one slot would deadlock.
static_assert(STAGES >= 2, "the ring needs two slots or more");
constexpr int THREADS = (1 + CONSUMERS) * WARPGROUP_THREADS;

struct Ring {
  uint64_t full[STAGES];
  uint64_t empty[STAGES];
};

__device__ __forceinline__ void produce(const BcsrArguments& arguments, Ring& ring,
                                        uint32_t stages, Tile tile, int64_t begin, int64_t end) {
  RingPosition<STAGES> position;
  for (int64_t block = begin; block < end; ++block) {
    // A fresh slot counts as empty: waiting for the parity before the first returns at once.
    mbarrier_wait(&ring.empty[position.slot], position.parity ^ 1);
    tma_load_stage(arguments, stages + position.slot * STAGE_BYTES, &ring.full[position.slot],
                   block, tile.first_column);
    position.advance();
  }
}

__device__ __forceinline__ void consume(const BcsrArguments& arguments, Ring& ring,
                                        uint32_t stages, Tile tile, int64_t begin, int64_t end) {
  int consumer = threadIdx.x / WARPGROUP_THREADS - 1;
  bool releases = threadIdx.x % WARPGROUP_THREADS == 0;
  float accumulators[WGMMA_N / 2] = {};
  RingPosition<STAGES> position;
  int previous = -1;
  for (int64_t block = begin; block < end; ++block) {
    uint32_t stage = stages + position.slot * STAGE_BYTES;
    mbarrier_wait(&ring.full[position.slot], position.parity);
    multiply_block(accumulators, stage,
                   stage + BLOCK_BYTES + consumer * CONSUMER_SLICES * SLICE_BYTES);
    // One group stays in flight; the one before it is done, and so is its slot.
    wgmma_wait<1>();
    if (releases && previous >= 0) mbarrier_arrive(&ring.empty[previous]);
    previous = position.slot;
    position.advance();
  }
  wgmma_wait<0>();
  pin_accumulators(accumulators);
  store_accumulators(arguments, accumulators, tile.block_row,
                     tile.first_column + consumer * WGMMA_N);
}

extern "C" __global__ void __launch_bounds__(THREADS, MINIMUM_CTAS)
    bcsr_spmm(const __grid_constant__ BcsrArguments arguments) {
  extern __shared__ uint8_t dynamic_shared[];
  __shared__ Ring ring;
  uint32_t stages = aligned_stages(dynamic_shared);
  Tile tile = tile_of(arguments, blockIdx.x);
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < STAGES; ++slot) {
      mbarrier_init(&ring.full[slot], 1);
      mbarrier_init(&ring.empty[slot], CONSUMERS);
    }
    mbarrier_init_fence();
  }
  __syncthreads();

  int64_t begin = arguments.block_row_ptr[tile.block_row];
  int64_t end = arguments.block_row_ptr[tile.block_row + 1];
  if (threadIdx.x < WARPGROUP_THREADS) {
    release_registers<24>();
    if (threadIdx.x == 0) produce(arguments, ring, stages, tile, begin, end);
  } else {
    claim_registers<240>();
    consume(arguments, ring, stages, tile, begin, end);
  }
}
