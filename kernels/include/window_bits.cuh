// The columns of windows as bits in shared memory, and the row of an entry: what whole warps of
// convert.cu do for their entries.
#pragma once

#include "types.cuh"

__device__ __forceinline__ bool is_zero(uint16_t bits) {
  return (bits & 0x7fffu) == 0;
}

// Sets a bit of each lane that wants to. Lanes whose bits are in one word would take turns, as in
// rows whose columns are neighbours: they join theirs.
__device__ __forceinline__ void set_bits(uint32_t* bits, bool wants, uint32_t column) {
  const uint32_t word = column / 32;
  const uint32_t bit = 1u << (column % 32);
  // Most columns are there already where the rows of a window are alike.
  wants = wants && (*static_cast<volatile uint32_t*>(&bits[word]) & bit) == 0;
  uint32_t waiting = __ballot_sync(~0u, wants);
  if (waiting == 0) return;
  const uint32_t lane = threadIdx.x % WARP_THREADS;
  const bool is_alike = __shfl_up_sync(~0u, word, 1) == word;
  if (__popc(__ballot_sync(~0u, is_alike)) >= WARP_THREADS / 2) {
#pragma unroll
    for (int turn = 0; turn < 2; ++turn) {
      if (waiting == 0) return;
      const int leader = __ffs(static_cast<int>(waiting)) - 1;
      const uint32_t of_leader = __shfl_sync(~0u, word, leader);
      const bool joins = wants && word == of_leader;
      const uint32_t joined = __reduce_or_sync(~0u, joins ? bit : 0);
      if (lane == leader) atomicOr(&bits[word], joined);
      wants = wants && !joins;
      waiting = __ballot_sync(~0u, wants);
    }
  }
  if (wants) atomicOr(&bits[word], bit);
}

// Of parts that begin in order, `stride` apart in memory, the last one of `count` from `first` on
// that begins at a place or before: by a whole warp, for the place of its first lane.
__device__ __forceinline__ int32_t last_begun(const int32_t* begins, int32_t stride, int32_t first,
                                              int32_t count, int32_t place) {
  const int32_t lane = threadIdx.x % WARP_THREADS;
  const int32_t of_first = place - lane;
  int32_t part = first - 1;
  for (int32_t i = lane; i - lane < count; i += WARP_THREADS) {
    const bool has_begun = i < count && begins[(first + i) * stride] <= of_first;
    part += __popc(__ballot_sync(~0u, has_begun));
  }
  return part;
}

// The one of `count` parts that has a place, from one at or before it on. The places of a warp's
// lanes are neighbours.
__device__ __forceinline__ int32_t walk(const int32_t* begins, int32_t stride, int32_t part,
                                        int32_t count, int32_t place) {
  while (part + 1 < count && begins[(part + 1) * stride] <= place) ++part;
  return part;
}
