// Loading one stage by TMA: a block of A and its slices of B, counted on one mbarrier.
#pragma once

#include "bcsr_tile.cuh"
#include "mbarrier.cuh"
#include "tma.cuh"

// Asks for TILE_K of the 64 rows of B that meet a block column, from row part * TILE_K on; rows
// from k on and columns from n on arrive as zeros.
__device__ __forceinline__ void tma_load_slices(const BcsrArguments& arguments, uint32_t stage,
                                                uint64_t* full, int32_t block_column,
                                                int64_t first_column, int32_t part = 0) {
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice)
    tma_load_2d(stage + A_BYTES + slice * SLICE_BYTES, &arguments.b_map, full,
                static_cast<int32_t>(first_column) + slice * SLICE_COLUMNS,
                block_column * BLOCK + part * TILE_K);
}

__device__ __forceinline__ void tma_load_stage(const BcsrArguments& arguments, uint32_t stage,
                                               uint64_t* full, int32_t a_row, int32_t block_column,
                                               int64_t first_column, int32_t part = 0) {
  mbarrier_arrive_expect(full, STAGE_BYTES);
  tma_load_2d(stage, &arguments.a_map, full, part * TILE_K, a_row);
  tma_load_slices(arguments, stage, full, block_column, first_column, part);
}
