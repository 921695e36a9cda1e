"""BCSR for the kernels beyond the article: tiles and their steps, and the launch.

A tile is one block row of A, or a pair of them, in some columns of C; a step is one block column
of the tile's rows.  What the kernel is told of both is made here once for a matrix.

Part of the ``host_hash`` of every record of the family: a change here makes them stale.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncsparse_lab.errors import UnsupportedError
from asyncsparse_lab.formats.rounding import in_type
from asyncsparse_lab.gpu.compile import Artifact
from asyncsparse_lab.gpu.describe import TensorMap
from asyncsparse_lab.spmm.instrument import Launch
from asyncsparse_lab.spmm.layout import DeviceBcsr, _row_tasks, aligned_workspace, is_aligned
from asyncsparse_lab.spmm.pairs import pair_schedule
from asyncsparse_lab.spmm.product import Product, require_memory
from asyncsparse_lab.spmm.variants import BLOCK, Variant

TILE_ROWS: Final = np.dtype([("begin", np.int32), ("steps", np.int32), ("block_rows", np.int32, 2)])
"""Mirror of ``TileRows``."""
TILE_STEP: Final = np.dtype(
    [("block_column", np.int32), ("blocks", np.int32, 2), ("control", np.int32)]
)
"""Mirror of ``TileStep``."""
MULTIPLIES, BEGINS, ENDS = 1, 4, 16
"""Bits of a step's ``control`` for the first consumer; twice that for the second."""
NO_ROW: Final = -1
EMPTY_ROW: Final = -2
"""Block row r without blocks is ``EMPTY_ROW - r`` in ``TileRows.block_rows``."""
TILES_NAME: Final = "bcsr64-tiles"
"""Begins the names of the conversions that hold a :class:`TileSchedule`."""

_INT32_LIMIT: Final = 2**31
_AHEAD: Final = 1 << 16  # tickets that are drawn beyond the last tile
_SPAN_BYTES: Final = 128  # of a box of C along the neighbours in memory, and its swizzle


class RingArguments(ctypes.Structure):
    """Mirror of ``RingArguments`` in ``kernels/include/overlap_arguments.cuh`` (448 bytes)."""

    _fields_ = (
        *((name, ctypes.c_uint8 * 128) for name in ("a_map", "b_map", "c_map")),
        *((name, ctypes.c_uint64) for name in ("rows", "steps", "counters")),
        *((name, ctypes.c_int32) for name in ("row_count", "column_tiles", "whole_tiles")),
        ("unused", ctypes.c_int32 * 7),
    )


class TileSchedule(NamedTuple):
    """The tiles of one tile of columns, longest first, and the steps of each.

    Both are arrays of :data:`TILE_ROWS` and :data:`TILE_STEP`, or their bytes on the device.
    """

    rows: Any
    steps: Any

    def on_device(self) -> TileSchedule:
        """Return the same as CuPy arrays of bytes."""
        import cupy

        return TileSchedule(*(cupy.asarray(array.view(np.uint8)) for array in self))


def tile_schedule(
    block_row_ptr: npt.NDArray[np.int64],
    block_col_idx: npt.NDArray[np.int32],
    paired: bool,
    apart: bool = False,
) -> TileSchedule:
    """List tiles and steps of a matrix in blocks.

    Parameters
    ----------
    block_row_ptr : int64 array, block rows + 1
    block_col_idx : int32 array, blocks
        Ascending in each block row.
    paired : bool
        Match block rows in pairs (:mod:`asyncsparse_lab.spmm.pairs`); else each is a tile, which
        both consumers compute.
    """
    lengths = np.diff(block_row_ptr)
    if paired:
        pairs, pair_steps = pair_schedule(block_row_ptr, block_col_idx)
        begins, counts, members = pairs["begin"], pairs["steps"], pairs["block_rows"]
        columns, blocks = pair_steps["block_column"], pair_steps["blocks"]
    else:
        begins, counts = block_row_ptr[:-1], lengths
        members = np.stack([np.arange(len(lengths)), np.full(len(lengths), NO_ROW)], axis=1)
        columns, blocks = block_col_idx, np.repeat(np.arange(len(block_col_idx))[:, None], 2, 1)

    tile = np.repeat(np.arange(len(counts)), counts)
    first = np.cumsum(counts) - counts
    at = np.arange(len(tile)) - first[tile] + np.asarray(begins)[tile]
    columns, blocks = columns[at], blocks[at]
    if paired:
        tile, columns, blocks, ends = _end_alone(tile, columns, blocks, apart)
        counts = np.bincount(tile, minlength=len(counts))
    elif apart:
        at = np.flatnonzero(np.diff(tile, append=-1)) + 1
        tile = np.insert(tile, at, tile[at - 1])
        columns, blocks = np.insert(columns, at, -1), np.insert(blocks, at, -1, axis=0)
        counts = np.bincount(tile, minlength=len(counts))
        ends = np.repeat(np.diff(tile, append=-1)[:, None] != 0, 2, 1)
    else:
        ends = np.repeat(np.diff(tile, append=-1)[:, None] != 0, 2, 1)
    steps = np.zeros(len(columns), dtype=TILE_STEP)
    steps["block_column"], steps["blocks"] = columns, blocks
    for side in (0, 1):
        own = np.flatnonzero(blocks[:, side] >= 0)
        steps["control"][own] |= MULTIPLIES << side
        steps["control"][own[np.diff(tile[own], prepend=-1) != 0]] |= BEGINS << side
        steps["control"][ends[:, side]] |= ENDS << side

    rows = np.zeros(len(counts), dtype=TILE_ROWS)
    rows["begin"], rows["steps"] = np.cumsum(counts) - counts, counts
    is_empty = (members >= 0) & (np.append(lengths, 0)[members] == 0)
    rows["block_rows"] = np.where(is_empty, EMPTY_ROW - members, members)
    return TileSchedule(rows[np.argsort(-counts, kind="stable")], steps)


def _end_alone(
    tile: npt.NDArray[Any], columns: npt.NDArray[Any], blocks: npt.NDArray[Any], apart: bool = False
) -> tuple[npt.NDArray[Any], ...]:
    """Let each row of a pair end with a step that the other one does not use.

    Its C is laid down there.  That is its last step without the other; where all are shared, one
    is added that loads nothing.

    Returns
    -------
    tile, columns, blocks, ends
        Of the steps in their new order; ``ends[i, side]`` where step i is the row's last.
    """
    place = np.zeros(len(tile), dtype=np.int64)  # in the tile: 0 as it was, then each row's last
    for side in (0, 1):
        has_block = blocks[: len(place), side] >= 0
        alone = np.flatnonzero(has_block & (blocks[:, 1 - side] < 0))
        last = alone[np.diff(tile[alone], append=-1) != 0]
        if apart:
            last = last[:0]
        place[last] = 1 + side
        added = np.setdiff1d(tile[has_block], tile[last])
        tile = np.append(tile, added)
        columns = np.append(columns, np.full(len(added), -1, dtype=columns.dtype))
        blocks = np.append(blocks, np.full((len(added), 2), -1, dtype=blocks.dtype), axis=0)
        place = np.append(place, np.full(len(added), 1 + side))
    order = np.lexsort((place, tile))
    ends = place[order, None] == np.array([1, 2])
    return tile[order], columns[order], blocks[order], ends


def blocks_from_host(A: Any, dtype: str) -> DeviceBcsr:
    """Convert CSR on the host to blocks of the product's 16-bit type on the device.

    Parameters
    ----------
    A : scipy.sparse.csr_array, m x k
        float32, values exact in the type.
    dtype : {"bfloat16", "float16"}
        Of the 16-bit patterns that the blocks hold.

    Raises
    ------
    MemoryLimitError
        If the blocks would not fit into device memory.
    """
    import cupy

    from asyncsparse_lab.formats import BCSR

    # float32 blocks on the way to 16 bits: 4 + 2 bytes a stored value at the peak.
    size = BCSR.predict(A, (BLOCK, BLOCK))
    require_memory(6 * size.values, "A in 64 x 64 blocks", cupy)
    host = BCSR.from_csr(A, (BLOCK, BLOCK))
    blocks = in_type(cupy.asarray(host.blocks), dtype).view(cupy.uint16)
    if not len(blocks):  # a tensor map needs memory to point to
        blocks = cupy.zeros((1, BLOCK, BLOCK), dtype=cupy.uint16)
    return DeviceBcsr(
        shape=host.shape,
        block_row_ptr=cupy.asarray(host.block_row_ptr),
        block_col_idx=cupy.asarray(host.block_col_idx),
        blocks=blocks,
        row_tasks=cupy.asarray(_row_tasks(host.block_row_ptr).view(np.uint8)),
    )


def ring_maps(
    kernel: Variant, blocks: Any, B: Any, C: Any, dtype_in: str, layout: str
) -> tuple[TensorMap, TensorMap, TensorMap]:
    """Describe A's blocks, B and C to TMA as the kernel's constants want them.

    Parameters
    ----------
    kernel : Variant
        Its STAGE_K and tile give the boxes.
    blocks : array, blocks x 64 x 64
    B, C : arrays
        k x n and m x n; of a column-major product n x k and n x m, as they lie in memory.
    """
    stage_k = kernel.constants["STAGE_K"]
    wgmma_n = kernel.constants["WGMMA_N"]
    # C is laid down in parts over the rows of B that a consumer read last.
    part_columns = wgmma_n * stage_k * 2 // (BLOCK * C.itemsize)
    is_transposed = layout == "column-major"
    b_box = (wgmma_n, stage_k) if is_transposed else (stage_k, BLOCK)
    c_rows = min(BLOCK, part_columns) if is_transposed else BLOCK
    dtype_out = dtype_in if C.itemsize == 2 else "float32"
    return (
        TensorMap.over(blocks.reshape(-1, BLOCK), (BLOCK, stage_k), dtype_in, swizzle=2 * stage_k),
        TensorMap.over(B, b_box, dtype_in, swizzle=2 * b_box[1]),
        TensorMap.over(C, (c_rows, _SPAN_BYTES // C.itemsize), dtype_out, swizzle=_SPAN_BYTES),
    )


def launch_ring(kernel: Variant, artifact: Artifact, product: Product, output: Any) -> Launch:
    """Convert A, list its tiles, and make the product a function to be called: one launch.

    Raises
    ------
    DeviceError, MemoryLimitError, UnsupportedError
        Before anything is launched.
    """
    product.require(kernel.name, kernel.dtypes_in, kernel.layouts)
    if kernel.is_instrumented:
        raise UnsupportedError(f"{kernel.name} has no instruments: leave INSTRUMENT out")
    paired = bool(kernel.constants["PAIRED"])
    A, convert_us = product.converted(
        "bcsr64", lambda matrix: blocks_from_host(matrix, product.dtype_in)
    )

    def list_tiles(_: Any) -> TileSchedule:
        pattern = A.block_row_ptr.get(), A.block_col_idx.get()
        return tile_schedule(*pattern, paired, apart).on_device()

    apart = bool(kernel.constants["OUTPUT_SLOT"])
    schedule, list_us = product.converted(f"{TILES_NAME}-{1 + paired}-{apart}", list_tiles)
    B, C = product.B, output
    if product.layout == "column-major":
        B, C = B.T, C.T
    if C.size and C.shape[1] > 1 and C.strides[1] != C.itemsize:
        raise UnsupportedError(f"C has strides {output.strides}: pass a {product.layout} out")
    launch = _open(kernel, artifact, A, schedule, product, B, C)
    params = {"padded": not (is_aligned(B) and is_aligned(C))}
    return replace(launch, preprocess_us=convert_us + list_us, params=params)


def _open(
    kernel: Variant,
    artifact: Artifact,
    A: DeviceBcsr,
    schedule: TileSchedule,
    product: Product,
    B: Any,
    C: Any,
) -> Launch:
    import cupy

    from asyncsparse_lab.gpu.device import device_facts
    from asyncsparse_lab.gpu.launch import load

    if not C.size:
        return Launch(lambda: None)
    if not B.size:
        return Launch(lambda: C.fill(0))
    geometry = kernel.launch_geometry
    row_count = len(schedule.rows) // TILE_ROWS.itemsize
    column_tiles = -(-product.n // geometry.tile_columns)
    _require_int32(kernel.name, row_count * column_tiles, "tiles")
    _require_int32(kernel.name, len(A.blocks) * BLOCK, "rows of blocks")
    readable = B if is_aligned(B) else aligned_workspace(B)
    writable = C if is_aligned(C) else aligned_workspace(C)
    counters = cupy.zeros(2, dtype=cupy.int32)
    sm_count = device_facts().sm_count
    tiles = row_count * column_tiles
    arguments = RingArguments(
        rows=schedule.rows.data.ptr,
        steps=schedule.steps.data.ptr,
        counters=counters.data.ptr,
        row_count=row_count,
        column_tiles=column_tiles,
        whole_tiles=tiles
        if geometry.pairs or not kernel.constants["HALVES"]
        else _whole_tiles(tiles, sm_count),
    )
    maps = ring_maps(kernel, A.blocks, readable, writable, product.dtype_in, product.layout)
    for name, tensor_map in zip(("a_map", "b_map", "c_map"), maps, strict=True):
        getattr(arguments, name)[:] = tensor_map.encode().tobytes()
    grid = geometry.grid(A.block_rows, product.n, sm_count)
    enqueue = load(artifact).prepare(grid, geometry.threads, geometry.shared_bytes, arguments)
    keep = (A, schedule, B, C, readable, writable, counters)  # the arguments hold bare addresses

    def run(_alive: tuple[object, ...] = keep) -> None:
        if readable is not B:
            readable[...] = B
        enqueue()
        if writable is not C:
            C[...] = writable

    return Launch(run)


def _whole_tiles(tiles: int, ctas: int) -> int:
    """Return how many tiles are taken whole: the last ones in halves if they fill half a wave."""
    rest = tiles % ctas
    return tiles if 2 * rest > ctas else tiles - rest


def _require_int32(name: str, count: int, what: str) -> None:
    if count + _AHEAD >= _INT32_LIMIT:
        raise UnsupportedError(
            f"{name} counts {what} in 32 bits, and there are {count:,}: cut A into parts of fewer "
            "rows"
        )
