// wgmma: a warpgroup multiplies shared-memory tiles into its registers, asynchronously
// (PTX ISA, "wgmma.mma_async"; matrix descriptors, "Matrix Descriptor Format").
#pragma once

#include "types.cuh"
#include "wgmma_instructions.cuh"

// Layout types of a matrix descriptor, bits 62..63, by the swizzle's span in bytes.
template <int SPAN>
struct SwizzleMode;
template <>
struct SwizzleMode<16> {
  static constexpr uint64_t value = 0;
};
template <>
struct SwizzleMode<128> {
  static constexpr uint64_t value = 1;
};
template <>
struct SwizzleMode<64> {
  static constexpr uint64_t value = 2;
};
template <>
struct SwizzleMode<32> {
  static constexpr uint64_t value = 3;
};

// Offsets are in bytes; the hardware keeps them in units of 16 bytes, 14 bits each.
template <int SPAN>
__device__ __forceinline__ uint64_t matrix_descriptor(uint32_t address, uint32_t leading_offset,
                                                      uint32_t stride_offset) {
  auto encoded = [](uint32_t bytes) { return static_cast<uint64_t>((bytes & 0x3FFFF) >> 4); };
  return encoded(address) | (encoded(leading_offset) << 16) | (encoded(stride_offset) << 32) |
         (SwizzleMode<SPAN>::value << 62);
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most PENDING committed groups are still running.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Keeps the compiler from moving or copying accumulators while wgmma owns them.
template <int COUNT>
__device__ __forceinline__ void pin_accumulators(float (&accumulators)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(accumulators[i])::"memory");
}
