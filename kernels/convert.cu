// CSR to BCSR or WCSR in device memory, in two launches. Between them the host learns how much
// memory the values take.
//
//   convert_count   a thread block a window at a time: which columns it has, as bits in shared
//                   memory; the bits before one's own are the rank of a column. The block that
//                   ends last adds up the windows.
//   convert_fill    every entry to its place in the stored columns, whose index is written beside;
//                   and the windows as tasks, longest first.

#include "bcsr_arguments.cuh"
#include "convert_arguments.cuh"
#include "wcsr_arguments.cuh"
#include "window_arguments.cuh"

constexpr int COUNT_THREADS = 512;
constexpr int FILL_THREADS = 256;
constexpr int MOST_ROWS = 256;
constexpr int STEP_VALUES = 64 * 16;  // of 64 rows in one step
constexpr int CORE_MATRIX = 8 * 8;

// Sum of the values that threads before this one have, and of all of them.
template <class Number>
__device__ __forceinline__ Number sum_before(Number value, Number& total) {
  constexpr int WARPS = COUNT_THREADS / WARP_THREADS;
  __shared__ Number sums[WARPS];
  const int lane = threadIdx.x % WARP_THREADS;
  const int warp = threadIdx.x / WARP_THREADS;
  Number through = value;
#pragma unroll
  for (int distance = 1; distance < WARP_THREADS; distance *= 2) {
    const Number other = __shfl_up_sync(0xffffffffu, through, distance);
    if (lane >= distance) through += other;
  }
  if (lane == WARP_THREADS - 1) sums[warp] = through;
  __syncthreads();
  Number before = 0;
  total = 0;
#pragma unroll
  for (int other = 0; other < WARPS; ++other) {
    const Number sum = sums[other];
    if (other < warp) before += sum;
    total += sum;
  }
  __syncthreads();
  return before + through - value;
}

// The largest i below `count` with key(i) <= value, where key rises and key(0) <= value.
template <class Key, class Value>
__device__ __forceinline__ int32_t last_at_most(int32_t count, Value value, Key key) {
  int32_t low = 0;
  int32_t high = count;
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    if (key(middle) <= value) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

__device__ __forceinline__ int32_t padded(const ConvertArguments& g, int32_t count) {
  return (count + g.padded_to - 1) / g.padded_to * g.padded_to;
}

__device__ __forceinline__ bool is_zero(uint16_t bits) {
  return (bits & 0x7fffu) == 0;
}

// The sums of all windows' columns, by one thread block.
__device__ __forceinline__ void write_pointer(const ConvertArguments& g) {
  const int32_t part = (g.windows + COUNT_THREADS - 1) / COUNT_THREADS;
  const int32_t first = threadIdx.x * part;
  const int32_t last = first + part < g.windows ? first + part : g.windows;
  int64_t own = 0;
#pragma unroll 4
  for (int32_t window = first; window < last; ++window) own += padded(g, __ldcg(g.counts + window));
  int64_t total;
  int64_t before = sum_before(own, total);
#pragma unroll 4
  for (int32_t window = first; window < last; ++window) {
    g.pointer[window] = before;
    before += padded(g, __ldcg(g.counts + window));
  }
  if (threadIdx.x == 0) g.pointer[g.windows] = total;
}

// Counts the columns of a window and ranks its entries; returns whether all windows are done now.
__device__ __forceinline__ bool count_window(const ConvertArguments& g, int32_t window) {
  extern __shared__ uint32_t dynamic_shared[];
  __shared__ int32_t row_begins[MOST_ROWS + 1];
  __shared__ bool is_last;
  const int32_t words = g.columns_at_once / 32;
  uint32_t* const bits = dynamic_shared;
  uint32_t* const before = bits + words;  // columns in the words before
  const int32_t first_row = window * g.height;
  const int32_t rows = g.m - first_row < g.height ? g.m - first_row : g.height;
  for (int32_t row = threadIdx.x; row <= rows; row += COUNT_THREADS)
    row_begins[row] = g.indptr[first_row + row];
  __syncthreads();
  const int32_t begin = row_begins[0];
  const int32_t end = row_begins[rows];
  // Odd, so that the parts of the threads begin in different banks.
  const int32_t part = (words + COUNT_THREADS - 1) / COUNT_THREADS | 1;
  const int32_t part_begin = threadIdx.x * part < words ? threadIdx.x * part : words;
  const int32_t part_end = part_begin + part < words ? part_begin + part : words;

  int32_t found = 0;
  for (int64_t low = 0; low < g.columns_of_a; low += g.columns_at_once) {
    for (int32_t word = threadIdx.x; word < words; word += COUNT_THREADS) bits[word] = 0;
    __syncthreads();
    for (int32_t entry = begin + threadIdx.x; entry < end; entry += COUNT_THREADS) {
      const int64_t column = (g.indices[entry] >> g.column_shift) - low;
      if (column >= 0 && column < g.columns_at_once && !is_zero(g.values[entry]))
        atomicOr(&bits[column / 32], 1u << (column % 32));
    }
    __syncthreads();
    int32_t own = 0;
    for (int32_t word = part_begin; word < part_end; ++word) own += __popc(bits[word]);
    int32_t total;
    int32_t sum = found + sum_before(own, total);
    for (int32_t word = part_begin; word < part_end; ++word) {
      before[word] = sum;
      sum += __popc(bits[word]);
    }
    __syncthreads();
    for (int32_t entry = begin + threadIdx.x; entry < end; entry += COUNT_THREADS) {
      const int32_t key = g.indices[entry] >> g.column_shift;
      const int64_t column = key - low;
      if (column < 0 || column >= g.columns_at_once) continue;
      if (is_zero(g.values[entry])) {
        g.ranks[entry] = -1;
        continue;
      }
      const uint32_t lower = bits[column / 32] & ((1u << (column % 32)) - 1);
      const auto rank = static_cast<int32_t>(before[column / 32]) + __popc(lower);
      g.ranks[entry] = rank;
      g.columns[begin + rank] = key;  // by all entries of the column alike
      g.rows[entry] = static_cast<uint8_t>(
          last_at_most(rows, entry, [&](int32_t row) { return row_begins[row]; }));
    }
    found += total;
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    g.counts[window] = found;
    __threadfence();
    is_last = atomicAdd(g.finished, 1) == g.windows - 1;
  }
  __syncthreads();
  return is_last;
}

extern "C" __global__ void __launch_bounds__(COUNT_THREADS, 2)
    convert_count(const __grid_constant__ ConvertArguments g) {
  for (int32_t window = blockIdx.x; window < g.windows; window += gridDim.x) {
    if (!count_window(g, window)) continue;
    __threadfence();
    write_pointer(g);
    if (threadIdx.x == 0) *g.finished = 0;  // for the next conversion
  }
}

__device__ __forceinline__ void place_entry(const ConvertArguments& g, int32_t entry) {
  const int32_t rank = g.ranks[entry];
  if (rank < 0) return;
  const int32_t window = last_at_most(
      g.windows, entry, [&](int32_t w) { return __ldg(g.indptr + int64_t{w} * g.height); });
  const int64_t slot = g.pointer[window] + rank;
  const int32_t row = g.rows[entry];
  int64_t place;
  if (g.column_shift != 0) {
    place = (slot * BLOCK + row) * BLOCK + g.indices[entry] % BLOCK;
  } else {
    // Core matrices: [16 columns][64 rows][8 columns][8 rows][row][column].
    const int64_t step = slot / STEP_COLUMNS * (g.height / 64) + row / 64;
    const auto column = static_cast<int32_t>(slot % STEP_COLUMNS);
    place = step * STEP_VALUES + column / 8 * (STEP_VALUES / 2) + row % 64 / 8 * CORE_MATRIX +
            row % 8 * 8 + column % 8;
  }
  g.stored[place] = g.values[entry];
}

__device__ __forceinline__ void place_column(const ConvertArguments& g, int64_t slot) {
  const int32_t window =
      last_at_most(g.windows, slot, [&](int32_t w) { return __ldg(g.pointer + w); });
  const auto rank = static_cast<int32_t>(slot - g.pointer[window]);
  const int32_t begin = g.indptr[int64_t{window} * g.height];
  g.column_index[slot] = rank < g.counts[window] ? g.columns[begin + rank] : -1;
}

// A window as tasks, longest first: pieces of the limit in the order of the windows, then what is
// left of each, in the order of its length. A warp a window; where its tasks go is counted over all
// windows, which is quadratic in their number, and little beside the rest for all but huge ones.
__device__ __forceinline__ void place_tasks(const ConvertArguments& g, int32_t first_window) {
  __shared__ int2 others[FILL_THREADS];  // whole pieces, and what is left; -1: nothing
  const auto pieces_of = [&](int32_t w) {
    const int32_t count = padded(g, g.counts[w]);
    const int32_t whole = count / g.task_limit;
    const int32_t left = count - whole * g.task_limit;
    return make_int2(whole, left == 0 && whole != 0 ? -1 : left);
  };
  const int32_t lane = threadIdx.x % WARP_THREADS;
  const int32_t window = first_window + threadIdx.x / WARP_THREADS;
  const bool there = window < g.windows;
  const int2 own = there ? pieces_of(window) : make_int2(0, 0);
  int32_t whole_before = 0;
  int32_t wholes = 0;
  int32_t longer = 0;
  int32_t split_before = 0;
  int32_t slots_before = 0;
  for (int32_t first = 0; first < g.windows; first += FILL_THREADS) {
    const int32_t mine = first + threadIdx.x;
    __syncthreads();
    others[threadIdx.x] = mine < g.windows ? pieces_of(mine) : make_int2(0, -1);
    __syncthreads();
    const int32_t count = g.windows - first < FILL_THREADS ? g.windows - first : FILL_THREADS;
    for (int32_t i = lane; i < count; i += WARP_THREADS) {
      const int2 other = others[i];
      const bool earlier = first + i < window;
      wholes += other.x;
      if (earlier) {
        whole_before += other.x;
        const int32_t pieces = other.x + (other.y >= 0);
        split_before += pieces > 1;
        slots_before += pieces == 1 ? 0 : g.deterministic ? pieces : 1;
      }
      longer += other.y > own.y || (other.y == own.y && earlier);
    }
  }
  if (!there) return;
  const auto over_lanes = [](int32_t own_sum) { return __reduce_add_sync(0xffffffffu, own_sum); };
  whole_before = over_lanes(whole_before);
  wholes = over_lanes(wholes);
  longer = over_lanes(longer);
  split_before = over_lanes(split_before);
  slots_before = over_lanes(slots_before);
  const int32_t pieces = own.x + (own.y >= 0);
  const int64_t begin = g.pointer[window];
  const auto place_of = [&](int32_t piece) {
    return int64_t{piece < own.x ? whole_before + piece : wholes + longer};
  };
  for (int32_t piece = lane; piece < pieces; piece += WARP_THREADS) {
    const int64_t place = place_of(piece);
    const int64_t first = begin + int64_t{piece} * g.task_limit;
    const int32_t length = piece < own.x ? g.task_limit : own.y;
    switch (g.task_kind) {
      case BLOCK_ROWS: static_cast<BlockRowTask*>(g.tasks)[place] = {first, length, window}; break;
      case WINDOWS:
        static_cast<WcsrTask*>(g.tasks)[place] = {window, static_cast<int32_t>(first), length,
                                                  pieces};
        break;
      default:
        static_cast<WindowTask*>(g.tasks)[place] = {
            first, window, length, pieces, piece, pieces > 1 ? slots_before : -1, 0};
    }
  }
  if (lane == 0 && pieces > 1 && g.split_windows != nullptr) g.split_windows[split_before] = window;
  if (g.task_kind != WINDOWS_IN_SLOTS) return;
  // The columns of A of each task's first stored columns.
  const int32_t* const columns = g.columns + g.indptr[int64_t{window} * g.height];
  const int32_t count = g.counts[window];
  for (int32_t piece = 0; piece < pieces; ++piece) {
    const int32_t first = piece * g.task_limit;
    const int32_t length = piece < own.x ? g.task_limit : own.y;
    const int32_t last = first + length < count ? first + length : count;
    int32_t* const leading = g.leading_indices + place_of(piece) * LEADING;
#pragma unroll
    for (int32_t i = lane; i < LEADING; i += WARP_THREADS)
      leading[i] = first + i < last ? __ldg(columns + first + i) : -1;
  }
}

extern "C" __global__ void __launch_bounds__(FILL_THREADS)
    convert_fill(const __grid_constant__ ConvertArguments g) {
  constexpr int WARPS = FILL_THREADS / WARP_THREADS;
  const int64_t task_blocks = (g.windows + WARPS - 1) / WARPS;
  const int64_t columns_from = g.entry_blocks;
  const int64_t tasks_from = columns_from + g.column_blocks;
  for (int64_t block = blockIdx.x; block < tasks_from + task_blocks; block += gridDim.x) {
    if (block < columns_from) {
      const int64_t entry = block * FILL_THREADS + threadIdx.x;
      if (entry < g.indptr[g.m]) place_entry(g, static_cast<int32_t>(entry));
    } else if (block < tasks_from) {
      const int64_t slot = (block - columns_from) * FILL_THREADS + threadIdx.x;
      if (slot < g.pointer[g.windows]) place_column(g, slot);
    } else {
      place_tasks(g, static_cast<int32_t>((block - tasks_from) * WARPS));
    }
  }
}
