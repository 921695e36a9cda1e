// stmatrix: a warp lays four 8 x 8 matrices of 16-bit values down in shared memory, of which each
// lane holds pairs of neighbours as wgmma leaves them (PTX ISA, "stmatrix"). Lane l gives the
// address of row l % 8 of matrix l / 8.
#pragma once

#include "types.cuh"

__device__ __forceinline__ void store_matrices(uint32_t address, uint32_t first, uint32_t second,
                                               uint32_t third, uint32_t fourth) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(first), "r"(second), "r"(third), "r"(fourth)
               : "memory");
}

// The same, each matrix transposed: the addresses are of its columns.
__device__ __forceinline__ void store_transposed(uint32_t address, uint32_t first, uint32_t second,
                                                 uint32_t third, uint32_t fourth) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(first), "r"(second), "r"(third), "r"(fourth)
      : "memory");
}
