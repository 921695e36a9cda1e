// The iterations of lsmr_persistent.cu.
#pragma once

#include "lsmr_solver.cuh"

#if CLUSTER
// The scalar warp: |x| of iteration j - 2 over the cluster, from the sums of phase B of j - 1. The
// scalar warps poll their own shared memory, into which all others write.
__device__ bool Solver::sum_square_x() {
  const uint32_t turn = place.exchanges_x % 3, next_turn = (turn + 1) % 3;
  ++place.exchanges_x;
  asm volatile("bar.sync %0, %1;" ::"n"(SQUARE_X_BARRIER), "n"(THREADS) : "memory");
  for (int i = place.lane; i < RHS * CLUSTER; i += WARP_THREADS) {
    shared.exchange.slots_x[next_turn][i] = __longlong_as_double(static_cast<int64_t>(EMPTY));
  }
  __syncwarp();
  for (int i = place.lane; i < RHS * CLUSTER; i += WARP_THREADS) {
    const int32_t r = i / CLUSTER;
    const double sum = column_sum<WORKER_WARPS>(shared.exchange.square_x, r);
    const double* slot = &shared.exchange.slots_x[turn][r * CLUSTER + blockIdx.x];
    store_remote(remote_address(slot, i % CLUSTER), sum);
  }
#pragma unroll
  for (int r = 0; r < RHS; ++r) {
    double sum = 0.0;
    if (place.lane < CLUSTER) {
      const double* slot = &shared.exchange.slots_x[turn][r * CLUSTER + place.lane];
      uint64_t bits;
      do {
        bits = load_own(shared_address(slot));
      } while (bits == EMPTY);
      sum = __longlong_as_double(static_cast<int64_t>(bits));
    }
    sum = warp_sum(sum);
    if (place.lane == r) shared.normx[r] = sqrt(sum);
  }
  return true;
}
#else
// The scalar warp: |x| of iteration j - 2 over the grid, from the sums of phase B of j - 1.
__device__ bool Solver::sum_square_x() {
  const uint32_t turn = place.exchanges_x % 3, next_turn = (turn + 1) % 3;
  const uint32_t buffer = RHS * gridDim.x;
  ++place.exchanges_x;
  if (place.lane < RHS) {
    const double sum = column_sum<WORKER_WARPS>(shared.exchange.square_x, place.lane);
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
#endif

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

// The products A v and A' u: see for_rows. The squares are what `after` adds up.
template <class Before, class After, class Ready>
__device__ __forceinline__ void Solver::multiply_forward(Before before, After after, Ready ready,
                                                         double (&square)[RHS]) {
#if STREAMED
  ready();
  stream_rows<1>(g, stream, FORWARD, g.v, place, {&square}, before, after);
#else
  for_rows<Real, TOGETHER>(forward, g.v, place.warp, WORKER_WARPS, place.lane, before, after,
                           ready);
#endif
}

template <class Before, class After, class Ready>
__device__ __forceinline__ void Solver::multiply_adjoint(Before before, After after, Ready ready,
                                                         double (&square_v)[RHS],
                                                         double (&square_x)[RHS]) {
#if STREAMED
  ready();
  stream_rows<2>(g, stream, ADJOINT, g.u, place, {&square_v, &square_x}, before, after);
#else
  for_rows<Real, TOGETHER>(adjoint, g.u, place.warp, WORKER_WARPS, place.lane, before, after,
                           ready);
#endif
}

__device__ bool Solver::iterate() {
  double inverse_alpha[RHS], inverse_beta[RHS];
#pragma unroll
  for (int r = 0; r < RHS; ++r) inverse_beta[r] = 1.0;
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
      const auto ready = [&]() {
#pragma unroll
        for (int r = 0; r < RHS; ++r) {
          inverse_alpha[r] = alpha_squared[r] > 0.0 ? rsqrt(alpha_squared[r]) : 0.0;
          by_alpha[r] = Real(inverse_alpha[r]);
          by_u[r] = Real(alpha_squared[r] * inverse_alpha[r] * inverse_beta[r]);
        }
      };
      struct Own {
        Real u[RHS];
      };
      multiply_forward(
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
          },
          ready, square);
    } else {
      recur(j);
    }
    if (!sum_over_grid(square, nullptr)) return false;
    if (shared.stop) return true;

    // Phase B.
    if (!prepare<Real>(g.adjoint, g.adjoint.values, g.u)) return false;
    double square_x[RHS] = {};
    double square_v[RHS] = {};
    if (place.works) {
      Real by_alpha[RHS], by_beta[RHS], by_v[RHS], hbar_factor[RHS], step[RHS], h_factor[RHS];
      bool moves[RHS];
      const auto ready = [&]() {
#pragma unroll
        for (int r = 0; r < RHS; ++r) {
          inverse_beta[r] = square[r] > 0.0 ? rsqrt(square[r]) : 0.0;
          by_alpha[r] = Real(inverse_alpha[r]);
          by_beta[r] = Real(inverse_beta[r]);
          // Where beta is 0, v and alpha keep their values.
          by_v[r] =
              square[r] > 0.0 ? Real(square[r] * inverse_beta[r] * inverse_alpha[r]) : Real(-1);
          hbar_factor[r] = Real(shared.factors[r].hbar_factor);
          step[r] = Real(shared.factors[r].step);
          h_factor[r] = Real(shared.factors[r].h_factor);
          moves[r] = RHS == 1 || shared.code[r] == RUNNING;
        }
      };
      multiply_adjoint(
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
          },
          ready, square_v, square_x);
    } else if (keeps_scalars()) {
      advance_by_beta(shared.scalars[place.lane], sqrt(pick(square)), g.damp);
    }
    if (!sum_over_grid(square_v, square_x)) return false;
#pragma unroll
    for (int r = 0; r < RHS; ++r) alpha_squared[r] = square_v[r];
    if (keeps_scalars()) shared.alpha_squared[place.lane] = pick(square_v);
  }
}
