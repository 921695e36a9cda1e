// The argument of bcsr_overlap.cu: C (m x n) = A (m x k, blocks of 64 x 64) * B (k x n), as tiles
// and the steps of each. Its mirror in Python is asyncsparse_lab.spmm.ring.RingArguments.
//
// Where TRANSPOSED, B and C are column-major: their tensor maps describe B^T (n x k) and C^T.
#pragma once

#include "tma.cuh"
#include "types.cuh"

// One block row, or a pair of them, in the order in which they are taken, longest first.
struct alignas(16) TileRows {
  int32_t begin;          // its first step
  int32_t steps;          // block columns in the union of its rows
  int32_t block_rows[2];  // without a second row, that is NO_ROW; without blocks, EMPTY_ROW - row
};
static_assert(sizeof(TileRows) == 16, "one 16-byte load tells all of a tile's rows");
constexpr int32_t NO_ROW = -1;
constexpr int32_t EMPTY_ROW = -2;

// What a step is to the consumers: one bit each.
constexpr int32_t MULTIPLIES = 1;  // it has a block of consumer 0; shifted by 1: of consumer 1
constexpr int32_t BEGINS = 4;      // that is the first of its row
constexpr int32_t ENDS = 16;       // the last
constexpr int32_t DONE = 64;       // there is nothing more to come

// One block column: 64 rows of B, and the blocks of A that meet them.
struct alignas(16) TileStep {
  int32_t block_column;
  int32_t blocks[2];  // index of each row's block, -1 where it has none
  int32_t control;
};
static_assert(sizeof(TileStep) == 16, "one 16-byte load tells all of a step");

struct RingArguments {
  TensorMap a_map;  // blocks as [block * 64 + row][64], box 64 x TILE_K, swizzle of its rows
  TensorMap b_map;  // B as [k][n], box TILE_K x 64; or B^T as [n][k], box B_BOX_COLUMNS x TILE_K
  TensorMap c_map;  // C as [m][n], box 64 x 128 bytes; or C^T as [n][m], box C_BOX_ROWS x 128 bytes
  const TileRows* rows;
  const TileStep* steps;
  int32_t* counters;  // two, zero before and after each launch
  int32_t row_count;  // entries of `rows`
  int32_t column_tiles;
  int32_t whole_tiles;  // the tiles after these are taken in halves
  int32_t unused[7];
};
static_assert(sizeof(RingArguments) == 448, "the Python mirror is 448 bytes");
