// The vector updates of LSMR, as the document has them: the fused kernel for hbar and x, the
// kernel for h, and the two kernels that the fused one replaces.
//
//   hbar <- h - hbar_factor hbar;  x <- x + step hbar;  h <- v - h_factor h
//
// Fused: h, hbar and x are read, hbar and x written, 20 bytes an element. Apart, hbar makes a
// round trip: 24 bytes. A thread updates WIDTH elements; 4 needs pointers of whole 16 bytes.
#include "types.cuh"

#ifndef WIDTH
#define WIDTH 1  // elements a thread: 1 or 4
#endif
static_assert(WIDTH == 1 || WIDTH == 4);

constexpr int THREADS = 256;

// Its mirror is asyncsparse_lab.lsmr.updates.UpdateArguments.
struct LsmrUpdateArguments {
  float* hbar;
  float* h;
  float* x;
  const float* v;
  float hbar_factor;
  float step;
  float h_factor;
  int64_t size;
};

struct alignas(4 * WIDTH) Pack {
  float e[WIDTH];
};

__device__ __forceinline__ int64_t first_element() {
  return (int64_t(blockIdx.x) * THREADS + threadIdx.x) * WIDTH;
}

__device__ __forceinline__ Pack load(const float* p, int64_t first, int64_t size) {
  if (first + WIDTH <= size) return *reinterpret_cast<const Pack*>(p + first);
  Pack pack{};
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) {
    if (first + i < size) pack.e[i] = p[first + i];
  }
  return pack;
}

__device__ __forceinline__ void store(float* p, int64_t first, int64_t size, const Pack& pack) {
  if (first + WIDTH <= size) {
    *reinterpret_cast<Pack*>(p + first) = pack;
    return;
  }
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) {
    if (first + i < size) p[first + i] = pack.e[i];
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    update_hbar_and_x(const __grid_constant__ LsmrUpdateArguments g) {
  const int64_t first = first_element();
  if (first >= g.size) return;
  const Pack h = load(g.h, first, g.size);
  Pack hbar = load(g.hbar, first, g.size);
  Pack x = load(g.x, first, g.size);
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) {
    hbar.e[i] = fmaf(-g.hbar_factor, hbar.e[i], h.e[i]);
    x.e[i] = fmaf(g.step, hbar.e[i], x.e[i]);
  }
  store(g.hbar, first, g.size, hbar);
  store(g.x, first, g.size, x);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    update_hbar(const __grid_constant__ LsmrUpdateArguments g) {
  const int64_t first = first_element();
  if (first >= g.size) return;
  const Pack h = load(g.h, first, g.size);
  Pack hbar = load(g.hbar, first, g.size);
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) hbar.e[i] = fmaf(-g.hbar_factor, hbar.e[i], h.e[i]);
  store(g.hbar, first, g.size, hbar);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    update_x(const __grid_constant__ LsmrUpdateArguments g) {
  const int64_t first = first_element();
  if (first >= g.size) return;
  const Pack hbar = load(g.hbar, first, g.size);
  Pack x = load(g.x, first, g.size);
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) x.e[i] = fmaf(g.step, hbar.e[i], x.e[i]);
  store(g.x, first, g.size, x);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    update_h(const __grid_constant__ LsmrUpdateArguments g) {
  const int64_t first = first_element();
  if (first >= g.size) return;
  const Pack v = load(g.v, first, g.size);
  Pack h = load(g.h, first, g.size);
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) h.e[i] = fmaf(-g.h_factor, h.e[i], v.e[i]);
  store(g.h, first, g.size, h);
}
