// Where a CTA of WCSR spends its time, for builds with INSTRUMENT=1. They are probes: the figures
// explain the times of the kernel, which are taken without them. Otherwise nothing of this is
// compiled. The ring kernels have role_clock.cuh, which costs less.
//
// A CTA (its first thread speaks for it) has a row in global memory, zeroed by the host before the
// launch. Cycles are added there without being waited for. The fields and slots of a ring are kept
// so that the recorded probes stay what is built here.
#pragma once

#include "types.cuh"
#include "wgmma.cuh"

#ifndef INSTRUMENT
#define INSTRUMENT 0
#endif

// Its mirror in Python is asyncsparse_lab.spmm.instrument.ROW; keep both alike.
struct InstrumentRow {
  uint64_t begin_ns;  // %globaltimer, the same clock on all SMs
  uint64_t end_ns;
  uint64_t begin_clock;  // %clock64, cycles of this SM
  uint64_t end_clock;
  uint32_t sm;
  uint32_t tiles;
  uint32_t setup;        // cycles until the CTA's barriers, and those of its cluster, are there
  uint32_t waits;        // barriers waited for: empty ones (producer), full ones (the others)
  uint32_t wait;         // cycles in these waits
  uint32_t first_wait;   // of them, the wait for the first stage of each tile
  uint32_t remote_wait;  // of the producer's, after its own CTA's consumers had released the slot
  uint32_t gather;       // reading rows of B and laying them down by hand
  uint32_t multiply;     // wgmma, issued and waited for, where nothing else happens meanwhile
  uint32_t reset;        // zeroing accumulators
  uint32_t epilogue;     // writing C
  uint32_t leave;        // waiting for the rest of the cluster at the end
};
static_assert(sizeof(InstrumentRow) == 80, "the Python mirror is 80 bytes");

// A kernel's argument in such a build: the same, and where the rows are.
template <class Arguments>
struct MeasuredArguments : Arguments {
  InstrumentRow* measurements;  // [CTAs][roles]
};

#if INSTRUMENT
template <class Arguments>
using Instrumented = MeasuredArguments<Arguments>;

__device__ __forceinline__ uint32_t cycles_now() {
  uint32_t now;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(now)::"memory");
  return now;
}

__device__ __forceinline__ uint64_t clock_now() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(now)::"memory");
  return now;
}

__device__ __forceinline__ uint64_t nanoseconds_now() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}

struct Stopwatch {
  uint32_t begin = cycles_now();
};

// When this thread began; made first thing in a kernel.
struct Arrival {
  uint64_t nanoseconds = nanoseconds_now();
  uint64_t clock = clock_now();
};

// What the threads of a CTA share; a base of the struct that holds their barriers.
template <int SLOTS>
struct Instruments {
  InstrumentRow* rows;
  uint32_t released[SLOTS][2];  // when each consumer last released each slot

  // By one thread, before the CTA's first barrier.
  template <class Arguments>
  __device__ __forceinline__ void open(const MeasuredArguments<Arguments>& arguments, int roles) {
    rows = arguments.measurements + int64_t{blockIdx.x} * roles;
    uint32_t now = cycles_now();
    for (int slot = 0; slot < SLOTS; ++slot) released[slot][0] = released[slot][1] = now;
  }

  __device__ __forceinline__ bool speaks() const { return threadIdx.x % WARPGROUP_THREADS == 0; }

  __device__ __forceinline__ InstrumentRow* row() const {
    return rows + threadIdx.x / WARPGROUP_THREADS;
  }

  __device__ __forceinline__ void add(uint32_t InstrumentRow::* what, uint32_t amount) const {
    if (speaks()) atomicAdd(&(row()->*what), amount);
  }

  __device__ __forceinline__ void stop(uint32_t InstrumentRow::* what, Stopwatch watch) const {
    add(what, cycles_now() - watch.begin);
  }

  __device__ __forceinline__ void enter(const Arrival& arrival) const {
    if (!speaks()) return;
    uint32_t sm;
    asm("mov.u32 %0, %%smid;" : "=r"(sm));
    row()->begin_ns = arrival.nanoseconds;
    row()->begin_clock = arrival.clock;
    row()->sm = sm;
    row()->setup = static_cast<uint32_t>(clock_now() - arrival.clock);
  }

  __device__ __forceinline__ void exit() const {
    if (!speaks()) return;
    row()->end_clock = clock_now();
    row()->end_ns = nanoseconds_now();
  }

  // By who has just waited for a stage to be full.
  __device__ __forceinline__ void waited_full(Stopwatch watch, bool first) const {
    uint32_t cycles = cycles_now() - watch.begin;
    add(&InstrumentRow::waits, 1);
    add(&InstrumentRow::wait, cycles);
    if (first) add(&InstrumentRow::first_wait, cycles);
  }

  // By a consumer that has written its part of a tile.
  __device__ __forceinline__ void stored(Stopwatch watch) const {
    stop(&InstrumentRow::epilogue, watch);
    add(&InstrumentRow::tiles, 1);
  }
};
#else
template <class Arguments>
using Instrumented = Arguments;

struct Stopwatch {};
struct Arrival {};

template <int SLOTS>
struct Instruments {
  template <class Arguments>
  __device__ __forceinline__ void open(const Arguments&, int) {}
  __device__ __forceinline__ void add(uint32_t InstrumentRow::*, uint32_t) const {}
  __device__ __forceinline__ void stop(uint32_t InstrumentRow::*, Stopwatch) const {}
  __device__ __forceinline__ void enter(const Arrival&) const {}
  __device__ __forceinline__ void exit() const {}
  __device__ __forceinline__ void waited_full(Stopwatch, bool) const {}
  __device__ __forceinline__ void stored(Stopwatch) const {}
};
#endif
