// The one argument of the CSR kernel: C (m x n) = A (m x k, CSR) * B (k x n), both row-major.
// Its mirror in Python is asyncsparse_lab.spmm.csr.CsrArguments; keep both alike.
#pragma once

#include "types.cuh"

// Successive rows that some lanes of a warp compute, or a piece of one long row. Where its
// non-zeros are is said again, so that no load waits for one of indptr.
struct alignas(16) CsrTask {
  int32_t row;
  int32_t rows;
  int32_t begin;  // first non-zero, and the one after the last
  int32_t end;
  int32_t piece;   // of the row's pieces, from 0 on
  int32_t pieces;  // 0: whole rows
  int32_t slot;    // of the row's first piece, among the partial sums
  int32_t unused;
};
static_assert(sizeof(CsrTask) == 32, "tasks are int32 [tasks][8] on the host");

struct CsrArguments {
  const int32_t* indptr;
  const int32_t* indices;
  const uint16_t* values;  // bits of bf16 or fp16
  const CsrTask* tasks;    // null: task t is rows t * rows_per_task and the following ones
  const uint16_t* b;
  void* c;
  float* partials;    // [column tile][slot][columns of a tile]
  int32_t* counters;  // [column tile][slot], zero between launches
  int64_t m;
  int64_t n;
  int64_t c_row_bytes;  // from one row to the next
  uint32_t b_row_bytes;
  int32_t task_count;
  int32_t rows_per_task;
  int32_t slots;
  int32_t column_tiles;
  int32_t columns_first;  // whether neighbouring thread blocks share rows of A, not columns of B
};
static_assert(sizeof(CsrArguments) == 112, "the Python mirror is 112 bytes");
