// Barrier and reduction over the grid in one round trip.
//
// Every block publishes its partial sums in slots of its own and polls the slots of all blocks:
// a value is there once its bits are not EMPTY any more, so value and flag are one word. The sums
// are added in a fixed order by every block, so all blocks get the same bits. Three buffers are
// used in turn. A block that publishes for exchange e has passed exchange e - 1, so all blocks have
// read exchange e - 2: it empties its slots of that one first, which are used next in e + 1.
//
// The store that publishes is a release and the load that finds is an acquire, and barriers of
// the block stand on both sides: what any thread of a block wrote before the exchange is seen by
// all threads of all blocks after it.
#pragma once

#include "lsmr_arguments.cuh"
#include "lsmr_scalars.cuh"

#if CLUSTER
#define ONE_CLUSTER __cluster_dims__(CLUSTER, 1, 1)  // of a kernel
#else
#define ONE_CLUSTER
#endif

// For compute-sanitizer's racecheck. It takes a barrier of the whole block for none where some of
// its warps have met at another one before (version 2025.3.1: tests/gpu/test_sanitizer.py shows it
// on a small kernel), but not two in a row; and words by which blocks find each other for a race,
// but not if they are read and written by atomics.
#ifndef WATCHED
#define WATCHED 0
#endif

constexpr uint64_t EMPTY = ~0ull;  // a NaN that no sum of squares can be
constexpr int POLLING_WARPS = WORKER_WARPS < 5 ? WORKER_WARPS : 5;  // a thread a block of 132

__device__ __forceinline__ uint64_t load_acquire(const double* p) {
  uint64_t bits;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(bits) : "l"(p) : "memory");
  return bits;
}
__device__ __forceinline__ uint64_t load_relaxed(const double* p) {
  uint64_t bits;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(bits) : "l"(p) : "memory");
  return bits;
}
__device__ __forceinline__ void store_release(double* p, double value) {
  asm volatile("st.release.gpu.global.f64 [%0], %1;" ::"l"(p), "d"(value) : "memory");
}
__device__ __forceinline__ void store_relaxed(double* p, uint64_t bits) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(bits) : "memory");
}
__device__ __forceinline__ void block_barrier() {
  asm volatile("bar.sync 0;" ::: "memory");
}
__device__ __forceinline__ void worker_barrier() {
  asm volatile("bar.sync 1, %0;" ::"n"(WORKERS) : "memory");
}

__device__ __forceinline__ double warp_sum(double value) {
#pragma unroll
  for (int offset = WARP_THREADS / 2; offset; offset /= 2) {
    value += __shfl_xor_sync(~0u, value, offset);
  }
  return value;
}

// The sum of a column of shared memory, by halves: a chain of additions would be as long as the
// block has warps, and each takes the grid's time.
template <int COUNT>
__device__ __forceinline__ double column_sum(const double (*values)[RHS], int32_t r) {
  double sums[COUNT];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) sums[i] = values[i][r];
#pragma unroll
  for (int distance = 1; distance < COUNT; distance *= 2) {
#pragma unroll
    for (int i = 0; i + distance < COUNT; i += 2 * distance) sums[i] += sums[i + distance];
  }
  return sums[0];
}

struct Exchange {  // shared memory
  double partial[WORKER_WARPS][RHS];
#if CLUSTER
  double total[2][CLUSTER][RHS];     // of each block, which writes them here itself
  double slots_x[3][RHS * CLUSTER];  // likewise
#else
  double total[2][POLLING_WARPS][RHS];
#endif
  double square_x[WORKER_WARPS][RHS];
  int32_t timed_out[2];  // by the parity of the exchange that ends the phase
};

struct Place {  // of a thread
  int32_t lane, warp;
  bool works;
  uint32_t exchanges;    // so far
  uint32_t exchanges_x;  // of the norm of x, by the scalar warp
};

// Wait until a slot is filled; the bits of EMPTY after too long.
template <bool ACQUIRE>
__device__ __forceinline__ double await_slot(const double* slot, uint32_t spin_limit) {
  uint64_t bits;
  uint32_t spins = 0;
  do {
    bits = ACQUIRE ? load_acquire(slot) : load_relaxed(slot);
  } while (bits == EMPTY && ++spins < spin_limit);
  return __longlong_as_double(static_cast<int64_t>(bits));
}

__device__ __forceinline__ bool is_empty(double value) {
  return static_cast<uint64_t>(__double_as_longlong(value)) == EMPTY;
}

#if CLUSTER
// The same in a grid that is one cluster: a block writes its sums into the shared memory of all
// others, and the cluster's barrier, several times faster than polling memory, is flag and fence.
__device__ __forceinline__ uint32_t remote_address(const void* p, uint32_t rank) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(address)
               : "r"(shared_address(p)), "r"(rank));
  return address;
}
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
// Words by which the scalar warps find each other.
__device__ __forceinline__ void store_remote(uint32_t address, double value) {
#if WATCHED
  asm volatile(
      "{.reg .b64 old; atom.relaxed.cluster.shared::cluster.exch.b64 old, [%0], %1;}" ::"r"(
          address),
      "l"(__double_as_longlong(value))
      : "memory");
#else
  asm volatile("st.relaxed.cluster.shared::cluster.f64 [%0], %1;" ::"r"(address), "d"(value)
               : "memory");
#endif
}
__device__ __forceinline__ uint64_t load_own(uint32_t address) {
  uint64_t bits;
#if WATCHED
  asm volatile("atom.relaxed.cluster.shared::cta.or.b64 %0, [%1], 0;"
               : "=l"(bits)
               : "r"(address)
               : "memory");
#else
  asm volatile("ld.relaxed.cluster.shared::cta.u64 %0, [%1];"
               : "=l"(bits)
               : "r"(address)
               : "memory");
#endif
  return bits;
}
constexpr int SQUARE_X_BARRIER = 2;  // workers arrive once their sums of x are in shared memory

__device__ __forceinline__ bool exchange(const LsmrArguments&, Exchange& shared, Place& place,
                                         double (&sums)[RHS], const double* square_x = nullptr) {
  const uint32_t parity = place.exchanges % 2;
  ++place.exchanges;
  if (place.works) {
#pragma unroll
    for (int r = 0; r < RHS; ++r) {
      sums[r] = warp_sum(sums[r]);
      if (place.lane == 0) shared.partial[place.warp][r] = sums[r];
    }
    worker_barrier();
    if (threadIdx.x < CLUSTER) {
#pragma unroll
      for (int r = 0; r < RHS; ++r) {
        const double sum = column_sum<WORKER_WARPS>(shared.partial, r);
        asm volatile("st.shared::cluster.f64 [%0], %1;" ::"r"(
                         remote_address(&shared.total[parity][blockIdx.x][r], threadIdx.x)),
                     "d"(sum)
                     : "memory");
      }
    }
  }
  __syncwarp();
  cluster_arrive();
  if (place.works && square_x != nullptr) {
#pragma unroll
    for (int r = 0; r < RHS; ++r) {
      const double sum = warp_sum(square_x[r]);
      if (place.lane == 0) shared.square_x[place.warp][r] = sum;
    }
    asm volatile("bar.arrive %0, %1;" ::"n"(SQUARE_X_BARRIER), "n"(THREADS) : "memory");
  }
  cluster_wait();
#pragma unroll
  for (int r = 0; r < RHS; ++r) sums[r] = column_sum<CLUSTER>(shared.total[parity], r);
  return true;
}
#else
// sums: this worker's partial sums in, those of the grid out, to all threads. square_x: partial
// sums that the scalar warp will exchange later, off the critical path; may be null.
// False, for all threads of the block, once a block waited too long.
__device__ __forceinline__ bool exchange(const LsmrArguments& g, Exchange& shared, Place& place,
                                         double (&sums)[RHS], const double* square_x = nullptr) {
  const uint32_t turn = place.exchanges % 3;
  const uint32_t parity = place.exchanges % 2;
  const uint32_t slots_of_copy = RHS * gridDim.x;
  double* slots = g.slots + turn * (COPIES * slots_of_copy);
  ++place.exchanges;
  if (place.works) {
#pragma unroll
    for (int r = 0; r < RHS; ++r) sums[r] = warp_sum(sums[r]);
    if (place.lane == 0) {
#pragma unroll
      for (int r = 0; r < RHS; ++r) shared.partial[place.warp][r] = sums[r];
    }
    worker_barrier();
    if (threadIdx.x < COPIES * RHS) {
      const uint32_t r = threadIdx.x % RHS;
      const double sum = column_sum<WORKER_WARPS>(shared.partial, r);
      const uint32_t mine = threadIdx.x / RHS * slots_of_copy + r * gridDim.x + blockIdx.x;
      const uint32_t next_turn = (turn + 1) % 3;
      store_relaxed(&g.slots[next_turn * (COPIES * slots_of_copy) + mine], EMPTY);
      store_release(&slots[mine], sum);
    }
    if (square_x != nullptr) {
#pragma unroll
      for (int r = 0; r < RHS; ++r) {
        const double sum = warp_sum(square_x[r]);
        if (place.lane == 0) shared.square_x[place.warp][r] = sum;
      }
    }
    if (place.warp < POLLING_WARPS) {
      const double* polled = slots + blockIdx.x % COPIES * slots_of_copy;
#pragma unroll
      for (int r = 0; r < RHS; ++r) {
        sums[r] = 0.0;
        for (uint32_t block = threadIdx.x; block < gridDim.x;
             block += POLLING_WARPS * WARP_THREADS) {
          const double value =
              await_slot<!POLL_RELAXED>(&polled[r * gridDim.x + block], g.spin_limit);
          if (is_empty(value)) shared.timed_out[parity] = 1;
          sums[r] += value;
        }
      }
      if (POLL_RELAXED) asm volatile("fence.acq_rel.gpu;" ::: "memory");
#pragma unroll
      for (int r = 0; r < RHS; ++r) {
        sums[r] = warp_sum(sums[r]);
        if (place.lane == 0) shared.total[parity][place.warp][r] = sums[r];
      }
    }
  }
  block_barrier();
  if (WATCHED) block_barrier();
#pragma unroll
  for (int r = 0; r < RHS; ++r) sums[r] = column_sum<POLLING_WARPS>(shared.total[parity], r);
  return !shared.timed_out[parity];
}
#endif

// At the beginning and at the end: no block of a cluster writes into the memory of one that has not
// begun, or is gone.
__device__ __forceinline__ void meet() {
#if CLUSTER
  cluster_arrive();
  cluster_wait();
#else
  block_barrier();
#endif
}
