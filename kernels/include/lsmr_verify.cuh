// The end of a solve in lsmr_persistent.cu: x to the caller, norms recomputed, the outcome.
#pragma once

#include "lsmr_solver.cuh"

// x in its own units to the caller, and the norms of b - A x and of its gradient in FP64.
__device__ bool Solver::verify() {
  double moved[RHS] = {};
  double square_y[RHS] = {};
  for_own(column_begin, column_end, [&](int32_t i) {
    const size_t target = size_t(g.column_order[i]) * RHS;
#pragma unroll
    for (int r = 0; r < RHS; ++r) {
      const double y = double(state.at(X, i, r)) * shared.scalars[r].size;
      const Real x = Real(g.scales == nullptr ? y : y * g.scales[i]);
      g.x[target + r] = x;
      g.wide_x[size_t(i) * RHS + r] = double(x);
      square_y[r] += y * y;
      const double distance = double(x) - (g.start == nullptr ? 0.0 : double(g.start[target + r]));
      moved[r] += distance * distance;
    }
  });
  if (!sum_over_grid(moved, nullptr) || !sum_over_grid(square_y, nullptr)) return false;
  if (!prepare<double>(g.forward, g.forward.true_values, g.wide_x)) return false;
  double square_r[RHS] = {};
  if (place.works) {
    const Part part = block_part(g.forward, g.forward.true_values);
    for_rows<double, 1>(
        part, g.wide_x, place.warp, WORKER_WARPS, place.lane, [](int32_t) { return Nothing{}; },
        [&](int32_t row, Nothing, const double (&sums)[RHS]) {
          const size_t source = size_t(g.row_order[row]) * RHS;
#pragma unroll
          for (int r = 0; r < RHS; ++r) {
            const double residual = double(g.b[source + r]) - sums[r];
            g.wide_r[size_t(row) * RHS + r] = residual;
            square_r[r] += residual * residual;
          }
        });
  }
  if (!sum_over_grid(square_r, nullptr)) return false;
  if (!prepare<double>(g.adjoint, g.adjoint.true_values, g.wide_r)) return false;
  double square_g[RHS] = {};
  double square_scaled[RHS] = {};
  if (place.works) {
    const Part part = block_part(g.adjoint, g.adjoint.true_values);
    for_rows<double, 1>(
        part, g.wide_r, place.warp, WORKER_WARPS, place.lane, [](int32_t) { return Nothing{}; },
        [&](int32_t row, Nothing, const double (&sums)[RHS]) {
          const size_t source = size_t(g.column_order[row]) * RHS;
#pragma unroll
          for (int r = 0; r < RHS; ++r) {
            const double start = g.start == nullptr ? 0.0 : double(g.start[source + r]);
            const double x = g.wide_x[size_t(row) * RHS + r];
            const double gradient = sums[r] - g.damp * g.damp * (x - start);
            const double scaled = g.scales == nullptr ? gradient : gradient * g.scales[row];
            square_g[r] += gradient * gradient;
            square_scaled[r] += scaled * scaled;
          }
        });
  }
  if (!sum_over_grid(square_g, nullptr) || !sum_over_grid(square_scaled, nullptr)) return false;
  if (blockIdx.x == 0 && keeps_scalars()) {
    const Scalars& q = shared.scalars[place.lane];
    LsmrOutcome& out = g.outcomes[place.lane];
    out.code = shared.code[place.lane];
    out.itn = shared.done_itn[place.lane];
    out.normr = q.estimates.normr * q.size;
    out.normar = q.estimates.normar * q.size;
    out.norma = q.estimates.norma;
    out.conda = q.estimates.conda;
    out.normx = sqrt(pick(square_y));
    out.true_normr = sqrt(pick(square_r) + g.damp * g.damp * pick(moved));
    out.true_normar = sqrt(pick(square_g));
    out.true_normar_scaled = sqrt(pick(square_scaled));
    out.normb = q.normb * q.size;
  }
  return true;
}

__device__ void Solver::report(int32_t failure) {
  if (threadIdx.x == 0) {
#pragma unroll
    for (int r = 0; r < RHS; ++r) g.outcomes[r].code = failure;
  }
}
