// Probe: L2 -> shared memory by TMA, in the boxes that the BCSR kernels load: 64 x 64 bf16 with a
// 128-byte swizzle, BOXES of them to a stage, STAGES in flight. One thread issues; a stage is
// loaded again as soon as it has landed, so nothing but the loads is timed.
#include "mbarrier.cuh"
#include "tma.cuh"
#include "types.cuh"

#ifndef STAGES
#define STAGES 4
#endif
#ifndef BOXES
#define BOXES 4
#endif
// 0: every block walks the row tiles in an order of its own; 1: all blocks walk together, as
// those of neighbouring block rows do where their block columns agree.
#ifndef TOGETHER
#define TOGETHER 0
#endif

constexpr int BOX = 64;
constexpr uint32_t BOX_BYTES = BOX * BOX * 2;
constexpr uint32_t STAGE_BYTES = BOXES * BOX_BYTES;

struct TmaArguments {
  TensorMap map;      // row-major matrix of bf16, box 64 x 64
  uint16_t* landed;   // one box a block: what arrived last
  int32_t row_tiles;  // a power of two
  int32_t column_tiles;
  int32_t loads;  // stages that each block loads; at least STAGES
};

// A bijection of the row tiles for every block: odd multiplier, modulo a power of two.
__device__ __forceinline__ int32_t row_tile(int32_t load, int32_t row_tiles) {
  const uint32_t start = TOGETHER ? 0u : blockIdx.x * 2654435761u >> 8;
  return int32_t((start + uint32_t(load) * 89u) & uint32_t(row_tiles - 1));
}

extern "C" __global__ void __launch_bounds__(128)
    probe_tma(const __grid_constant__ TmaArguments arguments) {
  extern __shared__ unsigned char dynamic_shared[];
  __shared__ uint64_t full[STAGES];
  const uint32_t slots = (shared_address(dynamic_shared) + 1023u) & ~1023u;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) mbarrier_init(&full[s], 1);
    mbarrier_init_fence();
  }
  __syncthreads();

  const int32_t first_column = int32_t(blockIdx.x) * BOXES % arguments.column_tiles;
  if (threadIdx.x == 0) {
    RingPosition<STAGES> next;  // the slot that is loaded, and waited for one lap later
    for (int32_t load = 0; load < arguments.loads + STAGES; ++load) {
      if (load >= STAGES) mbarrier_wait(&full[next.slot], next.parity ^ 1);
      if (load < arguments.loads) {
        mbarrier_arrive_expect(&full[next.slot], STAGE_BYTES);
        const int32_t y = row_tile(load, arguments.row_tiles) * BOX;
#pragma unroll
        for (int b = 0; b < BOXES; ++b) {
          const int32_t x = (first_column + b) % arguments.column_tiles * BOX;
          tma_load_2d(slots + next.slot * STAGE_BYTES + b * BOX_BYTES, &arguments.map,
                      &full[next.slot], x, y);
        }
      }
      next.advance();
    }
  }
  __syncthreads();

  const int32_t last_slot = (arguments.loads - 1) % STAGES;
  const uint16_t* box = reinterpret_cast<const uint16_t*>(
      dynamic_shared + (slots - shared_address(dynamic_shared)) + last_slot * STAGE_BYTES);
  for (int i = threadIdx.x; i < BOX * BOX; i += blockDim.x)
    arguments.landed[int64_t(blockIdx.x) * BOX * BOX + i] = box[i];
}
