// One thread of a warp, such that the compiler knows that it is one. Without, it has each TMA
// instruction look for other threads with other operands, which takes longer than the instruction
// (PTX ISA, "elect.sync": the same thread each time).
#pragma once

#include "types.cuh"

__device__ __forceinline__ bool is_elected() {
  uint32_t elected;
  asm volatile(
      "{\n.reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(elected));
  return elected != 0;
}
