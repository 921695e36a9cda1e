// Keeps the stream busy while the host enqueues what is to be timed, so that no launch latency is
// in the time; and measures the clock of the SM that it runs on.
#include "types.cuh"

// Mirror in Python: asyncsparse_lab.gpu.timing.DelayArguments.
struct DelayArguments {
  uint64_t nanoseconds;
  uint64_t* elapsed;  // may be null; else [0] cycles and [1] nanoseconds that were spent
};

__device__ __forceinline__ uint64_t global_nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// One thread. %globaltimer advances in steps (32 ns to 1 us): begin and end on a step, so that
// the ratio of cycles to nanoseconds is that of the clock.
extern "C" __global__ void delay(const __grid_constant__ DelayArguments arguments) {
  const uint64_t before = global_nanoseconds();
  uint64_t begin = before;
  while (begin == before) begin = global_nanoseconds();
  const uint64_t first_cycle = clock64();
  uint64_t now = begin;
  while (now - begin < arguments.nanoseconds) now = global_nanoseconds();
  const uint64_t last_cycle = clock64();
  if (arguments.elapsed != nullptr) {
    arguments.elapsed[0] = last_cycle - first_cycle;
    arguments.elapsed[1] = now - begin;
  }
}
