// opt3 with clusters: CLUSTER CTAs that are neighbours along N share a block row. Rank 0 loads the
// block of A once for all by TMA multicast; each loads its own slices of B. Rank 0 may overwrite a
// slot only when the consumers of every CTA have released it, so its empty barrier counts them all.

#include "bcsr_ring.cuh"
#include "cluster.cuh"
#include "registers.cuh"

#ifndef CLUSTER
#define CLUSTER 2
#endif

// A probe: how fast it is without the fence that a remote arrival is compiled with.
#ifndef UNFENCED
#define UNFENCED 0
#endif

// Releases a slot to its own CTA's producer and to rank 0, which writes A into it.
struct ClusterRelease {
  Ring& ring;

  __device__ __forceinline__ void operator()(int slot) const {
    if (threadIdx.x % WARPGROUP_THREADS != 0) return;
    mbarrier_arrive(&ring.empty[slot]);
    if (cluster_rank() == 0) return;
    if constexpr (UNFENCED != 0) {
      mbarrier_arrive_remote_unfenced(&ring.empty[slot], 0);
    } else {
      mbarrier_arrive_remote(&ring.empty[slot], 0);
    }
  }
};

__device__ __forceinline__ void produce_shared(const BcsrArguments& arguments, Ring& ring,
                                               RoleClock& clock, uint32_t stages, uint32_t rank,
                                               int64_t first_column, int64_t begin, int64_t end) {
  constexpr uint16_t EVERYONE = (1u << CLUSTER) - 1;
  RingPosition<STAGES> position;
  for (BlockWalk walk(arguments, begin, end); walk.left > 0; walk.advance()) {
    clock.wait_begins();
    wait_empty(ring, position);
    clock.wait_ended();
    uint32_t stage = stages + position.slot * STAGE_BYTES;
    uint64_t* full = &ring.full[position.slot];
    mbarrier_arrive_expect(full, STAGE_BYTES);
    if (rank == 0) tma_multicast_2d(stage, &arguments.a_map, full, 0, walk.a_row, EVERYONE);
    tma_load_slices(arguments, stage, full, walk.column, first_column);
    clock.count_wait();
    ring.count_remote_wait(position.slot, clock);
    position.advance();
  }
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(RING_THREADS, 1)
    bcsr_spmm(const __grid_constant__ Clocked<BcsrArguments> arguments) {
  RoleClock clock;
  extern __shared__ uint8_t dynamic_shared[];
  __shared__ Ring ring;
  uint32_t stages = aligned_stages(dynamic_shared);
  uint32_t rank = cluster_rank();
  // Column tiles are padded to whole clusters; a tile beyond n loads zeros and stores nothing.
  int64_t column_tiles = (arguments.n + TILE_COLUMNS - 1) / TILE_COLUMNS;
  column_tiles = (column_tiles + CLUSTER - 1) / CLUSTER * CLUSTER;
  int64_t block_row = blockIdx.x / column_tiles;
  int64_t first_column = blockIdx.x % column_tiles * TILE_COLUMNS;
  if (threadIdx.x == 0) {
    ring.begin_noting(clock);
    initialise_ring(arguments, ring, rank == 0 ? CONSUMERS * CLUSTER : CONSUMERS);
  }
  cluster_sync();
  clock.lap(&RoleRow::setup);

  int64_t begin = arguments.block_row_ptr[block_row];
  int64_t end = arguments.block_row_ptr[block_row + 1];
  if (threadIdx.x < WARPGROUP_THREADS) {
    release_registers<PRODUCER_REGISTERS>();
    clock.read_both_early(arguments, 1 + CONSUMERS);
    if (threadIdx.x == 0)
      produce_shared(arguments, ring, clock, stages, rank, first_column, begin, end);
    clock.read_both_late(arguments, 1 + CONSUMERS);
  } else {
    claim_registers<CONSUMER_REGISTERS>();
    int consumer = threadIdx.x / WARPGROUP_THREADS - 1;
    RingPosition<STAGES> position;
    clock.fetched(end - begin);
    float accumulators[WGMMA_N / 2] = {};
    clock.zeroed(accumulators);
    consume_tile(accumulators, ring, stages, position, consumer, end - begin, ClusterRelease{ring},
                 clock);
    store_tile(arguments, accumulators, {block_row, first_column}, consumer);
    clock.stored(end - begin);
  }
  // A CTA must not leave while others may still arrive on its barriers.
  __syncwarp();
  cluster_sync();
  clock.lap(&RoleRow::leave);
  clock.write(arguments, 1 + CONSUMERS);
}
