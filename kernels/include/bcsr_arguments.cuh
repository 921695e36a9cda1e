// The one argument of every BCSR kernel: C (m x n) = A (m x k, blocks of 64 x 64) * B (k x n).
// Its mirror in Python is asyncsparse_lab.spmm.arguments.BcsrArguments; keep both alike.
#pragma once

#include "tma.cuh"
#include "types.cuh"

constexpr int BLOCK = 64;                       // rows and columns of a block of A
constexpr int BLOCK_BYTES = BLOCK * BLOCK * 2;  // 8 KiB of bf16
constexpr int BLOCK_ROW_BYTES = BLOCK * 2;      // 128 bytes: one swizzle span

// A block row in the order in which it is taken, longest first.
struct BlockRowTask {
  int64_t begin;   // its first block
  int32_t blocks;  // may be 0: the rows of C must be written all the same
  int32_t block_row;
};
static_assert(sizeof(BlockRowTask) == 16, "one 16-byte load tells all of a tile");

// Two block rows that one CTA computes together, in the order in which they are taken.
struct PairTask {
  int64_t begin;  // its first step
  int32_t steps;
  int32_t block_rows[2];  // -1 where the second is missing
  int32_t padding;
};
static_assert(sizeof(PairTask) == 24, "the host packs them without gaps");

// One block column of the pair's union.
struct PairStep {
  int32_t block_column;
  int32_t blocks[2];  // index of each row's block, -1 where it has none
  int32_t padding;
};
static_assert(sizeof(PairStep) == 16, "one 16-byte load tells all of a step");

struct BcsrArguments {
  TensorMap a_map;  // blocks as [block * 64 + row][64], box 64 x 64, 128-byte swizzle
  TensorMap b_map;  // B as [k][n], box 64 rows x one slice, swizzle of the slice's row length
  TensorMap c_map;  // C as [m][n], box 64 x 128 bytes; only for kernels that store by TMA
  const int64_t* block_row_ptr;   // block_rows + 1
  const int32_t* block_col_idx;   // block_row_ptr[block_rows]
  const uint16_t* blocks;         // [blocks][64][64], bf16 bits
  const uint16_t* b;              // row-major, row stride ldb elements
  void* c;                        // row-major, row stride ldc elements
  const BlockRowTask* row_tasks;  // block_rows; only for kernels that schedule themselves
  int32_t* counters;              // two, zero before and after each launch; likewise
  int64_t block_rows;
  int64_t m;
  int64_t k;
  int64_t n;
  int64_t ldb;
  int64_t ldc;
  const PairTask* pair_tasks;  // only for kernels that compute pairs of block rows
  const PairStep* pair_steps;
  int64_t pair_count;
};
static_assert(sizeof(BcsrArguments) == 512, "the Python mirror is 512 bytes");
