// setmaxnreg: warpgroups trade registers. It takes effect only in a kernel with a register cap at
// entry (__launch_bounds__(threads, 1)) and when each role is one branch (ptxas says C7508 when it
// ignores it). 24 * 128 + 240 * 256 = 64,512 of 65,536 registers: one CTA per SM.
#pragma once

#include "types.cuh"

#ifndef SETMAXNREG
#define SETMAXNREG 1
#endif

template <int REGISTERS>
__device__ __forceinline__ void release_registers() {
  if constexpr (SETMAXNREG != 0)
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS>
__device__ __forceinline__ void claim_registers() {
  if constexpr (SETMAXNREG != 0)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
