// Which tiles a CTA of bcsr_overlap.cu computes: its first ones by number, then from a counter that
// all share, so that uneven rows even out.
#pragma once

#include "overlap_tile.cuh"

// Whether short block rows are taken between long ones, so that stores and loads mix. The last
// columns are taken longest first all the same, for an even end.
#ifndef MIXED
#define MIXED 0
#endif
// Whether all columns of a block row are taken before the next one, instead of all rows of a tile
// of columns.
#ifndef COLUMNS_FIRST
#define COLUMNS_FIRST 0
#endif

constexpr int GIVEN_TILES = 3;  // that a CTA knows without asking

struct TilePlace {
  int32_t entry;  // of arguments.rows
  int32_t first_column;
};

__device__ __forceinline__ TilePlace place_of(const RingArguments& arguments, int32_t index) {
  int32_t rows = arguments.row_count;
  int32_t column_tile = COLUMNS_FIRST != 0 ? index % arguments.column_tiles : index / rows;
  int32_t entry = COLUMNS_FIRST != 0 ? index / arguments.column_tiles : index % rows;
  if (MIXED != 0 && COLUMNS_FIRST == 0 && column_tile + 1 < arguments.column_tiles)
    entry = entry % 2 == 0 ? entry / 2 : rows - 1 - entry / 2;
  return {entry, column_tile * TILE_COLUMNS};
}

// Numbers of tiles. What a CTA is given is longest first and shortest first in turn.
struct Tickets {
  int32_t given = 0;

  __device__ __forceinline__ int32_t next(const RingArguments& arguments) {
    int32_t ctas = static_cast<int32_t>(gridDim.x);
    int32_t own = static_cast<int32_t>(blockIdx.x);
    if (given == GIVEN_TILES) return atomicAdd(&arguments.counters[0], 1) + GIVEN_TILES * ctas;
    int32_t turn = given++;
    return turn * ctas + (turn % 2 == 0 ? own : ctas - 1 - own);
  }

  // The last CTA to finish zeroes the counters for the next launch.
  __device__ __forceinline__ static void finish(const RingArguments& arguments) {
    if (atomicAdd(&arguments.counters[1], 1) == static_cast<int32_t>(gridDim.x) - 1) {
      arguments.counters[0] = 0;
      arguments.counters[1] = 0;
    }
  }
};

// What the producer knows of the tiles to come. Of each it needs the number, then the rows, then
// the first step, each read from L2 and each needed for the next. They are asked for three, two and
// one tiles ahead, so that none is waited for.
struct Lookahead {
  int32_t index;  // of this tile
  TileRows rows;
  TileStep step;  // its first

  __device__ __forceinline__ explicit Lookahead(const RingArguments& arguments)
      : tiles_(arguments.row_count * arguments.column_tiles) {
    index = tickets_.next(arguments);
    rows = read_rows(arguments, index);
    step = read_step(arguments, rows);
    next_index_ = tickets_.next(arguments);
    next_rows_ = read_rows(arguments, next_index_);
    next_step_ = read_step(arguments, next_rows_);
    far_index_ = tickets_.next(arguments);
    far_rows_ = read_rows(arguments, far_index_);
    ticket_ = tickets_.next(arguments);
  }

  __device__ __forceinline__ bool is_over() const { return index >= tiles_; }

  __device__ __forceinline__ void advance(const RingArguments& arguments) {
    index = next_index_;
    rows = next_rows_;
    step = next_step_;
    next_index_ = far_index_;
    next_rows_ = far_rows_;
    next_step_ = read_step(arguments, next_rows_);
    far_index_ = ticket_;
    far_rows_ = read_rows(arguments, far_index_);
    ticket_ = tickets_.next(arguments);
  }

 private:
  Tickets tickets_;
  int32_t tiles_;
  int32_t next_index_;
  TileRows next_rows_;
  TileStep next_step_;
  int32_t far_index_;
  TileRows far_rows_;
  int32_t ticket_;

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
