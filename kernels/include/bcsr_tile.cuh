// What the tensor-core BCSR kernels share: the tile's geometry and its product.
//
// A CTA computes 64 rows x TILE_COLUMNS of C. Two consumer warpgroups own WGMMA_N columns each.
// In shared memory a stage holds TILE_K columns of a block of A (64, a whole block, or 32) and the
// matching rows of B in slices.
#pragma once

#include "b_slices.cuh"
#include "bcsr_arguments.cuh"
#include "output_tile.cuh"

constexpr int CONSUMERS = 2;
constexpr int TILE_COLUMNS = CONSUMERS * WGMMA_N;
constexpr int SLICES = TILE_COLUMNS / SLICE_COLUMNS;
constexpr int A_SPAN = TILE_K * 2;  // bytes of one row of A in a stage, and its swizzle
constexpr int A_BYTES = BLOCK * A_SPAN;
constexpr int STAGE_BYTES = A_BYTES + SLICES * SLICE_BYTES;
static_assert(BLOCK % TILE_K == 0, "a block of A meets whole stages of B");

// The slices of B that warpgroup `consumer` multiplies.
__device__ __forceinline__ uint32_t consumer_slices(uint32_t stage, int consumer) {
  return stage + A_BYTES + consumer * WGMMA_SLICES * SLICE_BYTES;
}

// accumulators (64 x WGMMA_N) += A block * slices of B, issued and committed.
__device__ __forceinline__ void multiply_block(float (&accumulators)[WGMMA_N / 2], uint32_t a,
                                               uint32_t slices) {
  pin_accumulators(accumulators);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < TILE_K / 16; ++step) {
    // A is K-major: a step is 32 bytes of the swizzled rows; the stride is between 8-row groups.
    uint64_t a_descriptor = matrix_descriptor<A_SPAN>(a + step * 32, 16, 8 * A_SPAN);
    WgmmaInstruction<WGMMA_N, Bf16, 1>::issue(accumulators, a_descriptor,
                                              b_descriptor(slices, step));
  }
  wgmma_commit();
  pin_accumulators(accumulators);
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

// Writes what warpgroup `consumer` computed of a tile.
__device__ __forceinline__ void store_tile(const BcsrArguments& arguments,
                                           const float (&accumulators)[WGMMA_N / 2], Tile tile,
                                           int consumer) {
  OutputMatrix out{arguments.c, arguments.m, arguments.n, arguments.ldc};
  store_accumulators(out, accumulators, tile.block_row * BLOCK,
                     tile.first_column + consumer * WGMMA_N);
}
