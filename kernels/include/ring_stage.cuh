// C through shared memory in either type and layout: a warpgroup lays its 64 x WGMMA_N accumulators
// down as boxes of 64 rows of 128 bytes in the 128-byte swizzle, and TMA stores them, clipped at
// C's edges. Rows are C's, or, where TRANSPOSED, those of C^T [n][m].
#pragma once

#include "product_types.cuh"
#include "ring_tile.cuh"
#include "stmatrix.cuh"

constexpr int SPAN_VALUES = 128 / OUTPUT_BYTES;  // neighbours in memory that a box covers
constexpr int BOXES_DOWN = BLOCK / SPAN_VALUES;  // boxes of C^T over 64 rows of C
constexpr int C_BOX_BYTES = BLOCK * 128;

// Stages COUNT accumulators from FIRST on, the first of them at column 0. Thread t of a warpgroup
// holds rows 16 (t / 32) + (t % 32) / 4 and that plus 8, columns 8 j + 2 (t % 4) and the next
// (PTX ISA, wgmma, fragment D).
template <int COUNT, int FIRST, int TOTAL>
__device__ __forceinline__ void stage_accumulators(uint32_t stage,
                                                   const float (&accumulators)[TOTAL]) {
  int lane = threadIdx.x % WARP_THREADS;
  int warp_row = threadIdx.x % WARPGROUP_THREADS / WARP_THREADS * 16;
  if constexpr (IS_16_BIT) {
    // Four matrices: rows 0..7 and 8..15 of the warp's 16, at columns 8 j, then at 8 (j + 1).
#pragma unroll
    for (int j = 0; j < COUNT / 4; j += 2) {
      const float* pairs = &accumulators[FIRST + 4 * j];
      uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) packed[i] = pack_output(pairs[2 * i], pairs[2 * i + 1]);
      if constexpr (TRANSPOSED == 0) {
        int chunk = j + lane / 16;
        uint32_t offset = swizzled<128>((warp_row + lane % 16) * 128 + chunk % 8 * 16);
        store_matrices(stage + chunk / 8 * C_BOX_BYTES + offset, packed[0], packed[1], packed[2],
                       packed[3]);
      } else {
        int column = (j + lane / 16) * 8 + lane % 8;
        uint32_t offset = column * 128 + (warp_row + lane / 8 % 2 * 8) * 2;
        store_transposed(stage + swizzled<128>(offset), packed[0], packed[1], packed[2], packed[3]);
      }
    }
  } else {
    for_each_pair<COUNT, FIRST>(accumulators, [&](int row, int column, float first, float second) {
      if constexpr (TRANSPOSED == 0) {
        uint32_t address = stage + column / SPAN_VALUES * C_BOX_BYTES +
                           swizzled<128>(row * 128 + column % SPAN_VALUES * 4);
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(first), "f"(second)
                     : "memory");
      } else {
        uint32_t box = column / BLOCK * BOXES_DOWN + row / SPAN_VALUES;
        uint32_t offset = column % BLOCK * 128 + row % SPAN_VALUES * 4;
        uint32_t address = stage + box * C_BOX_BYTES;
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(address + swizzled<128>(offset)), "f"(first)
                     : "memory");
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(address + swizzled<128>(offset + 128)),
                     "f"(second)
                     : "memory");
      }
    });
  }
}

// By one thread, after the warpgroup staged its columns, fenced and met.
template <int COLUMNS>
__device__ __forceinline__ void store_stage(const TensorMap* c_map, uint32_t stage,
                                            int32_t first_row, int32_t first_column) {
#pragma unroll
  for (int box = 0; box < COLUMNS / SPAN_VALUES; ++box) {
    if constexpr (TRANSPOSED == 0)
      tma_store_2d(c_map, stage + box * C_BOX_BYTES, first_column + box * SPAN_VALUES, first_row);
    else
      tma_store_2d(c_map, stage + box * C_BOX_BYTES, first_row + box % BOXES_DOWN * SPAN_VALUES,
                   first_column + box / BOXES_DOWN * BLOCK);
  }
  tma_store_commit();
}

// A barrier among the threads of one warpgroup; `name` 1 .. 15.
__device__ __forceinline__ void warpgroup_sync(int name) {
  asm volatile("bar.sync %0, 128;" ::"r"(name) : "memory");
}
