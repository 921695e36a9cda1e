// The one argument of every BCSR kernel: C (m x n) = A (m x k, blocks of 64 x 64) * B (k x n).
// Its mirror in Python is asyncsparse_lab.spmm.arguments.BcsrArguments; keep both alike.
#pragma once

#include "tma.cuh"
#include "types.cuh"

constexpr int BLOCK = 64;                            // rows and columns of a block of A
constexpr int BLOCK_BYTES = BLOCK * BLOCK * 2;       // 8 KiB of bf16
constexpr int BLOCK_ROW_BYTES = BLOCK * 2;           // 128 bytes: one swizzle span

struct BcsrArguments {
  TensorMap a_map;  // blocks as [block * 64 + row][64], box 64 x 64, 128-byte swizzle
  TensorMap b_map;  // B as [k][n], box 64 rows x one slice, swizzle of the slice's row length
  TensorMap c_map;  // C as [m][n]; unused by kernels that store from registers
  const int64_t* block_row_ptr;    // block_rows + 1
  const int32_t* block_col_idx;    // block_row_ptr[block_rows]
  const uint16_t* blocks;          // [blocks][64][64], bf16 bits
  const uint16_t* b;               // row-major, row stride ldb elements
  void* c;                         // row-major, row stride ldc elements
  const int32_t* block_row_order;  // the order in which block rows are taken; may be null
  int32_t* tile_counter;           // zeroed before each launch; only for dynamic scheduling
  int64_t block_rows;
  int64_t m;
  int64_t k;
  int64_t n;
  int64_t ldb;
  int64_t ldc;
  int64_t reserved[3];
};
static_assert(sizeof(BcsrArguments) == 512, "the Python mirror is 512 bytes");
