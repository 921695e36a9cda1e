// A warp's share of A and A' as one endless stream through a ring in shared memory.
//
// A warp multiplies slices that follow each other, so its columns and its values are two stretches
// of memory. They come in chunks of CHUNK_STEPS steps by bulk copies, whose completion an mbarrier
// per chunk counts (PTX ISA, "cp.async.bulk"; compute capability 9.0). After A's last chunk comes
// the first one of A', and so on: the matrix does not depend on the vectors, so memory goes on
// delivering while the grid exchanges sums. A ring of 190 KB in each SM is more than the
// 40 KB that must be in flight for 4.2 TB/s at a microsecond's latency; loads by threads, whose
// registers hold what is in flight, reach a half of that.
#pragma once

#include "lsmr_product.cuh"
#include "mbarrier.cuh"

constexpr uint32_t CHUNK_STEPS = RING_STEPS < 32 ? 8 : 16;
constexpr uint32_t CHUNKS = RING_STEPS / CHUNK_STEPS;
constexpr uint32_t STEP_BYTES = WARP_THREADS * (sizeof(int32_t) + sizeof(Real));
constexpr int32_t ROWS_AHEAD = 1024;  // of the vectors that a warp owns, asked into the L2 cache
static_assert((CHUNKS & (CHUNKS - 1)) == 0 && CHUNKS >= 2 && RHS == 1 && TOGETHER == 1);
// A slice begins anywhere in a chunk.
static_assert(RING_STEPS >= MANY_STEPS + CHUNK_STEPS);

// The lines of the matrix make room first, so that the vectors stay in the L2 cache.
__device__ __forceinline__ uint64_t evict_first() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ void bulk_load(void* target, const void* source, uint32_t bytes,
                                          uint64_t* barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(target)),
      "l"(source), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

// Ask for elements begin .. end of a vector that starts at a multiple of 16 bytes.
__device__ __forceinline__ void ask_ahead(const Real* vector, size_t begin, size_t end) {
  const size_t first = begin * sizeof(Real) / 16 * 16;
  const uint32_t bytes = static_cast<uint32_t>((end * sizeof(Real) + 15) / 16 * 16 - first);
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
                   reinterpret_cast<const char*>(vector) + first),
               "r"(bytes)
               : "memory");
}

// A warp's slices of one matrix.
struct Stretch {
  int32_t slice_begin, slice_end;
  int32_t row_begin, row_end;
  uint32_t step_begin, step_end;
};

// What a warp has in shared memory. Lane 0 alone uses `next` to `policy`.
struct alignas(16) Ring {
  Real values[RING_STEPS * WARP_THREADS];
  int32_t columns[RING_STEPS * WARP_THREADS];
  uint32_t head[2][WARP_THREADS];  // the first slices of both matrices, packed
  uint64_t full[CHUNKS];
  uint64_t policy;
  Stretch stretches[2];
  uint32_t next, end;  // the steps that are asked for next
  int32_t asked;       // and their matrix
};
static_assert(sizeof(Ring) == RING_BYTES);
enum { FORWARD = 0, ADJOINT = 1 };

// Rows, log2 of the lanes a row, and steps, 8 bits each.
__device__ __forceinline__ uint32_t packed_slice(const LsmrMatrix& matrix, int32_t slice,
                                                 int32_t end) {
  if (slice >= end) return 0;
  const int2 half = __ldg(reinterpret_cast<const int2*>(&matrix.slices[slice].steps));
  return uint32_t(half.y) | uint32_t(half.x) << 16;
}

__device__ __forceinline__ void find_stretch(const LsmrMatrix& matrix, int32_t part, int32_t lane,
                                             Stretch& stretch, uint32_t& head) {
  const int32_t begin = matrix.block_slices[part], end = matrix.block_slices[part + 1];
  head = packed_slice(matrix, begin + lane, end);
  if (lane != 0) return;
  stretch = {};
  if (begin == end) return;
  const Slice first = matrix.slices[begin], last = matrix.slices[end - 1];
  stretch = {begin,
             end,
             first.first_row,
             last.first_row + (last.rows_and_lanes & 0xff),
             first.first_step,
             last.first_step + last.steps};
}

struct Stream {  // all lanes of a warp hold the same
  Ring* ring;
  uint32_t chunk, offset;  // the step that is multiplied next
  uint32_t arrived;        // chunks so far

  __device__ __forceinline__ void begin(const LsmrArguments& g, char* memory, int32_t warp,
                                        int32_t lane) {
    ring = reinterpret_cast<Ring*>(memory) + warp;
    chunk = offset = arrived = 0;
    // The warps of a block are far apart in the matrix, so that its SM has rows of all kinds.
    const int32_t part = warp * gridDim.x + blockIdx.x;
    find_stretch(g.forward, part, lane, ring->stretches[FORWARD], ring->head[FORWARD][lane]);
    find_stretch(g.adjoint, part, lane, ring->stretches[ADJOINT], ring->head[ADJOINT][lane]);
    if (lane == 0) {
      ring->policy = evict_first();
      ring->next = ring->end = 0;
      ring->asked = ADJOINT;
      for (uint32_t slot = 0; slot < CHUNKS; ++slot) mbarrier_init(&ring->full[slot], 1);
      mbarrier_init_fence();
    }
    __syncwarp();
    if (lane == 0 && !is_empty()) {
      for (uint32_t slot = 0; slot < CHUNKS; ++slot) ask(g, slot);
    }
    __syncwarp();
  }

  __device__ __forceinline__ bool is_empty() const {
    return ring->stretches[FORWARD].step_begin == ring->stretches[FORWARD].step_end &&
           ring->stretches[ADJOINT].step_begin == ring->stretches[ADJOINT].step_end;
  }

  // Lane 0: the next chunk into a slot.
  __device__ __forceinline__ void ask(const LsmrArguments& g, uint32_t slot) {
    while (ring->next == ring->end) {
      ring->asked ^= 1;
      ring->next = ring->stretches[ring->asked].step_begin;
      ring->end = ring->stretches[ring->asked].step_end;
    }
    const uint32_t next = ring->next, steps = min(CHUNK_STEPS, ring->end - next);
    ring->next = next + steps;
    const uint32_t place = slot * CHUNK_STEPS * WARP_THREADS;
    const size_t first = size_t(next) * WARP_THREADS;
    const int32_t* columns = ring->asked == ADJOINT ? g.adjoint.columns : g.forward.columns;
    const Real* values = ring->asked == ADJOINT ? g.adjoint.values : g.forward.values;
    mbarrier_arrive_expect(&ring->full[slot], steps * STEP_BYTES);
    bulk_load(ring->columns + place, columns + first, steps * WARP_THREADS * sizeof(int32_t),
              &ring->full[slot], ring->policy);
    bulk_load(ring->values + place, values + first, steps * WARP_THREADS * sizeof(Real),
              &ring->full[slot], ring->policy);
  }

  // Wait until the next steps are there.
  __device__ __forceinline__ void await(uint32_t steps) {
    await_chunks(chunk + (offset + steps + CHUNK_STEPS - 1) / CHUNK_STEPS);
  }
  __device__ __forceinline__ void await_chunks(uint32_t count) {
    while (int32_t(count - arrived) > 0) {
      mbarrier_wait(&ring->full[arrived % CHUNKS], (arrived / CHUNKS) & 1);
      ++arrived;
    }
  }

  // The next steps, at most MANY_STEPS, were multiplied.
  __device__ __forceinline__ void advance(const LsmrArguments& g, uint32_t steps, int32_t lane) {
    offset += steps;
    if (offset >= CHUNK_STEPS) {
      free_chunk(g, lane);
      offset -= CHUNK_STEPS;
    }
  }
  // What follows the end of a matrix begins with a chunk.
  __device__ __forceinline__ void finish_matrix(const LsmrArguments& g, int32_t lane) {
    if (offset != 0) free_chunk(g, lane);
    offset = 0;
  }
  // All lanes have read a chunk: another may come into its slot.
  __device__ __forceinline__ void free_chunk(const LsmrArguments& g, int32_t lane) {
    __syncwarp();
    if (lane == 0) ask(g, chunk % CHUNKS);
    ++chunk;
  }

  // Nothing may arrive in the memory of a block that is gone.
  __device__ __forceinline__ void drain() {
    if (!is_empty()) await_chunks(chunk + CHUNKS);
  }
};

// The sum of a lane's next BATCH steps, or as many as there are; all loads before the first use.
template <int BATCH>
__device__ __forceinline__ Real sum_from_ring(const Stream& stream, int32_t steps, const Real* x,
                                              int32_t lane) {
  const uint32_t step = stream.chunk * CHUNK_STEPS + stream.offset;
  int32_t column[BATCH];
  Real value[BATCH], gathered[BATCH], sum = 0;
#pragma unroll
  for (int k = 0; k < BATCH; ++k) {
    const uint32_t place = (step + k) % RING_STEPS * WARP_THREADS + lane;
    value[k] = k < steps ? stream.ring->values[place] : Real(0);
    column[k] = k < steps ? stream.ring->columns[place] : 0;
  }
#pragma unroll
  for (int k = 0; k < BATCH; ++k) gathered[k] = k < steps ? x[column[k]] : Real(0);
#pragma unroll
  for (int k = 0; k < BATCH; ++k) sum += value[k] * gathered[k];
  return sum;
}

// For every row of the warp's stretch, as for_rows in lsmr_product.cuh; ahead(begin, end) asks for
// what `before` will read of these rows.
template <class Before, class After, class Ahead>
__device__ __forceinline__ void stream_rows(const LsmrArguments& g, Stream& stream, int which,
                                            const Real* x, int32_t lane, Before before, After after,
                                            Ahead ahead) {
  using Own = decltype(before(0));
  const LsmrMatrix& matrix = which == FORWARD ? g.forward : g.adjoint;
  const Stretch& stretch = stream.ring->stretches[which];
  const int32_t count = stretch.slice_end - stretch.slice_begin;
  int32_t first_row = stretch.row_begin;
  uint32_t packed = 0, packed_next = stream.ring->head[which][lane];
  for (int32_t s = 0; s < count; ++s) {
    const int32_t turn = s % WARP_THREADS;
    if (turn == 0) {
      packed = packed_next;
      const int32_t next = stretch.slice_begin + s + WARP_THREADS + lane;
      packed_next = packed_slice(matrix, next, stretch.slice_end);
      const int32_t far = first_row + ROWS_AHEAD;
      if (lane == 0 && far < stretch.row_end) ahead(far, min(far + ROWS_AHEAD, stretch.row_end));
    }
    const uint32_t slice = __shfl_sync(~0u, packed, turn);
    const int32_t rows = slice & 0xff;
    const uint32_t lanes_log2 = slice >> 8 & 0xff, steps = slice >> 16;
    const int32_t row = first_row + (lane >> lanes_log2);
    const bool owns = (lane & ((1 << lanes_log2) - 1)) == 0 && (lane >> lanes_log2) < rows;
    first_row += rows;
    Own own = {};
    if (owns) own = before(row);
    Real sum[RHS] = {};
    for (uint32_t done = 0; done < steps; done += MANY_STEPS) {
      const uint32_t now = min(MANY_STEPS, steps - done);
      stream.await(now);
      if (now <= 1) {
        sum[0] += sum_from_ring<1>(stream, now, x, lane);
      } else if (now <= 4) {
        sum[0] += sum_from_ring<4>(stream, now, x, lane);
      } else {
        sum[0] += sum_from_ring<MANY_STEPS>(stream, now, x, lane);
      }
      stream.advance(g, now, lane);
    }
    for (uint32_t distance = 1u << lanes_log2 >> 1; distance; distance >>= 1) {
      sum[0] += __shfl_xor_sync(~0u, sum[0], distance);
    }
    if (owns) after(row, own, sum);
  }
  stream.finish_matrix(g, lane);
}
