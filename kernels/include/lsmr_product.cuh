// Products of a block's slices with a vector: y = M x, a warp a slice, a few lanes a row.
#pragma once

#include "lsmr_arguments.cuh"

// The slices of a block.
__device__ __forceinline__ int32_t block_begin(const LsmrMatrix& matrix, int32_t block) {
  return matrix.block_slices[block * matrix.block_parts];
}

// Where a block reads its part of a matrix: in shared memory, or where it always was.
struct Part {
  const Slice* slices;
  const int32_t* columns;
  const Real* values;
  int32_t count;        // slices
  uint32_t first_step;  // of the arrays above
};

__device__ __forceinline__ Part whole_part(const LsmrMatrix& matrix, const Real* values,
                                           int32_t begin, int32_t end) {
  return {matrix.slices + begin, matrix.columns, values, end - begin, 0u};
}

__device__ __forceinline__ Part block_part(const LsmrMatrix& matrix, const Real* values) {
  return whole_part(matrix, values, block_begin(matrix, blockIdx.x),
                    block_begin(matrix, blockIdx.x + 1));
}

// Steps of slices begin .. end, which follow each other.
__device__ __forceinline__ uint32_t steps_between(const Slice* slices, int32_t begin, int32_t end) {
  if (begin == end) return 0;
  const Slice last = slices[end - 1];
  return last.first_step + last.steps - slices[begin].first_step;
}

// Copy a block's part to shared memory at `place`, which moves behind it.
__device__ __forceinline__ Part stage_part(const LsmrMatrix& matrix, char*& place) {
  const int32_t begin = matrix.block_slices[blockIdx.x];
  const int32_t end = matrix.block_slices[blockIdx.x + 1];
  if (begin == end) return {nullptr, nullptr, nullptr, 0, 0u};
  const uint32_t first = matrix.slices[begin].first_step;
  const uint32_t entries = steps_between(matrix.slices, begin, end) * WARP_THREADS;
  auto* slices = reinterpret_cast<Slice*>(place);
  place += (end - begin) * sizeof(Slice);
  auto* values = reinterpret_cast<Real*>(place);
  place += entries * sizeof(Real);
  auto* columns = reinterpret_cast<int32_t*>(place);
  place += entries * sizeof(int32_t);
  for (int32_t i = threadIdx.x; i < end - begin; i += THREADS) slices[i] = matrix.slices[begin + i];
  const size_t offset = size_t(first) * WARP_THREADS;
  for (uint32_t i = threadIdx.x; i < entries; i += THREADS) {
    values[i] = matrix.values[offset + i];
    columns[i] = matrix.columns[offset + i];
  }
  return {slices, columns, values, end - begin, first};
}

// An entry of the matrix. In global memory nobody writes it, which lets it be loaded early.
template <class T>
__device__ __forceinline__ T load_entry(const T* p) {
#if STAGED
  return *p;
#else
  return __ldg(p);
#endif
}

constexpr uint32_t MANY_STEPS = 8;  // that are multiplied at a time

struct Nothing {
  __device__ __forceinline__ void operator()() const {}
};

// Entries first .. first + BATCH of AT_ONCE slices: all loads before the first use. A loop that
// the compiler unrolls itself waits for a vector element in each step of its remainder.
// meanwhile() runs while the vector's elements are on their way.
template <int BATCH, class Sum, int AT_ONCE, class Gathered, class Meanwhile>
__device__ __forceinline__ void add_batch(const int32_t* const (&columns)[AT_ONCE],
                                          const Real* const (&values)[AT_ONCE],
                                          const Slice (&slice)[AT_ONCE], int32_t first,
                                          const Gathered* x, Sum (&sums)[AT_ONCE][RHS],
                                          Meanwhile meanwhile) {
  int32_t column[AT_ONCE][BATCH];
  Real value[AT_ONCE][BATCH];
#pragma unroll
  for (int i = 0; i < AT_ONCE; ++i) {
#pragma unroll
    for (int k = 0; k < BATCH; ++k) {
      const bool there = first + k < slice[i].steps;
      const int32_t entry = (first + k) * WARP_THREADS;
      column[i][k] = there ? load_entry(columns[i] + entry) : 0;
      value[i][k] = there ? load_entry(values[i] + entry) : Real(0);
    }
  }
  Gathered gathered[AT_ONCE][BATCH][RHS];
#pragma unroll
  for (int i = 0; i < AT_ONCE; ++i) {
#pragma unroll
    for (int k = 0; k < BATCH; ++k) {
#pragma unroll
      for (int r = 0; r < RHS; ++r) {
        const bool there = first + k < slice[i].steps;
        gathered[i][k][r] = there ? x[size_t(column[i][k]) * RHS + r] : Gathered(0);
      }
    }
  }
  meanwhile();
#pragma unroll
  for (int i = 0; i < AT_ONCE; ++i) {
#pragma unroll
    for (int k = 0; k < BATCH; ++k) {
#pragma unroll
      for (int r = 0; r < RHS; ++r) {
        sums[i][r] += static_cast<Sum>(value[i][k]) * static_cast<Sum>(gathered[i][k][r]);
      }
    }
  }
}

// The sum of a lane's first STEPS entries; all loads before the first use.
template <class Sum, int STEPS, class Gathered>
__device__ __forceinline__ Sum sum_steps(const int32_t* columns, const Real* values,
                                         const Gathered* x) {
  Gathered gathered[STEPS];
  Sum sum = 0;
#pragma unroll
  for (int k = 0; k < STEPS; ++k) gathered[k] = x[load_entry(columns + k * WARP_THREADS)];
#pragma unroll
  for (int k = 0; k < STEPS; ++k) {
    sum += static_cast<Sum>(load_entry(values + k * WARP_THREADS)) * static_cast<Sum>(gathered[k]);
  }
  return sum;
}

template <class Sum, class Gathered>
__device__ __forceinline__ Sum sum_exactly(const int32_t* columns, const Real* values,
                                           const Gathered* x, uint32_t steps) {
  switch (steps) {
    case 0: return 0;
    case 1: return sum_steps<Sum, 1>(columns, values, x);
    case 2: return sum_steps<Sum, 2>(columns, values, x);
    case 3: return sum_steps<Sum, 3>(columns, values, x);
    case 4: return sum_steps<Sum, 4>(columns, values, x);
    case 5: return sum_steps<Sum, 5>(columns, values, x);
    case 6: return sum_steps<Sum, 6>(columns, values, x);
    case 7: return sum_steps<Sum, 7>(columns, values, x);
    default: return sum_steps<Sum, 8>(columns, values, x);
  }
}

// For every row of the part: own = before(row) in the lane that owns the row, while its entries
// load; after(row, own, sums) there once the sums of all right-hand sides are complete.
// A warp multiplies AT_ONCE slices at a time, so that their loads are in flight together.
// Entries are multiplied and added in the type Sum; the order depends on the layout alone.
// ready() runs once before the first after(), while the first elements of x are on their way.
template <class Sum, int AT_ONCE, class Gathered, class Before, class After, class Ready = Nothing>
__device__ __forceinline__ void for_rows(const Part& part, const Gathered* x, int32_t warp,
                                         int32_t warps, int32_t lane, Before before, After after,
                                         Ready ready = {}) {
  using Own = decltype(before(0));
  bool is_ready = BATCHED != 1 || warp >= part.count;
  if (is_ready) ready();
  const auto meanwhile = [&]() {
    if (!is_ready) ready();
    is_ready = true;
  };
  for (int32_t s = warp; s < part.count; s += AT_ONCE * warps) {
    Slice slice[AT_ONCE];
    int32_t row[AT_ONCE];
    bool owns[AT_ONCE];
    Own own[AT_ONCE] = {};
    const int32_t* columns[AT_ONCE];
    const Real* values[AT_ONCE];
    Sum sums[AT_ONCE][RHS] = {};
    int32_t most_steps = 0;
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const int32_t mine = s + i * warps;
      slice[i] = i == 0 || mine < part.count ? part.slices[mine] : Slice{part.first_step, 0, 0, 0};
      const int32_t lanes_log2 = slice[i].rows_and_lanes >> 8;
      row[i] = slice[i].first_row + (lane >> lanes_log2);
      owns[i] = (lane & ((1 << lanes_log2) - 1)) == 0 &&
                (lane >> lanes_log2) < (slice[i].rows_and_lanes & 0xff);
      if (owns[i]) own[i] = before(row[i]);
      const size_t first = size_t(slice[i].first_step - part.first_step) * WARP_THREADS + lane;
      columns[i] = part.columns + first;
      values[i] = part.values + first;
      most_steps = max(most_steps, slice[i].steps);
    }
#if BATCHED == 2
    for (int32_t k = 0; k < most_steps; k += MANY_STEPS) {
      const uint32_t steps = min(most_steps - k, int32_t(MANY_STEPS));
      sums[0][0] +=
          sum_exactly<Sum>(columns[0] + k * WARP_THREADS, values[0] + k * WARP_THREADS, x, steps);
    }
#elif BATCHED == 1
    if (most_steps <= 1) {
      add_batch<1>(columns, values, slice, 0, x, sums, meanwhile);
    } else if (most_steps <= 4) {
      add_batch<4>(columns, values, slice, 0, x, sums, meanwhile);
    } else {
      constexpr int MANY = 8 / AT_ONCE;  // what registers can hold
      for (int32_t k = 0; k < most_steps; k += MANY) {
        add_batch<MANY>(columns, values, slice, k, x, sums, meanwhile);
      }
    }
#else
#pragma unroll 4
    for (int32_t k = 0; k < most_steps; ++k) {
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) {
        const bool there = AT_ONCE == 1 || k < slice[i].steps;
        const int32_t column = there ? load_entry(columns[i] + k * WARP_THREADS) : 0;
        const Sum value = there ? load_entry(values[i] + k * WARP_THREADS) : Real(0);
#pragma unroll
        for (int r = 0; r < RHS; ++r) {
          sums[i][r] += value * static_cast<Sum>(x[size_t(column) * RHS + r]);
        }
      }
    }
#endif
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const int32_t lanes_log2 = slice[i].rows_and_lanes >> 8;
      for (int32_t offset = 1 << lanes_log2 >> 1; offset; offset >>= 1) {
#pragma unroll
        for (int r = 0; r < RHS; ++r) sums[i][r] += __shfl_xor_sync(~0u, sums[i][r], offset);
      }
      if (owns[i]) after(row[i], own[i], sums[i]);
    }
  }
}

// Sums of the pieces of long rows, behind the vector that the rows gather from.
template <class Sum, class Gathered>
__device__ __forceinline__ void sum_pieces(const LsmrMatrix& matrix, const Real* values,
                                           Gathered* x, int32_t warp, int32_t lane) {
  const Part part = whole_part(matrix, values, matrix.piece_begin, matrix.piece_end);
  for_rows<Sum, 1>(
      part, x, blockIdx.x * WORKER_WARPS + warp, gridDim.x * WORKER_WARPS, lane,
      [](int32_t) { return Nothing{}; },
      [&](int32_t piece, Nothing, const Sum(&sums)[RHS]) {
#pragma unroll
        for (int r = 0; r < RHS; ++r) {
          x[size_t(matrix.first_piece + piece) * RHS + r] = static_cast<Gathered>(sums[r]);
        }
      });
}
