// Shared-memory swizzle, as TMA writes it and wgmma reads it: within every 8 * SPAN bytes, the
// 16-byte chunk index is XORed with the row index modulo the chunks of a row, so that eight rows
// of one column fall into eight different bank groups. SPAN is the row length in bytes;
// 16 bytes means no swizzle.
#pragma once

#include "types.cuh"

template <int SPAN>
__device__ __forceinline__ uint32_t swizzled(uint32_t offset) {
  static_assert(SPAN == 16 || SPAN == 32 || SPAN == 64 || SPAN == 128);
  // Address bits 7.. select the XOR, whatever the span: Swizzle<log2(SPAN / 16), 4, 3>.
  return offset ^ ((offset >> 3) & (SPAN - 16));
}
