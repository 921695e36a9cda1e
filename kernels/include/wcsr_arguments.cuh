// The one argument of every WCSR kernel: C (m x n) = A (m x k, windows of rows) * B (k x n).
// Its mirror in Python is asyncsparse_lab.spmm.arguments.WcsrArguments; keep both alike.
#pragma once

#include "types.cuh"

constexpr int WINDOW = 64;        // rows of a window: the height of a wgmma
constexpr int STEP_COLUMNS = 16;  // columns of A that one wgmma step takes
constexpr int STEP_BYTES = WINDOW * STEP_COLUMNS * 2;

// A piece of a window that one CTA multiplies, for one tile of C's columns.
struct WcsrTask {
  int32_t window;
  int32_t first_column;  // in stored columns, a multiple of 16
  int32_t columns;       // a multiple of 16; 0 for an empty window
  int32_t pieces;        // tasks of this window: above 1, partial results are added up
};
static_assert(sizeof(WcsrTask) == 16, "tasks are int32 [tasks][4] on the host");

struct WcsrArguments {
  const uint16_t* a;              // core matrices, [k16 step][2][8][8 rows][8 values], bf16 bits
  const int32_t* window_col_idx;  // column of each stored column, -1 for padding
  const WcsrTask* tasks;          // longest first
  const int32_t* split_windows;   // windows of several tasks
  const uint16_t* b;              // row-major, row stride ldb elements, rows 16-byte aligned
  void* c;                        // row-major, row stride ldc elements
  float* sums;                    // m x n, row stride ldsums: where split windows are added up
  int64_t task_count;
  int64_t split_count;
  int64_t m;
  int64_t k;
  int64_t n;
  int64_t ldb;
  int64_t ldc;
  int64_t ldsums;
};
static_assert(sizeof(WcsrArguments) == 120, "the Python mirror is 120 bytes");
