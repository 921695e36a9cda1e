// CSR to BCSR or WCSR in device memory, in one cooperative launch.
//
//   Count: a thread block has a part of A, and finds which columns its windows have, as bits in
//   shared memory; the bits before one's own are the rank of a column. The block that comes last
//   adds up the windows, and writes the sums to the host too, which needs the sizes.
//   Fill: zeros for the values; the columns of the windows; every entry to its place; the windows
//   as tasks, longest first. The bits are still there where they all fit.
//
// Nobody knows before how much memory A takes. There is some, and where it does not suffice all is
// counted alone; the host launches again, with as much as is needed. Where the most that A can take
// is little, so many zeros are written at the beginning, and the grid need not meet again for them.

#include "convert_share.cuh"
#include "convert_tasks.cuh"
#include "wcsr_arguments.cuh"

constexpr int BATCH = 4;              // entries of a thread that are on their way together
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

// The sums of all windows' columns, and where they are cut, by one thread block; neighbours write
// to neighbours, since what the host gets crosses PCIe.
__device__ __forceinline__ void write_pointer(const ConvertArguments& g) {
  const auto write = [&](int32_t window, int64_t columns_before) {
    g.pointer[window] = columns_before;
    if (g.letter != nullptr) g.letter[2 + window] = columns_before;
  };
  int64_t before = 0;
  int64_t longest = 0;
  for (int32_t first = 0; first < g.windows; first += THREADS) {
    const int32_t window = first + threadIdx.x;
    const bool is_there = window < g.windows;
    int64_t total;
    const int64_t own = is_there ? padded(g, g.counts[window]) : 0;
    longest = max(longest, own);
    const int64_t in_round = sum_before(own, total);
    if (is_there) write(window, before + in_round);
    before += total;
  }
  int64_t limit = max(before * g.column_tiles / g.places, int64_t{g.least_piece});
  limit = (limit + g.padded_to - 1) / g.padded_to * g.padded_to;
  const bool is_cut = __syncthreads_or(2 * longest > 3 * limit) != 0 || g.column_tiles == 0;
  if (threadIdx.x != 0) return;
  write(g.windows, before);
  g.counts[g.windows] = is_cut ? static_cast<int32_t>(limit) : WHOLE;
}

// Tells the host that the sums are there, by the same block after a barrier.
__device__ __forceinline__ void send_letter(const ConvertArguments& g) {
  if (threadIdx.x != 0 || g.letter == nullptr) return;
  g.letter[1] = g.counts[g.windows];
  __threadfence_system();
  *static_cast<volatile int64_t*>(g.letter) = g.ticket;
}

// Calls visit(is there, part, column, value) for entries, by whole warps. A warp takes neighbours:
// which part, a row or a window, has the first one it asks find(entry); the others are near. The
// next entries are read before.
template <class Find, class Walk, class Visit>
__device__ __forceinline__ void for_entries(const ConvertArguments& g, uint32_t begin, uint32_t end,
                                            Find find, Walk walk_on, Visit visit) {
  const auto read = [&](uint32_t first, int32_t (&columns)[BATCH], uint16_t (&values)[BATCH]) {
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const uint32_t entry = first + i * WARP_THREADS;
      columns[i] = entry < end ? __ldg(g.indices + entry) : 0;
      values[i] = entry < end ? __ldg(g.values + entry) : 0;
    }
  };
  const uint32_t lane = threadIdx.x % WARP_THREADS;
  int32_t columns[BATCH], next_columns[BATCH];
  uint16_t values[BATCH], next_values[BATCH];
  uint32_t first = begin + (threadIdx.x - lane) * BATCH + lane;
  read(first, columns, values);
  for (; first - lane < end; first += BATCH * THREADS) {
    read(first + BATCH * THREADS, next_columns, next_values);
    int32_t part = find(static_cast<int32_t>(first));
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const uint32_t entry = first + i * WARP_THREADS;
      part = walk_on(part, static_cast<int32_t>(min(entry, end - 1)));
      visit(entry < end, part, columns[i], values[i]);
      columns[i] = next_columns[i];
      values[i] = next_values[i];
    }
  }
}

// The bits of a group, and how many there are before each word.
struct Bits {
  uint32_t* words;
  int32_t* before;

  __device__ __forceinline__ explicit Bits(const ConvertArguments& g) {
    extern __shared__ uint32_t dynamic_shared[];
    words = dynamic_shared;
    before = reinterpret_cast<int32_t*>(words + g.words_at_once);
  }
};

// Sets the bits of this block's entries.
__device__ __forceinline__ void collect(const ConvertArguments& g, const Group& group,
                                        const Extent& extent, const Bits& bits) {
  const int32_t words = group.word_begins[extent.windows];
  for (int32_t word = threadIdx.x; word < words; word += THREADS) bits.words[word] = 0;
  __syncthreads();
  const auto find = [&](int32_t entry) {
    return last_begun(group.row_begins, g.height, 0, extent.windows, entry);
  };
  const auto walk_on = [&](int32_t window, int32_t entry) {
    return walk(group.row_begins, g.height, window, extent.windows, entry);
  };
  for_entries(g, extent.begin, extent.end, find, walk_on,
              [&](bool is_there, int32_t window, int32_t index, uint16_t value) {
                const Span span = group.spans[window];
                const uint32_t column = (index >> g.column_shift) - span.low;
                const bool counts = is_there && column < span.columns && !is_zero(value);
                set_bits(bits.words, counts, counts ? span.first + column : 0);
              });
  __syncthreads();
}

// Counts the bits before each word.
__device__ __forceinline__ void rank_words(int32_t words, const Bits& bits) {
  // Odd, so that the parts of the threads begin in different banks.
  const int32_t part = (words + THREADS - 1) / THREADS | 1;
  const int32_t begin = min(static_cast<int32_t>(threadIdx.x) * part, words);
  const int32_t end = min(begin + part, words);
  int32_t own = 0;
  for (int32_t word = begin; word < end; ++word) own += __popc(bits.words[word]);
  int32_t total;
  int32_t sum = sum_before(own, total);
  for (int32_t word = begin; word < end; ++word) {
    bits.before[word] = sum;
    sum += __popc(bits.words[word]);
  }
  if (threadIdx.x == 0) bits.before[words] = total;
  __syncthreads();
}

// Calls visit(extent, pass) for the windows of a block, as many at once as fit, when their bits
// have been set by its own entries; they may be from an earlier call. True if one call was for all
// of them: the bits stay then.
template <class Visit>
__device__ __forceinline__ bool for_groups(const ConvertArguments& g, const Share& share,
                                           bool are_there, Group& group, const Bits& bits,
                                           Visit visit) {
  bool is_one = true;
  for (int32_t first = share.first; first < share.end;) {
    const Extent extent = are_there ? all_of(g, share) : lay_out(g, share, group, first);
    const int32_t low = group.low_words[0];
    const int32_t words = group.word_begins[1];
    for (int32_t pass = 0; pass < extent.passes; ++pass) {
      if (extent.passes > 1) {
        __syncthreads();
        if (threadIdx.x == 0) {
          group.low_words[0] = low + pass * g.words_at_once;
          group.word_begins[1] = min(g.words_at_once, words - pass * g.words_at_once);
          group.set_span(0);
        }
        __syncthreads();
      }
      if (!are_there) collect(g, group, extent, bits);
      visit(extent, pass);
    }
    is_one = is_one && extent.passes == 1 && extent.windows == share.end - share.first;
    first += extent.windows;
  }
  return is_one;
}

// Counts the columns of a group's windows. Those of a window that blocks share are counted by the
// last of them.
__device__ __forceinline__ void count_columns(const ConvertArguments& g, const Group& group,
                                              const Extent& extent, int32_t pass,
                                              const Bits& bits) {
  rank_words(group.word_begins[extent.windows], bits);
  if (threadIdx.x < extent.windows) {
    const int32_t window = threadIdx.x;
    const int32_t found =
        bits.before[group.word_begins[window + 1]] - bits.before[group.word_begins[window]];
    int32_t& count = g.counts[extent.first + window];
    if (!Own(g, group, extent, window).is_shared()) count = pass == 0 ? found : count + found;
  }
  for_shared(g, group, extent, [&](int32_t window, const Own& own) {
    const Common common = common_of(g, extent.first + window);
    const int32_t begin = group.word_begins[window];
    const int32_t words = group.word_begins[window + 1] - begin;
    for (int32_t word = threadIdx.x; word < words; word += THREADS)
      if (const uint32_t found = bits.words[begin + word]; found != 0)
        atomicOr(common.bits + group.low_words[window] + word, found);
    if (pass + 1 < extent.passes) return;
    if (!is_last_to_come(common.come, own.end - own.begin, own.entries)) return;
    int32_t found = 0;
    for (int32_t word = threadIdx.x; word < g.words; word += THREADS)
      found += __popc(__ldcg(common.bits + word));
    int32_t total;
    sum_before(found, total);
    if (threadIdx.x == 0) g.counts[extent.first + window] = total;
  });
}

// Zeros for the values of so many columns, by all blocks.
__device__ __forceinline__ void clear(const ConvertArguments& g, int64_t columns) {
  constexpr int EIGHT = 8;  // values of a store
  const int64_t end = columns * (g.height << g.column_shift) / EIGHT;
  const int64_t step = int64_t{gridDim.x} * THREADS;
#pragma unroll 4
  for (int64_t i = blockIdx.x * THREADS + threadIdx.x; i < end; i += step)
    reinterpret_cast<uint4*>(g.stored)[i] = make_uint4(0, 0, 0, 0);
}

// The columns of 32 words of bits, a lane a word, by a warp.
__device__ __forceinline__ void write_columns(uint32_t own, int32_t* index, int32_t column) {
  constexpr int MANY = 4 * WARP_THREADS;
  if (__reduce_add_sync(~0u, __popc(own)) < MANY) {
    for (; own != 0; own &= own - 1) *index++ = column + __ffs(static_cast<int>(own)) - 1;
    return;
  }
  // A word at a time, so that lanes write to neighbours.
  const int32_t lane = threadIdx.x % WARP_THREADS;
  for (int32_t i = 0; i < WARP_THREADS; ++i) {
    const uint32_t word = __shfl_sync(~0u, own, i);
    auto* const begin = reinterpret_cast<int32_t*>(
        __shfl_sync(~0u, reinterpret_cast<unsigned long long>(index), i));
    const int32_t first = __shfl_sync(~0u, column, i);
    if ((word >> lane & 1) != 0) begin[__popc(word & ((1u << lane) - 1))] = first + lane;
  }
}

// The index of the stored columns of the windows whose first entry this block has.
__device__ __forceinline__ void place_columns(const ConvertArguments& g, const Group& group,
                                              const Extent& extent, bool is_last_pass,
                                              const Bits& bits) {
  const int32_t lane = threadIdx.x % WARP_THREADS;
  const int32_t words = group.word_begins[extent.windows];
  for (int32_t word = threadIdx.x; word - lane < words; word += THREADS) {
    const int32_t window =
        walk(group.word_begins, 1, last_begun(group.word_begins, 1, 0, extent.windows, word),
             extent.windows, word);
    const bool is_own = word < words && Own(g, group, extent, window).is_first;
    const int32_t before = is_own ? bits.before[word] : 0;
    write_columns(is_own ? bits.words[word] : 0,
                  g.column_index + group.slot_begins[window] + before,
                  32 * (group.low_words[window] + word - group.word_begins[window]));
  }
  if (!is_last_pass) return;
  for (int32_t i = threadIdx.x; i < extent.windows * g.padded_to; i += THREADS) {
    const int32_t window = i / g.padded_to;
    if (!Own(g, group, extent, window).is_first) continue;
    const int32_t count = g.counts[extent.first + window];
    const int32_t rank = count + i % g.padded_to;
    if (rank < padded(g, count)) g.column_index[g.pointer[extent.first + window] + rank] = -1;
  }
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

__device__ __forceinline__ void place_entries(const ConvertArguments& g, const Group& group,
                                              const Extent& extent, const Bits& bits) {
  const int32_t height_shift = 31 - __clz(g.height);  // a power of two
  const auto find = [&](int32_t entry) {
    const int32_t near = last_begun(group.row_begins, g.height, 0, extent.windows, entry)
                         << height_shift;
    return last_begun(group.row_begins, 1, near, min(g.height, extent.rows - near), entry);
  };
  const auto walk_on = [&](int32_t row, int32_t entry) {
    return walk(group.row_begins, 1, row, extent.rows, entry);
  };
  for_entries(g, extent.begin, extent.end, find, walk_on,
              [&](bool is_there, int32_t row, int32_t index, uint16_t value) {
                const Span span = group.spans[row >> height_shift];
                const uint32_t column = (index >> g.column_shift) - span.low;
                if (!is_there || column >= span.columns || is_zero(value)) return;
                const uint32_t bit = span.first + column;
                const uint32_t lower = bits.words[bit / 32] & ((1u << (bit % 32)) - 1);
                const int64_t slot = group.slot_begins[row >> height_shift] +
                                     (bits.before[bit / 32] + __popc(lower));
                g.stored[place_of(g, slot, row & (g.height - 1), index)] = value;
              });
}

// Writes a group's columns and values, whose bits are there as far as they are this block's.
__device__ __forceinline__ void fill_group(const ConvertArguments& g, Group& group,
                                           const Extent& extent, int32_t pass, bool is_ranked,
                                           int32_t& found, const Bits& bits, Meetings& meetings,
                                           bool& must_wait) {
  for_shared(g, group, extent, [&](int32_t window, const Own&) {
    const uint32_t* const all = common_of(g, extent.first + window).bits + group.low_words[window];
    const int32_t begin = group.word_begins[window];
    const int32_t words = group.word_begins[window + 1] - begin;
    for (int32_t word = threadIdx.x; word < words; word += THREADS)
      bits.words[begin + word] = __ldcg(all + word);
    is_ranked = false;
  });
  __syncthreads();
  const int32_t words = group.word_begins[extent.windows];
  if (!is_ranked) rank_words(words, bits);
  if (pass == 0) found = 0;
  if (threadIdx.x < extent.windows)
    group.slot_begins[threadIdx.x] =
        g.pointer[extent.first + threadIdx.x] + found - bits.before[group.word_begins[threadIdx.x]];
  found += bits.before[words];
  __syncthreads();
  const bool is_last_pass = pass + 1 == extent.passes;
  place_columns(g, group, extent, is_last_pass, bits);
  if (must_wait) meetings.wait();  // for the zeros
  must_wait = false;
  place_entries(g, group, extent, bits);
  if (!is_last_pass) return;
  for_shared(g, group, extent, [&](int32_t window, const Own& own) {
    const Common common = common_of(g, extent.first + window);
    if (!is_last_to_come(common.gone, own.end - own.begin, own.entries)) return;
    common.forget(g);
  });
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    convert_csr(const __grid_constant__ ConvertArguments g) {
  constexpr int WARPS = THREADS / WARP_THREADS;
  __shared__ Group group;
  const Bits bits(g);
  Meetings meetings(g.meetings);
  if (g.is_cleared != 0) clear(g, g.capacity);
  const Share share = share_of_block(g);
  prefetch(g, share);
  const bool is_counted =  // with the bits still there
      for_groups(g, share, false, group, bits, [&](const Extent& extent, int32_t pass) {
        count_columns(g, group, extent, pass, bits);
      });
  if (meetings.arrive()) {
    write_pointer(g);
    meetings.let_go();
    send_letter(g);
  } else {
    meetings.wait();
  }
  const int64_t columns = g.pointer[g.windows];
  if (columns > g.capacity) {
    Common(g, blockIdx.x).forget(g);
    return;
  }
  bool must_wait = false;
  if (g.is_cleared == 0) {
    // A tensor map needs a block, even where there is none.
    clear(g, g.column_shift != 0 ? max(columns, int64_t{1}) : columns);
    must_wait = !meetings.arrive();
    if (!must_wait) meetings.let_go();
  }
  if (share.first == share.end) return;
  int32_t found = 0;  // columns of a window in the passes before
  for_groups(g, share, is_counted, group, bits, [&](const Extent& extent, int32_t pass) {
    fill_group(g, group, extent, pass, is_counted, found, bits, meetings, must_wait);
  });
  __syncthreads();
  // The tasks of the windows whose first entry this block has.
  const int32_t first = share.first + (share.first_entry > first_entry_of(g, share.first));
  for (int32_t window = first; window < share.end; window += WARPS)
    place_tasks(g, window, min(window + WARPS, share.end));
}
