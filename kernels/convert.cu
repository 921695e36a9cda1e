// CSR to BCSR or WCSR in device memory, in one cooperative launch of two phases.
//
//   COUNT   a thread block a window at a time: which columns it has, as bits in shared memory; the
//           bits before one's own are the rank of a column. The block that comes last adds up the
//           windows, and writes the sums to the host too, which needs the sizes.
//   FILL    the windows as tasks, longest first, the index of the stored columns, zeros for the
//           values; then every entry to its place.
//
// Where the most that A can take is much, or windows are cut, the host launches the phases one by
// one, and allocates between them what A does take. Where it is little there is CLEAR: so many
// zeros are written while the windows are counted, and the grid need not meet again for them.

#include "bcsr_arguments.cuh"
#include "convert_arguments.cuh"
#include "grid_meeting.cuh"
#include "wcsr_arguments.cuh"
#include "window_arguments.cuh"
#include "window_bits.cuh"

constexpr int THREADS = 1024;  // of the one block on an SM: some windows have most of A
constexpr int BATCH = 4;       // entries of a thread that are on their way together
constexpr int MOST_ROWS = 256;
constexpr int STEP_VALUES = 64 * 16;  // of 64 rows in one step
constexpr int CORE_MATRIX = 8 * 8;

// Sum of the values that threads before this one have, and of all of them.
template <class Number>
__device__ __forceinline__ Number sum_before(Number value, Number& total) {
  constexpr int WARPS = THREADS / WARP_THREADS;
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

__device__ __forceinline__ int32_t padded(const ConvertArguments& g, int32_t count) {
  return (count + g.padded_to - 1) / g.padded_to * g.padded_to;
}

// The sums of all windows' columns, by one thread block.
__device__ __forceinline__ void write_pointer(const ConvertArguments& g) {
  const int32_t part = (g.windows + THREADS - 1) / THREADS;
  const int32_t first = threadIdx.x * part;
  const int32_t last = first + part < g.windows ? first + part : g.windows;
  int64_t own = 0;
#pragma unroll 4
  for (int32_t window = first; window < last; ++window) own += padded(g, g.counts[window]);
  int64_t total;
  int64_t before = sum_before(own, total);
#pragma unroll 4
  for (int32_t window = first; window < last; ++window) {
    g.pointer[window] = before;
    before += padded(g, g.counts[window]);
  }
  if (threadIdx.x == 0) g.pointer[g.windows] = total;
}

// The same to the host, by the same block: neighbours together, since each write crosses PCIe.
__device__ __forceinline__ void write_letter(const ConvertArguments& g) {
  for (int32_t window = threadIdx.x; window <= g.windows; window += THREADS)
    g.letter[1 + window] = g.pointer[window];
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) *static_cast<volatile int64_t*>(g.letter) = g.ticket;
}

// Calls visit(entry, is there, column, value) for the entries of a window, by whole warps. The next
// ones are read before: a window with a long row is a long way for one block.
template <class Visit>
__device__ __forceinline__ void for_entries(const ConvertArguments& g, uint32_t begin, uint32_t end,
                                            Visit visit) {
  const auto read = [&](uint32_t first, int32_t (&columns)[BATCH], uint16_t (&values)[BATCH]) {
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const uint32_t entry = first + i * THREADS;
      columns[i] = entry < end ? __ldg(g.indices + entry) : 0;
      values[i] = entry < end ? __ldg(g.values + entry) : 0;
    }
  };
  const uint32_t lane = threadIdx.x % WARP_THREADS;
  int32_t columns[BATCH], next_columns[BATCH];
  uint16_t values[BATCH], next_values[BATCH];
  read(begin + threadIdx.x, columns, values);
  for (uint32_t first = begin + threadIdx.x; first - lane < end; first += BATCH * THREADS) {
    read(first + BATCH * THREADS, next_columns, next_values);
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const uint32_t entry = first + i * THREADS;
      visit(static_cast<int32_t>(entry), entry < end, columns[i], values[i]);
      columns[i] = next_columns[i];
      values[i] = next_values[i];
    }
  }
}

// Counts the columns of a window and ranks its entries.
__device__ __forceinline__ void count_window(const ConvertArguments& g, int32_t window) {
  extern __shared__ uint32_t dynamic_shared[];
  __shared__ int32_t row_begins[MOST_ROWS + 1];
  const int32_t words = g.columns_at_once / 32;
  uint32_t* const bits = dynamic_shared;
  uint32_t* const before = bits + words;  // columns in the words before
  const int32_t first_row = window * g.height;
  const int32_t rows = g.m - first_row < g.height ? g.m - first_row : g.height;
  for (int32_t row = threadIdx.x; row <= rows; row += THREADS)
    row_begins[row] = __ldg(g.indptr + first_row + row);
  __syncthreads();
  const int32_t begin = row_begins[0];
  const int32_t end = row_begins[rows];
  // Odd, so that the parts of the threads begin in different banks.
  const int32_t part = (words + THREADS - 1) / THREADS | 1;
  const int32_t part_begin = threadIdx.x * part < words ? threadIdx.x * part : words;
  const int32_t part_end = part_begin + part < words ? part_begin + part : words;

  int32_t found = 0;
  const uint32_t at_once = g.columns_at_once;
  for (uint32_t low = 0; low < static_cast<uint32_t>(g.columns_of_a); low += at_once) {
    for (int32_t word = threadIdx.x; word < words; word += THREADS) bits[word] = 0;
    __syncthreads();
    for_entries(g, begin, end, [&](int32_t, bool is_there, int32_t index, uint16_t value) {
      const uint32_t column = (index >> g.column_shift) - low;  // what is below is above then
      const bool counts = is_there && column < at_once && !is_zero(value);
      set_bits(bits, counts, counts ? column : 0);
    });
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
    for_entries(g, begin, end, [&](int32_t entry, bool is_there, int32_t index, uint16_t value) {
      const int32_t row = first_row + find_row(row_begins, rows, entry);
      const int32_t key = index >> g.column_shift;
      const uint32_t column = key - low;
      if (!is_there || column >= at_once) return;
      if (is_zero(value)) {
        g.ranks[entry] = -1;
        return;
      }
      const uint32_t lower = bits[column / 32] & ((1u << (column % 32)) - 1);
      const auto rank = static_cast<int32_t>(before[column / 32]) + __popc(lower);
      g.ranks[entry] = rank;
      g.columns[begin + rank] = key;  // by all entries of the column alike
      g.rows[entry] = row;
    });
    found += total;
    __syncthreads();
  }
  if (threadIdx.x == 0) g.counts[window] = found;
}

// Zeros for the values, by all blocks.
__device__ __forceinline__ void clear(const ConvertArguments& g, int64_t values) {
  constexpr int EIGHT = 8;  // values of a store
  const int64_t end = values / EIGHT;
  const int64_t step = int64_t{gridDim.x} * THREADS;
#pragma unroll 4
  for (int64_t i = blockIdx.x * THREADS + threadIdx.x; i < end; i += step)
    reinterpret_cast<uint4*>(g.stored)[i] = make_uint4(0, 0, 0, 0);
}

// Where the value of a stored column and a row of its window lies.
__device__ __forceinline__ int64_t place_of(const ConvertArguments& g, int64_t slot, int32_t row,
                                            int32_t index) {
  if (g.column_shift != 0) return (slot * BLOCK + row) * BLOCK + index % BLOCK;
  // Core matrices: [16 columns][64 rows][8 columns][8 rows][row][column].
  const int64_t step = slot / STEP_COLUMNS * (g.height / 64) + row / 64;
  const auto column = static_cast<int32_t>(slot % STEP_COLUMNS);
  return step * STEP_VALUES + column / 8 * (STEP_VALUES / 2) + row % 64 / 8 * CORE_MATRIX +
         row % 8 * 8 + column % 8;
}

__device__ __forceinline__ void place_entries(const ConvertArguments& g, uint32_t first,
                                              uint32_t end) {
  const int32_t height_shift = 31 - __clz(g.height);  // a power of two
  int32_t ranks[BATCH], rows[BATCH], columns[BATCH];
  uint16_t values[BATCH];
#pragma unroll
  for (int i = 0; i < BATCH; ++i) {
    const uint32_t entry = first + i * THREADS;
    ranks[i] = -1;
    if (entry >= end) continue;
    ranks[i] = g.ranks[entry];
    rows[i] = g.rows[entry];
    columns[i] = __ldg(g.indices + entry);
    values[i] = __ldg(g.values + entry);
  }
#pragma unroll
  for (int i = 0; i < BATCH; ++i) {
    if (ranks[i] < 0) continue;
    const int64_t slot = g.pointer[rows[i] >> height_shift] + ranks[i];
    g.stored[place_of(g, slot, rows[i] & (g.height - 1), columns[i])] = values[i];
  }
}

// The index of a window's stored columns.
__device__ __forceinline__ void place_columns(const ConvertArguments& g, int32_t window) {
  const int32_t count = g.counts[window];
  const int32_t* const columns = g.columns + __ldg(g.indptr + int64_t{window} * g.height);
  int32_t* const index = g.column_index + g.pointer[window];
  const int32_t stored = padded(g, count);
#pragma unroll 4
  for (int32_t rank = threadIdx.x; rank < stored; rank += THREADS)
    index[rank] = rank < count ? columns[rank] : -1;
}

// A window as tasks, longest first: pieces of the limit in the order of the windows, then what is
// left of each, in the order of its length. A warp a window; where its tasks go is counted over all
// windows, which is quadratic in their number, and little beside the rest for all but huge ones.
__device__ __forceinline__ void place_tasks(const ConvertArguments& g, int32_t first_window) {
  constexpr int OTHERS = 512;
  __shared__ int2 others[OTHERS];  // whole pieces, and what is left; -1: nothing
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
  const int64_t begin = there ? g.pointer[window] : 0;
  const int32_t first_entry = there ? __ldg(g.indptr + int64_t{window} * g.height) : 0;
  int32_t whole_before = 0;
  int32_t wholes = 0;
  int32_t longer = 0;
  int32_t split_before = 0;
  int32_t slots_before = 0;
  for (int32_t first = 0; first < g.windows; first += OTHERS) {
    const int32_t mine = first + threadIdx.x;
    __syncthreads();
    if (threadIdx.x < OTHERS)
      others[threadIdx.x] = mine < g.windows ? pieces_of(mine) : make_int2(0, -1);
    __syncthreads();
    const int32_t count = g.windows - first < OTHERS ? g.windows - first : OTHERS;
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
  const auto place_of_piece = [&](int32_t piece) {
    return int64_t{piece < own.x ? whole_before + piece : wholes + longer};
  };
  for (int32_t piece = lane; piece < pieces; piece += WARP_THREADS) {
    const int64_t place = place_of_piece(piece);
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
  const int32_t* const columns = g.columns + first_entry;
  const int32_t count = g.counts[window];
  for (int32_t piece = 0; piece < pieces; ++piece) {
    const int32_t first = piece * g.task_limit;
    const int32_t length = piece < own.x ? g.task_limit : own.y;
    const int32_t last = first + length < count ? first + length : count;
    int32_t* const leading = g.leading_indices + place_of_piece(piece) * LEADING;
#pragma unroll
    for (int32_t i = lane; i < LEADING; i += WARP_THREADS)
      leading[i] = first + i < last ? columns[first + i] : -1;
  }
}

__device__ __forceinline__ void fill(const ConvertArguments& g, Meetings& meetings,
                                     uint32_t entries) {
  constexpr int WARPS = THREADS / WARP_THREADS;
  const int32_t columns_from = (g.windows + WARPS - 1) / WARPS;
  for (int32_t part = blockIdx.x; part < columns_from + g.windows; part += gridDim.x) {
    if (part < columns_from) {
      place_tasks(g, part * WARPS);
    } else {
      place_columns(g, part - columns_from);
    }
  }
  if ((g.phases & CLEAR) == 0) {
    // A tensor map needs a block, even where there is none.
    const int64_t columns = g.pointer[g.windows];
    clear(g, g.column_shift != 0 ? max(columns, int64_t{1}) * BLOCK * BLOCK : columns * g.height);
    if (meetings.arrive()) {
      meetings.let_go();
    } else {
      meetings.wait();
    }
  }
  // The last blocks first: those before have had tasks and columns to place.
  for (uint32_t first = (gridDim.x - 1 - blockIdx.x) * (BATCH * THREADS); first < entries;
       first += gridDim.x * (BATCH * THREADS))
    place_entries(g, first + threadIdx.x, entries);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    convert_csr(const __grid_constant__ ConvertArguments g) {
  Meetings meetings(g.meetings);
  const auto entries = static_cast<uint32_t>(__ldg(g.indptr + g.m));
  if ((g.phases & COUNT) != 0) {
    for (int32_t window = blockIdx.x; window < g.windows; window += gridDim.x)
      count_window(g, window);
    if ((g.phases & CLEAR) != 0) clear(g, g.most_values);
    if (meetings.arrive()) {
      write_pointer(g);
      meetings.let_go();
      write_letter(g);
    } else if ((g.phases & FILL) != 0) {
      meetings.wait();
    }
  }
  if ((g.phases & FILL) != 0) fill(g, meetings, entries);
}
