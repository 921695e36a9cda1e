// Which tiles a CTA of bcsr_overlap.cu computes: its first ones by number, then from a counter that
// all share, so that uneven rows even out.
#pragma once

#include "overlap_tile.cuh"

// Whether all columns of a block row are taken before the next one, instead of all rows of a tile
// of columns.
#ifndef COLUMNS_FIRST
#define COLUMNS_FIRST 0
#endif

struct TilePlace {
  int32_t entry;  // of arguments.rows
  int32_t first_column;
  int32_t parts;  // of WGMMA_N columns
};

__device__ __forceinline__ TilePlace place_of(const RingArguments& arguments, int32_t index) {
  int32_t rows = arguments.row_count;
  int32_t half = PAIRED != 0 ? -1 : index - arguments.whole_tiles;
  if (half >= 0) index = arguments.whole_tiles + half / 2;
  int32_t column_tile = COLUMNS_FIRST != 0 ? index % arguments.column_tiles : index / rows;
  int32_t entry = COLUMNS_FIRST != 0 ? index / arguments.column_tiles : index % rows;
  int32_t first_column = column_tile * TILE_COLUMNS;
  if (half < 0) return {entry, first_column, TILE_PARTS};
  return {entry, first_column + half % 2 * WGMMA_N, 1};
}

// What the producer knows of the tiles to come. Of each it needs the number, then the rows, then
// the first step, each read from L2 and each needed for the next. While one tile is loaded, the
// step of the next, the rows of the one after and the number of the third are on their way, so that
// none is waited for.
struct Lookahead {
  int32_t index;  // of this tile
  TileRows rows;
  TileStep step;  // its first

  struct Request {
    TileStep step;
    TileRows rows;
    int32_t ticket;
  };

  // A CTA's first three tiles are known without asking: longest first and shortest first in turn.
  __device__ __forceinline__ explicit Lookahead(const RingArguments& arguments)
      : tiles_(2 * arguments.row_count * arguments.column_tiles - arguments.whole_tiles) {
    int32_t ctas = static_cast<int32_t>(gridDim.x);
    int32_t own = static_cast<int32_t>(blockIdx.x);
    index = own;
    next_index_ = 2 * ctas - 1 - own;
    far_index_ = 2 * ctas + own;
    rows = read_rows(arguments, index);
    next_rows_ = read_rows(arguments, next_index_);
    step = read_step(arguments, rows);
  }

  __device__ __forceinline__ bool is_over() const { return index >= tiles_; }

  __device__ __forceinline__ Request ask(const RingArguments& arguments) const {
    return {read_step(arguments, next_rows_), read_rows(arguments, far_index_),
            atomicAdd(&arguments.counters[0], 1)};
  }

  __device__ __forceinline__ void advance(const Request& answer) {
    index = next_index_;
    rows = next_rows_;
    step = answer.step;
    next_index_ = far_index_;
    next_rows_ = answer.rows;
    far_index_ = answer.ticket + 3 * static_cast<int32_t>(gridDim.x);
  }

  // The last CTA to finish zeroes the counters for the next launch. The fences order that after
  // the tickets of all: a CTA's last ones are never waited for.
  __device__ __forceinline__ static void finish(const RingArguments& arguments) {
    __threadfence();
    if (atomicAdd(&arguments.counters[1], 1) == static_cast<int32_t>(gridDim.x) - 1) {
      __threadfence();
      arguments.counters[0] = 0;
      arguments.counters[1] = 0;
    }
  }

 private:
  int32_t tiles_;
  int32_t next_index_;
  TileRows next_rows_;
  int32_t far_index_;

  __device__ __forceinline__ TileRows read_rows(const RingArguments& arguments,
                                                int32_t tile) const {
    if (tile >= tiles_) return {0, 0, {NO_ROW, NO_ROW}};
    return arguments.rows[place_of(arguments, tile).entry];
  }

  __device__ __forceinline__ static TileStep read_step(const RingArguments& arguments,
                                                       const TileRows& of) {
    if (of.steps == 0) return {};
    return arguments.steps[of.begin];
  }
};
