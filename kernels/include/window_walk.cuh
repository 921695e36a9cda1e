// The tiles of a CTA of wcsr_pipelined.cu, one after the other, and the stages of each.
//
// Tiles are (task, tile of C's columns), the longest tasks first; CTA b of G takes b, 2 G - 1 - b,
// 2 G + b ...: who had the longer one now has the shorter, without a word between CTAs.
#pragma once

#include "b_slices.cuh"
#include "window_arguments.cuh"

__device__ __forceinline__ uint32_t next_tile(uint32_t tile) {
  uint32_t round = tile / gridDim.x;
  return (round + 1) * 2 * gridDim.x - 1 - tile;
}

// The part of a task that tells which stages it has: its first 16 bytes.
struct alignas(16) TaskHead {
  int64_t first_column;
  int32_t window;
  int32_t columns;
};

// The stages of all tiles of this CTA. A task is read one tile before it is needed.
struct StageWalk {
  uint32_t tile = blockIdx.x;
  TaskHead task;
  TaskHead upcoming;
  uint32_t column_tile;
  uint32_t end;      // of all tiles
  int32_t done = 0;  // columns of the task before this stage

  __device__ __forceinline__ explicit StageWalk(const WindowArguments& arguments)
      : end(arguments.task_count * arguments.column_tiles) {
    task = read(arguments, tile);
    column_tile = tile % arguments.column_tiles;
    upcoming = read(arguments, next_tile(tile));
  }

  __device__ __forceinline__ bool is_inside() const { return tile < end; }

  __device__ __forceinline__ TaskHead read(const WindowArguments& arguments, uint32_t other) const {
    if (other >= end) return {0, 0, 0};
    const WindowTask* from = arguments.tasks + other / arguments.column_tiles;
    int4 words = __ldg(reinterpret_cast<const int4*>(from));
    int64_t first = static_cast<uint32_t>(words.x) | (int64_t{words.y} << 32);
    return {first, words.z, words.w};
  }

  // An empty window has a stage too, so that its zeros are written.
  __device__ __forceinline__ void advance(const WindowArguments& arguments) {
    done += TILE_K;
    if (done < task.columns) return;
    done = 0;
    task = upcoming;
    tile = next_tile(tile);
    column_tile = tile % arguments.column_tiles;
    upcoming = read(arguments, next_tile(tile));
  }
};
