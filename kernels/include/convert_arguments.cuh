// The one argument of the conversion kernel: CSR to blocks (BCSR) or to windows of rows (WCSR).
// Its mirror in Python is asyncsparse_lab.spmm.convert_kernels.ConvertArguments; keep both alike.
//
// Both formats cut A into windows of `height` rows and store, for each, the columns that hold a
// non-zero there; BCSR's columns are 64 wide, and its windows are its block rows.
#pragma once

#include "types.cuh"

constexpr int32_t WHOLE = 0x7ffffff0;  // columns at which no window is cut

struct ConvertArguments {
  const int32_t* indptr;
  const int32_t* indices;
  const uint16_t* values;  // bits of a 16-bit float
  // What the first phase finds.
  int64_t* pointer;  // first stored column of each window, padding included, and the end
  int32_t* counts;   // columns of each window, and those at which they are cut
  // And tells the host, in memory of the host: the ticket, once there are behind it the columns at
  // which windows are cut, and the pointer.
  int64_t* letter;  // null where the host knows
  int64_t ticket;
  int32_t* meetings;  // blocks that have come to one, zero before and after; meetings so far
  uint32_t* shared;   // of windows that several blocks share, see convert_share.cuh
  // What the second one writes.
  uint16_t* stored;
  int32_t* column_index;     // of each stored column, -1 for padding
  void* tasks;               // longest first: BlockRowTask of bcsr_arguments.cuh, or WindowTask
  int32_t* leading_indices;  // of a WindowTask, see window_arguments.cuh
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
  // The rule by which windows are cut, see choose_limit of asyncsparse_lab.spmm.windows.
  int32_t least_piece;    // in stored columns, a multiple of padded_to
  int32_t column_tiles;   // of C; 0: windows are cut at the least piece, by no rule
  int32_t places;         // where they are computed at once
  int32_t deterministic;  // whether each piece of a window has a slot, or all share one
  int32_t is_cleared;     // whether zeros are written at the beginning
};
static_assert(sizeof(ConvertArguments) == 176, "the Python mirror is 176 bytes");
