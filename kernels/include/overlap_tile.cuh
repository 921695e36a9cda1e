// The tile of bcsr_overlap.cu and a slot of its ring.
//
// Two consumer warpgroups own 64 x WGMMA_N of C each: neighbouring columns of one block row, or,
// where PAIRED, one of two block rows in the same columns. A slot holds TILE_K columns of the block
// of A that both read, or of one block each, and the rows of B that meet them.
#pragma once

#include "b_slices.cuh"
#include "mbarrier.cuh"
#include "overlap_arguments.cuh"

#ifndef PAIRED
#define PAIRED 0
#endif
#ifndef STAGES
#define STAGES 3
#endif
#ifndef INPUT_FP16
#define INPUT_FP16 0
#endif
#ifndef TRANSPOSED
#define TRANSPOSED 0
#endif
// Probes leave out a part of the work, for floors: what is left takes how long?
#ifndef SKIP_LOAD
#define SKIP_LOAD 0
#endif
#ifndef SKIP_PRODUCT
#define SKIP_PRODUCT 0
#endif

constexpr int BLOCK = 64;
constexpr int CONSUMERS = 2;
constexpr int TILE_COLUMNS = PAIRED != 0 ? WGMMA_N : CONSUMERS * WGMMA_N;
constexpr int A_BLOCKS = PAIRED != 0 ? CONSUMERS : 1;  // in a slot
constexpr int A_SPAN = TILE_K * 2;                     // bytes of a row of A, and its swizzle
constexpr int A_BYTES = BLOCK * A_SPAN;
constexpr int TILE_PARTS = TILE_COLUMNS / WGMMA_N;
constexpr int PART_BYTES = TILE_K * WGMMA_N * 2;  // of B, that a consumer reads
constexpr int B_BYTES = TILE_PARTS * PART_BYTES;
constexpr int SLOT_BYTES = A_BLOCKS * A_BYTES + B_BYTES;
constexpr int B_BOX_COLUMNS = TRANSPOSED == 0 ? SLICE_COLUMNS : WGMMA_N;
constexpr int B_BOX_BYTES = B_BOX_COLUMNS * TILE_K * 2;
static_assert(WGMMA_N % B_BOX_COLUMNS == 0, "boxes of B fill a part");
static_assert(WGMMA_N >= 64, "B and C travel in rows of 128 bytes");
static_assert(BLOCK % TILE_K == 0, "a block of A meets whole slots of B");

// Fills a slot with columns part * TILE_K and on of a step's blocks of A, and the rows of B that
// meet them. What lies outside of B arrives as zeros; a step without blocks loads nothing.
__device__ __forceinline__ void load_slot(const RingArguments& arguments, uint32_t slot,
                                          uint64_t* full, const TileStep& step, int part,
                                          int32_t first_column, int parts) {
  int blocks = step.control & MULTIPLIES;
  if (PAIRED != 0) blocks += step.control >> 1 & MULTIPLIES;
  if (SKIP_LOAD != 0 || blocks == 0) {
    mbarrier_arrive(full);
    return;
  }
  mbarrier_arrive_expect(full, blocks * A_BYTES + parts * PART_BYTES);
  int32_t row = step.block_column * BLOCK + part * TILE_K;
#pragma unroll
  for (int box = 0; box < TILE_COLUMNS / B_BOX_COLUMNS; ++box) {
    if (box >= parts * (WGMMA_N / B_BOX_COLUMNS)) break;
    uint32_t destination = slot + A_BLOCKS * A_BYTES + box * B_BOX_BYTES;
    int32_t column = first_column + box * B_BOX_COLUMNS;
    tma_load_2d(destination, &arguments.b_map, full, TRANSPOSED != 0 ? row : column,
                TRANSPOSED != 0 ? column : row);
  }
#pragma unroll
  for (int index = 0; index < A_BLOCKS; ++index)
    if (step.blocks[index] >= 0)
      tma_load_2d(slot + index * A_BYTES, &arguments.a_map, full, part * TILE_K,
                  step.blocks[index] * BLOCK);
}

template <int FLOAT16>
struct InputType {
  using type = Bf16;
};
template <>
struct InputType<1> {
  using type = F16;
};

// Where the rows of B lie that consumer `index` reads.
__device__ __forceinline__ uint32_t own_rows(uint32_t slot, int index) {
  return slot + A_BLOCKS * A_BYTES + (PAIRED != 0 ? 0 : index * PART_BYTES);
}

// accumulators (64 x WGMMA_N) = or += what consumer `index` has in the slot; waits for the result.
__device__ __forceinline__ void multiply_slot(float (&accumulators)[WGMMA_N / 2], uint32_t slot,
                                              int index, bool begins) {
  using Input = InputType<INPUT_FP16>::type;
  uint32_t a = slot + (PAIRED != 0 ? index * A_BYTES : 0);
  uint32_t b = own_rows(slot, index);
  uint32_t accumulates = begins ? 0 : 1;
  pin_accumulators(accumulators);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < TILE_K / 16; ++step) {
    // K-major: a step is 32 bytes of the swizzled rows; the stride is between groups of 8 rows.
    uint64_t a_descriptor = matrix_descriptor<A_SPAN>(a + step * 32, 16, 8 * A_SPAN);
    uint64_t b_descriptor_now = TRANSPOSED != 0
                                    ? matrix_descriptor<A_SPAN>(b + step * 32, 16, 8 * A_SPAN)
                                    : b_descriptor(b, step);
    WgmmaInstruction<WGMMA_N, Input, 1 - TRANSPOSED>::issue(
        accumulators, a_descriptor, b_descriptor_now, step == 0 ? accumulates : 1);
  }
  wgmma_commit();
  // Waiting for the product at once frees the slot early: loads are what takes long.
  wgmma_wait<0>();
  pin_accumulators(accumulators);
}
