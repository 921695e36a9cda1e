// Which part of A a thread block of convert.cu has, and how the windows in it lie in its memory.
//
// All blocks have equally much: a window counts as `window_cost` entries and those that it has. One
// with many entries is shared by the blocks in whose parts these are; they put their bits together
// in memory that is all zeros before and after:
//
//   uint32_t come[grid], gone[grid]   entries of the blocks that have put theirs, or are done
//   uint32_t bits[grid][words]        of the window that begins in a block's part, and goes on
#pragma once

#include "convert_arguments.cuh"
#include "grid_meeting.cuh"
#include "window_bits.cuh"

// Of the one block on an SM. All its warps run all of the code, most of it once for a small matrix:
// there fewer are sooner done.
#ifndef THREADS
#define THREADS 1024
#endif

constexpr int MOST_ROWS = 1024;
constexpr int MOST_WINDOWS = MOST_ROWS / 64;
constexpr int FEW_WORDS = 512;  // zeroed and counted sooner than it is known which there are

struct Share {
  int32_t first, end;  // windows
  int32_t first_entry, end_entry;
};

__device__ __forceinline__ int32_t first_entry_of(const ConvertArguments& g, int32_t window) {
  const int64_t row = int64_t{window} * g.height;
  return __ldg(g.indptr + (row < g.m ? row : g.m));
}

__device__ __forceinline__ int64_t position_of(const ConvertArguments& g, int32_t window) {
  return int64_t{window} * g.window_cost + first_entry_of(g, window);
}

// The first windows that begin at two positions or behind them. A thread looks at one window for
// both, then where there are more of them than threads at others for each.
__device__ __forceinline__ int2 windows_from(const ConvertArguments& g, int64_t first,
                                             int64_t second) {
  const auto probe = [&](int32_t low, int32_t high, int32_t step) {
    const int64_t window = low + int64_t{threadIdx.x} * step;
    return window < high ? position_of(g, static_cast<int32_t>(window)) : int64_t{1} << 62;
  };
  const auto steps_of = [](int32_t windows) { return (windows + THREADS - 1) / THREADS; };
  const int32_t first_step = steps_of(g.windows);
  const int64_t common = probe(0, g.windows, first_step);
  const auto search = [&](int64_t position) {
    int32_t low = 0;
    int32_t high = g.windows;
    int32_t step = first_step;
    int64_t probed = common;
    while (low < high) {
      const int32_t count = __syncthreads_count(probed < position);
      if (count == 0) break;
      low += (count - 1) * step + 1;
      high = min(high, low + step - 1);
      step = steps_of(high - low);
      probed = probe(low, high, step);
    }
    return low;
  };
  return make_int2(search(first), search(second));
}

__device__ __forceinline__ Share share_of_block(const ConvertArguments& g) {
  const int64_t begin = blockIdx.x * g.share;
  const int64_t end = begin + g.share;
  struct Part {
    int32_t begin, end;
    bool may_be_shared;
  };
  const auto part_of = [&](int32_t window) {
    const int32_t first = first_entry_of(g, window);
    const int32_t behind = first_entry_of(g, window + 1);
    if (static_cast<uint32_t>(behind - first) < g.share_from) return Part{first, behind, false};
    const int64_t before = int64_t{window + 1} * g.window_cost;  // position of entry 0, if here
    const auto within = [&](int64_t entry) {
      return static_cast<int32_t>(min(max(entry, int64_t{first}), int64_t{behind}));
    };
    return Part{within(begin - before), within(end - before), true};
  };
  const int2 windows = windows_from(g, begin, end);
  Share share;
  share.first = windows.x;
  share.end = windows.y;
  share.first_entry = first_entry_of(g, share.first);
  share.end_entry = first_entry_of(g, share.end);
  if (share.first > 0) {
    const Part part = part_of(share.first - 1);
    if (part.may_be_shared && part.begin < part.end) {
      --share.first;
      share.first_entry = part.begin;
    }
  }
  if (share.first < share.end) {
    const Part part = part_of(share.end - 1);
    share.end_entry = part.end;
    if (part.may_be_shared && part.begin == part.end) --share.end;
  }
  return share;
}

// The first entries are on their way to L2 while it is found how the windows lie.
__device__ __forceinline__ void prefetch(const ConvertArguments& g, const Share& share) {
  constexpr int LINE = 128 / sizeof(int32_t);
  const uint32_t entry = share.first_entry + threadIdx.x * LINE;
  if (entry >= static_cast<uint32_t>(share.end_entry)) return;
  asm volatile("prefetch.global.L2 [%0];" ::"l"(g.indices + entry));
  asm volatile("prefetch.global.L2 [%0];" ::"l"(g.values + entry));
}

// The columns of a window that have bits.
struct alignas(16) Span {
  uint32_t low;      // the first of them, of A's
  uint32_t columns;  // how many
  uint32_t first;    // of the group's bits
  uint32_t unused;
};

// Windows whose bits lie in shared memory together.
struct Group {
  int32_t row_begins[MOST_ROWS + 1];
  int32_t word_begins[MOST_WINDOWS + 1];  // among the bits
  int32_t low_words[MOST_WINDOWS];        // the word of A's columns where a window's bits begin
  int32_t high_words[MOST_WINDOWS];       // and end
  int64_t slot_begins[MOST_WINDOWS];
  Span spans[MOST_WINDOWS];

  __device__ __forceinline__ void set_span(int32_t window) {
    const uint32_t begin = word_begins[window];
    const uint32_t end = word_begins[window + 1];
    spans[window] = {32u * low_words[window], 32 * (end - begin), 32 * begin, 0};
  }
};

// What all threads know of a group.
struct Extent {
  int32_t first;  // window
  int32_t windows;
  int32_t rows;
  int32_t begin, end;  // entries of this block
  int32_t passes;      // above 1 for a window whose bits do not fit
};

// The words of a window's columns: those of A, or from the first column of its rows to the last.
__device__ __forceinline__ void find_words(const ConvertArguments& g, Group& group, int32_t windows,
                                           int32_t rows) {
  const bool is_wide = g.words > FEW_WORDS;
  if (threadIdx.x < windows) {
    group.low_words[threadIdx.x] = is_wide ? g.words : 0;
    group.high_words[threadIdx.x] = is_wide ? 0 : g.words;
  }
  __syncthreads();
  if (!is_wide) return;
  const int32_t lane = threadIdx.x % WARP_THREADS;
  for (int32_t row = threadIdx.x; row - lane < rows; row += THREADS) {
    int32_t low = g.words;
    int32_t high = 0;
    if (row < rows && group.row_begins[row] < group.row_begins[row + 1]) {
      low = (__ldg(g.indices + group.row_begins[row]) >> g.column_shift) / 32;
      high = (__ldg(g.indices + group.row_begins[row + 1] - 1) >> g.column_shift) / 32 + 1;
    }
    low = __reduce_min_sync(~0u, low);
    high = __reduce_max_sync(~0u, high);
    if (lane == 0) {  // heights are multiples of a warp
      atomicMin(&group.low_words[row / g.height], low);
      atomicMax(&group.high_words[row / g.height], high);
    }
  }
  __syncthreads();
}

__device__ __forceinline__ int32_t rows_of(const ConvertArguments& g, int32_t first,
                                           int32_t windows) {
  return static_cast<int32_t>(min(int64_t{windows} * g.height, g.m - int64_t{first} * g.height));
}

// All windows of a block, which have been laid out together.
__device__ __forceinline__ Extent all_of(const ConvertArguments& g, const Share& share) {
  const int32_t windows = share.end - share.first;
  return {share.first,       windows,         rows_of(g, share.first, windows),
          share.first_entry, share.end_entry, 1};
}

// Takes as many windows as fit, one at least.
__device__ __forceinline__ Extent lay_out(const ConvertArguments& g, const Share& share,
                                          Group& group, int32_t first) {
  const int32_t most = min(share.end - first, MOST_ROWS / g.height);
  const int32_t most_rows = rows_of(g, first, most);
  __syncthreads();  // the group before is done
  for (int32_t row = threadIdx.x; row <= most_rows; row += THREADS)
    group.row_begins[row] = __ldg(g.indptr + int64_t{first} * g.height + row);
  find_words(g, group, most, most_rows);
  const int32_t lane = threadIdx.x % WARP_THREADS;
  int32_t through = lane < most ? max(group.high_words[lane] - group.low_words[lane], 0) : 0;
#pragma unroll
  for (int distance = 1; distance < MOST_WINDOWS; distance *= 2) {
    const int32_t before = __shfl_up_sync(~0u, through, distance);
    if (lane >= distance) through += before;
  }
  const bool fits = lane < most && through <= g.words_at_once;
  const int32_t windows = max(__popc(__ballot_sync(~0u, fits)), 1);
  if (threadIdx.x < most) group.word_begins[threadIdx.x + 1] = through;
  if (threadIdx.x == 0) group.word_begins[0] = 0;
  __syncthreads();
  if (threadIdx.x < windows) group.set_span(threadIdx.x);
  const int32_t rows = rows_of(g, first, windows);
  const int32_t words = group.word_begins[1];
  return {first,
          windows,
          rows,
          max(group.row_begins[0], share.first_entry),
          min(group.row_begins[rows], share.end_entry),
          max((words + g.words_at_once - 1) / g.words_at_once, 1)};
}

// A window of a group, of which this block has some entries.
struct Own {
  int32_t begin, end;  // entries of this block
  int32_t entries;     // of all
  bool is_first;       // whether this block has its first one

  __device__ __forceinline__ Own(const ConvertArguments& g, const Group& group,
                                 const Extent& extent, int32_t window) {
    const int32_t first = group.row_begins[window * g.height];
    const int32_t behind = group.row_begins[min((window + 1) * g.height, extent.rows)];
    begin = max(first, extent.begin);
    end = min(behind, extent.end);
    entries = behind - first;
    is_first = begin == first;
  }

  __device__ __forceinline__ bool is_shared() const { return end - begin != entries; }
};

// What the blocks that share a window have in common, in the place of the block in whose part it
// begins.
struct Common {
  int32_t* come;
  int32_t* gone;
  uint32_t* bits;

  __device__ __forceinline__ Common(const ConvertArguments& g, uint32_t block)
      : come(reinterpret_cast<int32_t*>(g.shared) + block),
        gone(come + gridDim.x),
        bits(g.shared + 2 * gridDim.x + int64_t{block} * g.words) {}

  // For the next launch, by all threads of a block, when no other one looks here any more.
  __device__ __forceinline__ void forget(const ConvertArguments& g) const {
    if (g.share_from == ~0u) return;  // there is none
    for (int32_t word = threadIdx.x; word < g.words; word += THREADS) bits[word] = 0;
    if (threadIdx.x == 0) *come = *gone = 0;
  }
};

__device__ __forceinline__ Common common_of(const ConvertArguments& g, int32_t window) {
  return Common(g, static_cast<uint32_t>(position_of(g, window) / g.share));
}

// Calls visit(window of the group, Own) for those that other blocks have a part of.
template <class Visit>
__device__ __forceinline__ void for_shared(const ConvertArguments& g, const Group& group,
                                           const Extent& extent, Visit visit) {
  const int32_t last = extent.windows - 1;
  for (int32_t window = 0; window <= last; window += max(last, 1)) {
    const Own own(g, group, extent, window);
    if (own.is_shared()) visit(window, own);
  }
}
