// Probe: L2 -> shared memory by gathering rows, 16 bytes a cp.async, as a kernel for compressed
// columns has to. Every thread owns its share of a stage; STAGES are in flight.
#include "types.cuh"

#ifndef STAGES
#define STAGES 4
#endif
#ifndef ROW_BYTES
#define ROW_BYTES 512
#endif
#ifndef STAGE_ROWS
#define STAGE_ROWS 16
#endif

constexpr int ROW_PIECES = ROW_BYTES / 16;
constexpr int STAGE_PIECES = STAGE_ROWS * ROW_PIECES;

struct GatherArguments {
  const uint4* rows;       // ROW_BYTES each
  const int32_t* indices;  // of rows, in the order of gathering; index_count a power of two
  uint4* landed;           // one stage a block: what arrived last
  int32_t index_count;
  int32_t loads;  // stages that each block gathers; at least STAGES
};

__device__ __forceinline__ void gather_piece(uint32_t destination, const uint4* source) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(destination), "l"(source)
               : "memory");
}

extern "C" __global__ void __launch_bounds__(256)
    probe_gather(const __grid_constant__ GatherArguments arguments) {
  extern __shared__ __align__(128) unsigned char dynamic_shared[];
  const uint32_t slots = shared_address(dynamic_shared);
  for (int32_t load = 0; load < arguments.loads; ++load) {
    const uint32_t slot = slots + load % STAGES * STAGE_PIECES * 16;
    const uint32_t first = (blockIdx.x * uint32_t(arguments.loads) + load) * STAGE_ROWS;
#pragma unroll 4
    for (int piece = threadIdx.x; piece < STAGE_PIECES; piece += blockDim.x) {
      const uint32_t place = (first + piece / ROW_PIECES) & uint32_t(arguments.index_count - 1);
      const int64_t row = __ldg(&arguments.indices[place]);
      gather_piece(slot + piece * 16, &arguments.rows[row * ROW_PIECES + piece % ROW_PIECES]);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    // The slot that the next load overwrites has landed.
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  const auto* last = reinterpret_cast<const uint4*>(dynamic_shared) +
                     (arguments.loads - 1) % STAGES * STAGE_PIECES;
  for (int piece = threadIdx.x; piece < STAGE_PIECES; piece += blockDim.x)
    arguments.landed[int64_t(blockIdx.x) * STAGE_PIECES + piece] = last[piece];
}
