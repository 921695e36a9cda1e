// What a slot of bcsr_overlap.cu's and bcsr_paired.cu's ring holds of B, and the product: either
// type, and B row-major or, where TRANSPOSED, column-major. There B is [n][k] in memory, and a
// consumer's columns of it arrive as one box of WGMMA_N rows.
#pragma once

#include "bcsr_ring.cuh"
#include "product_types.cuh"

#ifndef TRANSPOSED
#define TRANSPOSED 0
#endif

static_assert(WGMMA_N >= 64, "B and C travel in rows of 128 bytes");
static_assert(TILE_K == BLOCK, "a slot holds whole blocks of A");

// Asks for 64 rows of B x COLUMNS. What lies outside of B arrives as zeros.
template <int COLUMNS>
__device__ __forceinline__ void load_rows(const BcsrArguments& arguments, uint32_t destination,
                                          uint64_t* full, int32_t block_column,
                                          int32_t first_column) {
  constexpr int BOX_COLUMNS = TRANSPOSED != 0 ? WGMMA_N : SLICE_COLUMNS;
  constexpr int BOX_BYTES = BOX_COLUMNS * BLOCK_ROW_BYTES;
#pragma unroll
  for (int box = 0; box < COLUMNS / BOX_COLUMNS; ++box) {
    int32_t column = first_column + box * BOX_COLUMNS;
    int32_t row = block_column * BLOCK;
    tma_load_2d(destination + box * BOX_BYTES, &arguments.b_map, full,
                TRANSPOSED != 0 ? row : column, TRANSPOSED != 0 ? column : row);
  }
}

// accumulators (64 x WGMMA_N) += block of A * rows of B; waits for the result.
__device__ __forceinline__ void multiply_slot(float (&accumulators)[WGMMA_N / 2], uint32_t a,
                                              uint32_t b) {
  pin_accumulators(accumulators);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < BLOCK / 16; ++step) {
    // K-major: a step is 32 bytes of the swizzled rows; the stride is between 8-row groups.
    uint64_t a_descriptor = matrix_descriptor<A_SPAN>(a + step * 32, 16, 8 * A_SPAN);
    uint64_t b_now = TRANSPOSED != 0 ? matrix_descriptor<A_SPAN>(b + step * 32, 16, 8 * A_SPAN)
                                     : b_descriptor(b, step);
    WgmmaInstruction<WGMMA_N, Input, 1 - TRANSPOSED>::issue(accumulators, a_descriptor, b_now);
  }
  wgmma_commit();
  pin_accumulators(accumulators);
  // Waiting for the product at once frees the slot early: loads are what takes long.
  wgmma_wait<0>();
  pin_accumulators(accumulators);
}
