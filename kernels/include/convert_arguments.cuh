// The one argument of the conversion kernel: CSR to blocks (BCSR) or to windows of rows (WCSR).
// Its mirror in Python is asyncsparse_lab.spmm.convert_kernels.ConvertArguments; keep both alike.
//
// Both formats cut A into windows of `height` rows and store, for each, the columns that hold a
// non-zero there; BCSR's columns are 64 wide, and its windows are its block rows.
#pragma once

#include "types.cuh"

// What a launch does.
enum Phase : int32_t { CONVERT = 1, CLEAR = 2, CUT = 4 };

// Whose tasks the windows become.
enum TaskKind : int32_t {
  BLOCK_ROWS,       // BlockRowTask of bcsr_arguments.cuh
  WINDOWS,          // WcsrTask of wcsr_arguments.cuh
  WINDOWS_IN_SLOTS  // WindowTask of window_arguments.cuh
};

struct ConvertArguments {
  const int32_t* indptr;
  const int32_t* indices;
  const uint16_t* values;  // bits of a 16-bit float
  // What the first phase finds.
  int64_t* pointer;  // first stored column of each window, padding included, and the end
  int32_t* counts;   // columns of each window
  // And tells the host, in memory of the host: the ticket, once the pointer is there behind it.
  int64_t* letter;  // null where the host knows
  int64_t ticket;
  int32_t* meetings;  // blocks that have come to one, zero before and after; meetings so far
  uint32_t* shared;   // of windows that several blocks share, see convert_share.cuh
  // What the second one writes.
  uint16_t* stored;
  int32_t* column_index;     // of each stored column, -1 for padding
  void* tasks;               // longest first, of the kind below
  int32_t* leading_indices;  // of a WindowTask, see window_arguments.cuh
  int32_t* split_windows;
  int64_t capacity;  // stored columns for which there is memory; nothing is written for more
  int64_t share;     // of A that a thread block has, see convert_share.cuh
  int32_t m;
  int32_t words;  // that hold a bit for each column of A, in units of the format's columns
  int32_t windows;
  int32_t height;
  int32_t column_shift;   // 0, or 6 for columns 64 wide
  int32_t padded_to;      // multiple of stored columns in a window
  int32_t words_at_once;  // that fit into shared memory
  int32_t window_cost;    // of a window, in entries
  uint32_t share_from;    // entries of a window that several blocks may share
  int32_t task_limit;     // stored columns of a task, a multiple of padded_to
  int32_t task_kind;      // TaskKind
  int32_t deterministic;  // whether each piece of a window has a slot, or all share one
  int32_t phases;         // Phase, or CONVERT and CLEAR
};
static_assert(sizeof(ConvertArguments) == 184, "the Python mirror is 184 bytes");
