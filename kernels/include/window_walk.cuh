// The tiles of a CTA of wcsr_pipelined.cu, one after the other, and the stages of each.
//
// Tiles are (task, tile of C's columns), the longest tasks first; CTA b of G takes b, 2 G - 1 - b,
// 2 G + b ...: who had the longer one now has the shorter, without a word between CTAs. In clusters
// there is one tile for each cluster, whose CTAs share the task's columns.
#pragma once

#include "b_slices.cuh"
#include "cluster.cuh"
#include "window_arguments.cuh"

#ifndef CLUSTER
#define CLUSTER 1
#endif

constexpr int STEP_COLUMNS = 16;  // columns of A that one wgmma takes

__device__ __forceinline__ uint32_t first_tile() {
  return blockIdx.x / CLUSTER;
}

__device__ __forceinline__ uint32_t next_tile(uint32_t tile) {
  uint32_t walkers = gridDim.x / CLUSTER;
  uint32_t round = tile / walkers;
  return (round + 1) * 2 * walkers - 1 - tile;
}

// The part of a task that tells which stages it has: its first 16 bytes.
struct alignas(16) TaskHead {
  int64_t first_column;
  int32_t window;
  int32_t columns;
};

__device__ __forceinline__ TaskHead read_task(const WindowArguments& arguments, uint32_t tile) {
  const WindowTask* from = arguments.tasks + tile / arguments.column_tiles;
  int4 words = __ldg(reinterpret_cast<const int4*>(from));
  TaskHead task = {static_cast<uint32_t>(words.x) | (int64_t{words.y} << 32), words.z, words.w};
  if constexpr (CLUSTER > 1) {
    int32_t steps = task.columns / STEP_COLUMNS;
    int32_t rank = static_cast<int32_t>(cluster_rank());
    int32_t begin = steps * rank / CLUSTER;
    task.first_column += begin * STEP_COLUMNS;
    task.columns = (steps * (rank + 1) / CLUSTER - begin) * STEP_COLUMNS;
  }
  return task;
}

// The stages of all tiles of this CTA. A task is read one tile before it is needed.
struct StageWalk {
  uint32_t tile = first_tile();
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
    return other < end ? read_task(arguments, other) : TaskHead{0, 0, 0};
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
