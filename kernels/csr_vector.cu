// CSR times dense on CUDA cores, for matrices whose tiles would hold next to nothing but zeros.
//
// Some lanes of a warp take successive rows of A, for one tile of C's columns. The rows' non-zeros
// are one stream to them: indices and values come a batch ahead, one a lane, and
// STEP rows of B are on their way at once, whichever rows of A they belong to. Every element of C
// is one chain of fused multiply-adds in the order of A. A row that is much longer than others is
// cut into pieces; the lanes that finish last add up their partial sums, in the order of the
// pieces, so that the result does not depend on who that is.

#include "csr_arguments.cuh"
#include "csr_tile.cuh"
#include "debug_delay.cuh"

#ifndef THREADS
#define THREADS 64
#endif

// What some lanes are to do; nothing, beyond the last task.
__device__ __forceinline__ CsrTask find_task(const CsrArguments& g, int64_t number) {
  if (number >= g.task_count) return {};
  if (g.tasks != nullptr) {
    const auto* halves = reinterpret_cast<const int4*>(g.tasks + number);
    const int4 first = __ldg(halves);
    const int4 second = __ldg(halves + 1);
    return {first.x, first.y, first.z, first.w, second.x, second.y, second.z, 0};
  }
  const auto row = static_cast<int32_t>(number * g.rows_per_task);
  const auto left = static_cast<int32_t>(g.m - row);
  const int32_t rows = left < g.rows_per_task ? left : g.rows_per_task;
  return {row, rows, __ldg(g.indptr + row), __ldg(g.indptr + row + rows), 0, 0, 0, 0};
}

// Leaves a piece's sums behind; the last of a row's pieces to do so adds all of them up.
template <class Tile>
__device__ __forceinline__ void close_piece(const CsrArguments& g, Tile& tile, int64_t tile_number,
                                            const CsrTask& task) {
  const int64_t first = tile_number * g.slots + task.slot;
  tile.leave(g.partials + (first + task.piece) * Tile::COLUMNS);
  // Every lane's sums have to be seen by who takes a later number.
  __threadfence();
  __syncwarp(tile.lanes());
  debug_delay(1);
  int32_t number = 0;
  if (tile.lane() == 0) number = atomicAdd(&g.counters[first], 1);
  number = __shfl_sync(tile.lanes(), number, 0, Tile::LANES);
  if (number != task.pieces - 1) return;
  __threadfence();
  tile.clear();
#pragma unroll 4
  for (int32_t piece = 0; piece < task.pieces; ++piece)
    tile.collect(g.partials + (first + piece) * Tile::COLUMNS);
  tile.close_row();
  if (tile.lane() == 0) g.counters[first] = 0;  // for the next launch
}

template <class Tile>
__device__ __forceinline__ void multiply(const CsrArguments& g) {
  constexpr int LANES = Tile::LANES;
  constexpr int STEP = Tile::STEP;
  constexpr int GROUPS = THREADS / LANES;
  constexpr int32_t NEVER = 0x7fffffff;
  const uint32_t blocks = (static_cast<uint32_t>(g.task_count) + GROUPS - 1) / GROUPS;
  const uint32_t tiles = g.column_tiles;
  const uint32_t block = g.columns_first ? blockIdx.x / tiles : blockIdx.x % blocks;
  const uint32_t tile_number = g.columns_first ? blockIdx.x % tiles : blockIdx.x / blocks;
  const int64_t number = int64_t{block} * GROUPS + threadIdx.x / LANES;
  const CsrTask task = find_task(g, number);
  const int32_t last = task.row + task.rows;
  Tile tile(g, int64_t{tile_number} * Tile::COLUMNS, task.row);

  int32_t row = task.row;
  const auto end_of = [&](int32_t of) {
    return of < last && task.pieces == 0 ? __ldg(g.indptr + of + 1) : NEVER;
  };
  int32_t row_end = end_of(row);
  int32_t next_end = end_of(row + 1);
  int32_t index = 0;
  uint32_t value = 0;
  int32_t place = task.begin + tile.lane();
  const auto fetch = [&] {
    const bool there = place < task.end;
    index = there ? __ldg(g.indices + place) : 0;
    value = there ? __ldg(g.values + place) : 0;
    place += LANES;
  };
  fetch();
  // All lanes of the warp stay together, as long as the longest of their streams.
  const int32_t length = Tile::longest(task.end - task.begin);
  // Two batches in turn: a lane that is ahead writes the one that no other reads any more.
  __shared__ __align__(16) int32_t indices[2][THREADS];
  __shared__ __align__(16) float factors[2][THREADS];
  const int own = threadIdx.x / LANES * LANES;  // where these lanes' part begins
  for (int32_t done = 0, turn = 0; done < length; done += LANES, turn ^= 1) {
    indices[turn][threadIdx.x] = index;
    factors[turn][threadIdx.x] = widened(value);
    __syncwarp();
    fetch();
#pragma unroll 1
    for (int step = 0; step < LANES && done + step < length; step += STEP) {
      const int32_t first = task.begin + done + step;
      typename Tile::BRow rows[STEP];
#pragma unroll
      for (int i = 0; i < STEP; ++i)
        rows[i] = tile.read(indices[turn][own + step + i], first + i < task.end);
      float factor[STEP];
#pragma unroll
      for (int i = 0; i < STEP; ++i) factor[i] = factors[turn][own + step + i];
#pragma unroll
      for (int i = 0; i < STEP; ++i) {
        while (first + i >= row_end) {
          tile.close_row();
          row_end = next_end;
          next_end = end_of(++row + 1);
        }
        tile.add(factor[i], rows[i]);  // beyond the end zero times zero
      }
    }
  }
  if (task.pieces != 0) {
    close_piece(g, tile, tile_number, find_task(g, number));  // read anew, to save registers
  } else {
    for (; row < last; ++row) tile.close_row();
  }
}

// Thread blocks of an SM that there have to be registers for.
constexpr int WARPS = UNROLL <= 8 ? 20 : 12;
constexpr int BLOCKS = WARPS * WARP_THREADS / THREADS;

#define CSR_KERNEL(name, ...)                                   \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) \
      name(const __grid_constant__ CsrArguments arguments) {    \
    multiply<__VA_ARGS__>(arguments);                           \
  }

// Rows of B and C that are whole 16-byte chunks, with tiles of as many columns as the name says.
CSR_KERNEL(csr_spmm, Tile<32, 1, true>)
CSR_KERNEL(csr_spmm_512, Tile<32, 2, true>)
CSR_KERNEL(csr_spmm_128, Tile<16, 1, true>)
CSR_KERNEL(csr_spmm_64, Tile<8, 1, true>)
CSR_KERNEL(csr_spmm_unaligned, Tile<32, 1, false>)
