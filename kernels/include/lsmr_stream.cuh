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

#include "lsmr_exchange.cuh"
#include "lsmr_product.cuh"
#include "mbarrier.cuh"

constexpr uint32_t CHUNK_STEPS = RING_CHUNK;
constexpr uint32_t CHUNKS = RING_STEPS / CHUNK_STEPS;
// Of slices that are multiplied in pairs; both lie in the ring, wherever in a chunk they begin.
constexpr uint32_t PAIRED_STEPS = (RING_STEPS - CHUNK_STEPS + 1) / 2;
constexpr uint32_t STEP_BYTES = WARP_THREADS * (sizeof(int32_t) + sizeof(Real));
static_assert(RING_STEPS % CHUNK_STEPS == 0 && CHUNKS >= 2 && RHS == 1 && TOGETHER == 1);
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

// Slices that follow each other, of one matrix.
struct Unit {
  int32_t slice_begin, slice_end;
  int32_t row_begin;
  uint32_t step_begin, step_end;
};
static_assert(sizeof(Unit) == 20, "the host makes room for them");

// What a warp has in shared memory. Lane 0 alone uses `policy`, and `next` to `drawn`.
struct alignas(16) Ring {
  Real values[RING_STEPS * WARP_THREADS];
  int32_t columns[RING_STEPS * WARP_THREADS];
  uint32_t head[2][WARP_THREADS];  // the first slices of its own units, packed
  uint64_t full[CHUNKS];
  uint64_t policy;
  Unit own[2];
  uint32_t next, end;  // the steps that are asked for next
  int32_t asked;       // and their matrix
  int32_t drawn;       // the shared unit that follows what is multiplied now; -1: there is none
};
static_assert(sizeof(Ring) == RING_BYTES);
enum { FORWARD = 0, ADJOINT = 1 };
constexpr int32_t NONE = -1;

// What the warps of a block share, behind their rings: of each matrix `units` a warp.
struct Pool {
  char* memory;
  int32_t units;

  __device__ __forceinline__ int32_t all() const { return WORKER_WARPS * units; }
  // All but the first of each warp.
  __device__ __forceinline__ int32_t count() const { return WORKER_WARPS * (units - 1); }

  // Of each unit, whoever multiplied it: two kinds.
  __device__ __forceinline__ double* sums(int kind) const {
    return reinterpret_cast<double*>(memory) + kind * all();
  }
  __device__ __forceinline__ Unit* shared(int which) const {
    return reinterpret_cast<Unit*>(sums(2)) + which * count();
  }
  // How many of these are taken.
  __device__ __forceinline__ int32_t& taken(int which) const {
    return reinterpret_cast<int32_t*>(shared(2))[which];
  }
};

// Rows and log2 of the lanes a row, 8 bits each, and steps, 16.
__device__ __forceinline__ uint32_t packed_slice(const LsmrMatrix& matrix, int32_t slice,
                                                 int32_t end) {
  if (slice >= end) return 0;
  const int2 half = __ldg(reinterpret_cast<const int2*>(&matrix.slices[slice].steps));
  return uint32_t(half.y) | uint32_t(half.x) << 16;
}

// Unit `number` of the warp's. The warps of a block are far apart in the matrix, so that its SM has
// rows of all kinds.
__device__ __forceinline__ Unit find_unit(const LsmrMatrix& matrix, int32_t warp, int32_t units,
                                          int32_t number) {
  const int32_t* bounds = matrix.block_slices + (warp * gridDim.x + blockIdx.x) * units + number;
  const int32_t begin = bounds[0], end = bounds[1];
  if (begin == end) return {};
  const Slice first = matrix.slices[begin], last = matrix.slices[end - 1];
  return {begin, end, first.first_row, first.first_step, last.first_step + last.steps};
}

struct Stream {  // all lanes of a warp hold the same
  Ring* ring;
  Pool pool;
  uint32_t step;     // in the ring: the one that is multiplied next
  uint32_t there;    // steps from there on that have arrived
  uint32_t arrived;  // chunks so far

  // By all workers; the block meets before the first product.
  __device__ __forceinline__ void begin(const LsmrArguments& g, char* memory, int32_t warp,
                                        int32_t lane) {
    ring = reinterpret_cast<Ring*>(memory) + warp;
    pool = {memory + WORKER_WARPS * sizeof(Ring), g.forward.block_parts / WORKER_WARPS};
    step = there = arrived = 0;
    for (int which = FORWARD; which <= ADJOINT; ++which) {
      const LsmrMatrix& matrix = which == FORWARD ? g.forward : g.adjoint;
      const Unit own = find_unit(matrix, warp, pool.units, 0);
      ring->head[which][lane] = packed_slice(matrix, own.slice_begin + lane, own.slice_end);
      if (lane == 0) ring->own[which] = own;
      for (int32_t i = threadIdx.x; i < pool.count(); i += WORKERS) {
        pool.shared(which)[i] =
            find_unit(matrix, i % WORKER_WARPS, pool.units, 1 + i / WORKER_WARPS);
      }
      if (threadIdx.x == 0) pool.taken(which) = 0;
    }
    if (lane == 0) {
      ring->policy = evict_first();
      ring->next = ring->end = 0;
      ring->asked = ADJOINT;
      ring->drawn = NONE;
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
    return ring->own[FORWARD].step_begin == ring->own[FORWARD].step_end &&
           ring->own[ADJOINT].step_begin == ring->own[ADJOINT].step_end;
  }

  // When the warp begins a unit: which one follows in this phase, NONE after the last. The stream
  // gets there later, since no unit is shorter than what lies ahead in a ring.
  __device__ __forceinline__ int32_t draw(int32_t which, int32_t lane) {
    if (pool.units == 1) return NONE;
    int32_t drawn = 0;
    if (lane == 0) {
      drawn = atomicAdd(&pool.taken(which), 1);
      if (drawn >= pool.count()) drawn = NONE;
      ring->drawn = drawn;
    }
    return __shfl_sync(~0u, drawn, 0);
  }

  // Lane 0: the unit that follows what was asked for: a shared one, or the other matrix's own.
  __device__ __forceinline__ void turn() {
    do {
      const bool stays = ring->drawn != NONE;
      if (!stays) ring->asked ^= 1;
      const Unit& unit = stays ? pool.shared(ring->asked)[ring->drawn] : ring->own[ring->asked];
      ring->drawn = NONE;
      ring->next = unit.step_begin;
      ring->end = unit.step_end;
    } while (ring->next == ring->end);
  }

  // Lane 0: the next chunk into a slot.
  __device__ __forceinline__ void ask(const LsmrArguments& g, uint32_t slot) {
    if (ring->next == ring->end) turn();
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

  // Steps that lie together from the next one on.
  __device__ __forceinline__ uint32_t together() const { return RING_STEPS - step; }

  // Wait until the next steps are there.
  __device__ __forceinline__ void await(uint32_t steps) {
    while (there < steps) {
      mbarrier_wait(&ring->full[arrived % CHUNKS], (arrived / CHUNKS) & 1);
      ++arrived;
      there += CHUNK_STEPS;
    }
  }

  // The next steps were multiplied. Once all lanes have read a chunk, another may come into its
  // slot.
  __device__ __forceinline__ void advance(const LsmrArguments& g, uint32_t steps, int32_t lane) {
    uint32_t slot = step / CHUNK_STEPS;
    step += steps;
    there -= steps;
    const uint32_t end = step / CHUNK_STEPS;
    if (slot != end) {
      __syncwarp();
      if (lane == 0) {
        for (; slot != end; ++slot) ask(g, slot);
      }
    }
    if (step == RING_STEPS) step = 0;
  }
  // What follows the end of a unit begins with a chunk.
  __device__ __forceinline__ void finish_unit(const LsmrArguments& g, int32_t lane) {
    if (step % CHUNK_STEPS != 0) advance(g, CHUNK_STEPS - step % CHUNK_STEPS, lane);
  }

  // Nothing may arrive in the memory of a block that is gone.
  __device__ __forceinline__ void drain() {
    if (!is_empty()) await(RING_STEPS);
  }
};

// Adds a lane's entries in COUNT slices that follow each other, STEPS steps each, to its sums, one
// after the other: where the ring ends must not show in the bits. All loads before the first use.
template <int STEPS, int COUNT>
__device__ __forceinline__ void sum_slices(const int32_t* columns, const Real* values,
                                           const Real* x, Real (&sums)[COUNT]) {
  Real gathered[COUNT][STEPS];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
#pragma unroll
    for (int k = 0; k < STEPS; ++k) gathered[i][k] = x[columns[(i * STEPS + k) * WARP_THREADS]];
  }
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
#pragma unroll
    for (int k = 0; k < STEPS; ++k) {
      sums[i] += values[(i * STEPS + k) * WARP_THREADS] * gathered[i][k];
    }
  }
}

// The same for the next steps of the ring, 1 to MANY_STEPS of each slice. A loop over as many as
// there are would take as many instructions again, and a warp has few cycles for each.
template <int COUNT>
__device__ __forceinline__ void sum_next(const LsmrArguments& g, Stream& stream, uint32_t steps,
                                         const Real* x, int32_t lane, Real (&sums)[COUNT]) {
  stream.await(COUNT * steps);
  const int32_t* columns = stream.ring->columns + stream.step * WARP_THREADS + lane;
  const Real* values = stream.ring->values + stream.step * WARP_THREADS + lane;
  switch (steps) {
    case 1: sum_slices<1>(columns, values, x, sums); break;
    case 2: sum_slices<2>(columns, values, x, sums); break;
    case 3: sum_slices<3>(columns, values, x, sums); break;
    case 4: sum_slices<4>(columns, values, x, sums); break;
    case 5: sum_slices<5>(columns, values, x, sums); break;
    case 6: sum_slices<6>(columns, values, x, sums); break;
    case 7: sum_slices<7>(columns, values, x, sums); break;
    default: sum_slices<8>(columns, values, x, sums);
  }
  stream.advance(g, COUNT * steps, lane);
}

// For every row of a unit, as for_rows in lsmr_product.cuh; `packed_next` are its first slices. Two
// slices that are alike, a lane a row, are multiplied together: twice as much of the vectors is on
// its way, for fewer instructions. What `before` reads is not prefetched: it comes while the
// gathered elements do, and the L2 cache, which is at four fifths of its peak here, would be asked
// once more.
template <class Before, class After>
__device__ __forceinline__ void stream_unit(const LsmrArguments& g, Stream& stream,
                                            const LsmrMatrix& matrix, const Unit& unit,
                                            uint32_t packed_next, const Real* x, int32_t lane,
                                            Before before, After after) {
  using Own = decltype(before(0));
  const int32_t count = unit.slice_end - unit.slice_begin;
  int32_t first_row = unit.row_begin;
  uint32_t packed = 0;
  for (int32_t s = 0; s < count; ++s) {
    const int32_t turn = s % WARP_THREADS;
    if (turn == 0) {
      packed = packed_next;
      const int32_t next = unit.slice_begin + s + WARP_THREADS + lane;
      packed_next = packed_slice(matrix, next, unit.slice_end);
    }
    const uint32_t slice = __shfl_sync(~0u, packed, turn);
    const uint32_t next = __shfl_sync(~0u, packed, (turn + 1) % WARP_THREADS);
    const int32_t rows = slice & 0xff;
    const uint32_t lanes_log2 = slice >> 8 & 0xff;
    uint32_t steps = slice >> 16;
    if (next == slice && turn + 1 < WARP_THREADS && (slice & 0xffff) == WARP_THREADS &&
        steps != 0 && steps <= min(MANY_STEPS, PAIRED_STEPS) && 2 * steps <= stream.together()) {
      const int32_t row = first_row + lane;
      const Own own[2] = {before(row), before(row + WARP_THREADS)};
      Real sums[2] = {};
      sum_next<2>(g, stream, steps, x, lane, sums);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const Real sum[RHS] = {sums[i]};
        after(row + i * WARP_THREADS, own[i], sum);
      }
      first_row += 2 * WARP_THREADS;
      ++s;
      continue;
    }
    const int32_t row = first_row + (lane >> lanes_log2);
    const bool owns = (lane & ((1 << lanes_log2) - 1)) == 0 && (lane >> lanes_log2) < rows;
    first_row += rows;
    Own own = {};
    if (owns) own = before(row);
    Real sum[RHS] = {};
    while (steps != 0) {
      const uint32_t now = min(min(steps, MANY_STEPS), stream.together());
      sum_next<1>(g, stream, now, x, lane, sum);
      steps -= now;
    }
    for (uint32_t distance = 1u << lanes_log2 >> 1; distance; distance >>= 1) {
      sum[0] += __shfl_xor_sync(~0u, sum[0], distance);
    }
    if (owns) after(row, own, sum);
  }
  stream.finish_unit(g, lane);
}

// A phase of a warp: its own unit, then shared ones while there are any. Warps of a block were 15 %
// apart when each had its part alone (n = 1e7): how soon memory answers depends on rows and on the
// SM. `sums`: what `after` adds up in each thread. They are kept by unit and added in the units'
// order, so that the bits do not depend on who was free.
template <int KINDS, class Before, class After>
__device__ __forceinline__ void stream_rows(const LsmrArguments& g, Stream& stream, int which,
                                            const Real* x, const Place& place,
                                            double (*const (&sums)[KINDS])[RHS], Before before,
                                            After after) {
  const LsmrMatrix& matrix = which == FORWARD ? g.forward : g.adjoint;
  const Pool& pool = stream.pool;
  if (threadIdx.x == 0) pool.taken(which ^ 1) = 0;  // the grid met since all have drawn there
  Unit unit = stream.ring->own[which];
  uint32_t head = stream.ring->head[which][place.lane];
  int32_t slot = place.warp * pool.units;
  while (true) {
    const int32_t drawn = stream.draw(which, place.lane);
    uint32_t next_head = 0;
    if (drawn != NONE) {
      const Unit& next = pool.shared(which)[drawn];
      next_head = packed_slice(matrix, next.slice_begin + place.lane, next.slice_end);
    }
    stream_unit(g, stream, matrix, unit, head, x, place.lane, before, after);
    if (pool.units == 1) return;
#pragma unroll
    for (int kind = 0; kind < KINDS; ++kind) {
      double& own = (*sums[kind])[0];
      const double sum = warp_sum(own);
      if (place.lane == 0) pool.sums(kind)[slot] = sum;
      own = 0.0;
    }
    if (drawn == NONE) break;
    unit = pool.shared(which)[drawn];
    head = next_head;
    slot = drawn % WORKER_WARPS * pool.units + 1 + drawn / WORKER_WARPS;
  }
  worker_barrier();
#pragma unroll
  for (int kind = 0; kind < KINDS; ++kind) {
    const double* of_warp = pool.sums(kind) + place.warp * pool.units;
    (*sums[kind])[0] = place.lane < pool.units ? of_warp[place.lane] : 0.0;
  }
}
