// Varying delays at synchronisation points, for the hang test: a missing or misplaced barrier
// that timing happens to hide shows up when every arrival and every wait is shaken.
#pragma once

#include "types.cuh"

#ifndef DEBUG_DELAYS
#define DEBUG_DELAYS 0
#endif

__device__ __forceinline__ void debug_delay(uint32_t site) {
  if constexpr (DEBUG_DELAYS != 0) {
    uint32_t cycles;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycles));
    // Mix clock, place and thread; a quarter of the calls sleep, up to 1 us.
    uint32_t mixed = (cycles ^ (site * 0x9E3779B9u) ^ (threadIdx.x / WARP_THREADS * 0x85EBCA6Bu) ^
                      (blockIdx.x * 0xC2B2AE35u)) *
                     0x27D4EB2Fu;
    if ((mixed >> 30) == 0) __nanosleep((mixed >> 8) & 1023u);
  }
}
