// Probe: what a phase of lsmr_persistent.cu cannot go below. Every round a thread stores a value,
// the grid exchanges its sums, and the thread loads a value that another block stored.
#include "lsmr_arguments.cuh"
#include "lsmr_exchange.cuh"

extern "C" __global__ void ONE_CLUSTER __launch_bounds__(THREADS)
    lsmr_probe(const __grid_constant__ LsmrArguments g) {
  __shared__ Exchange shared;
  const int32_t warp = threadIdx.x / WARP_THREADS;
  Place place = {int32_t(threadIdx.x % WARP_THREADS), warp, warp < WORKER_WARPS, 0u, 0u};
  if (threadIdx.x == 0) shared.timed_out[0] = shared.timed_out[1] = 0;
  meet();
  const uint32_t count = gridDim.x * WORKERS;
  const uint32_t mine = blockIdx.x * WORKERS + threadIdx.x;
  Real value = Real(1);
  bool in_time = true;
  for (int32_t round = 0; in_time && round < g.maxiter; ++round) {
    double sums[RHS] = {};
    if (place.works) {
      g.u[mine] = value;
      sums[0] = double(value);
    }
    in_time = exchange(g, shared, place, sums);
    if (place.works) value = g.u[(mine + WORKERS + round) % count];
  }
  meet();
  if (threadIdx.x == 0 && blockIdx.x == 0) g.outcomes[0].code = in_time ? double(value) : -4.0;
}
