// The hang test's check: is this launch's C bit for bit the first one's? And poison it again.
#include "types.cuh"

struct CompareArguments {
  const uint32_t* first;
  uint32_t* current;  // left full of `poison`
  int64_t words;
  uint64_t* found;  // [0] words that differed, [1] smallest launch that did
  uint64_t launch;
  uint32_t poison;
};

extern "C" __global__ void __launch_bounds__(512)
    compare_launch(const __grid_constant__ CompareArguments arguments) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < arguments.words;
       i += stride) {
    if (arguments.current[i] != arguments.first[i]) {
      atomicAdd(&arguments.found[0], uint64_t(1));
      atomicMin(&arguments.found[1], arguments.launch);
    }
    arguments.current[i] = arguments.poison;
  }
}
