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
#include "lsmr_iterate.cuh"
#include "lsmr_solver.cuh"
#include "lsmr_start.cuh"
#include "lsmr_verify.cuh"

extern "C" __global__ void ONE_CLUSTER __launch_bounds__(THREADS, MIN_BLOCKS)
    lsmr_persistent(const __grid_constant__ LsmrArguments g) {
  extern __shared__ __align__(16) char dynamic[];
  __shared__ Shared shared;
  const int32_t warp = threadIdx.x / WARP_THREADS;
  const Place place = {int32_t(threadIdx.x % WARP_THREADS), warp, warp < WORKER_WARPS, 0u, 0u};

  const auto first_row = [&](const LsmrMatrix& matrix, int32_t block) {
    const int32_t slice = block_begin(matrix, block);
    return slice == block_begin(matrix, gridDim.x) ? matrix.rows : matrix.slices[slice].first_row;
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
    solver.forward = block_part(g.forward, g.forward.values);
    solver.adjoint = block_part(g.adjoint, g.adjoint.values);
    solver.state = {g.state, size_t(g.adjoint.rows) * RHS, 0};
  }
  if (threadIdx.x == 0) {
    shared.stop = shared.exchange.timed_out[0] = shared.exchange.timed_out[1] = 0;
#pragma unroll
    for (int r = 0; r < RHS; ++r) shared.code[r] = RUNNING;
  }
#if CLUSTER
  for (int i = threadIdx.x; i < 3 * RHS * CLUSTER; i += THREADS) {
    shared.exchange.slots_x[0][i] = __longlong_as_double(static_cast<int64_t>(EMPTY));
  }
#endif
  meet();
#if STREAMED
  if (place.works) solver.stream.begin(g, dynamic, place.warp, place.lane);
#endif

  bool ok = solver.start() && solver.iterate();
#if STREAMED
  if (place.works) solver.stream.drain();
#endif
  if (ok) {
#pragma unroll
    for (int r = 0; r < RHS; ++r) ok = ok && shared.code[r] >= 0;
    ok = ok && solver.verify();
  }
  meet();
  if (!ok) {
    int32_t failure =
        shared.exchange.timed_out[0] || shared.exchange.timed_out[1] ? BARRIER_TIMED_OUT : RUNNING;
#pragma unroll
    for (int r = 0; r < RHS; ++r) failure = min(failure, shared.code[r]);
    if (blockIdx.x == 0 || failure == BARRIER_TIMED_OUT) solver.report(failure);
  }
}
