// C of bcsr_overlap.cu leaves through the ring. A consumer lays its accumulators down over the rows
// of B that it multiplied last, and gives the slot back when TMA has read them from there: no
// memory is kept for C, so that all of it holds bytes on their way. Block rows without blocks are
// stored from memory that stays zero.
#pragma once

#include "elect.cuh"
#include "overlap_tile.cuh"
#include "stmatrix.cuh"
#include "swizzle.cuh"

#ifndef OUTPUT_BF16
#define OUTPUT_BF16 1
#endif
#ifndef OUTPUT_FP16
#define OUTPUT_FP16 0
#endif
#ifndef SKIP_STORE
#define SKIP_STORE 0
#endif

constexpr bool IS_16_BIT = OUTPUT_BF16 != 0 || OUTPUT_FP16 != 0;
constexpr int OUTPUT_BYTES = IS_16_BIT ? 2 : 4;
constexpr int SPAN_VALUES = 128 / OUTPUT_BYTES;  // neighbours in memory that a box covers

// What the rows of B have room for at once.
constexpr int PART_COLUMNS = WGMMA_N * TILE_K * 2 / (BLOCK * OUTPUT_BYTES);
constexpr int PARTS = WGMMA_N / PART_COLUMNS;

// A box of C: 64 rows x 128 bytes; of C^T: C_BOX_ROWS columns of C, 128 bytes of each.
constexpr int C_BOX_ROWS = TRANSPOSED == 0 || PART_COLUMNS > 64 ? 64 : PART_COLUMNS;
constexpr int C_BOX_BYTES = C_BOX_ROWS * 128;
constexpr int ZERO_BYTES = 8192;
static_assert(C_BOX_BYTES <= ZERO_BYTES);

// Calls store(box, row, column) for the boxes of 64 rows of C x COLUMNS, as they are staged.
template <int COLUMNS, class Store>
__device__ __forceinline__ void for_each_box(Store store) {
  if constexpr (TRANSPOSED == 0) {
#pragma unroll
    for (int box = 0; box < COLUMNS / SPAN_VALUES; ++box) store(box, 0, box * SPAN_VALUES);
  } else {
    constexpr int BOXES_DOWN = BLOCK / SPAN_VALUES;
#pragma unroll
    for (int box = 0; box < COLUMNS / C_BOX_ROWS * BOXES_DOWN; ++box)
      store(box, box % BOXES_DOWN * SPAN_VALUES, box / BOXES_DOWN * C_BOX_ROWS);
  }
}

// Starts the stores of 64 x COLUMNS of C as one group. With `step` 0 all boxes read the same
// memory.
template <int COLUMNS>
__device__ __forceinline__ void store_boxes(const TensorMap* c_map, uint32_t source, int step,
                                            int32_t first_row, int32_t first_column) {
  if constexpr (SKIP_STORE != 0) return;
  for_each_box<COLUMNS>([&](int box, int row, int column) {
    int32_t along_m = first_row + row;
    int32_t along_n = first_column + column;
    tma_store_2d(c_map, source + box * step, TRANSPOSED != 0 ? along_m : along_n,
                 TRANSPOSED != 0 ? along_n : along_m);
  });
  tma_store_commit();
}

__device__ __forceinline__ uint32_t pack_output(float low, float high) {
  if constexpr (OUTPUT_FP16 == 0) return pack_bf16(low, high);
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// Stages the accumulators of PART_COLUMNS columns, from those of part PART on. Thread t of a
// warpgroup holds rows 16 * (t / 32) + (t % 32) / 4 and that plus 8, columns 8 j + 2 (t % 4) and
// the next (PTX ISA, wgmma, fragment D).
template <int PART>
__device__ __forceinline__ void stage_part(uint32_t place,
                                           const float (&accumulators)[WGMMA_N / 2]) {
  constexpr int COUNT = PART_COLUMNS / 2;
  const float* own = &accumulators[PART * COUNT];
  int lane = threadIdx.x % WARP_THREADS;
  int warp_row = threadIdx.x % WARPGROUP_THREADS / WARP_THREADS * 16;
  if constexpr (IS_16_BIT) {
    // Four matrices: rows 0..7 and 8..15 of the warp's 16, at columns 8 j, then at 8 (j + 1).
#pragma unroll
    for (int j = 0; j < COUNT / 4; j += 2) {
      const float* pairs = own + 4 * j;
      uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) packed[i] = pack_output(pairs[2 * i], pairs[2 * i + 1]);
      if constexpr (TRANSPOSED == 0) {
        int chunk = j + lane / 16;
        uint32_t offset = (warp_row + lane % 16) * 128 + chunk % 8 * 16;
        store_matrices(place + chunk / 8 * C_BOX_BYTES + swizzled<128>(offset), packed[0],
                       packed[1], packed[2], packed[3]);
      } else {
        int column = (j + lane / 16) * 8 + lane % 8;
        uint32_t offset = column * 128 + (warp_row + lane / 8 % 2 * 8) * 2;
        store_transposed(place + swizzled<128>(offset), packed[0], packed[1], packed[2], packed[3]);
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < COUNT; i += 2) {
      int row = warp_row + lane / 4 + i / 2 % 2 * 8;
      int column = i / 4 * 8 + lane % 4 * 2;
      if constexpr (TRANSPOSED == 0) {
        uint32_t offset = row * 128 + column % SPAN_VALUES * 4;
        uint32_t address = place + column / SPAN_VALUES * C_BOX_BYTES + swizzled<128>(offset);
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(own[i]), "f"(own[i + 1])
                     : "memory");
      } else {
        constexpr int BOXES_DOWN = BLOCK / SPAN_VALUES;
        uint32_t boxes = column / C_BOX_ROWS * BOXES_DOWN + row / SPAN_VALUES;
        uint32_t offset = column % C_BOX_ROWS * 128 + row % SPAN_VALUES * 4;
        uint32_t box = place + boxes * C_BOX_BYTES;
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(box + swizzled<128>(offset)), "f"(own[i])
                     : "memory");
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(box + swizzled<128>(offset + 128)),
                     "f"(own[i + 1])
                     : "memory");
      }
    }
  }
}

// Whether the phase of this parity is over; does not wait.
__device__ __forceinline__ bool mbarrier_test(uint64_t* barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return done != 0;
}

// A consumer warpgroup's stores. It holds at most one slot.
struct Output {
  int name;                  // of the barrier that the warpgroup meets at, 1 .. 15
  uint64_t* held = nullptr;  // the empty barrier of that slot

  // By the thread that stores, and knows what TMA has read.
  template <class Action>
  __device__ __forceinline__ static void lead(Action action) {
    if (threadIdx.x % WARPGROUP_THREADS < WARP_THREADS) {
      if (is_elected()) action();
    }
  }

  __device__ __forceinline__ void meet() const {
    asm volatile("bar.sync %0, 128;" ::"r"(name) : "memory");
  }

  // Gives the slot back, for all four warps: they met before the store began.
  __device__ __forceinline__ void release() {
    lead([&] { release_held(); });
  }

  // Waits for the next slot. Where that is not there yet, TMA has time to read the one held.
  __device__ __forceinline__ void wait_full(uint64_t* full, uint32_t parity) {
    lead([&] {
      if (!mbarrier_test(full, parity)) release_held();
    });
    mbarrier_wait(full, parity);
  }

  // Stores the accumulators through `place` in a slot, which nobody else reads any more, and holds
  // the slot.
  template <int PART = 0>
  __device__ __forceinline__ void store(const TensorMap* c_map, uint32_t place, uint64_t* empty,
                                        const float (&accumulators)[WGMMA_N / 2], int32_t first_row,
                                        int32_t first_column) {
    if constexpr (PART > 0) lead([] { tma_store_wait_read(); });
    meet();
    stage_part<PART>(place, accumulators);
    fence_async_proxy();
    meet();
    lead([&] { store_boxes<PART_COLUMNS>(c_map, place, C_BOX_BYTES, first_row, first_column); });
    if constexpr (PART + 1 < PARTS)
      store<PART + 1>(c_map, place, empty, accumulators, first_row, first_column + PART_COLUMNS);
    else
      held = empty;
  }

  __device__ __forceinline__ static void finish() {
    lead([] { tma_store_wait(); });
  }

 private:
  __device__ __forceinline__ void release_held() {
    if (held == nullptr) return;
    tma_store_wait_read();
    mbarrier_arrive_many(held, WARPGROUP_THREADS / WARP_THREADS);
    held = nullptr;
  }
};
