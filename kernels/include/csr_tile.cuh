// A tile of C's columns in the hands of some lanes of a warp: reading rows of B, multiplying,
// writing rows of C.
#pragma once

#include "csr_arguments.cuh"

#ifndef INPUT_FP16
#define INPUT_FP16 0
#endif
#ifndef OUTPUT_FP16
#define OUTPUT_FP16 0
#endif
#ifndef OUTPUT_BF16
#define OUTPUT_BF16 1
#endif
#ifndef UNROLL
#define UNROLL 8
#endif

constexpr int CHUNK = 8;  // columns: 16 bytes of B, the widest load of a lane
constexpr bool OUTPUT_16_BIT = OUTPUT_BF16 != 0 || OUTPUT_FP16 != 0;
constexpr int OUTPUT_BYTES = OUTPUT_16_BIT ? 2 : 4;
constexpr uint32_t ALL_LANES = 0xffffffffu;

// Two neighbours in one word; `low` is the lower 16 bits.
__device__ __forceinline__ void unpack(uint32_t word, float& low, float& high) {
  if constexpr (INPUT_FP16 != 0) {
    asm("{.reg .b16 a, b;\n\t"
        "mov.b32 {a, b}, %2;\n\t"
        "cvt.f32.f16 %0, a;\n\t"
        "cvt.f32.f16 %1, b;}"
        : "=f"(low), "=f"(high)
        : "r"(word));
  } else {
    low = bf16_to_float(word);
    high = __uint_as_float(word & 0xffff0000u);
  }
}

__device__ __forceinline__ float widened(uint32_t bits) {
  float low, high;
  unpack(bits, low, high);
  return low;
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
  if constexpr (OUTPUT_FP16 != 0) {
    uint32_t packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
  } else {
    return pack_bf16(low, high);
  }
}

// Sixteen bytes, or zeros: one predicated load, no branch.
__device__ __forceinline__ uint4 read_if(bool there, const uint8_t* from) {
  uint4 value;
  asm("{.reg .pred p;\n\t"
      "setp.ne.b32 p, %5, 0;\n\t"
      "mov.b32 %0, 0;\n\t"
      "mov.b32 %1, 0;\n\t"
      "mov.b32 %2, 0;\n\t"
      "mov.b32 %3, 0;\n\t"
      "@p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];}"
      : "=&r"(value.x), "=&r"(value.y), "=&r"(value.z), "=&r"(value.w)
      : "l"(from), "r"(static_cast<int32_t>(there)));
  return value;
}

// LANES_ lanes hold CHUNKS chunks each. Where rows are aligned the chunks of a lane are whole, and
// LANES of them lie side by side; else a lane's columns are LANES apart, each read by itself.
template <int LANES_, int CHUNKS, bool ALIGNED>
class Tile {
 public:
  static constexpr int LANES = LANES_;
  static constexpr int COLUMNS = LANES * CHUNKS * CHUNK;
  // Rows of B that are read at once.
  static constexpr int STEP = !ALIGNED ? 4 : UNROLL / CHUNKS < LANES ? UNROLL / CHUNKS : LANES;
  static_assert(UNROLL % CHUNKS == 0 && LANES % STEP == 0, "a batch of indices is whole steps");

  struct BRow {
    uint4 chunks[CHUNKS];
  };

  __device__ __forceinline__ Tile(const CsrArguments& g, int64_t first_column, int64_t row)
      : lane_(threadIdx.x % LANES),
        b_(reinterpret_cast<const uint8_t*>(g.b + first_column) +
           lane_ * (ALIGNED ? CHUNK : 1) * 2),
        b_row_bytes_(g.b_row_bytes),
        c_(static_cast<uint8_t*>(g.c) + row * g.c_row_bytes + first_column * OUTPUT_BYTES),
        c_row_bytes_(g.c_row_bytes),
        columns_(
            static_cast<int32_t>(g.n - first_column < COLUMNS ? g.n - first_column : COLUMNS)) {
    clear();
  }

  __device__ __forceinline__ int lane() const { return lane_; }

  // The lanes that share the tile's rows.
  __device__ __forceinline__ uint32_t lanes() const {
    if constexpr (LANES == WARP_THREADS) return ALL_LANES;
    return ((1u << LANES % WARP_THREADS) - 1) << (threadIdx.x % WARP_THREADS / LANES * LANES);
  }

  // The largest of the lengths that the lanes of the warp have.
  static __device__ __forceinline__ int32_t longest(int32_t length) {
    if constexpr (LANES == WARP_THREADS) return length;
    return __reduce_max_sync(ALL_LANES, length);
  }

  // Reads a row of B, or zeros in its place.
  __device__ __forceinline__ BRow read(int32_t index, bool there) const {
    BRow row;
    const uint8_t* from = b_ + uint64_t{static_cast<uint32_t>(index)} * b_row_bytes_;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      if constexpr (ALIGNED) {
        const bool inside = there && column(chunk) < columns_;
        row.chunks[chunk] = read_if(inside, from + chunk * LANES * CHUNK * 2);
      } else {
        uint32_t words[CHUNK / 2] = {};
#pragma unroll
        for (int i = 0; i < CHUNK; ++i)
          if (there && column(chunk, i) < columns_)
            words[i / 2] |= uint32_t{__ldg(reinterpret_cast<const uint16_t*>(from) +
                                           (chunk * CHUNK + i) * LANES)}
                            << (i % 2 * 16);
        row.chunks[chunk] = make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
    return row;
  }

  __device__ __forceinline__ void add(float factor, const BRow& row) {
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      const uint4 four = row.chunks[chunk];
      const uint32_t words[CHUNK / 2] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int i = 0; i < CHUNK; i += 2) {
        float low, high;
        unpack(words[i / 2], low, high);
        sums_[chunk][i] = fmaf(factor, low, sums_[chunk][i]);
        sums_[chunk][i + 1] = fmaf(factor, high, sums_[chunk][i + 1]);
      }
    }
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (auto& chunk : sums_)
#pragma unroll
      for (float& sum : chunk) sum = 0.f;
  }

  // Writes the sums to a row of C and goes on to the next one. C is not read again, so it should
  // leave L2 before B does: streaming stores.
  __device__ __forceinline__ void close_row() {
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      if constexpr (!ALIGNED) {
#pragma unroll
        for (int i = 0; i < CHUNK; ++i)
          if (column(chunk, i) < columns_) store_one(column(chunk, i), sums_[chunk][i]);
      } else if constexpr (OUTPUT_16_BIT) {
        store_packed(column(chunk), sums_[chunk]);
      } else {
        store_traded(column(chunk), sums_[chunk]);
      }
    }
    c_ += c_row_bytes_;
    clear();
  }

  // Keeps the sums in memory that belongs to a piece of a row: COLUMNS floats.
  __device__ __forceinline__ void leave(float* partial) const {
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk)
#pragma unroll
      for (int i = 0; i < CHUNK; i += 4)
        *four_of(partial, chunk, i) = make_float4(sums_[chunk][i], sums_[chunk][i + 1],
                                                  sums_[chunk][i + 2], sums_[chunk][i + 3]);
  }

  // Adds what some lanes left; they may be of another SM, so not through L1.
  __device__ __forceinline__ void collect(float* partial) {
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk)
#pragma unroll
      for (int i = 0; i < CHUNK; i += 4) {
        const float4 four = __ldcg(four_of(partial, chunk, i));
        sums_[chunk][i] += four.x;
        sums_[chunk][i + 1] += four.y;
        sums_[chunk][i + 2] += four.z;
        sums_[chunk][i + 3] += four.w;
      }
  }

 private:
  // Column, within the tile, of element i of a chunk.
  __device__ __forceinline__ int32_t column(int chunk, int i = 0) const {
    if constexpr (ALIGNED) return (chunk * LANES + lane_) * CHUNK + i;
    return (chunk * CHUNK + i) * LANES + lane_;
  }

  __device__ __forceinline__ float4* four_of(float* partial, int chunk, int i) const {
    return reinterpret_cast<float4*>(partial) + (chunk * CHUNK + i) / 4 * LANES + lane_;
  }

  __device__ __forceinline__ void store_one(int32_t column, float sum) {
    if constexpr (OUTPUT_16_BIT) {
      reinterpret_cast<uint16_t*>(c_)[column] = static_cast<uint16_t>(pack(sum, 0.f));
    } else {
      reinterpret_cast<float*>(c_)[column] = sum;
    }
  }

  __device__ __forceinline__ void store_packed(int32_t column, const float (&sums)[CHUNK]) {
    if (column < columns_)
      __stcs(reinterpret_cast<uint4*>(c_ + column * OUTPUT_BYTES),
             make_uint4(pack(sums[0], sums[1]), pack(sums[2], sums[3]), pack(sums[4], sums[5]),
                        pack(sums[6], sums[7])));
  }

  // A chunk of fp32 is two 16-byte stores. The two lanes of a pair trade halves of their chunks, so
  // that with each store they fill a 32-byte sector together.
  __device__ __forceinline__ void store_traded(int32_t column, const float (&sums)[CHUNK]) {
    const bool odd = lane_ % 2 != 0;
    float traded[CHUNK / 2];
#pragma unroll
    for (int i = 0; i < CHUNK / 2; ++i)
      traded[i] = __shfl_xor_sync(lanes(), odd ? sums[i] : sums[CHUNK / 2 + i], 1);
    const int32_t first = odd ? column - CHUNK : column;  // of the pair's two chunks
    auto* to = reinterpret_cast<float4*>(c_ + first * OUTPUT_BYTES) + (odd ? 1 : 0);
    if (first < columns_)
      __stcs(to, odd ? make_float4(traded[0], traded[1], traded[2], traded[3])
                     : make_float4(sums[0], sums[1], sums[2], sums[3]));
    if (first + CHUNK < columns_)
      __stcs(to + 2, odd ? make_float4(sums[4], sums[5], sums[6], sums[7])
                         : make_float4(traded[0], traded[1], traded[2], traded[3]));
  }

  const int lane_;
  const uint8_t* const b_;
  const uint32_t b_row_bytes_;
  uint8_t* c_;
  const int64_t c_row_bytes_;
  const int32_t columns_;  // of the tile that the matrix has
  float sums_[CHUNKS][CHUNK];
};
