// A sparse vector into a dense one of zeros: y[index[i]] = value[i], every index once.
#include "types.cuh"

constexpr int THREADS = 256;

// Its mirror is asyncsparse_lab.lsmr.updates.ScatterArguments.
struct ScatterArguments {
  float* y;
  const int32_t* index;
  const float* value;
  int64_t count;
};

extern "C" __global__ void __launch_bounds__(THREADS)
    lsmr_scatter(const __grid_constant__ ScatterArguments g) {
  const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (i < g.count) g.y[g.index[i]] = g.value[i];
}
