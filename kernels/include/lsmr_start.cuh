// The beginning of a solve in lsmr_persistent.cu: u, v and the scalars before the first iteration.
#pragma once

#include "lsmr_solver.cuh"

__device__ __forceinline__ double power_of_two_below(double size) {
  return size > 0.0 ? __hiloint2double(__double2hiint(size) & 0x7ff00000, 0) : 1.0;
}

// u = b - A x0, v = A' u / |u|, and the scalars from their norms.
__device__ bool Solver::start() {
  double square_b[RHS] = {};
  for_own(row_begin, row_end, [&](int32_t i) {
    const size_t source = size_t(g.row_order[i]) * RHS;
#pragma unroll
    for (int r = 0; r < RHS; ++r) {
      const Real value = g.b[source + r];
      g.u[size_t(i) * RHS + r] = value;
      square_b[r] += double(value) * double(value);
    }
  });
  for_own(column_begin, column_end, [&](int32_t i) {
    const size_t source = g.start == nullptr ? 0 : size_t(g.column_order[i]) * RHS;
#pragma unroll
    for (int r = 0; r < RHS; ++r) {
      Real value = g.start == nullptr ? Real(0) : g.start[source + r];
      if (g.scales != nullptr) value = Real(value / g.scales[i]);
      state.at(H, i, r) = state.at(HBAR, i, r) = Real(0);
      state.at(X, i, r) = value;
      g.v[size_t(i) * RHS + r] = value;
    }
  });
  if (!sum_over_grid(square_b, nullptr)) return false;
  double square[RHS];
#pragma unroll
  for (int r = 0; r < RHS; ++r) square[r] = square_b[r];
  if (g.start != nullptr) {
    if (!prepare<Real>(g.forward, g.forward.values, g.v)) return false;
#pragma unroll
    for (int r = 0; r < RHS; ++r) square[r] = 0.0;
    if (place.works) {
      for_rows<Real, 1>(
          forward, g.v, place.warp, WORKER_WARPS, place.lane, [](int32_t) { return Nothing{}; },
          [&](int32_t row, Nothing, const Real(&sums)[RHS]) {
#pragma unroll
            for (int r = 0; r < RHS; ++r) {
              // A x = 0 is solved by x = 0, whatever the start is.
              const bool is_zero = square_b[r] == 0.0 && g.damp == 0.0;
              Real& u = g.u[size_t(row) * RHS + r];
              u = is_zero ? Real(0) : u - sums[r];
              square[r] += double(u) * double(u);
            }
          });
    }
    if (!sum_over_grid(square, nullptr)) return false;
  }
  double inverse_beta[RHS], size[RHS];
  bool finite = true;
#pragma unroll
  for (int r = 0; r < RHS; ++r) {
    finite = finite && isfinite(square[r]) && isfinite(square_b[r]);
    inverse_beta[r] = square[r] > 0.0 ? rsqrt(square[r]) : 0.0;
    size[r] = power_of_two_below(sqrt(fmax(square[r], square_b[r])));
  }
  if (!finite) {
    if (threadIdx.x == 0) shared.code[0] = INPUT_NOT_FINITE;
    return false;
  }
  if (!prepare<double>(g.adjoint, g.adjoint.values, g.u)) return false;
  double square_v[RHS] = {};
  if (place.works) {
    // In FP64, for u is as large as b here.
    for_rows<double, 1>(
        adjoint, g.u, place.warp, WORKER_WARPS, place.lane, [](int32_t) { return Nothing{}; },
        [&](int32_t row, Nothing, const double (&sums)[RHS]) {
#pragma unroll
          for (int r = 0; r < RHS; ++r) {
            const Real value = Real(sums[r] * inverse_beta[r]);
            g.v[size_t(row) * RHS + r] = value;
            square_v[r] += double(value) * double(value);
            const bool is_zero = square_b[r] == 0.0 && g.damp == 0.0;
            Real& x = state.at(X, row, r);
            x = is_zero ? Real(0) : Real(double(x) / size[r]);
          }
        });
  }
  if (!sum_over_grid(square_v, nullptr)) return false;
  // All blocks have read the unscaled u; the iteration begins with |u| = 1.
  for_own(row_begin, row_end, [&](int32_t i) {
#pragma unroll
    for (int r = 0; r < RHS; ++r) {
      Real& u = g.u[size_t(i) * RHS + r];
      u = Real(double(u) * inverse_beta[r]);
    }
  });
  if (keeps_scalars()) {
    const int32_t r = place.lane;
    const double own_size = pick(size), own_square_v = pick(square_v);
    Scalars& q = shared.scalars[r];
    start_scalars(q, sqrt(own_square_v), sqrt(pick(square)) / own_size);
    q.normb = sqrt(pick(square_b)) / own_size;
    q.size = own_size;
    shared.code[r] = q.zetabar == 0.0       ? STARTS_SOLVED
                     : !isfinite(q.zetabar) ? PRODUCT_NOT_FINITE
                     : g.maxiter == 0       ? ITERATION_LIMIT
                                            : RUNNING;
    shared.done_itn[r] = 0;
    shared.factors[r] = {0.0, 0.0, 0.0};
    shared.alpha_squared[r] = own_square_v;
    shared.normx[r] = 0.0;
  }
  block_barrier();
  // A warp that streams goes on with a u that other blocks have scaled.
  double nothing[RHS] = {};
  return !STREAMED || sum_over_grid(nothing, nullptr);
}
