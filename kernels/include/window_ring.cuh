// The ring of wcsr_pipelined.cu: producer warps gather rows of B by cp.async while consumer
// warpgroups multiply, each 64 rows of the window and WGMMA_N columns; all share a stage's A and B.
//
// Consumers are the first threads, producers the rest. Both walk over the CTA's tiles by
// themselves, so that loads for a tile start while C of the one before still leaves.
#pragma once

#include "b_slices.cuh"
#include "cp_async.cuh"
#include "tma.cuh"
#include "window_walk.cuh"

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

constexpr int STEPS = TILE_K / STEP_COLUMNS;
constexpr int TILE_COLUMNS = COLUMN_GROUPS * WGMMA_N;
constexpr int GROUP_STEP_BYTES = ROW_GROUP * STEP_COLUMNS * 2;
constexpr int STEP_BYTES = ROW_GROUPS * GROUP_STEP_BYTES;
constexpr int A_BYTES = STEPS * STEP_BYTES;
constexpr int B_BYTES = TILE_K * TILE_COLUMNS * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;

constexpr int CHUNKS = TILE_COLUMNS / 8;  // 16-byte chunks in a row of the tile of B
constexpr int PARTS = CHUNKS > WARP_THREADS ? CHUNKS / WARP_THREADS : 1;  // of a row, for a warp
constexpr int ROWS_AT_ONCE = PARTS > 1 ? 1 : WARP_THREADS / CHUNKS;       // by one cp.async
constexpr int STEP_ROWS = STEP_COLUMNS / PRODUCERS;                       // of a warp in each step
constexpr int STEP_COPIES = STEP_ROWS / ROWS_AT_ONCE;
constexpr int WARP_ROWS = STEP_ROWS * STEPS;  // of a warp in a whole stage
constexpr int PART_COLUMNS = WARP_THREADS * 8;
constexpr int PART_SLICES = PART_COLUMNS / SLICE_COLUMNS * SLICE_BYTES;
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

// One producer warp. In each wgmma step of 16 columns it copies STEP_ROWS rows of B, so that short
// stages are shared by all warps. Lane l keeps the index of the warp's row l.
struct Producer {
  const WindowArguments& arguments;
  uint64_t policy = HINTS & HINT_B ? evict_last_policy() : 0;
  uint64_t a_policy = HINTS & HINT_A ? evict_first_policy() : 0;
  int lane = threadIdx.x % WARP_THREADS;
  int warp = (threadIdx.x - CONSUMER_THREADS) / WARP_THREADS;
  int chunk = lane % CHUNKS;
  int sub_row = lane / CHUNKS;
  int held_row = lane / STEP_ROWS * STEP_COLUMNS + warp * STEP_ROWS + lane % STEP_ROWS;

  // Of the stage that a walk stands at; -1 beyond its columns.
  __device__ __forceinline__ int32_t read_index(const StageWalk& walk) const {
    int64_t column = walk.task.first_column + walk.done + held_row;
    bool is_there = lane < WARP_ROWS && walk.done + held_row < walk.task.columns;
    return is_there ? __ldg(arguments.window_col_idx + column) : -1;
  }

  __device__ __forceinline__ void load_a(const StageWalk& walk, uint32_t stage,
                                         uint64_t* full) const {
    int32_t left = walk.task.columns - walk.done;
    uint32_t bytes = (left < TILE_K ? left : TILE_K) * (STEP_BYTES / STEP_COLUMNS);
    mbarrier_arrive_expect(full, bytes);
    const uint16_t* a = arguments.a + (walk.task.first_column + walk.done) * HEIGHT;
    if (bytes == 0) return;  // an empty window
    if constexpr ((HINTS & HINT_A) != 0)
      bulk_load_hinted(stage, a, bytes, full, a_policy);
    else
      bulk_load(stage, a, bytes, full);
  }

  __device__ __forceinline__ void load_b(const StageWalk& walk, uint32_t stage,
                                         int32_t index) const {
    // This lane's chunks of a row; beyond C's last column nothing is read and zeros are laid down.
    int64_t column = int64_t{walk.column_tile} * TILE_COLUMNS + chunk * 8;
    const char* b = reinterpret_cast<const char*>(arguments.b) + column * 2;
    int64_t remaining = (arguments.n - column) * 2;
    uint32_t row_bytes = arguments.b_row_bytes;
    int32_t left = walk.task.columns - walk.done;
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      if (step * STEP_COLUMNS >= left) break;
#pragma unroll
      for (int copy = 0; copy < STEP_COPIES; ++copy) {
        int32_t row = __shfl_sync(~0u, index, step * STEP_ROWS + copy * ROWS_AT_ONCE + sub_row);
        uint32_t place = b_chunk_offset(warp * STEP_ROWS + copy * ROWS_AT_ONCE + sub_row, chunk) +
                         A_BYTES + step * (STEP_COLUMNS * SLICE_SPAN);
        const char* from = b + uint64_t{row < 0 ? 0u : static_cast<uint32_t>(row)} * row_bytes;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
          int64_t rest = remaining - part * (PART_COLUMNS * 2);
          uint32_t bytes = rest >= 16 ? 16 : rest > 0 ? static_cast<uint32_t>(rest) : 0;
          const void* source = bytes != 0 ? from + part * (PART_COLUMNS * 2)
                                          : reinterpret_cast<const char*>(arguments.b);
          cp_async_hinted(stage + place + part * PART_SLICES, source, row < 0 ? 0 : bytes, policy);
        }
      }
    }
  }
};

__device__ __forceinline__ void produce(const WindowArguments& arguments, WindowRing& ring,
                                        uint32_t stages) {
  Producer self{arguments};
  // Indices are read two stages before their rows: to wait for memory twice in a row, at each
  // stage, is what a short window would spend most of its time on.
  StageWalk ahead(arguments);
  StageWalk walk = ahead;
  int32_t index = self.read_index(ahead);
  ahead.advance(arguments);
  int32_t next = self.read_index(ahead);
  __syncthreads();
  RingPosition<STAGES> position;
  while (walk.is_inside()) {
    ahead.advance(arguments);
    int32_t after_next = self.read_index(ahead);
    uint64_t* full = &ring.full[position.slot];
    uint32_t stage = stages + position.slot * STAGE_BYTES;
    mbarrier_wait(&ring.empty[position.slot], position.parity ^ 1);
    if (threadIdx.x == CONSUMER_THREADS) self.load_a(walk, stage, full);
    self.load_b(walk, stage, index);
    cp_async_arrive(full);
    position.advance();
    walk.advance(arguments);
    index = next;
    next = after_next;
  }
}
