// The article's WCSR kernel: one warpgroup, load then compute, in series.
//
// A task is a piece of a window. For every 64 of its columns one bulk copy brings A as core
// matrices, all 128 threads gather the rows of B and write them with the 128-byte swizzle by hand,
// then wgmma multiplies. Where a window has several tasks the results meet by atomicAdd.

#include "b_slices.cuh"
#include "instrument.cuh"
#include "mbarrier.cuh"
#include "output_tile.cuh"
#include "tma.cuh"
#include "wcsr_arguments.cuh"

constexpr int TILE_COLUMNS = WGMMA_N;
constexpr int A_BYTES = TILE_K / STEP_COLUMNS * STEP_BYTES;
static_assert(TILE_K == 64, "a stage is 64 columns");
constexpr int CHUNKS = TILE_COLUMNS / 8;  // 16-byte chunks in a row of the tile of B
constexpr int READS = TILE_K * CHUNKS / WARPGROUP_THREADS;  // of chunks by one thread, a stage
constexpr int BATCH = READS % 8 == 0 ? 8 : READS % 4 == 0 ? 4 : READS;
static_assert(TILE_COLUMNS >= 16, "every thread has a chunk to read");
static_assert(WINDOW * TILE_K * 2 == A_BYTES && A_BYTES % 1024 == 0, "B keeps its alignment");

// All 128 threads read rows of B, 16 bytes each at a time, and lay them down swizzled. Reads are
// issued in batches, so that their latencies overlap. Padding (index -1) and the rows that fill up
// the last stage are zeros, never row 0 of B.
__device__ __forceinline__ void gather_b(const WcsrArguments& arguments, uint32_t b, int64_t first,
                                         int columns, int64_t first_column) {
  for (int base = threadIdx.x; base < TILE_K * CHUNKS; base += BATCH * WARPGROUP_THREADS) {
    int32_t sources[BATCH];
    uint4 values[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      int row = (base + i * WARPGROUP_THREADS) / CHUNKS;
      sources[i] = row < columns ? arguments.window_col_idx[first + row] : -1;
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      int chunk = (base + i * WARPGROUP_THREADS) % CHUNKS;
      const uint16_t* from = sources[i] < 0 ? nullptr : arguments.b + sources[i] * arguments.ldb;
      values[i] = read_eight(from, first_column + chunk * 8, arguments.n);
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      int index = base + i * WARPGROUP_THREADS;
      store_shared(b + b_chunk_offset(index / CHUNKS, index % CHUNKS), values[i]);
    }
  }
}

// accumulators += STEPS * 16 columns of A's stage * the matching rows of B.
template <int STEPS>
__device__ __forceinline__ void multiply_stage(float (&accumulators)[WGMMA_N / 2], uint32_t a,
                                               uint32_t b) {
  pin_accumulators(accumulators);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    // Core matrices: 128 bytes to the next 8 rows, 1024 to the next 8 columns.
    uint64_t a_descriptor = matrix_descriptor<16>(a + step * STEP_BYTES, STEP_BYTES / 2, 128);
    WgmmaInstruction<WGMMA_N, Bf16, 1>::issue(accumulators, a_descriptor, b_descriptor(b, step));
  }
  wgmma_commit();
  pin_accumulators(accumulators);
  wgmma_wait<0>();
}

__device__ __forceinline__ void add_pair(const WcsrArguments& arguments, int64_t row,
                                         int64_t column, float first, float second) {
  if (row >= arguments.m || column >= arguments.n) return;
  float* sum = arguments.sums + row * arguments.ldsums + column;
  atomicAdd(sum, first);
  if (column + 1 < arguments.n) atomicAdd(sum + 1, second);
}

struct Shared : Instruments<1> {
  uint64_t full;
};

extern "C" __global__ void __launch_bounds__(WARPGROUP_THREADS)
    wcsr_spmm(const __grid_constant__ Instrumented<WcsrArguments> arguments) {
  Arrival arrival;
  extern __shared__ uint8_t dynamic_shared[];
  __shared__ Shared shared;
  uint32_t a = aligned_stages(dynamic_shared);
  uint32_t b = a + A_BYTES;
  int64_t column_tiles = (arguments.n + TILE_COLUMNS - 1) / TILE_COLUMNS;
  WcsrTask task = arguments.tasks[blockIdx.x / column_tiles];
  int64_t first_column = blockIdx.x % column_tiles * TILE_COLUMNS;
  if (threadIdx.x == 0) {
    shared.open(arguments, 1);
    mbarrier_init(&shared.full, 1);
    mbarrier_init_fence();
  }
  __syncthreads();
  shared.enter(arrival);

  float accumulators[WGMMA_N / 2] = {};
  uint32_t parity = 0;
  for (int done = 0; done < task.columns; done += TILE_K) {
    int columns = task.columns - done < TILE_K ? task.columns - done : TILE_K;
    int steps = columns / STEP_COLUMNS;
    int64_t first = int64_t{task.first_column} + done;
    if (threadIdx.x == 0) {
      mbarrier_arrive_expect(&shared.full, steps * STEP_BYTES);
      bulk_load(a, arguments.a + first * WINDOW, steps * STEP_BYTES, &shared.full);
    }
    Stopwatch gathering;
    gather_b(arguments, b, first, columns, first_column);
    fence_async_proxy();
    shared.stop(&InstrumentRow::gather, gathering);
    Stopwatch waiting;
    mbarrier_wait(&shared.full, parity);
    parity ^= 1;
    __syncthreads();
    shared.waited_full(waiting, done == 0);
    Stopwatch multiplying;
    switch (steps) {  // the last stage may be short; beyond it A's slot holds stale columns
      case 4: multiply_stage<4>(accumulators, a, b); break;
      case 3: multiply_stage<3>(accumulators, a, b); break;
      case 2: multiply_stage<2>(accumulators, a, b); break;
      default: multiply_stage<1>(accumulators, a, b);
    }
    shared.stop(&InstrumentRow::multiply, multiplying);
    __syncthreads();
  }
  pin_accumulators(accumulators);
  Stopwatch storing;
  int64_t first_row = int64_t{task.window} * WINDOW;
  if (task.pieces == 1) {
    store_accumulators({arguments.c, arguments.m, arguments.n, arguments.ldc}, accumulators,
                       first_row, first_column);
  } else {
    for_each_pair<WGMMA_N / 2>(accumulators, [&](int row, int column, float first, float second) {
      add_pair(arguments, first_row + row, first_column + column, first, second);
    });
  }
  shared.stored(storing);
  shared.exit();
}

// One block a row of a split window.
__device__ __forceinline__ int64_t split_row(const WcsrArguments& arguments) {
  return int64_t{arguments.split_windows[blockIdx.x / WINDOW]} * WINDOW + blockIdx.x % WINDOW;
}

// Before: the rows of split windows are zeroed, since tasks add to them.
extern "C" __global__ void wcsr_clear(const __grid_constant__ WcsrArguments arguments) {
  int64_t row = split_row(arguments);
  if (row >= arguments.m) return;
  for (int64_t column = threadIdx.x; column < arguments.n; column += blockDim.x)
    arguments.sums[row * arguments.ldsums + column] = 0.f;
}

// After, for bf16 output: the sums are rounded into C.
extern "C" __global__ void wcsr_round(const __grid_constant__ WcsrArguments arguments) {
  int64_t row = split_row(arguments);
  if (row >= arguments.m) return;
  auto* c = static_cast<uint16_t*>(arguments.c);
  for (int64_t column = threadIdx.x; column < arguments.n; column += blockDim.x)
    c[row * arguments.ldc + column] =
        static_cast<uint16_t>(pack_bf16(arguments.sums[row * arguments.ldsums + column], 0.f));
}
