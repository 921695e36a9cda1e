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
#define THREADS 128
#endif

// What some lanes are to do: rows first .. last - 1, non-zeros begin .. end - 1.
struct Work {
  int32_t row = 0;
  int32_t last = 0;
  int32_t begin = 0;
  int32_t end = 0;
  int32_t piece = 0;
  int32_t pieces = 0;  // 0: not a piece of a row
  int64_t slot = 0;
};

__device__ __forceinline__ Work find_work(const CsrArguments& g, int64_t number) {
  Work work;
  if (number >= g.task_count) return work;
  CsrTask task;
  if (g.tasks != nullptr) {
    const int4 read = __ldg(reinterpret_cast<const int4*>(g.tasks) + number);
    task = {read.x, read.y, read.z, read.w};
  } else {
    const auto row = static_cast<int32_t>(number * g.rows_per_task);
    const auto left = static_cast<int32_t>(g.m - row);
    task = {row, left < g.rows_per_task ? left : g.rows_per_task, 0, 0};
  }
  work.row = task.row;
  work.last = task.row + (task.rows != 0 ? task.rows : 1);
  work.begin = __ldg(g.indptr + work.row);
  work.end = __ldg(g.indptr + work.last);
  if (task.rows == 0) {
    work.piece = task.piece;
    work.pieces = (work.end - work.begin + g.piece_length - 1) / g.piece_length;
    work.slot = task.slot;
    work.begin += task.piece * g.piece_length;
    if (task.piece != work.pieces - 1) work.end = work.begin + g.piece_length;
  }
  return work;
}

// Leaves a piece's sums behind; the last of a row's pieces to do so adds all of them up.
template <class Tile>
__device__ __forceinline__ void close_piece(const CsrArguments& g, Tile& tile, int64_t tile_number,
                                            const Work& work) {
  const int64_t first = tile_number * g.slots + work.slot;
  tile.leave(g.partials + (first + work.piece) * Tile::COLUMNS);
  // Every lane's sums have to be seen by who takes a later number.
  __threadfence();
  __syncwarp(tile.lanes());
  debug_delay(1);
  int32_t number = 0;
  if (tile.lane() == 0) number = atomicAdd(&g.counters[first], 1);
  number = __shfl_sync(tile.lanes(), number, 0, Tile::LANES);
  if (number != work.pieces - 1) return;
  __threadfence();
  tile.clear();
#pragma unroll 4
  for (int32_t piece = 0; piece < work.pieces; ++piece)
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
  const Work work = find_work(g, number);
  Tile tile(g, int64_t{tile_number} * Tile::COLUMNS, work.row);

  int32_t row = work.row;
  const auto end_of = [&](int32_t of) {
    return of < work.last && work.pieces == 0 ? __ldg(g.indptr + of + 1) : NEVER;
  };
  int32_t row_end = end_of(row);
  int32_t next_end = end_of(row + 1);
  int32_t index = 0;
  uint32_t value = 0;
  int32_t place = work.begin + tile.lane();
  const auto fetch = [&] {
    const bool there = place < work.end;
    index = there ? __ldg(g.indices + place) : 0;
    value = there ? __ldg(g.values + place) : 0;
    place += LANES;
  };
  fetch();
  // All lanes of the warp stay together, as long as the longest of their streams.
  const int32_t length = Tile::longest(work.end - work.begin);
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
      const int32_t first = work.begin + done + step;
      typename Tile::BRow rows[STEP];
#pragma unroll
      for (int i = 0; i < STEP; ++i)
        rows[i] = tile.read(indices[turn][own + step + i], first + i < work.end);
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
  if (work.pieces != 0) {
    close_piece(g, tile, tile_number, find_work(g, number));  // read anew, to save registers
  } else {
    for (; row < work.last; ++row) tile.close_row();
  }
}

#define CSR_KERNEL(name, ...)                                          \
  extern "C" __global__ void __launch_bounds__(THREADS, 640 / THREADS) \
      name(const __grid_constant__ CsrArguments arguments) {           \
    multiply<__VA_ARGS__>(arguments);                                  \
  }

// Rows of B and C that are whole 16-byte chunks, with tiles of as many columns as the name says.
CSR_KERNEL(csr_spmm, Tile<32, 1, true>)
CSR_KERNEL(csr_spmm_512, Tile<32, 2, true>)
CSR_KERNEL(csr_spmm_128, Tile<16, 1, true>)
CSR_KERNEL(csr_spmm_64, Tile<8, 1, true>)
CSR_KERNEL(csr_spmm_unaligned, Tile<32, 1, false>)
