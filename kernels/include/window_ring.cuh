// The ring of wcsr_pipelined.cu: producer warps gather rows of B by cp.async while consumer
// warpgroups multiply, each 64 rows of the window and WGMMA_N columns; all share a stage's A and B.
//
// Consumers are the first threads, producers the rest.
#pragma once

#include "b_slices.cuh"
#include "cp_async.cuh"
#include "tma.cuh"
#include "window_arguments.cuh"

#ifndef HEIGHT
#define HEIGHT 64
#endif
#ifndef COLUMN_GROUPS
#define COLUMN_GROUPS 1
#endif
#ifndef STAGES
#define STAGES 4
#endif
#ifndef PRODUCERS
#define PRODUCERS 4
#endif
#ifndef MINIMUM_CTAS
#define MINIMUM_CTAS 2
#endif

constexpr int ROW_GROUP = 64;  // rows of a wgmma
constexpr int ROW_GROUPS = HEIGHT / ROW_GROUP;
constexpr int CONSUMERS = ROW_GROUPS * COLUMN_GROUPS;
constexpr int CONSUMER_THREADS = CONSUMERS * WARPGROUP_THREADS;
constexpr int CONSUMER_WARPS = CONSUMER_THREADS / WARP_THREADS;
constexpr int PRODUCER_THREADS = PRODUCERS * WARP_THREADS;
constexpr int THREADS = CONSUMER_THREADS + PRODUCER_THREADS;

constexpr int STEP_COLUMNS = 16;  // columns of A that one wgmma takes
constexpr int STEPS = TILE_K / STEP_COLUMNS;
constexpr int TILE_COLUMNS = COLUMN_GROUPS * WGMMA_N;
constexpr int GROUP_STEP_BYTES = ROW_GROUP * STEP_COLUMNS * 2;
constexpr int STEP_BYTES = ROW_GROUPS * GROUP_STEP_BYTES;
constexpr int A_BYTES = STEPS * STEP_BYTES;
constexpr int B_BYTES = TILE_K * TILE_COLUMNS * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;

constexpr int CHUNKS = TILE_COLUMNS / 8;               // 16-byte chunks in a row of the tile of B
constexpr int ROWS_AT_ONCE = WARP_THREADS / CHUNKS;    // rows that a warp copies by one cp.async
constexpr int STEP_ROWS = STEP_COLUMNS / PRODUCERS;    // of a warp in each step
constexpr int STEP_COPIES = STEP_ROWS / ROWS_AT_ONCE;  // of a thread in each step
constexpr int STAGE_COPIES = STEP_COPIES * STEPS;
constexpr int WARP_ROWS = STEP_ROWS * STEPS;  // of a warp in a whole stage
static_assert(HEIGHT == 64 || HEIGHT == 128 || HEIGHT == 256);
static_assert(WGMMA_N == 64 || WGMMA_N == 128 || WGMMA_N == 256);
static_assert(TILE_COLUMNS <= 256, "a warp copies at least a row");
static_assert(STEP_COLUMNS % PRODUCERS == 0 && STEP_COPIES >= 1, "a warp copies whole rows");
static_assert(WARP_ROWS <= WARP_THREADS, "each lane holds one index");
static_assert(LEADING == 2 * TILE_K, "the leading indices are those of two stages");

struct WindowRing {
  uint64_t full[STAGES];   // B's copies landed, and A's bytes
  uint64_t empty[STAGES];  // every consumer warp is done with the slot

  __device__ __forceinline__ void initialise() {
    for (int slot = 0; slot < STAGES; ++slot) {
      mbarrier_init(&full[slot], PRODUCER_THREADS + 1);
      mbarrier_init(&empty[slot], CONSUMER_WARPS);
    }
    mbarrier_init_fence_of_cta();
  }
};

// What a CTA computes: a piece of a window, and one tile of columns.
struct WindowTile {
  uint32_t index;  // of the task
  uint32_t column_tile;
  WindowTask task;

  __device__ __forceinline__ explicit WindowTile(const WindowArguments& arguments)
      : index(blockIdx.x / arguments.column_tiles),
        column_tile(blockIdx.x - index * arguments.column_tiles),
        task(arguments.tasks[index]) {}

  // Of C.
  __device__ __forceinline__ int64_t first_column() const {
    return int64_t{column_tile} * TILE_COLUMNS;
  }
};

// Lane l of a producer warp keeps the index of the warp's row l of a stage.
__device__ __forceinline__ int row_of_lane() {
  int lane = threadIdx.x % WARP_THREADS;
  int warp = (threadIdx.x - CONSUMER_THREADS) / WARP_THREADS;
  return lane / STEP_ROWS * STEP_COLUMNS + warp * STEP_ROWS + lane % STEP_ROWS;
}

// A producer lane's indices for the first two stages, which wait neither for the task nor for a
// barrier.
struct LeadingIndices {
  int32_t first = -1;
  int32_t second = -1;

  __device__ __forceinline__ LeadingIndices(const WindowArguments& arguments, uint32_t task) {
    if (threadIdx.x < CONSUMER_THREADS || threadIdx.x % WARP_THREADS >= WARP_ROWS) return;
    const int32_t* indices = arguments.leading_indices + int64_t{task} * LEADING + row_of_lane();
    first = __ldg(indices);
    second = __ldg(indices + TILE_K);
  }
};

// One producer warp. In each wgmma step of 16 columns it copies STEP_ROWS rows of B, so that short
// stages are shared by all warps.
struct Producer {
  int lane = threadIdx.x % WARP_THREADS;
  int warp = (threadIdx.x - CONSUMER_THREADS) / WARP_THREADS;
  int chunk = lane % CHUNKS;  // of a row, that this lane copies
  int sub_row = lane / CHUNKS;
  int held_row = row_of_lane();
  const int32_t* indices;
  int32_t columns;
  const char* b;
  uint32_t b_row_bytes;
  uint32_t bytes;  // of this lane's chunk, up to C's last column

  __device__ __forceinline__ Producer(const WindowArguments& arguments, const WindowTile& tile)
      : indices(arguments.window_col_idx + tile.task.first_column + held_row),
        columns(tile.task.columns),
        b_row_bytes(arguments.b_row_bytes) {
    int64_t column = tile.first_column() + chunk * 8;
    int64_t remaining = (arguments.n - column) * 2;
    bytes = remaining >= 16 ? 16 : remaining > 0 ? static_cast<uint32_t>(remaining) : 0;
    b = reinterpret_cast<const char*>(arguments.b + (bytes != 0 ? column : 0));
  }

  __device__ __forceinline__ int32_t index_at(int32_t done) const {
    return lane < WARP_ROWS && done + held_row < columns ? __ldg(indices + done) : -1;
  }

  // Where copy i of the stage goes, and where it comes from.
  __device__ __forceinline__ uint32_t place(int i) const {
    int row = warp * STEP_ROWS + i % STEP_COPIES * ROWS_AT_ONCE + sub_row;
    int step = i / STEP_COPIES;
    return A_BYTES + b_chunk_offset(row, chunk) + step * (STEP_COLUMNS * SLICE_SPAN);
  }

  __device__ __forceinline__ const char* source(int32_t row) const {
    return b + uint64_t{static_cast<uint32_t>(row)} * b_row_bytes;
  }

  // The last stage of a task, which may have fewer columns and padding to 16 of them, or one with
  // chunks that C's edge cuts.
  __device__ __forceinline__ void copy_some(uint32_t stage, const int32_t* rows,
                                            int32_t left) const {
#pragma unroll
    for (int i = 0; i < STAGE_COPIES; ++i) {
      if (i / STEP_COPIES * STEP_COLUMNS >= left) return;
      cp_async(stage + place(i), source(rows[i] < 0 ? 0 : rows[i]), rows[i] < 0 ? 0 : bytes);
    }
  }
};

// What a task reads of A, and the indices, to L2 by one thread of one column tile; of long tasks
// what comes first.
__device__ __forceinline__ void prefetch_a(const WindowArguments& arguments,
                                           const WindowTile& tile) {
  constexpr int32_t MOST_COLUMNS = 512;
  const WindowTask& task = tile.task;
  int32_t columns = task.columns < MOST_COLUMNS ? task.columns : MOST_COLUMNS;
  if (tile.column_tile != 0 || columns == 0) return;
  bulk_prefetch(arguments.a + task.first_column * HEIGHT, columns * HEIGHT * 2);
  bulk_prefetch(arguments.window_col_idx + task.first_column, columns * 4);
}

// What a producer warp does between its wait for a slot and the arrival of its copies bounds the
// gather. So indices are read two stages ahead and handed to their lanes before the wait, and whole
// stages have a path without conditions: ptxas computes the size of a copy that may have fewer than
// 16 bytes into its address, in ten instructions.
__device__ __forceinline__ void produce(const WindowArguments& arguments, const WindowTile& tile,
                                        WindowRing& ring, uint32_t stages,
                                        const LeadingIndices& leading) {
  const Producer self(arguments, tile);
  int32_t upcoming = leading.first;
  int32_t after = leading.second;
  bool is_cut = __any_sync(~0u, self.bytes % 16 != 0);
  if (threadIdx.x == CONSUMER_THREADS) prefetch_a(arguments, tile);
  RingPosition<STAGES> position;
  for (int32_t done = 0; done < self.columns; done += TILE_K) {
    int32_t left = self.columns - done;
    int32_t index = upcoming;
    upcoming = after;
    after = self.index_at(done + 2 * TILE_K);
    int32_t rows[STAGE_COPIES];
#pragma unroll
    for (int i = 0; i < STAGE_COPIES; ++i) {
      int holder = i / STEP_COPIES * STEP_ROWS + i % STEP_COPIES * ROWS_AT_ONCE + self.sub_row;
      rows[i] = __shfl_sync(~0u, index, holder);
    }
    uint64_t* full = &ring.full[position.slot];
    uint32_t stage = stages + position.slot * STAGE_BYTES;
    mbarrier_wait(&ring.empty[position.slot], position.parity ^ 1);
    if (left <= TILE_K || is_cut) {
      self.copy_some(stage, rows, left);
    } else if (self.bytes != 0) {  // columns beyond C's are not stored, whatever lies there
#pragma unroll
      for (int i = 0; i < STAGE_COPIES; ++i)
        cp_async_whole(stage + self.place(i), self.source(rows[i]));
    }
    cp_async_arrive(full);
    if (threadIdx.x == CONSUMER_THREADS) {
      uint32_t a_bytes = (left < TILE_K ? left : TILE_K) * (STEP_BYTES / STEP_COLUMNS);
      mbarrier_arrive_expect(full, a_bytes);
      bulk_load(stage, arguments.a + (tile.task.first_column + done) * HEIGHT, a_bytes, full);
    }
    __syncwarp();
    position.advance();
  }
}
