// Probe: device-to-device copy, 16 bytes a thread and step, four loads in flight.
#include "types.cuh"

struct CopyArguments {
  const uint4* source;
  uint4* destination;
  int64_t count;  // of 16-byte pieces
};

extern "C" __global__ void __launch_bounds__(512)
    probe_copy(const __grid_constant__ CopyArguments arguments) {
  constexpr int UNROLL = 4;
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  const int64_t first = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < arguments.count; i += UNROLL * stride) {
    uint4 pieces[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
      if (i + u * stride < arguments.count) pieces[u] = __ldcs(&arguments.source[i + u * stride]);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
      if (i + u * stride < arguments.count)
        __stcs(&arguments.destination[i + u * stride], pieces[u]);
  }
}
