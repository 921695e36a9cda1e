// What a block of lsmr_persistent.cu holds, and the steps of a solve that other headers define.
#pragma once

#include "lsmr_arguments.cuh"
#include "lsmr_exchange.cuh"
#include "lsmr_product.cuh"
#include "lsmr_scalars.cuh"
#if STREAMED
#include "lsmr_stream.cuh"
#endif

struct Shared {
  Exchange exchange;
  Scalars scalars[RHS];
  Factors factors[RHS];
  double alpha_squared[RHS];
  double normx[RHS];
  int32_t code[RHS];
  int32_t done_itn[RHS];
  int32_t stop;
};

struct State {  // of one column of A, held by the thread that owns it
  Real v[RHS], h[RHS], hbar[RHS], x[RHS];
};

// A block's h, hbar and x, interleaved as [3][columns][RHS].
struct StateMemory {
  Real* base;
  size_t stride;
  int32_t first_row;
  __device__ __forceinline__ Real& at(int32_t which, int32_t row, int32_t r) const {
    return base[which * stride + size_t(row - first_row) * RHS + r];
  }
};
enum { H = 0, HBAR = 1, X = 2 };

struct Solver {
  const LsmrArguments& g;
  Shared& shared;
  Place place;
  Part forward, adjoint;
#if STREAMED
  Stream stream;
#endif
  StateMemory state;
  int32_t row_begin, row_end, column_begin, column_end;

  __device__ __forceinline__ bool sum_over_grid(double (&sums)[RHS], const double* square_x) {
    return exchange(g, shared.exchange, place, sums, square_x);
  }

  // Long rows first: their pieces are summed by all warps of the grid.
  template <class Sum, class Gathered>
  __device__ __forceinline__ bool prepare(const LsmrMatrix& matrix, const Real* values,
                                          Gathered* x) {
    if (matrix.piece_begin == matrix.piece_end) return true;
    if (place.works) sum_pieces<Sum>(matrix, values, x, place.warp, place.lane);
    double nothing[RHS] = {};
    return sum_over_grid(nothing, nullptr);
  }

  template <class Do>
  __device__ __forceinline__ void for_own(int32_t begin, int32_t end, Do action) const {
    if (!place.works) return;
    for (int32_t i = begin + int32_t(threadIdx.x); i < end; i += WORKERS) action(i);
  }

  // The value of this lane's right-hand side. (A loop here becomes an array indexed by the lane,
  // in local memory.)
  __device__ __forceinline__ double pick(const double (&values)[RHS]) const {
    double value = values[0];
    if constexpr (RHS > 1) value = place.lane == 1 ? values[1] : value;
    if constexpr (RHS > 2) value = place.lane == 2 ? values[2] : value;
    if constexpr (RHS > 2) value = place.lane == 3 ? values[3] : value;
    return value;
  }

  // Whether this lane keeps the scalars of a right-hand side.
  __device__ __forceinline__ bool keeps_scalars() const { return !place.works && place.lane < RHS; }

  template <class Before, class After, class Ready>
  __device__ __forceinline__ void multiply_forward(Before before, After after, Ready ready,
                                                   double (&square)[RHS]);
  template <class Before, class After, class Ready>
  __device__ __forceinline__ void multiply_adjoint(Before before, After after, Ready ready,
                                                   double (&square_v)[RHS],
                                                   double (&square_x)[RHS]);

  __device__ bool start();
  __device__ bool iterate();
  __device__ void recur(int32_t j);
  __device__ bool sum_square_x();
  __device__ bool verify();
  __device__ void report(int32_t failure);
};
