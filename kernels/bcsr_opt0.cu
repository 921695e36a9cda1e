// opt0: scalar FMA on CUDA cores, tiled through shared memory.
//
// A CTA of 128 threads computes 64 x 128 of C; a thread 8 x 8 in registers. For every block of A
// the block and its 64 rows of B are widened to fp32 in shared memory once, A transposed so that a
// thread's eight rows are neighbours.

#include "bcsr_arguments.cuh"

#ifndef OUTPUT_BF16
#define OUTPUT_BF16 1
#endif

constexpr int TILE_COLUMNS = 128;
constexpr int THREADS = 128;

struct SharedTiles {
  float a[BLOCK][BLOCK];         // [k][row]
  float b[BLOCK][TILE_COLUMNS];  // [k][column]
};

__device__ __forceinline__ void widen(uint32_t packed, float& low, float& high) {
  low = bf16_to_float(packed & 0xFFFFu);
  high = __uint_as_float(packed & 0xFFFF0000u);
}

__device__ __forceinline__ void load_a(SharedTiles& tiles, const uint16_t* block) {
  int row = threadIdx.x % BLOCK;
  for (int chunk = threadIdx.x / BLOCK; chunk < BLOCK / 8; chunk += THREADS / BLOCK) {
    uint4 eight = *reinterpret_cast<const uint4*>(block + row * BLOCK + chunk * 8);
    uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float low, high;
      widen(words[i], low, high);
      tiles.a[chunk * 8 + 2 * i][row] = low;
      tiles.a[chunk * 8 + 2 * i + 1][row] = high;
    }
  }
}

__device__ __forceinline__ void load_b(SharedTiles& tiles, const BcsrArguments& arguments,
                                       int64_t first_row, int64_t first_column) {
  constexpr int CHUNKS = TILE_COLUMNS / 4;
  for (int index = threadIdx.x; index < BLOCK * CHUNKS; index += THREADS) {
    int64_t row = first_row + index / CHUNKS;
    int64_t column = first_column + index % CHUNKS * 4;
    float4 four = make_float4(0.f, 0.f, 0.f, 0.f);
    if (row < arguments.k) {
      const uint16_t* source = arguments.b + row * arguments.ldb + column;
      if (column + 3 < arguments.n) {  // the host guarantees rows that are 16-byte aligned
        uint2 words = *reinterpret_cast<const uint2*>(source);
        widen(words.x, four.x, four.y);
        widen(words.y, four.z, four.w);
      } else {
        if (column < arguments.n) four.x = bf16_to_float(source[0]);
        if (column + 1 < arguments.n) four.y = bf16_to_float(source[1]);
        if (column + 2 < arguments.n) four.z = bf16_to_float(source[2]);
      }
    }
    *reinterpret_cast<float4*>(&tiles.b[index / CHUNKS][index % CHUNKS * 4]) = four;
  }
}

__device__ __forceinline__ void store(const BcsrArguments& arguments, int64_t row, int64_t column,
                                      float value) {
  if (row >= arguments.m || column >= arguments.n) return;
  int64_t offset = row * arguments.ldc + column;
  if constexpr (OUTPUT_BF16 != 0)
    static_cast<uint16_t*>(arguments.c)[offset] = static_cast<uint16_t>(pack_bf16(value, 0.f));
  else
    static_cast<float*>(arguments.c)[offset] = value;
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    bcsr_spmm(const __grid_constant__ BcsrArguments arguments) {
  __shared__ __align__(16) SharedTiles tiles;
  int64_t column_tiles = (arguments.n + TILE_COLUMNS - 1) / TILE_COLUMNS;
  int64_t block_row = blockIdx.x / column_tiles;
  int64_t first_column = blockIdx.x % column_tiles * TILE_COLUMNS;
  // A thread's columns are two groups of four, 64 apart, so that a warp reads B conflict-free.
  int row0 = threadIdx.x / 16 * 8;
  int column0 = threadIdx.x % 16 * 4;

  float sums[8][8] = {};
  int64_t end = arguments.block_row_ptr[block_row + 1];
  for (int64_t block = arguments.block_row_ptr[block_row]; block < end; ++block) {
    load_a(tiles, arguments.blocks + block * BLOCK * BLOCK);
    load_b(tiles, arguments, int64_t{arguments.block_col_idx[block]} * BLOCK, first_column);
    __syncthreads();
#pragma unroll 4
    for (int k = 0; k < BLOCK; ++k) {
      float a[8], b[8];
      *reinterpret_cast<float4*>(a) = *reinterpret_cast<float4*>(&tiles.a[k][row0]);
      *reinterpret_cast<float4*>(a + 4) = *reinterpret_cast<float4*>(&tiles.a[k][row0 + 4]);
      *reinterpret_cast<float4*>(b) = *reinterpret_cast<float4*>(&tiles.b[k][column0]);
      *reinterpret_cast<float4*>(b + 4) = *reinterpret_cast<float4*>(&tiles.b[k][column0 + 64]);
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j)
      store(arguments, block_row * BLOCK + row0 + i, first_column + column0 + (j < 4 ? j : 60 + j),
            sums[i][j]);
}
