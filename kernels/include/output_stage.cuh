// C through shared memory: a warpgroup lays its 64 x WGMMA_N accumulators down as slices of
// 128-byte rows in the 128-byte swizzle, and TMA stores them, clipped at C's edges.
#pragma once

#include "output_tile.cuh"
#include "swizzle.cuh"
#include "tma.cuh"

constexpr int OUTPUT_BYTES = OUTPUT_BF16 != 0 ? 2 : 4;
constexpr int OUTPUT_SLICE_COLUMNS = 128 / OUTPUT_BYTES;
constexpr int OUTPUT_SLICE_BYTES = 64 * 128;

// Four 8 x 8 matrices of 16-bit values; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices(uint32_t address, uint32_t first, uint32_t second,
                                               uint32_t third, uint32_t fourth) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(first), "r"(second), "r"(third), "r"(fourth)
               : "memory");
}

// Stages COUNT accumulators from FIRST on, the first of them at the stage's column 0.
template <int COUNT, int FIRST = 0, int TOTAL>
__device__ __forceinline__ void stage_accumulators(uint32_t stage,
                                                   const float (&accumulators)[TOTAL]) {
  if constexpr (OUTPUT_BF16 != 0) {
    // The matrices are rows 0..7 and 8..15 of the warp's 16, at columns 8 j, then at 8 (j + 1).
    int lane = threadIdx.x % WARP_THREADS;
    int row = threadIdx.x % WARPGROUP_THREADS / WARP_THREADS * 16 + lane % 16;
#pragma unroll
    for (int j = 0; j < COUNT / 4; j += 2) {
      int chunk = j + lane / 16;
      uint32_t address =
          stage + chunk / 8 * OUTPUT_SLICE_BYTES + swizzled<128>(row * 128 + chunk % 8 * 16);
      const float* pairs = &accumulators[FIRST + 4 * j];
      store_matrices(address, pack_bf16(pairs[0], pairs[1]), pack_bf16(pairs[2], pairs[3]),
                     pack_bf16(pairs[4], pairs[5]), pack_bf16(pairs[6], pairs[7]));
    }
  } else {
    for_each_pair<COUNT, FIRST>(accumulators, [&](int row, int column, float first, float second) {
      uint32_t address = stage + column / OUTPUT_SLICE_COLUMNS * OUTPUT_SLICE_BYTES +
                         swizzled<128>(row * 128 + column % OUTPUT_SLICE_COLUMNS * 4);
      asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(first), "f"(second)
                   : "memory");
    });
  }
}

// By one thread, after the warpgroup staged its tile, fenced and met.
template <int COLUMNS>
__device__ __forceinline__ void store_stage(const TensorMap* c_map, uint32_t stage,
                                            int32_t first_row, int32_t first_column) {
#pragma unroll
  for (int slice = 0; slice < COLUMNS / OUTPUT_SLICE_COLUMNS; ++slice)
    tma_store_2d(c_map, stage + slice * OUTPUT_SLICE_BYTES,
                 first_column + slice * OUTPUT_SLICE_COLUMNS, first_row);
  tma_store_commit();
}

// A barrier among the threads of one warpgroup; `name` 1 .. 15.
__device__ __forceinline__ void warpgroup_sync(int name) {
  asm volatile("bar.sync %0, 128;" ::"r"(name) : "memory");
}
