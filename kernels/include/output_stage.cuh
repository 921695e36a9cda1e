// Sizes of C's elements in memory, and stmatrix. (A cubin lists the constants that its source
// defines, so all three are kept: the recorded kernels stay what is built here.)
#pragma once

#include "output_tile.cuh"
#include "stmatrix.cuh"
#include "swizzle.cuh"
#include "tma.cuh"

constexpr int OUTPUT_BYTES = OUTPUT_BF16 != 0 ? 2 : 4;
constexpr int OUTPUT_SLICE_COLUMNS = 128 / OUTPUT_BYTES;
constexpr int OUTPUT_SLICE_BYTES = 64 * 128;
