// opt1 = opt0 with tensor cores: wgmma on swizzled tiles that all threads load together,
// synchronously. Load, barrier, multiply, barrier; nothing overlaps within a CTA.

#include "bcsr_tile.cuh"
#include "tma.cuh"

constexpr int THREADS = CONSUMERS * WARPGROUP_THREADS;

__device__ __forceinline__ void store_shared(uint32_t address, uint4 value) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}

__device__ __forceinline__ void load_a(uint32_t a, const uint16_t* block) {
#pragma unroll
  for (int chunk = threadIdx.x; chunk < BLOCK_BYTES / 16; chunk += THREADS)
    store_shared(a + swizzled<BLOCK_ROW_BYTES>(chunk * 16),
                 reinterpret_cast<const uint4*>(block)[chunk]);
}

// Eight neighbours of a row of B; columns from n on and rows from k on are zeros.
__device__ __forceinline__ uint4 read_eight(const BcsrArguments& arguments, int64_t row,
                                            int64_t column) {
  uint32_t words[4] = {0, 0, 0, 0};
  if (row < arguments.k && column < arguments.n) {
    const uint16_t* source = arguments.b + row * arguments.ldb + column;
    if (column + 8 <= arguments.n) return *reinterpret_cast<const uint4*>(source);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (column + i < arguments.n) words[i / 2] |= uint32_t{source[i]} << (i % 2 * 16);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ void load_b(uint32_t b, const BcsrArguments& arguments,
                                       int64_t first_row, int64_t first_column) {
  constexpr int CHUNKS = TILE_COLUMNS / 8;  // 16-byte chunks in a row of the tile
  constexpr int SLICE_CHUNKS = SLICE_COLUMNS / 8;
#pragma unroll 8
  for (int index = threadIdx.x; index < BLOCK * CHUNKS; index += THREADS) {
    int row = index / CHUNKS;
    int chunk = index % CHUNKS;
    uint32_t offset = row * SLICE_SPAN + chunk % SLICE_CHUNKS * 16;
    store_shared(b + chunk / SLICE_CHUNKS * SLICE_BYTES + swizzled<SLICE_SPAN>(offset),
                 read_eight(arguments, first_row + row, first_column + chunk * 8));
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    bcsr_spmm(const __grid_constant__ BcsrArguments arguments) {
  extern __shared__ uint8_t dynamic_shared[];
  uint32_t a = aligned_stages(dynamic_shared);
  uint32_t b = a + BLOCK_BYTES;
  Tile tile = tile_of(arguments, blockIdx.x);
  int consumer = threadIdx.x / WARPGROUP_THREADS;

  float accumulators[WGMMA_N / 2] = {};
  int64_t end = arguments.block_row_ptr[tile.block_row + 1];
  for (int64_t block = arguments.block_row_ptr[tile.block_row]; block < end; ++block) {
    load_a(a, arguments.blocks + block * BLOCK * BLOCK);
    load_b(b, arguments, int64_t{arguments.block_col_idx[block]} * BLOCK, tile.first_column);
    fence_async_proxy();
    __syncthreads();
    multiply_block(accumulators, a, b + consumer * CONSUMER_SLICES * SLICE_BYTES);
    wgmma_wait<0>();
    __syncthreads();
  }
  pin_accumulators(accumulators);
  store_accumulators(arguments, accumulators, tile.block_row,
                     tile.first_column + consumer * WGMMA_N);
}
