// C of wcsr_pipelined.cu: each consumer warp turns its 16 x WGMMA_N accumulators into rows in
// shared memory, then writes whole lines, 16 bytes a lane. The stage that was multiplied last
// serves as room for it, for a part of the columns at a time where it is small.
#pragma once

#include "product_types.cuh"
#include "stmatrix.cuh"
#include "window_ring.cuh"

constexpr int WARP_ROWS_OF_C = 16;
constexpr int OWN_COLUMNS = WGMMA_N / CLUSTER;  // of a consumer's, that this CTA stores
constexpr int SHARED_SUMS_BYTES = CLUSTER > 1 ? HEIGHT * TILE_COLUMNS * 4 : 0;
constexpr int OUTPUT_SPACE = CLUSTER > 1 ? STAGES * STAGE_BYTES - SHARED_SUMS_BYTES : STAGE_BYTES;

__device__ constexpr int pass_row_bytes() {
  int bytes = OWN_COLUMNS * OUTPUT_BYTES;
  while (bytes * WARP_ROWS_OF_C * CONSUMER_WARPS > OUTPUT_SPACE) bytes /= 2;
  return bytes;
}
constexpr int PASS_ROW_BYTES = pass_row_bytes();
constexpr int PASS_COLUMNS = PASS_ROW_BYTES / OUTPUT_BYTES;
constexpr int PASSES = OWN_COLUMNS / PASS_COLUMNS;
constexpr int ROOM_BYTES = WARP_ROWS_OF_C * PASS_ROW_BYTES;  // of a warp
constexpr int ROW_CHUNKS = PASS_ROW_BYTES / 16;
constexpr int CHUNK_COLUMNS = 16 / OUTPUT_BYTES;
static_assert(OUTPUT_SPACE > 0 && PASS_ROW_BYTES >= (CLUSTER > 1 ? 64 : 128), "C fits its room");

// Where a 16-byte chunk of a row lies: rows that are written at the same time differ in banks.
// 16-bit types go by stmatrix, 8 rows at once; fp32 in pairs, 4 rows of two chunks at once.
__device__ __forceinline__ uint32_t output_chunk(uint32_t room, int row, int chunk) {
  int turn = (IS_16_BIT ? row & 7 : (row & 3) * 2) % ROW_CHUNKS;
  return room + row * PASS_ROW_BYTES + ((chunk ^ turn) << 4);
}

// The accumulators of one pass, PASS_COLUMNS / 2 from `sums` on.
__device__ __forceinline__ void lay_down_rows(uint32_t room, const float* sums) {
  int lane = threadIdx.x % WARP_THREADS;
  if constexpr (IS_16_BIT) {
    // Four matrices: rows 0..7 and 8..15 at columns 8 j, then at 8 (j + 1).
#pragma unroll
    for (int j = 0; j < PASS_COLUMNS / 8; j += 2) {
      const float* pairs = &sums[4 * j];
      store_matrices(output_chunk(room, lane % 16, j + lane / 16), pack_output(pairs[0], pairs[1]),
                     pack_output(pairs[2], pairs[3]), pack_output(pairs[4], pairs[5]),
                     pack_output(pairs[6], pairs[7]));
    }
  } else {
#pragma unroll
    for (int j = 0; j < PASS_COLUMNS / 8; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t address = output_chunk(room, lane / 4 + 8 * half, 2 * j + lane % 4 / 2);
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address + lane % 2 * 8),
                     "f"(sums[4 * j + 2 * half]), "f"(sums[4 * j + 2 * half + 1])
                     : "memory");
      }
    }
  }
}

// One element of what lay_down_rows left, to C.
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

__device__ __forceinline__ void store_chunk(char* to, uint4 values) {
  if constexpr ((HINTS & HINT_C) != 0)
    __stcs(reinterpret_cast<uint4*>(to), values);
  else
    *reinterpret_cast<uint4*>(to) = values;
}

// What lay_down_rows left, to `c`: rows x columns of it.
__device__ __forceinline__ void copy_rows(char* c, int64_t row_bytes, bool is_aligned,
                                          uint32_t room, int rows, int columns) {
  int lane = threadIdx.x % WARP_THREADS;
  int chunks = is_aligned ? columns / CHUNK_COLUMNS : 0;
  constexpr int BATCH =
      PASSES == 1 && ROW_CHUNKS > 4 ? 4 : 2;  // loads on their way before the first is stored
#pragma unroll 1
  for (int first = lane; first < rows * ROW_CHUNKS; first += BATCH * WARP_THREADS) {
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
      if (row < rows && chunk < chunks) store_chunk(c + row * row_bytes + chunk * 16, values[i]);
    }
  }
  // What does not fill a chunk at C's right edge, or all where its rows are not 16-byte aligned.
  for (int row = 0; row < rows && chunks * CHUNK_COLUMNS < columns; ++row)
    for (int column = chunks * CHUNK_COLUMNS + lane; column < columns; column += WARP_THREADS)
      store_element(c + row * row_bytes + column * OUTPUT_BYTES, room, row, column);
}

// By one warp: its 16 rows of C of a tile. `room` is its own.
__device__ __forceinline__ void store_rows(const WindowArguments& arguments, uint32_t room,
                                           const float (&sums)[OWN_COLUMNS / 2], uint32_t tile) {
  int group = threadIdx.x / WARPGROUP_THREADS;
  int warp = threadIdx.x % WARPGROUP_THREADS / WARP_THREADS;
  uint32_t task = tile / arguments.column_tiles;
  uint32_t column_tile = tile - task * arguments.column_tiles;
  int64_t first_row = int64_t{__ldg(&arguments.tasks[task].window)} * HEIGHT +
                      group % ROW_GROUPS * ROW_GROUP + warp * WARP_ROWS_OF_C;
  int64_t first_column = int64_t{column_tile} * TILE_COLUMNS + group / ROW_GROUPS * WGMMA_N;
  if constexpr (CLUSTER > 1) first_column += cluster_rank() * OWN_COLUMNS;
  int64_t rows_left = arguments.m - first_row;
  int rows = rows_left < WARP_ROWS_OF_C ? static_cast<int>(rows_left) : WARP_ROWS_OF_C;
  int64_t columns_left = arguments.n - first_column;
  int columns = columns_left < OWN_COLUMNS ? static_cast<int>(columns_left) : OWN_COLUMNS;
  int64_t row_bytes = arguments.ldc * OUTPUT_BYTES;
  char* c = static_cast<char*>(arguments.c) + first_row * row_bytes + first_column * OUTPUT_BYTES;
  bool is_aligned = ((reinterpret_cast<uint64_t>(arguments.c) | row_bytes) & 15) == 0;
#pragma unroll
  for (int pass = 0; pass < PASSES; ++pass) {
    if (pass > 0) __syncwarp();
    lay_down_rows(room, &sums[pass * PASS_COLUMNS / 2]);
    __syncwarp();
    int left = columns - pass * PASS_COLUMNS;
    copy_rows(c + pass * PASS_ROW_BYTES, row_bytes, is_aligned, room, rows,
              left < PASS_COLUMNS ? left : PASS_COLUMNS);
  }
}
