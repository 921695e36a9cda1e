// The one argument of kernels/lsmr_persistent.cu, and the compile-time choices behind it.
// Its mirror in Python is asyncsparse_lab.lsmr.arguments; keep both alike.
#pragma once

#include "types.cuh"

#ifndef REAL_BITS
#define REAL_BITS 32  // data: 32 = float, 64 = double; norms and scalars are always double
#endif
#ifndef RHS
#define RHS 1  // right-hand sides solved together, interleaved: element i of side r at i * RHS + r
#endif
#ifndef THREADS
#define THREADS 288  // a block: THREADS - 32 workers, and one warp for the scalar recurrence
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 1  // blocks an SM must hold: bounds the registers
#endif
#ifndef STAGED
#define STAGED 1  // this block's slices of A and A', and h, hbar, x, stay in shared memory
#endif
#ifndef BATCHED
#define BATCHED 0  // 1: up to 8 entries of a lane are loaded before the first is used; 2: exactly
#endif             // as many as there are
#ifndef CLUSTER
#define CLUSTER 0  // the grid is one cluster of so many blocks
#endif
#ifndef STREAMED
#define STREAMED 0  // each warp streams its slices through a ring in shared memory
#endif
#ifndef RING_STEPS
#define RING_STEPS 32  // of a warp's ring: steps of 32 entries
#endif
#ifndef RING_CHUNK
#define RING_CHUNK 16  // steps that come by one bulk copy
#endif
#ifndef TOGETHER
#define TOGETHER 1  // slices that a warp multiplies at a time
#endif
#ifndef COPIES
#define COPIES 1  // of the slots that blocks poll: more copies, fewer blocks on each
#endif
#ifndef POLL_RELAXED
#define POLL_RELAXED 0  // 1: poll relaxed and fence once; 0: poll with acquire
#endif

#if REAL_BITS == 64
using Real = double;
#else
using Real = float;
#endif

constexpr int WORKER_WARPS = THREADS / WARP_THREADS - 1;
constexpr int WORKERS = WORKER_WARPS * WARP_THREADS;
static_assert(THREADS % WARP_THREADS == 0 && WORKER_WARPS >= 1 && THREADS <= 1024);
static_assert(RHS == 1 || RHS == 2 || RHS == 4);
static_assert(!(STAGED && STREAMED));
static_assert(BATCHED != 2 || (TOGETHER == 1 && RHS == 1));
static_assert(REAL_BITS == 32 || REAL_BITS == 64);

// A warp's share of a matrix: rows of about the same length, each on `1 << lanes_log2` lanes.
// Entry k of a lane is at (first_step + k) * 32 + lane, so that a warp reads whole lines.
struct alignas(16) Slice {
  uint32_t first_step;
  int32_t first_row;
  int32_t steps;
  int32_t rows_and_lanes;  // rows | lanes_log2 << 8
};

struct LsmrMatrix {
  const Slice* slices;
  const int32_t* block_slices;  // gridDim.x * block_parts + 1: the slices of each block's parts
  const int32_t* columns;
  const Real* values;       // of A D
  const Real* true_values;  // of A; the same array without column scaling
  int32_t rows;
  int32_t first_piece;  // long rows are cut: the sum of piece p is element first_piece + p of
  int32_t piece_begin;  // the gathered vector; slices piece_begin .. piece_end make these sums
  int32_t piece_end;
  int32_t block_parts;  // one, or so many for each worker warp that streams
};

struct LsmrOutcome {  // of one right-hand side; doubles throughout
  double code;        // stop code; below 0 a failure, see lsmr_persistent.cu
  double itn;
  double normr;
  double normar;
  double norma;
  double conda;
  double normx;
  double true_normr;
  double true_normar;
  double true_normar_scaled;
  double normb;
  double reserved;
};

struct LsmrArguments {
  LsmrMatrix forward;           // A: m rows
  LsmrMatrix adjoint;           // A transposed: n rows
  const int32_t* row_order;     // m: the original row behind each row of `forward`
  const int32_t* column_order;  // n: the original column behind each row of `adjoint`
  const double* scales;         // n, in the order of `adjoint`; null without column scaling
  const Real* b;                // m x RHS, original order
  const Real* start;            // n x RHS, original order; null for zero
  Real* x;                      // n x RHS, original order: the solution
  Real* u;                      // (m + pieces of `adjoint`) x RHS
  Real* v;                      // (n + pieces of `forward`) x RHS
  Real* state;                  // 3 x n x RHS: h, hbar, x, where they are not staged
  double* wide_x;               // as v and u, in FP64: for the norms at the end
  double* wide_r;
  double* slots;          // 3 x COPIES x RHS x gridDim.x, all bits set before the launch
  double* slots_x;        // 3 x RHS x gridDim.x, all bits set before the launch
  LsmrOutcome* outcomes;  // RHS, in memory that the host can read
  double* history;        // maxiter x RHS x 8 likewise, or null
  double damp;
  double atol;
  double btol;
  double conlim;
  int32_t maxiter;
  uint32_t spin_limit;
};
