// WCSR as a pipeline: producer warps keep the whole ring full of gathered rows of B while consumers
// multiply, and several CTAs share an SM, so that prologues and stores hide behind others' loads.
//
// A CTA computes one piece of a window (HEIGHT rows) for COLUMN_GROUPS * WGMMA_N columns of C. What
// a gather reaches depends on the bytes in flight (study "ceilings"), so copies arrive on the
// stage's barrier by themselves instead of being waited for. L2 delivers A as well: a tile of it
// counts like rows of B as wide as the window is high, so wide tiles of C read less.

#include "probe_parts.cuh"
#include "registers.cuh"
#include "window_output.cuh"
#include "window_partials.cuh"

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
    case 1: multiply_stage<1>(accumulators, a, b); break;
    case 2: multiply_stage<2>(accumulators, a, b); break;
    default: multiply_stage<3>(accumulators, a, b);
  }
}

__device__ __forceinline__ void consume(const WindowArguments& arguments, const WindowTile& tile,
                                        WindowRing& ring, uint32_t stages) {
  int warp = threadIdx.x / WARP_THREADS;
  int group = threadIdx.x / WARPGROUP_THREADS;
  // This consumer's 64 rows of A's stage, and WGMMA_N columns of B's, which follows A.
  uint32_t own_a = stages + group % ROW_GROUPS * GROUP_STEP_BYTES;
  uint32_t own_b = stages + A_BYTES + group / ROW_GROUPS * (WGMMA_SLICES * SLICE_BYTES);
  float accumulators[WGMMA_N / 2] = {};
  RingPosition<STAGES> position;
  auto wait_full = [&] {
    mbarrier_wait(&ring.full[position.slot], position.parity);
    fence_async_proxy();  // see cp_async_arrive
    return static_cast<uint32_t>(position.slot * STAGE_BYTES);
  };
  for (int32_t stage_count = tile.task.columns / TILE_K; stage_count > 0; --stage_count) {
    uint32_t stage = wait_full();
    multiply_stage<STEPS>(accumulators, own_a + stage, own_b + stage);
    if (threadIdx.x % WARP_THREADS == 0) mbarrier_arrive(&ring.empty[position.slot]);
    position.advance();
  }
  if (int32_t rest = tile.task.columns % TILE_K; rest != 0) {
    uint32_t stage = wait_full();
    multiply_steps(accumulators, own_a + stage, own_b + stage, rest / STEP_COLUMNS);
  }
  pin_accumulators(accumulators);
  if constexpr (SKIP_STORE != 0) return;
  // From here on the ring is room for C: every consumer has read its last stage.
  asm volatile("bar.sync 1, %0;" ::"n"(CONSUMER_THREADS) : "memory");
  if (tile.task.pieces > 1) {
    Partials partials{arguments, tile};
    bool holds_sum = arguments.deterministic != 0 ? partials.merge_in_order(accumulators)
                                                  : partials.merge_by_atomics(accumulators);
    if (!holds_sum) return;
  }
  int64_t row = int64_t{tile.task.window} * HEIGHT + group % ROW_GROUPS * ROW_GROUP +
                warp % (WARPGROUP_THREADS / WARP_THREADS) * WARP_OUTPUT_ROWS;
  store_rows(arguments, stages + warp * WARP_OUTPUT_BYTES, accumulators, row,
             tile.first_column() + group / ROW_GROUPS * WGMMA_N);
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT_CTAS)
    wcsr_spmm(const __grid_constant__ WindowArguments arguments) {
  extern __shared__ uint8_t dynamic_shared[];
  __shared__ WindowRing ring;
  uint32_t stages = aligned_stages(dynamic_shared);
  // First the barriers: their fence would wait for the loads.
  if (threadIdx.x == 0) ring.initialise();
  const WindowTile tile(arguments);
  const LeadingIndices leading(arguments, tile.index);
  __syncthreads();
  if (threadIdx.x >= CONSUMER_THREADS) {
    if constexpr (TRADES_REGISTERS) release_registers<PRODUCER_REGISTERS>();
    produce(arguments, tile, ring, stages, leading);
  } else {
    if constexpr (TRADES_REGISTERS) claim_registers<CONSUMER_REGISTERS>();
    consume(arguments, tile, ring, stages);
  }
}
