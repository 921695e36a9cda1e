// Writing a warpgroup's accumulators to C, row-major, of either type, guarded at its edges.
#pragma once

#include "types.cuh"

#ifndef OUTPUT_BF16
#define OUTPUT_BF16 1
#endif

struct OutputMatrix {
  void* c;  // m x n, row stride ldc elements
  int64_t m;
  int64_t n;
  int64_t ldc;

  // Whether two neighbouring results may go in one store.
  __device__ __forceinline__ bool takes_pairs() const {
    constexpr int PAIR_BYTES = OUTPUT_BF16 != 0 ? 4 : 8;
    return ldc % 2 == 0 && reinterpret_cast<uint64_t>(c) % PAIR_BYTES == 0;
  }
};

__device__ __forceinline__ void store_pair(const OutputMatrix& out, int64_t row, int64_t column,
                                           float first, float second, bool pairs) {
  if (row >= out.m || column >= out.n) return;
  int64_t offset = row * out.ldc + column;
  bool both = column + 1 < out.n;
  if constexpr (OUTPUT_BF16 != 0) {
    auto* c = static_cast<uint16_t*>(out.c) + offset;
    uint32_t packed = pack_bf16(first, second);
    if (pairs && both) {
      *reinterpret_cast<uint32_t*>(c) = packed;
    } else {
      c[0] = static_cast<uint16_t>(packed);
      if (both) c[1] = static_cast<uint16_t>(packed >> 16);
    }
  } else {
    auto* c = static_cast<float*>(out.c) + offset;
    if (pairs && both) {
      *reinterpret_cast<float2*>(c) = make_float2(first, second);
    } else {
      c[0] = first;
      if (both) c[1] = second;
    }
  }
}

// Calls visit(row, column, first, second) for every pair of neighbours that this thread holds among
// COUNT accumulators from FIRST on, which are columns from 0 on of a tile of 64 rows. Thread t of a
// warpgroup holds rows 16 * (t / 32) + (t % 32) / 4 and that plus 8, columns 8 j + 2 (t % 4) and
// the next (PTX ISA, wgmma, fragment D).
template <int COUNT, int FIRST = 0, int TOTAL, class Visit>
__device__ __forceinline__ void for_each_pair(const float (&accumulators)[TOTAL], Visit visit) {
  int thread = threadIdx.x % WARPGROUP_THREADS;
  int row = thread / 32 * 16 + thread % 32 / 4;
  int column = thread % 4 * 2;
#pragma unroll
  for (int j = 0; j < COUNT / 4; ++j) {
    const float* four = &accumulators[FIRST + 4 * j];
    visit(row, column + j * 8, four[0], four[1]);
    visit(row + 8, column + j * 8, four[2], four[3]);
  }
}

template <int COUNT>
__device__ __forceinline__ void store_accumulators(const OutputMatrix& out,
                                                   const float (&accumulators)[COUNT],
                                                   int64_t first_row, int64_t first_column) {
  bool pairs = out.takes_pairs();
  for_each_pair<COUNT>(accumulators, [&](int row, int column, float first, float second) {
    store_pair(out, first_row + row, first_column + column, first, second, pairs);
  });
}
