// Windows cut into pieces: how the partial tiles of their CTAs become one, without another launch.
//
// Each consumer warp deals with its own 16 rows. A partial tile lies in memory as the lanes hold
// it, [slot][column tile][warp][WGMMA_N / 8][lane][4], so that all traffic is whole lines. Who
// arrives last goes on with the sum; arrival counts are zero again when the launch ends.
#pragma once

#include "window_ring.cuh"

constexpr int QUADS = WGMMA_N / 8;  // of accumulators of a lane: 16 bytes each

__device__ __forceinline__ float4 load_quad(const float4* address) {
  float4 value;
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(address)
               : "memory");
  return value;
}

__device__ __forceinline__ void store_quad(float4* address, float a, float b, float c, float d) {
  asm volatile("st.global.cg.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(address), "f"(a), "f"(b), "f"(c),
               "f"(d)
               : "memory");
}

__device__ __forceinline__ void add_quad(float4* address, float a, float b, float c, float d) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(address), "f"(a),
               "f"(b), "f"(c), "f"(d)
               : "memory");
}

struct Partials {
  const WindowArguments& arguments;
  const WindowTile& tile;
  int warp = threadIdx.x / WARP_THREADS;
  int lane = threadIdx.x % WARP_THREADS;

  // Of this warp's part of the tile in a slot, counted from the window's first slot.
  __device__ __forceinline__ int64_t place(int slot) const {
    int64_t tiles = int64_t{tile.task.slot} + slot;
    return (tiles * arguments.column_tiles + tile.column_tile) * CONSUMER_WARPS + warp;
  }

  __device__ __forceinline__ float4* quads(int slot) const {
    return reinterpret_cast<float4*>(arguments.partials) + place(slot) * (QUADS * WARP_THREADS) +
           lane;
  }

  // Counts this warp in, after all that its lanes wrote; true for the last of `expected`, which
  // then sees what the others wrote.
  __device__ __forceinline__ bool is_last(int slot, int expected) const {
    debug_delay(5);
    int32_t* count = arguments.arrivals + place(slot);
    int32_t before = 0;
    __syncwarp();
    if (lane == 0) {
      asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;"
                   : "=r"(before)
                   : "l"(count)
                   : "memory");
      if (before == expected - 1) *count = 0;
    }
    before = __shfl_sync(~0u, before, 0);
    __syncwarp();  // what lane 0 acquired, all lanes may read
    return before == expected - 1;
  }

  __device__ __forceinline__ void write(int slot, const float (&sums)[WGMMA_N / 2]) const {
    float4* to = quads(slot);
#pragma unroll
    for (int i = 0; i < QUADS; ++i)
      store_quad(to + i * WARP_THREADS, sums[4 * i], sums[4 * i + 1], sums[4 * i + 2],
                 sums[4 * i + 3]);
  }

  __device__ __forceinline__ void add(int slot, float (&sums)[WGMMA_N / 2]) const {
    const float4* from = quads(slot);
#pragma unroll
    for (int i = 0; i < QUADS; ++i) {
      float4 quad = load_quad(from + i * WARP_THREADS);
      sums[4 * i] += quad.x;
      sums[4 * i + 1] += quad.y;
      sums[4 * i + 2] += quad.z;
      sums[4 * i + 3] += quad.w;
    }
  }

  // Two groups of pieces meet at a count. Who comes first leaves its sum in slot `own` and is done;
  // who comes second takes it from slot `other`, waiting if it is still being written: its writer
  // runs already, and waits for nobody. The count: 1 for each who came, WRITTEN when the sum is
  // there. True for the second.
  __device__ __forceinline__ bool meet(int count_slot, int own, int other,
                                       float (&sums)[WGMMA_N / 2]) const {
    constexpr int32_t WRITTEN = 4;
    int32_t* count = arguments.arrivals + place(count_slot);
    debug_delay(5);
    int32_t before = lane == 0 ? atomicAdd(count, 1) : 0;
    if (__shfl_sync(~0u, before, 0) % WRITTEN == 0) {
      write(own, sums);
      debug_delay(6);
      __syncwarp();
      if (lane == 0)
        asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(count), "n"(WRITTEN)
                     : "memory");
      return false;
    }
    if (lane == 0) {
      int32_t now;
      do {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(count) : "memory");
      } while (now < WRITTEN);
      *count = 0;
    }
    __syncwarp();  // what lane 0 acquired, all lanes may read
    add(other, sums);
    return true;
  }

  // A binary tree over the pieces, fixed by their numbers: neighbouring groups of 1, 2, 4 ...
  // pieces meet. a + b is b + a, so the result does not depend on the order of arrival. A group's
  // sum lies at its first piece's slot; two groups meet at the count of the right one. True where
  // this warp holds the sum of all.
  __device__ __forceinline__ bool merge_in_order(float (&sums)[WGMMA_N / 2]) const {
    int begin = tile.task.piece;
#pragma unroll 1
    for (int span = 1; span < tile.task.pieces; span *= 2) {
      int right = begin | span;
      if (right >= tile.task.pieces) continue;  // no right neighbour at this level
      if (!meet(right, begin, begin ^ span, sums)) return false;
      begin &= ~span;
    }
    return true;
  }

  // All pieces add to one tile of zeros, in any order; the last takes the sum and leaves zeros.
  __device__ __forceinline__ bool merge_by_atomics(float (&sums)[WGMMA_N / 2]) const {
    float4* to = quads(0);
#pragma unroll
    for (int i = 0; i < QUADS; ++i)
      add_quad(to + i * WARP_THREADS, sums[4 * i], sums[4 * i + 1], sums[4 * i + 2],
               sums[4 * i + 3]);
    if (!is_last(0, tile.task.pieces)) return false;
#pragma unroll
    for (int i = 0; i < WGMMA_N / 2; ++i) sums[i] = 0.f;
    add(0, sums);
#pragma unroll
    for (int i = 0; i < QUADS; ++i) store_quad(to + i * WARP_THREADS, 0.f, 0.f, 0.f, 0.f);
    return true;
  }
};
