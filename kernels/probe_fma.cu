// Probe: FP32 multiply-adds from registers, CHAINS independent chains a thread.
//
// x = x * factor + addend converges to addend / (1 - factor): the host picks 0.5 and 1, so that
// the sum it checks is exactly 2 * CHAINS.
#include "types.cuh"

#ifndef CHAINS
#define CHAINS 16
#endif

struct FmaArguments {
  float* sums;  // one a thread
  float factor;
  float addend;
  int32_t iterations;
};

extern "C" __global__ void __launch_bounds__(1024)
    probe_fma(const __grid_constant__ FmaArguments arguments) {
  float values[CHAINS];
#pragma unroll
  for (int c = 0; c < CHAINS; ++c) values[c] = float(c + threadIdx.x);
#pragma unroll 8
  for (int i = 0; i < arguments.iterations; ++i) {
#pragma unroll
    for (int c = 0; c < CHAINS; ++c)
      values[c] = fmaf(values[c], arguments.factor, arguments.addend);
  }
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < CHAINS; ++c) sum += values[c];
  arguments.sums[int64_t(blockIdx.x) * blockDim.x + threadIdx.x] = sum;
}
