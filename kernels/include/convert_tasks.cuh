// The tasks of windows that were counted, by a thread block of convert.cu.
#pragma once

#include "bcsr_arguments.cuh"
#include "convert_share.cuh"
#include "window_arguments.cuh"

__device__ __forceinline__ int32_t padded(const ConvertArguments& g, int32_t count) {
  return (count + g.padded_to - 1) / g.padded_to * g.padded_to;
}

// The pieces of a window, and where their tasks are.
struct Pieces {
  int64_t begin;  // in stored columns
  int32_t whole;  // of the limit
  int32_t count;
  int32_t first_place;
  int32_t last_place;   // of what is left
  int32_t last_length;  // none if negative
};

// The columns of A of the first stored ones of a piece, by a warp.
__device__ __forceinline__ void place_leading(const ConvertArguments& g, const Pieces& pieces,
                                              int32_t piece) {
  const bool is_whole = piece < pieces.whole;
  const int32_t limit = g.counts[g.windows];
  const int32_t* const columns = g.column_index + pieces.begin + int64_t{piece} * limit;
  const int32_t length = is_whole ? limit : pieces.last_length;
  const int64_t place = is_whole ? pieces.first_place + piece : pieces.last_place;
#pragma unroll
  for (int32_t i = threadIdx.x % WARP_THREADS; i < LEADING; i += WARP_THREADS)
    g.leading_indices[place * LEADING + i] = i < length ? columns[i] : -1;
}

// Windows as tasks, longest first: pieces of the limit in the order of the windows, then what is
// left of each, in the order of its length. A warp a window; where its tasks go is counted over all
// windows, which is quadratic in their number, and little beside the rest for all but huge ones.
// The columns of the windows have been written by this block.
__device__ __forceinline__ void place_tasks(const ConvertArguments& g, int32_t first_window,
                                            int32_t end_window) {
  constexpr int OTHERS = 512;
  __shared__ int2 others[OTHERS];  // whole pieces, and what is left; -1: nothing
  const int32_t limit = g.counts[g.windows];
  const auto pieces_of = [&](int32_t w) {
    const int32_t count = padded(g, g.counts[w]);
    const int32_t whole = count / limit;
    const int32_t left = count - whole * limit;
    return make_int2(whole, left == 0 && whole != 0 ? -1 : left);
  };
  const int32_t lane = threadIdx.x % WARP_THREADS;
  const int32_t window = first_window + threadIdx.x / WARP_THREADS;
  const bool there = window < end_window;
  const int2 own = there ? pieces_of(window) : make_int2(0, 0);
  const int64_t begin = there ? g.pointer[window] : 0;
  int32_t whole_before = 0;
  int32_t wholes = 0;
  int32_t longer = 0;
  int32_t slots_before = 0;
  for (int32_t first = 0; first < g.windows; first += OTHERS) {
    const int32_t count = min(g.windows - first, OTHERS);
    __syncthreads();
    for (int32_t i = threadIdx.x; i < count; i += THREADS) others[i] = pieces_of(first + i);
    __syncthreads();
    for (int32_t i = lane; i < count; i += WARP_THREADS) {
      const int2 other = others[i];
      const bool earlier = first + i < window;
      wholes += other.x;
      if (earlier) {
        whole_before += other.x;
        const int32_t pieces = other.x + (other.y >= 0);
        slots_before += pieces == 1 ? 0 : g.deterministic ? pieces : 1;
      }
      longer += other.y > own.y || (other.y == own.y && earlier);
    }
  }
  const auto over_lanes = [](int32_t own_sum) { return __reduce_add_sync(0xffffffffu, own_sum); };
  whole_before = over_lanes(whole_before);
  wholes = over_lanes(wholes);
  longer = over_lanes(longer);
  slots_before = over_lanes(slots_before);
  const int32_t pieces = there ? own.x + (own.y >= 0) : 0;
  for (int32_t piece = lane; piece < pieces; piece += WARP_THREADS) {
    const int64_t place = piece < own.x ? whole_before + piece : wholes + longer;
    const int64_t first = begin + int64_t{piece} * limit;
    const int32_t length = piece < own.x ? limit : own.y;
    if (g.column_shift != 0)
      static_cast<BlockRowTask*>(g.tasks)[place] = {first, length, window};
    else
      static_cast<WindowTask*>(g.tasks)[place] = {
          first, window, length, pieces, piece, pieces > 1 ? slots_before : -1, 0};
  }
  if (g.column_shift != 0) return;
  __shared__ Pieces cuts[THREADS / WARP_THREADS];
  const int32_t warp = threadIdx.x / WARP_THREADS;
  if (lane == 0) cuts[warp] = {begin, own.x, pieces, whole_before, wholes + longer, own.y};
  if (__syncthreads_or(pieces > 1) == 0) {
    if (there) place_leading(g, cuts[warp], 0);
    return;
  }
  // The pieces of a window go round the warps, since one may have many.
  constexpr int WARPS = THREADS / WARP_THREADS;
  for (int32_t i = 0; i < WARPS; ++i)
    for (int32_t piece = (warp - i + WARPS) % WARPS; piece < cuts[i].count; piece += WARPS)
      place_leading(g, cuts[i], piece);
}
