// The ring of wcsr_pipelined.cu: producer warps gather rows of B by cp.async while one consumer
// warpgroup per 64 rows of the window multiplies; all consumers share the gathered B.
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
#ifndef STAGES
#define STAGES 4
#endif
#ifndef PRODUCERS
#define PRODUCERS 4
#endif
#ifndef MINIMUM_CTAS
#define MINIMUM_CTAS 2
#endif
#ifndef COLUMN_MAJOR
#define COLUMN_MAJOR 0
#endif

constexpr int ROW_GROUP = 64;  // rows of a wgmma
constexpr int CONSUMERS = HEIGHT / ROW_GROUP;
constexpr int CONSUMER_THREADS = CONSUMERS * WARPGROUP_THREADS;
constexpr int CONSUMER_WARPS = CONSUMER_THREADS / WARP_THREADS;
constexpr int PRODUCER_THREADS = PRODUCERS * WARP_THREADS;
constexpr int THREADS = CONSUMER_THREADS + PRODUCER_THREADS;

constexpr int STEP_COLUMNS = 16;  // columns of A that one wgmma takes
constexpr int STEPS = TILE_K / STEP_COLUMNS;
constexpr int GROUP_STEP_BYTES = ROW_GROUP * STEP_COLUMNS * 2;
constexpr int STEP_BYTES = CONSUMERS * GROUP_STEP_BYTES;
constexpr int A_BYTES = STEPS * STEP_BYTES;
constexpr int B_BYTES = TILE_K * WGMMA_N * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;

constexpr int CHUNKS = WGMMA_N / 8;                    // 16-byte chunks in a row of the tile of B
constexpr int ROWS_AT_ONCE = WARP_THREADS / CHUNKS;    // rows that a warp copies by one cp.async
constexpr int STEP_ROWS = STEP_COLUMNS / PRODUCERS;    // of a warp in each step
constexpr int STEP_COPIES = STEP_ROWS / ROWS_AT_ONCE;  // of a thread in each step
constexpr int WARP_ROWS = STEP_ROWS * STEPS;           // of a warp in a whole stage
static_assert(HEIGHT == 64 || HEIGHT == 128 || HEIGHT == 256);
static_assert(WGMMA_N == 64 || WGMMA_N == 128 || WGMMA_N == 256);
static_assert(STEP_COLUMNS % PRODUCERS == 0 && STEP_COPIES >= 1, "a warp copies whole rows");
static_assert(WARP_ROWS <= WARP_THREADS, "each lane holds one index");

struct WindowRing {
  uint64_t full[STAGES];   // B's copies landed, and A's bytes
  uint64_t empty[STAGES];  // every consumer warp is done with the slot

  __device__ __forceinline__ void initialise() {
    for (int slot = 0; slot < STAGES; ++slot) {
      mbarrier_init(&full[slot], PRODUCER_THREADS + 1);
      mbarrier_init(&empty[slot], CONSUMER_WARPS);
    }
    mbarrier_init_fence();
  }
};

// What a CTA computes: a piece of a window, and one tile of columns.
struct WindowTile {
  WindowTask task;
  uint32_t column_tile;
  int64_t first_column;  // of C

  __device__ __forceinline__ explicit WindowTile(const WindowArguments& arguments) {
    bool by_column = COLUMN_MAJOR != 0;
    uint32_t divisor = by_column ? arguments.task_count : arguments.column_tiles;
    uint32_t quotient = blockIdx.x / divisor;
    uint32_t remainder = blockIdx.x - quotient * divisor;
    task = arguments.tasks[by_column ? remainder : quotient];
    column_tile = by_column ? quotient : remainder;
    first_column = int64_t{column_tile} * WGMMA_N;
  }
};

// One producer warp. In each wgmma step of 16 columns it copies STEP_ROWS rows of B, so that short
// stages are shared by all warps. Lane l keeps the index of the warp's row l; indices are read one
// stage ahead.
__device__ __forceinline__ void produce(const WindowArguments& arguments, const WindowTile& tile,
                                        WindowRing& ring, uint32_t stages) {
  int lane = threadIdx.x % WARP_THREADS;
  int warp = (threadIdx.x - CONSUMER_THREADS) / WARP_THREADS;
  bool leads = threadIdx.x == CONSUMER_THREADS;
  int32_t columns = tile.task.columns;

  int held_row = lane / STEP_ROWS * STEP_COLUMNS + warp * STEP_ROWS + lane % STEP_ROWS;
  const int32_t* indices = arguments.window_col_idx + tile.task.first_column + held_row;
  auto index_at = [&](int32_t done) {
    return lane < WARP_ROWS && done + held_row < columns ? __ldg(indices + done) : -1;
  };

  // This lane's chunk of a row; beyond C's last column nothing is read and zeros are laid down.
  int chunk = lane % CHUNKS;
  int64_t column = tile.first_column + chunk * 8;
  int64_t remaining = (arguments.n - column) * 2;
  uint32_t bytes = remaining >= 16 ? 16 : remaining > 0 ? static_cast<uint32_t>(remaining) : 0;
  const char* b = reinterpret_cast<const char*>(arguments.b + (bytes != 0 ? column : 0));
  int sub_row = lane / CHUNKS;
  uint32_t places[STEP_COPIES];
#pragma unroll
  for (int copy = 0; copy < STEP_COPIES; ++copy)
    places[copy] =
        A_BYTES + b_chunk_offset(warp * STEP_ROWS + copy * ROWS_AT_ONCE + sub_row, chunk);

  RingPosition<STAGES> position;
  int32_t upcoming = index_at(0);
  for (int32_t done = 0; done < columns; done += TILE_K) {
    int32_t index = upcoming;
    upcoming = index_at(done + TILE_K);
    int32_t left = columns - done;
    uint64_t* full = &ring.full[position.slot];
    uint32_t stage = stages + position.slot * STAGE_BYTES;
    mbarrier_wait(&ring.empty[position.slot], position.parity ^ 1);
    if (leads) {
      uint32_t a_bytes = (left < TILE_K ? left : TILE_K) * (STEP_BYTES / STEP_COLUMNS);
      mbarrier_arrive_expect(full, a_bytes);
      bulk_load(stage, arguments.a + (tile.task.first_column + done) * HEIGHT, a_bytes, full);
    }
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      if (step * STEP_COLUMNS >= left) break;
#pragma unroll
      for (int copy = 0; copy < STEP_COPIES; ++copy) {
        int holder = step * STEP_ROWS + copy * ROWS_AT_ONCE + sub_row;
        int32_t row = __shfl_sync(~0u, index, holder);
        bool is_padding = row < 0;
        uint64_t offset =
            uint64_t{is_padding ? 0u : static_cast<uint32_t>(row)} * arguments.b_row_bytes;
        cp_async(stage + places[copy] + step * (STEP_COLUMNS * SLICE_SPAN), b + offset,
                 is_padding ? 0 : bytes);
      }
    }
    cp_async_arrive(full);
    position.advance();
  }
}
