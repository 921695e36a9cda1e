// Where the roles of a ring kernel spend their time, for builds with INSTRUMENT. They are probes:
// the figures explain the times of the kernel, which are taken without them. Otherwise nothing of
// this is compiled.
//
// A role is a warpgroup; its first thread speaks for it. Every thread keeps its counts in registers
// and takes laps: a reading of the clock ends one part of its time and begins the next, so that the
// parts leave nothing out and a part costs one reading. The counts go to memory once, at the end.
//   INSTRUMENT=1  the consumers' parts, and the producer's waits for empty slots
//   INSTRUMENT=2  also the release of slots, and what of those waits is for other CTAs
#pragma once

#include "types.cuh"
#include "wgmma.cuh"

#ifndef INSTRUMENT
#define INSTRUMENT 0
#endif

// Its mirror in Python is asyncsparse_lab.spmm.instrument.ROLE_ROW; keep both alike.
struct alignas(16) RoleRow {
  uint64_t begin_clock;  // %clock64, cycles of this SM
  uint64_t end_clock;
  uint64_t read_clock;  // one reading of both clocks, of the producer: when its loads are issued,
  uint64_t read_ns;     // of the first consumer: early on, of the second: none (%globaltimer)
  uint32_t sm;
  uint32_t tiles;
  uint32_t blocks;
  uint32_t waits;        // of the producer, for an empty slot
  uint32_t setup;        // cycles until the CTA's barriers, and those of its cluster, are there
  uint32_t fetch;        // reading which blocks a tile has
  uint32_t reset;        // zeroing accumulators
  uint32_t first_wait;   // of the waits, those for the first stage of a tile
  uint32_t wait;         // for full slots; the producer's: for empty ones
  uint32_t multiply;     // issuing wgmma, and waiting for the one before
  uint32_t release;      // arriving on the empty barriers, own and remote
  uint32_t drain;        // waiting for a tile's last wgmma
  uint32_t epilogue;     // writing C
  uint32_t leave;        // waiting for the rest of the cluster at the end
  uint32_t remote_wait;  // of the producer's waits, after its own CTA's consumers had released
  uint32_t unused;
};
static_assert(sizeof(RoleRow) == 96, "the Python mirror is 96 bytes");

// A kernel's argument in such a build: the same, and where the rows are.
template <class Arguments>
struct ClockedArguments : Arguments {
  RoleRow* rows;  // [CTAs][roles]
};

__device__ __forceinline__ bool speaks_for_its_role() {
  return threadIdx.x % WARPGROUP_THREADS == 0;
}

#if INSTRUMENT
template <class Arguments>
using Clocked = ClockedArguments<Arguments>;

struct RoleClock {
  uint64_t begin = long_clock();
  uint32_t last = static_cast<uint32_t>(begin);
  uint32_t waiting = 0;  // when the producer's wait began
  RoleRow counts = {};

  static __device__ __forceinline__ uint64_t long_clock() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(now)::"memory");
    return now;
  }

  static __device__ __forceinline__ uint32_t short_clock() {
    uint32_t now;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(now)::"memory");
    return now;
  }

  // Ends a part, and returns how long it was. The parts are constants where this is inlined: a
  // choice between two would put the counts into local memory.
  __device__ __forceinline__ uint32_t lap(uint32_t RoleRow::* part) {
    uint32_t now = short_clock();
    uint32_t cycles = now - last;
    counts.*part += cycles;
    last = now;
    return cycles;
  }

  // Ends the part `fetch` once a value that was read from memory is there.
  __device__ __forceinline__ void fetched(int64_t blocks) {
    asm volatile("{\n.reg .pred p;\nsetp.lt.s64 p, %0, 0;\n@p trap;\n}" ::"l"(blocks) : "memory");
    lap(&RoleRow::fetch);
  }

  // Accumulators are zeros from here on.
  template <int COUNT>
  __device__ __forceinline__ void zeroed(float (&accumulators)[COUNT]) {
    pin_accumulators(accumulators);
    lap(&RoleRow::reset);
  }

  __device__ __forceinline__ void waited_full(bool first) {
    uint32_t cycles = lap(&RoleRow::wait);
    counts.first_wait += first ? cycles : 0;
  }

  // By a consumer that is about to release a slot, and after it.
  __device__ __forceinline__ void multiplied() {
    if constexpr (INSTRUMENT >= 2) lap(&RoleRow::multiply);
  }

  __device__ __forceinline__ void released() {
    constexpr auto PART = INSTRUMENT >= 2 ? &RoleRow::release : &RoleRow::multiply;
    lap(PART);
  }

  // By a consumer that has written its part of a tile.
  __device__ __forceinline__ void stored(int64_t blocks) {
    lap(&RoleRow::epilogue);
    counts.tiles += 1;
    counts.blocks += static_cast<uint32_t>(blocks);
  }

  // Around the producer's wait for an empty slot.
  __device__ __forceinline__ void wait_begins() { waiting = short_clock(); }

  __device__ __forceinline__ void wait_ended() { last = short_clock(); }

  // Counts that wait, after the loads that it held up are issued.
  __device__ __forceinline__ void count_wait() {
    counts.waits += 1;
    counts.wait += last - waiting;
  }

  // And of it what was left when the consumers of this CTA had released the slot, at `noted`.
  __device__ __forceinline__ void count_remote_wait(const uint32_t (&noted)[2]) {
    auto since = [this](uint32_t then) { return static_cast<int32_t>(last - then); };
    int32_t remote = since(waiting);
    if (since(noted[0]) < remote) remote = since(noted[0]);
    if (since(noted[1]) < remote) remote = since(noted[1]);
    counts.remote_wait += static_cast<uint32_t>(remote > 0 ? remote : 0);
  }

  // Reads both clocks into a role's row. %globaltimer is slow, so this is for threads that nobody
  // waits for: one of an idle warp when the kernel has begun, the producer when it is done.
  template <class Arguments>
  __device__ __forceinline__ void read_both(const ClockedArguments<Arguments>& arguments, int roles,
                                            int role) const {
    RoleRow& row = arguments.rows[int64_t{blockIdx.x} * roles + role];
    uint64_t nanoseconds;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds)::"memory");
    row.read_clock = long_clock();
    row.read_ns = nanoseconds;
  }

  // By all threads of the producer's warpgroup.
  template <class Arguments>
  __device__ __forceinline__ void read_both_early(const ClockedArguments<Arguments>& arguments,
                                                  int roles) const {
    if (threadIdx.x == WARP_THREADS) read_both(arguments, roles, 1);
  }

  template <class Arguments>
  __device__ __forceinline__ void read_both_late(const ClockedArguments<Arguments>& arguments,
                                                 int roles) const {
    if (threadIdx.x == 0) read_both(arguments, roles, 0);
  }

  // Writes the role's counts, all but the readings of both clocks.
  template <class Arguments>
  __device__ __forceinline__ void write(const ClockedArguments<Arguments>& arguments, int roles) {
    if (!speaks_for_its_role()) return;
    uint64_t end = long_clock();
    asm("mov.u32 %0, %%smid;" : "=r"(counts.sm));
    RoleRow& row = arguments.rows[int64_t{blockIdx.x} * roles + threadIdx.x / WARPGROUP_THREADS];
    row.begin_clock = begin;
    row.end_clock = end;
    auto* to = reinterpret_cast<uint4*>(&row.sm);
    to[0] = make_uint4(counts.sm, counts.tiles, counts.blocks, counts.waits);
    to[1] = make_uint4(counts.setup, counts.fetch, counts.reset, counts.first_wait);
    to[2] = make_uint4(counts.wait, counts.multiply, counts.release, counts.drain);
    to[3] = make_uint4(counts.epilogue, counts.leave, counts.remote_wait, 0);
  }
};
#else
template <class Arguments>
using Clocked = Arguments;

struct RoleClock {
  __device__ __forceinline__ void lap(uint32_t RoleRow::*) {}
  __device__ __forceinline__ void fetched(int64_t) {}
  template <int COUNT>
  __device__ __forceinline__ void zeroed(float (&)[COUNT]) {}
  __device__ __forceinline__ void waited_full(bool) {}
  __device__ __forceinline__ void multiplied() {}
  __device__ __forceinline__ void released() {}
  __device__ __forceinline__ void stored(int64_t) {}
  __device__ __forceinline__ void wait_begins() {}
  __device__ __forceinline__ void wait_ended() {}
  __device__ __forceinline__ void count_wait() {}
  template <class Arguments>
  __device__ __forceinline__ void read_both_early(const Arguments&, int) const {}
  template <class Arguments>
  __device__ __forceinline__ void read_both_late(const Arguments&, int) const {}
  template <class Arguments>
  __device__ __forceinline__ void write(const Arguments&, int) {}
};
#endif

// When each consumer last released each slot; a base of the struct that holds the barriers.
template <int SLOTS>
struct ReleaseTimes {
#if INSTRUMENT >= 2
  uint32_t noted[SLOTS][2];

  // By one thread, before the CTA's first barrier.
  __device__ __forceinline__ void begin_noting(const RoleClock& clock) {
    for (int slot = 0; slot < SLOTS; ++slot) noted[slot][0] = noted[slot][1] = clock.last;
  }

  // By a consumer, before it arrives on the slot's empty barrier.
  __device__ __forceinline__ void note_release(int slot, const RoleClock& clock) {
    if (speaks_for_its_role()) noted[slot][threadIdx.x / WARPGROUP_THREADS - 1] = clock.last;
  }

  __device__ __forceinline__ void count_remote_wait(int slot, RoleClock& clock) const {
    clock.count_remote_wait(noted[slot]);
  }
#else
  __device__ __forceinline__ void begin_noting(const RoleClock&) {}
  __device__ __forceinline__ void note_release(int, const RoleClock&) {}
  __device__ __forceinline__ void count_remote_wait(int, RoleClock&) const {}
#endif
};
