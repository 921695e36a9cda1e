// The one argument of wcsr_pipelined.cu: C (m x n) = A (m x k, windows of HEIGHT rows) * B (k x n).
// Its mirror in Python is asyncsparse_lab.spmm.windows.WindowArguments; keep both alike.
#pragma once

#include "types.cuh"

// A piece of a window that one CTA multiplies, for one tile of C's columns.
struct alignas(16) WindowTask {
  int64_t first_column;  // in stored columns, a multiple of 16
  int32_t window;
  int32_t columns;  // a multiple of 16; 0 for an empty window
  int32_t pieces;   // tasks of this window: above 1, partial results are added up
  int32_t piece;    // which of them this is
  int32_t slot;     // of the window's first partial tile; -1 where it has one piece
  int32_t unused;
};
static_assert(sizeof(WindowTask) == 32, "the task array on the host has 32 bytes a task");

// Stored columns of a task whose index comes beside it: they need not wait until it is read.
constexpr int LEADING = 128;

struct WindowArguments {
  const uint16_t* a;               // core matrices, [k16 step][HEIGHT / 64][2][8][8 rows][8 values]
  const int32_t* window_col_idx;   // column of each stored column, -1 for padding
  const WindowTask* tasks;         // longest first
  const int32_t* leading_indices;  // columns of A, of each task's first LEADING stored ones
  const uint16_t* b;               // row-major, rows 16-byte aligned
  void* c;                         // row-major, row stride ldc elements
  const int32_t* rows;             // of C, to which A's rows belong; null where they are in order
  float* partials;                 // tiles of split windows, see window_partials.cuh
  int32_t* arrivals;               // zero before and after every launch
  int64_t m;
  int64_t n;
  int64_t ldc;
  uint32_t b_row_bytes;
  uint32_t task_count;
  uint32_t column_tiles;
  int32_t deterministic;  // how partial tiles are added up
};
static_assert(sizeof(WindowArguments) == 112, "the Python mirror is 112 bytes");
