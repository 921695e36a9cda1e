// What the tensor-core BCSR kernels share: the tile's geometry, its product and its epilogue.
//
// A CTA computes 64 rows x TILE_COLUMNS of C. Two consumer warpgroups own WGMMA_N columns each.
// In shared memory a stage holds one block of A and the matching 64 rows of B, cut into slices of
// at most 64 columns, because 128-byte swizzle is defined on rows of 128 bytes.
#pragma once

#include "bcsr_arguments.cuh"
#include "swizzle.cuh"
#include "wgmma.cuh"

#ifndef WGMMA_N
#define WGMMA_N 128
#endif
#ifndef OUTPUT_BF16
#define OUTPUT_BF16 1
#endif

constexpr int CONSUMERS = 2;
constexpr int TILE_COLUMNS = CONSUMERS * WGMMA_N;
constexpr int SLICE_COLUMNS = WGMMA_N < 64 ? WGMMA_N : 64;
constexpr int SLICE_SPAN = SLICE_COLUMNS * 2;                // bytes of one row of a slice
constexpr int SLICE_BYTES = BLOCK * SLICE_SPAN;
constexpr int SLICES = TILE_COLUMNS / SLICE_COLUMNS;
constexpr int CONSUMER_SLICES = WGMMA_N / SLICE_COLUMNS;
constexpr int STAGE_BYTES = BLOCK_BYTES + SLICES * SLICE_BYTES;
static_assert(WGMMA_N % SLICE_COLUMNS == 0, "a consumer owns whole slices");
static_assert(SLICE_BYTES % 1024 == 0, "128-byte swizzle repeats every 1024 bytes");

// Shared memory is handed out 16-byte aligned; the swizzle wants 1024, so hosts ask for that much
// more and the kernel rounds up.
__device__ __forceinline__ uint32_t aligned_stages(const void* dynamic_shared) {
  return (shared_address(dynamic_shared) + 1023u) & ~1023u;
}

// accumulators (64 x WGMMA_N) += A block * this consumer's slices of B, issued and committed.
__device__ __forceinline__ void multiply_block(float (&accumulators)[WGMMA_N / 2], uint32_t a,
                                               uint32_t b) {
  // Strides between 8-row groups. A is K-major: 8 rows of 128 bytes. B is MN-major: 8 rows (k) of
  // one slice. Without swizzle (16-byte rows) the two offsets change roles.
  constexpr uint32_t GROUP = 8 * SLICE_SPAN;
  constexpr uint32_t B_LEADING = SLICE_SPAN == 16 ? GROUP : SLICE_BYTES;
  constexpr uint32_t B_STRIDE = SLICE_SPAN == 16 ? SLICE_BYTES : GROUP;
  pin_accumulators(accumulators);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < BLOCK / 16; ++step) {
    uint64_t a_descriptor = matrix_descriptor<128>(a + step * 32, 16, 8 * BLOCK_ROW_BYTES);
    uint64_t b_descriptor =
        matrix_descriptor<SLICE_SPAN>(b + step * 2 * GROUP, B_LEADING, B_STRIDE);
    WgmmaInstruction<WGMMA_N, Bf16, 1>::issue(accumulators, a_descriptor, b_descriptor);
  }
  wgmma_commit();
  pin_accumulators(accumulators);
}

// One row's two neighbouring results, guarded by n; `wide` when both may go in one store.
__device__ __forceinline__ void store_pair(const BcsrArguments& arguments, int64_t row,
                                           int64_t column, float first, float second, bool wide) {
  if (row >= arguments.m || column >= arguments.n) return;
  int64_t offset = row * arguments.ldc + column;
  if constexpr (OUTPUT_BF16 != 0) {
    auto* c = static_cast<uint16_t*>(arguments.c) + offset;
    uint32_t packed = pack_bf16(first, second);
    if (wide && column + 1 < arguments.n) {
      *reinterpret_cast<uint32_t*>(c) = packed;
    } else {
      c[0] = static_cast<uint16_t>(packed);
      if (column + 1 < arguments.n) c[1] = static_cast<uint16_t>(packed >> 16);
    }
  } else {
    auto* c = static_cast<float*>(arguments.c) + offset;
    if (wide && column + 1 < arguments.n) {
      *reinterpret_cast<float2*>(c) = make_float2(first, second);
    } else {
      c[0] = first;
      if (column + 1 < arguments.n) c[1] = second;
    }
  }
}

// Writes a consumer's accumulators to C. Thread t of a warpgroup holds rows 16 * (t / 32) +
// (t % 32) / 4 and that plus 8, columns 8 j + 2 (t % 4) and the next (PTX ISA, wgmma fragment D).
__device__ __forceinline__ void store_accumulators(const BcsrArguments& arguments,
                                                   const float (&accumulators)[WGMMA_N / 2],
                                                   int64_t block_row, int64_t first_column) {
  int thread = threadIdx.x % WARPGROUP_THREADS;
  int64_t row = block_row * BLOCK + thread / 32 * 16 + thread % 32 / 4;
  int64_t column = first_column + thread % 4 * 2;
  constexpr int PAIR_BYTES = OUTPUT_BF16 != 0 ? 4 : 8;
  bool wide = arguments.ldc % 2 == 0 && reinterpret_cast<uint64_t>(arguments.c) % PAIR_BYTES == 0;
#pragma unroll
  for (int j = 0; j < WGMMA_N / 8; ++j) {
    store_pair(arguments, row, column + j * 8, accumulators[4 * j], accumulators[4 * j + 1], wide);
    store_pair(arguments, row + 8, column + j * 8, accumulators[4 * j + 2],
               accumulators[4 * j + 3], wide);
  }
}

// The tile of a CTA: column tiles are neighbours in the grid, so CTAs that run together share
// blocks of A. One grid dimension, since the second ends at 65,535.
struct Tile {
  int64_t block_row;
  int64_t first_column;
};

__device__ __forceinline__ Tile tile_of(const BcsrArguments& arguments, int64_t index) {
  int64_t column_tiles = (arguments.n + TILE_COLUMNS - 1) / TILE_COLUMNS;
  return {index / column_tiles, index % column_tiles * TILE_COLUMNS};
}
