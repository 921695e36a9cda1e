// WCSR as a pipeline: producer warps keep the whole ring full of gathered rows of B while consumers
// multiply, and CTAs share an SM, so that prologues and stores hide behind others' loads.
//
// A CTA walks over tiles: a piece of a window (HEIGHT rows) for COLUMN_GROUPS * WGMMA_N columns of
// C. What L2 delivers is the bound, and a tile of A counts like a row of B as wide as the window is
// high: wide tiles read A less often.

#include "registers.cuh"
#include "window_cluster.cuh"
#include "window_partials.cuh"

// SKIP_PRODUCT and SKIP_STORE leave out a part of the work, for floors: what is left takes how
// long?
#ifndef SKIP_PRODUCT
#define SKIP_PRODUCT 0
#endif
#ifndef SKIP_STORE
#define SKIP_STORE 0
#endif

// Registers change hands only where the even share is too small for a consumer: its accumulators,
// and what addresses and the epilogue need. It takes whole warpgroups, of each CTA for itself.
// Delays need a few more than fit; a hang shows with fewer CTAs on an SM as well.
constexpr int RESIDENT_CTAS =
    DEBUG_DELAYS != 0 && MINIMUM_CTAS > 1 ? MINIMUM_CTAS - 1 : MINIMUM_CTAS;
constexpr int EVEN_SHARE = 65536 / (RESIDENT_CTAS * THREADS) / 8 * 8;
constexpr int PRODUCER_REGISTERS = 56;
constexpr int POOL = (EVEN_SHARE < 248 ? EVEN_SHARE : 248) * THREADS;
constexpr int CONSUMER_SHARE =
    (POOL - PRODUCER_REGISTERS * PRODUCER_THREADS) / CONSUMER_THREADS / 8 * 8;
constexpr int CONSUMER_REGISTERS = CONSUMER_SHARE < 240 ? CONSUMER_SHARE : 240;
constexpr bool TRADES_REGISTERS = PRODUCERS % 4 == 0 && EVEN_SHARE < WGMMA_N / 2 + 48;

// accumulators += COUNT * 16 columns of A's stage * the matching rows of B.
template <int COUNT>
__device__ __forceinline__ void multiply_stage(float (&accumulators)[WGMMA_N / 2], uint32_t a,
                                               uint32_t b) {
  if constexpr (SKIP_PRODUCT != 0) return;
  pin_accumulators(accumulators);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < COUNT; ++step) {
    // Core matrices: 128 bytes to the next 8 rows, 1024 to the next 8 columns.
    uint64_t a_descriptor = matrix_descriptor<16>(a + step * STEP_BYTES, GROUP_STEP_BYTES / 2, 128);
    WgmmaInstruction<WGMMA_N, Input, 1>::issue(accumulators, a_descriptor, b_descriptor(b, step));
  }
  wgmma_commit();
  pin_accumulators(accumulators);
  // Waiting at once frees the slot early: loads are what takes long.
  wgmma_wait<0>();
}

__device__ __forceinline__ void multiply_steps(float (&accumulators)[WGMMA_N / 2], uint32_t a,
                                               uint32_t b, int steps) {
  switch (steps) {
    case 0: return;
    case 1: multiply_stage<1>(accumulators, a, b); break;
    case 2: multiply_stage<2>(accumulators, a, b); break;
    case 3: multiply_stage<3>(accumulators, a, b); break;
    default: multiply_stage<STEPS>(accumulators, a, b);
  }
}

__device__ __forceinline__ void finish_tile(const WindowArguments& arguments, uint32_t tile,
                                            uint32_t room, float (&sums)[OWN_COLUMNS / 2]) {
  if constexpr (SKIP_STORE != 0) return;
  if (Partials partials(arguments, tile); partials.pieces > 1) {
    bool holds_sum = arguments.deterministic != 0 ? partials.merge_in_order(sums)
                                                  : partials.merge_by_atomics(sums);
    if (!holds_sum) return;
  }
  store_rows(arguments, room, sums, tile);
}

__device__ __forceinline__ void consume(const WindowArguments& arguments, WindowRing& ring,
                                        uint32_t stages) {
  __syncthreads();
  int warp = threadIdx.x / WARP_THREADS;
  int group = threadIdx.x / WARPGROUP_THREADS;
  // Both offsets are 0 in most builds; that of B counts from A's end.
  uint32_t a_offset = ROW_GROUPS > 1 ? group % ROW_GROUPS * GROUP_STEP_BYTES : 0;
  uint32_t b_offset = COLUMN_GROUPS > 1 ? group / ROW_GROUPS * (WGMMA_SLICES * SLICE_BYTES) : 0;
  uint32_t tiles = arguments.task_count * arguments.column_tiles;
  RingPosition<STAGES> position;
  for (uint32_t tile = first_tile(); tile < tiles; tile = next_tile(tile)) {
    float accumulators[WGMMA_N / 2] = {};
    int32_t left = read_task(arguments, tile).columns;
    while (true) {
      mbarrier_wait(&ring.full[position.slot], position.parity);
      fence_async_proxy();  // see cp_async_arrive
      uint32_t stage = stages + position.slot * STAGE_BYTES;
      if (left <= TILE_K) break;
      multiply_stage<STEPS>(accumulators, stage + a_offset, stage + A_BYTES + b_offset);
      if (threadIdx.x % WARP_THREADS == 0) mbarrier_arrive(&ring.empty[position.slot]);
      position.advance();
      left -= TILE_K;
    }
    // The last slot is kept: when every consumer has read it, C leaves through it while the others
    // already fill for the next tile.
    uint32_t stage = stages + position.slot * STAGE_BYTES;
    multiply_steps(accumulators, stage + a_offset, stage + A_BYTES + b_offset, left / STEP_COLUMNS);
    pin_accumulators(accumulators);
    asm volatile("bar.sync 1, %0;" ::"n"(CONSUMER_THREADS) : "memory");
    float sums[OWN_COLUMNS / 2];
    share_sums(stages, accumulators, sums);
    uint32_t space = CLUSTER > 1 ? stages + SHARED_SUMS_BYTES : stage;
    finish_tile(arguments, tile, space + warp * ROOM_BYTES, sums);
    if constexpr (CLUSTER > 1) {
      cluster_sync();  // others may still read what lies here
      return;
    }
    fence_async_proxy();  // A's next bulk copy writes where this thread has read and written
    __syncwarp();
    if (threadIdx.x % WARP_THREADS == 0) mbarrier_arrive(&ring.empty[position.slot]);
    position.advance();
  }
}

#if CLUSTER > 1
#define IN_CLUSTERS __cluster_dims__(CLUSTER, 1, 1)
#else
#define IN_CLUSTERS
#endif

extern "C" __global__ void IN_CLUSTERS __launch_bounds__(THREADS, RESIDENT_CTAS)
    wcsr_spmm(const __grid_constant__ WindowArguments arguments) {
  extern __shared__ uint8_t dynamic_shared[];
  __shared__ WindowRing ring;
  uint32_t stages = aligned_stages(dynamic_shared);
  if (threadIdx.x == 0) ring.initialise();
  if (threadIdx.x >= CONSUMER_THREADS) {
    if constexpr (TRADES_REGISTERS) release_registers<PRODUCER_REGISTERS>();
    produce(arguments, ring, stages);
  } else {
    if constexpr (TRADES_REGISTERS) claim_registers<CONSUMER_REGISTERS>();
    consume(arguments, ring, stages);
  }
}
