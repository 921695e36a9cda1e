// opt1 = opt0 with tensor cores: wgmma on swizzled tiles that all threads load together,
// synchronously. Load, barrier, multiply, barrier; nothing overlaps within a CTA.

#include "bcsr_tile.cuh"
#include "tma.cuh"

constexpr int THREADS = CONSUMERS * WARPGROUP_THREADS;
static_assert(TILE_K == BLOCK, "a stage holds a whole block");

__device__ __forceinline__ void load_a(uint32_t stage, const uint16_t* block) {
#pragma unroll
  for (int chunk = threadIdx.x; chunk < BLOCK_BYTES / 16; chunk += THREADS)
    store_shared(stage + swizzled<BLOCK_ROW_BYTES>(chunk * 16),
                 reinterpret_cast<const uint4*>(block)[chunk]);
}

__device__ __forceinline__ void load_b(uint32_t stage, const BcsrArguments& arguments,
                                       int64_t first_row, int64_t first_column) {
  constexpr int CHUNKS = TILE_COLUMNS / 8;  // 16-byte chunks in a row of the tile
#pragma unroll 8
  for (int index = threadIdx.x; index < TILE_K * CHUNKS; index += THREADS) {
    int64_t row = first_row + index / CHUNKS;
    const uint16_t* source = row < arguments.k ? arguments.b + row * arguments.ldb : nullptr;
    store_shared(stage + A_BYTES + b_chunk_offset(index / CHUNKS, index % CHUNKS),
                 read_eight(source, first_column + index % CHUNKS * 8, arguments.n));
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    bcsr_spmm(const __grid_constant__ BcsrArguments arguments) {
  extern __shared__ uint8_t dynamic_shared[];
  uint32_t stage = aligned_stages(dynamic_shared);
  Tile tile = tile_of(arguments, blockIdx.x);
  int consumer = threadIdx.x / WARPGROUP_THREADS;

  float accumulators[WGMMA_N / 2] = {};
  int64_t end = arguments.block_row_ptr[tile.block_row + 1];
  for (int64_t block = arguments.block_row_ptr[tile.block_row]; block < end; ++block) {
    load_a(stage, arguments.blocks + block * BLOCK * BLOCK);
    load_b(stage, arguments, int64_t{arguments.block_col_idx[block]} * BLOCK, tile.first_column);
    fence_async_proxy();
    __syncthreads();
    multiply_block(accumulators, stage, consumer_slices(stage, consumer));
    wgmma_wait<0>();
    __syncthreads();
  }
  pin_accumulators(accumulators);
  store_tile(arguments, accumulators, tile, consumer);
}
