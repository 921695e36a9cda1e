// LSMR in one persistent kernel: no host in the loop, two barriers an iteration.
//
// u and v stay unnormalised, u = beta u_j and v = alpha v_j; the factors 1 / alpha and 1 / beta
// ride in the products. Iteration j:
//   phase A  u <- A v / alpha - (alpha / beta) u                  | the exchange gives beta
//   phase B  h, hbar, x of iteration j - 1, |x| partial;
//            v <- A' u / beta - (beta / alpha) v                  | the exchange gives alpha
// Meanwhile the last warp of each block runs the FP64 recurrence (advance_by_beta in phase B,
// advance_by_alpha in phase A), reduces |x| over the grid and tests iteration j - 2: all blocks
// compute the same bits from the same sums, so they stop together. x of iteration j - 2 is
// untouched at that moment; an iteration and a half were run in vain.
//
// Launch cooperatively: every block must be resident. A wait that is too long ends the kernel.
#include "lsmr_arguments.cuh"
#include "lsmr_exchange.cuh"
#include "lsmr_product.cuh"
#include "lsmr_scalars.cuh"

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

  __device__ bool start();
  __device__ bool iterate();
  __device__ void recur(int32_t j);
  __device__ bool sum_square_x();
  __device__ bool verify();
  __device__ void report(int32_t failure);
};

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
      for_rows<Real>(
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
    for_rows<double>(
        adjoint, g.u, place.warp, WORKER_WARPS, place.lane, [](int32_t) { return Nothing{}; },
        [&](int32_t row, Nothing, const double(&sums)[RHS]) {
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
#pragma unroll
  for (int r = 0; r < RHS; ++r) {
    if (place.works || place.lane != r) continue;
    Scalars& q = shared.scalars[r];
    start_scalars(q, sqrt(square_v[r]), sqrt(square[r]) / size[r]);
    q.normb = sqrt(square_b[r]) / size[r];
    q.size = size[r];
    shared.code[r] = q.zetabar == 0.0        ? STARTS_SOLVED
                     : !isfinite(q.zetabar) ? PRODUCT_NOT_FINITE
                     : g.maxiter == 0       ? ITERATION_LIMIT
                                            : RUNNING;
    shared.done_itn[r] = 0;
    shared.factors[r] = {0.0, 0.0, 0.0};
    shared.alpha_squared[r] = square_v[r];
    shared.normx[r] = 0.0;
  }
  block_barrier();
  return true;
}

// The scalar warp: |x| of iteration j - 2 over the grid, from the sums of phase B of j - 1.
__device__ bool Solver::sum_square_x() {
  const uint32_t turn = place.exchanges_x % 3, next_turn = (turn + 1) % 3;
  const uint32_t buffer = RHS * gridDim.x;
  ++place.exchanges_x;
  if (place.lane < RHS) {
    double sum = 0.0;
#pragma unroll
    for (int warp = 0; warp < WORKER_WARPS; ++warp) {
      sum += shared.exchange.square_x[warp][place.lane];
    }
    const uint32_t mine = place.lane * gridDim.x + blockIdx.x;
    store_relaxed(&g.slots_x[next_turn * buffer + mine], EMPTY);
    store_relaxed(&g.slots_x[turn * buffer + mine],
                  static_cast<uint64_t>(__double_as_longlong(sum)));
  }
  __syncwarp();
  bool in_time = true;
#pragma unroll
  for (int r = 0; r < RHS; ++r) {
    double sum = 0.0;
    for (uint32_t block = place.lane; block < gridDim.x; block += WARP_THREADS) {
      const double* slot = &g.slots_x[turn * buffer + r * gridDim.x + block];
      const double value = await_slot<false>(slot, g.spin_limit);
      in_time = in_time && !is_empty(value);
      sum += value;
    }
    sum = warp_sum(sum);
    if (place.lane == r) shared.normx[r] = sqrt(sum);
  }
  return __all_sync(~0u, in_time);
}

// The scalar warp in phase A of iteration j: finish iteration j - 1, test iteration j - 2.
__device__ void Solver::recur(int32_t j) {
  if (j < 2) return;
  const int r = place.lane < RHS ? place.lane : 0;
  Scalars& q = shared.scalars[r];
  const Estimates tested = q.estimates;
  double alpha = 0.0;
  __syncwarp();
  if (place.lane < RHS && shared.code[r] == RUNNING) {
    alpha = sqrt(shared.alpha_squared[r]);
    shared.factors[r] = advance_by_alpha(q, alpha);
  }
  // |x| of the start is not needed, but its exchange keeps the buffers in step.
  if (!sum_square_x()) {
    if (place.lane == 0) shared.exchange.timed_out[place.exchanges % 2] = 1;
    return;
  }
  bool runs = false;
  if (place.lane < RHS) {
    if (j >= 3 && shared.code[r] == RUNNING) {
      const int32_t code = stop_code(tested, shared.normx[r], q.normb, j - 2, g);
      if (code != RUNNING) {
        shared.code[r] = code;
        shared.done_itn[r] = j - 2;
        q.estimates = tested;
      } else if (!isfinite(alpha) || !isfinite(q.beta)) {
        shared.code[r] = PRODUCT_NOT_FINITE;
      }
      if (g.history != nullptr && blockIdx.x == 0) {
        double* line = g.history + (size_t(j - 3) * RHS + r) * 8;
        line[1] = tested.normr * q.size;
        line[2] = tested.normar * q.size;
        line[3] = tested.norma;
        line[4] = tested.conda;
        line[5] = shared.normx[r] * q.size;
        __threadfence_system();
        *reinterpret_cast<volatile double*>(line) = j - 2;
      }
    }
    runs = shared.code[r] == RUNNING;
  }
  const bool any_runs = __any_sync(~0u, runs);
  if (place.lane == 0 && !any_runs) shared.stop = 1;
}

__device__ bool Solver::iterate() {
  double inverse_alpha[RHS], inverse_beta[RHS];
#pragma unroll
  for (int r = 0; r < RHS; ++r) {
    const double square = shared.alpha_squared[r];
    inverse_alpha[r] = square > 0.0 ? rsqrt(square) : 0.0;
    inverse_beta[r] = 1.0;
  }
  bool any_runs = false;
#pragma unroll
  for (int r = 0; r < RHS; ++r) any_runs = any_runs || shared.code[r] == RUNNING;
  // The scalar warp writes shared.code from here on; nobody else reads it in the loop but to
  // freeze x, behind a barrier.
  block_barrier();
  if (!any_runs) return true;
  double alpha_squared[RHS];
#pragma unroll
  for (int r = 0; r < RHS; ++r) alpha_squared[r] = shared.alpha_squared[r];

  for (int32_t j = 1;; ++j) {
    // Phase A.
    if (!prepare<Real>(g.forward, g.forward.values, g.v)) return false;
    double square[RHS] = {};
    if (place.works) {
      Real by_alpha[RHS], by_u[RHS];
#pragma unroll
      for (int r = 0; r < RHS; ++r) {
        by_alpha[r] = Real(inverse_alpha[r]);
        by_u[r] = Real(alpha_squared[r] * inverse_alpha[r] * inverse_beta[r]);
      }
      struct Own {
        Real u[RHS];
      };
      for_rows<Real>(
          forward, g.v, place.warp, WORKER_WARPS, place.lane,
          [&](int32_t row) {
            Own own;
#pragma unroll
            for (int r = 0; r < RHS; ++r) own.u[r] = g.u[size_t(row) * RHS + r];
            return own;
          },
          [&](int32_t row, const Own& own, const Real(&sums)[RHS]) {
#pragma unroll
            for (int r = 0; r < RHS; ++r) {
              const Real u = sums[r] * by_alpha[r] - by_u[r] * own.u[r];
              g.u[size_t(row) * RHS + r] = u;
              square[r] += double(u) * double(u);
            }
          });
    } else {
      recur(j);
    }
    if (!sum_over_grid(square, nullptr)) return false;
    if (shared.stop) return true;

    // Phase B.
    if (!prepare<Real>(g.adjoint, g.adjoint.values, g.u)) return false;
    double square_x[RHS] = {};
    double square_v[RHS] = {};
#pragma unroll
    for (int r = 0; r < RHS; ++r) inverse_beta[r] = square[r] > 0.0 ? rsqrt(square[r]) : 0.0;
    if (place.works) {
      Real by_alpha[RHS], by_beta[RHS], by_v[RHS], hbar_factor[RHS], step[RHS], h_factor[RHS];
      bool moves[RHS];
#pragma unroll
      for (int r = 0; r < RHS; ++r) {
        by_alpha[r] = Real(inverse_alpha[r]);
        by_beta[r] = Real(inverse_beta[r]);
        // Where beta is 0, v and alpha keep their values.
        by_v[r] = square[r] > 0.0 ? Real(square[r] * inverse_beta[r] * inverse_alpha[r]) : Real(-1);
        hbar_factor[r] = Real(shared.factors[r].hbar_factor);
        step[r] = Real(shared.factors[r].step);
        h_factor[r] = Real(shared.factors[r].h_factor);
        moves[r] = RHS == 1 || shared.code[r] == RUNNING;
      }
      for_rows<Real>(
          adjoint, g.u, place.warp, WORKER_WARPS, place.lane,
          [&](int32_t row) {
            State own;
#pragma unroll
            for (int r = 0; r < RHS; ++r) {
              own.v[r] = g.v[size_t(row) * RHS + r];
              own.h[r] = state.at(H, row, r);
              own.hbar[r] = state.at(HBAR, row, r);
              own.x[r] = state.at(X, row, r);
            }
            return own;
          },
          [&](int32_t row, const State& own, const Real(&sums)[RHS]) {
#pragma unroll
            for (int r = 0; r < RHS; ++r) {
              const Real hbar = own.h[r] - hbar_factor[r] * own.hbar[r];
              state.at(HBAR, row, r) = hbar;
              state.at(H, row, r) = own.v[r] * by_alpha[r] - h_factor[r] * own.h[r];
              const Real x = moves[r] ? own.x[r] + step[r] * hbar : own.x[r];
              state.at(X, row, r) = x;
              square_x[r] += double(x) * double(x);
              const Real v = sums[r] * by_beta[r] - by_v[r] * own.v[r];
              g.v[size_t(row) * RHS + r] = v;
              square_v[r] += double(v) * double(v);
            }
          });
    } else if (place.lane < RHS) {
      Scalars& q = shared.scalars[place.lane];
#pragma unroll
      for (int r = 0; r < RHS; ++r) {
        if (place.lane == r) advance_by_beta(q, square[r] * inverse_beta[r], g.damp);
      }
    }
    if (!sum_over_grid(square_v, square_x)) return false;
#pragma unroll
    for (int r = 0; r < RHS; ++r) {
      alpha_squared[r] = square_v[r];
      inverse_alpha[r] = square_v[r] > 0.0 ? rsqrt(square_v[r]) : 0.0;
      if (!place.works && place.lane == r) shared.alpha_squared[r] = square_v[r];
    }
  }
}

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
    const Part part = whole_part(g.forward, g.forward.true_values,
                                 g.forward.block_slices[blockIdx.x],
                                 g.forward.block_slices[blockIdx.x + 1]);
    for_rows<double>(
        part, g.wide_x, place.warp, WORKER_WARPS, place.lane, [](int32_t) { return Nothing{}; },
        [&](int32_t row, Nothing, const double(&sums)[RHS]) {
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
    const Part part = whole_part(g.adjoint, g.adjoint.true_values,
                                 g.adjoint.block_slices[blockIdx.x],
                                 g.adjoint.block_slices[blockIdx.x + 1]);
    for_rows<double>(
        part, g.wide_r, place.warp, WORKER_WARPS, place.lane, [](int32_t) { return Nothing{}; },
        [&](int32_t row, Nothing, const double(&sums)[RHS]) {
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
  if (blockIdx.x == 0 && !place.works && place.lane < RHS) {
#pragma unroll
    for (int r = 0; r < RHS; ++r) {
      if (place.lane != r) continue;
      const Scalars& q = shared.scalars[r];
      LsmrOutcome& out = g.outcomes[r];
      out.code = shared.code[r];
      out.itn = shared.done_itn[r];
      out.normr = q.estimates.normr * q.size;
      out.normar = q.estimates.normar * q.size;
      out.norma = q.estimates.norma;
      out.conda = q.estimates.conda;
      out.normx = sqrt(square_y[r]);
      out.true_normr = sqrt(square_r[r] + g.damp * g.damp * moved[r]);
      out.true_normar = sqrt(square_g[r]);
      out.true_normar_scaled = sqrt(square_scaled[r]);
      out.normb = q.normb * q.size;
    }
  }
  return true;
}

__device__ void Solver::report(int32_t failure) {
  if (threadIdx.x == 0) {
#pragma unroll
    for (int r = 0; r < RHS; ++r) g.outcomes[r].code = failure;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    lsmr_persistent(const __grid_constant__ LsmrArguments g) {
  extern __shared__ __align__(16) char dynamic[];
  __shared__ Shared shared;
  const int32_t warp = threadIdx.x / WARP_THREADS;
  const Place place = {int32_t(threadIdx.x % WARP_THREADS), warp, warp < WORKER_WARPS, 0u, 0u};

  const auto first_row = [&](const LsmrMatrix& matrix, int32_t block) {
    const int32_t slice = matrix.block_slices[block];
    return slice == matrix.block_slices[gridDim.x] ? matrix.rows : matrix.slices[slice].first_row;
  };
  Solver solver = {g, shared, place};
  solver.row_begin = first_row(g.forward, blockIdx.x);
  solver.row_end = first_row(g.forward, blockIdx.x + 1);
  solver.column_begin = first_row(g.adjoint, blockIdx.x);
  solver.column_end = first_row(g.adjoint, blockIdx.x + 1);
  if (STAGED) {
    char* next = dynamic;
    solver.forward = stage_part(g.forward, next);
    solver.adjoint = stage_part(g.adjoint, next);
    const int32_t columns = solver.column_end - solver.column_begin;
    solver.state = {reinterpret_cast<Real*>(next), size_t(columns) * RHS, solver.column_begin};
  } else {
    solver.forward = whole_part(g.forward, g.forward.values, g.forward.block_slices[blockIdx.x],
                                g.forward.block_slices[blockIdx.x + 1]);
    solver.adjoint = whole_part(g.adjoint, g.adjoint.values, g.adjoint.block_slices[blockIdx.x],
                                g.adjoint.block_slices[blockIdx.x + 1]);
    solver.state = {g.state, size_t(g.adjoint.rows) * RHS, 0};
  }
  if (threadIdx.x == 0) {
    shared.stop = shared.exchange.timed_out[0] = shared.exchange.timed_out[1] = 0;
#pragma unroll
    for (int r = 0; r < RHS; ++r) shared.code[r] = RUNNING;
  }
  block_barrier();

  bool ok = solver.start() && solver.iterate();
  if (ok) {
#pragma unroll
    for (int r = 0; r < RHS; ++r) ok = ok && shared.code[r] >= 0;
    ok = ok && solver.verify();
  }
  block_barrier();
  if (!ok) {
    int32_t failure = shared.exchange.timed_out[0] || shared.exchange.timed_out[1] ? BARRIER_TIMED_OUT : RUNNING;
#pragma unroll
    for (int r = 0; r < RHS; ++r) failure = min(failure, shared.code[r]);
    if (blockIdx.x == 0 || failure == BARRIER_TIMED_OUT) solver.report(failure);
  }
}
