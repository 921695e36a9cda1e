// C of wcsr_pipelined.cu: each consumer warp turns its 16 x WGMMA_N accumulators into rows in
// shared memory, then writes whole lines, 16 bytes a lane. The stages of the ring serve as room for
// it.
#pragma once

#include "product_types.cuh"
#include "stmatrix.cuh"
#include "window_ring.cuh"

constexpr int WARP_OUTPUT_ROWS = 16;
constexpr int OUTPUT_ROW_BYTES = WGMMA_N * OUTPUT_BYTES;
constexpr int WARP_OUTPUT_BYTES = WARP_OUTPUT_ROWS * OUTPUT_ROW_BYTES;
constexpr int ROW_CHUNKS = OUTPUT_ROW_BYTES / 16;
constexpr int CHUNK_COLUMNS = 16 / OUTPUT_BYTES;
static_assert(CONSUMER_WARPS * WARP_OUTPUT_BYTES <= STAGES * STAGE_BYTES, "C fits into the ring");

// Where a 16-byte chunk of a row lies: rows that are written at the same time differ in banks.
// 16-bit types go by stmatrix, 8 rows at once; fp32 in pairs, 4 rows of two chunks at once.
__device__ __forceinline__ uint32_t output_chunk(uint32_t room, int row, int chunk) {
  int turn = IS_16_BIT ? row & 7 : (row & 3) * 2;
  return room + row * OUTPUT_ROW_BYTES + ((chunk ^ turn) << 4);
}

__device__ __forceinline__ void lay_down_rows(uint32_t room,
                                              const float (&accumulators)[WGMMA_N / 2]) {
  int lane = threadIdx.x % WARP_THREADS;
  if constexpr (IS_16_BIT) {
    // Four matrices: rows 0..7 and 8..15 at columns 8 j, then at 8 (j + 1).
#pragma unroll
    for (int j = 0; j < WGMMA_N / 8; j += 2) {
      const float* pairs = &accumulators[4 * j];
      store_matrices(output_chunk(room, lane % 16, j + lane / 16), pack_output(pairs[0], pairs[1]),
                     pack_output(pairs[2], pairs[3]), pack_output(pairs[4], pairs[5]),
                     pack_output(pairs[6], pairs[7]));
    }
  } else {
#pragma unroll
    for (int j = 0; j < WGMMA_N / 8; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t address = output_chunk(room, lane / 4 + 8 * half, 2 * j + lane % 4 / 2);
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address + lane % 2 * 8),
                     "f"(accumulators[4 * j + 2 * half]), "f"(accumulators[4 * j + 2 * half + 1])
                     : "memory");
      }
    }
  }
}

// One element of the tile that lay_down_rows left, to C.
__device__ __forceinline__ void store_element(void* to, uint32_t room, int row, int column) {
  uint32_t address = output_chunk(room, row, column / CHUNK_COLUMNS);
  address += column % CHUNK_COLUMNS * OUTPUT_BYTES;
  if constexpr (IS_16_BIT) {
    uint16_t value;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(address) : "memory");
    *static_cast<uint16_t*>(to) = value;
  } else {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
    *static_cast<float*>(to) = value;
  }
}

// By one warp: its 16 rows of C, from `first_row` of A's windows on. `room` is its own.
__device__ __forceinline__ void store_rows(const WindowArguments& arguments, uint32_t room,
                                           const float (&accumulators)[WGMMA_N / 2],
                                           int64_t first_row, int64_t first_column) {
  lay_down_rows(room, accumulators);
  int lane = threadIdx.x % WARP_THREADS;
  int64_t rows_left = arguments.m - first_row;
  int rows = rows_left < WARP_OUTPUT_ROWS ? static_cast<int>(rows_left) : WARP_OUTPUT_ROWS;
  int64_t columns_left = arguments.n - first_column;
  int columns = columns_left < WGMMA_N ? static_cast<int>(columns_left) : WGMMA_N;
  int64_t row_bytes = arguments.ldc * OUTPUT_BYTES;
  char* c = static_cast<char*>(arguments.c) + first_column * OUTPUT_BYTES;
  // Lane l knows where row l goes.
  auto place = static_cast<int32_t>(first_row) + lane;
  if (arguments.rows != nullptr && lane < rows) place = __ldg(arguments.rows + place);
  auto row_of_c = [&](int row) { return c + __shfl_sync(~0u, place, row) * row_bytes; };
  __syncwarp();

  bool is_aligned = ((reinterpret_cast<uint64_t>(arguments.c) | row_bytes) & 15) == 0;
  int chunks = is_aligned ? columns / CHUNK_COLUMNS : 0;
  constexpr int BATCH = 4;  // loads on their way before the first is stored
#pragma unroll 1
  for (int first = lane; first < WARP_OUTPUT_ROWS * ROW_CHUNKS; first += BATCH * WARP_THREADS) {
    uint4 values[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      int index = first + i * WARP_THREADS;
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(values[i].x), "=r"(values[i].y), "=r"(values[i].z), "=r"(values[i].w)
                   : "r"(output_chunk(room, index / ROW_CHUNKS, index % ROW_CHUNKS))
                   : "memory");
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      int row = (first + i * WARP_THREADS) / ROW_CHUNKS;
      int chunk = (first + i * WARP_THREADS) % ROW_CHUNKS;
      char* to = row_of_c(row) + chunk * 16;
      if (row < rows && chunk < chunks) *reinterpret_cast<uint4*>(to) = values[i];
    }
  }

  // What does not fill a chunk at C's right edge, or all where its rows are not 16-byte aligned.
  for (int row = 0; row < rows && chunks * CHUNK_COLUMNS < columns; ++row) {
    char* to = row_of_c(row);
    for (int column = chunks * CHUNK_COLUMNS + lane; column < columns; column += WARP_THREADS)
      store_element(to + column * OUTPUT_BYTES, room, row, column);
  }
}
