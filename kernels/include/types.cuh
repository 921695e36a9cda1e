// Fixed-width names and bf16 conversions. NVRTC has no <cstdint>, and our sources include only
// our own headers, so the few types needed are declared here.
#pragma once

using int32_t = int;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;

static_assert(sizeof(int64_t) == 8 && sizeof(int32_t) == 4 && sizeof(uint16_t) == 2);

constexpr int WARP_THREADS = 32;
constexpr int WARPGROUP_THREADS = 128;  // wgmma and setmaxnreg act on four consecutive warps

// bf16 travels as its 16 bits: the upper half of the fp32 with the same value.
__device__ __forceinline__ float bf16_to_float(uint32_t bits) {
  return __uint_as_float(bits << 16);
}

// Two fp32 values, rounded to nearest even, packed as bf16: `low` in the lower 16 bits.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// 32-bit address of a shared-memory object, as PTX wants it.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
