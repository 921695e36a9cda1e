// B in shared memory: 64 rows (along k) of a tile, cut into slices of at most 64 columns, because
// the widest swizzle is defined on rows of 128 bytes. Narrow WGMMA_N take the narrower swizzles.
#pragma once

#include "swizzle.cuh"
#include "wgmma.cuh"

#ifndef WGMMA_N
#define WGMMA_N 128
#endif

#ifndef STAGE_K
#define STAGE_K 64
#endif

constexpr int TILE_K = STAGE_K;  // rows of B in a stage: wgmma steps of 16
constexpr int SLICE_COLUMNS = WGMMA_N < 64 ? WGMMA_N : 64;
constexpr int SLICE_SPAN = SLICE_COLUMNS * 2;  // bytes of one row of a slice
constexpr int SLICE_BYTES = TILE_K * SLICE_SPAN;
constexpr int WGMMA_SLICES = WGMMA_N / SLICE_COLUMNS;  // slices that one warpgroup multiplies
static_assert(WGMMA_N % SLICE_COLUMNS == 0, "a warpgroup owns whole slices");
static_assert(SLICE_BYTES % 1024 == 0, "128-byte swizzle repeats every 1024 bytes");

// Shared memory is handed out 16-byte aligned; the swizzle wants 1024, so hosts ask for that much
// more and the kernel rounds up.
__device__ __forceinline__ uint32_t aligned_stages(const void* dynamic_shared) {
  return (shared_address(dynamic_shared) + 1023u) & ~1023u;
}

// The 16 rows of step `step` of a warpgroup's slices, which lie along N ("MN-major"): the strides
// are between groups of 8 rows, and between slices. Without swizzle the two change roles.
__device__ __forceinline__ uint64_t b_descriptor(uint32_t slices, int step) {
  constexpr uint32_t GROUP = 8 * SLICE_SPAN;
  constexpr uint32_t LEADING = SLICE_SPAN == 16 ? GROUP : SLICE_BYTES;
  constexpr uint32_t STRIDE = SLICE_SPAN == 16 ? SLICE_BYTES : GROUP;
  return matrix_descriptor<SLICE_SPAN>(slices + step * 2 * GROUP, LEADING, STRIDE);
}

// Where the 16-byte chunk `chunk` of a tile's row `row` lies.
__device__ __forceinline__ uint32_t b_chunk_offset(int row, int chunk) {
  constexpr int SLICE_CHUNKS = SLICE_COLUMNS / 8;
  return chunk / SLICE_CHUNKS * SLICE_BYTES +
         swizzled<SLICE_SPAN>(row * SLICE_SPAN + chunk % SLICE_CHUNKS * 16);
}

// Eight neighbours of a row of B in global memory; columns from n on are zeros, and so is all of
// it when `row` is null. Rows are 16-byte aligned.
__device__ __forceinline__ uint4 read_eight(const uint16_t* row, int64_t column, int64_t n) {
  uint32_t words[4] = {0, 0, 0, 0};
  if (row != nullptr && column < n) {
    if (column + 8 <= n) return *reinterpret_cast<const uint4*>(row + column);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (column + i < n) words[i / 2] |= uint32_t{row[column + i]} << (i % 2 * 16);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ void store_shared(uint32_t address, uint4 value) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}
