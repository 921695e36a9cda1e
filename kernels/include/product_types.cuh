// The types of a product, by macros that the host sets: of A and B, and of C.
#pragma once

#include "wgmma_instructions.cuh"

#ifndef INPUT_FP16
#define INPUT_FP16 0
#endif
#ifndef OUTPUT_BF16
#define OUTPUT_BF16 1
#endif
#ifndef OUTPUT_FP16
#define OUTPUT_FP16 0
#endif

template <int FLOAT16>
struct InputType {
  using type = Bf16;
};
template <>
struct InputType<1> {
  using type = F16;
};
using Input = InputType<INPUT_FP16>::type;

constexpr bool IS_16_BIT = OUTPUT_BF16 != 0 || OUTPUT_FP16 != 0;  // else fp32
constexpr int OUTPUT_BYTES = IS_16_BIT ? 2 : 4;

// Two sums in C's 16-bit type, rounded to nearest even: `low` in the lower 16 bits.
__device__ __forceinline__ uint32_t pack_output(float low, float high) {
  if constexpr (OUTPUT_FP16 == 0) return pack_bf16(low, high);
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
