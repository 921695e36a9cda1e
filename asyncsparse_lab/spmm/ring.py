"""BCSR for the kernels beyond the article: either type, either layout, and the launch.

Part of the ``host_hash`` of every record of the family: a change here makes them stale.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from asyncsparse_lab.errors import UnsupportedError
from asyncsparse_lab.formats.rounding import in_type
from asyncsparse_lab.gpu.compile import Artifact
from asyncsparse_lab.gpu.describe import TensorMap
from asyncsparse_lab.spmm.arguments import BcsrArguments
from asyncsparse_lab.spmm.instrument import Launch
from asyncsparse_lab.spmm.layout import DeviceBcsr, _row_tasks, aligned_workspace, is_aligned
from asyncsparse_lab.spmm.pairs import pair_schedule
from asyncsparse_lab.spmm.product import Product, require_memory
from asyncsparse_lab.spmm.variants import BLOCK, Variant

TILES_NAME: Final = "bcsr64-pairs"
"""Name of the conversion that holds a :class:`PairSchedule`."""

_INT32_LIMIT: Final = 2**31
_AHEAD: Final = 1 << 16  # tickets that are drawn beyond the last tile
_SPAN_BYTES: Final = 128  # of a box along the neighbours in memory, and its swizzle


class PairSchedule(NamedTuple):
    """The pairs of block rows, longest first, and the steps of each, as bytes on the device."""

    tasks: Any
    steps: Any

    @classmethod
    def of(cls, A: DeviceBcsr) -> PairSchedule:
        """Match a matrix's block rows on the host."""
        import cupy

        tasks, steps = pair_schedule(A.block_row_ptr.get(), A.block_col_idx.get())
        return cls(cupy.asarray(tasks.view(np.uint8)), cupy.asarray(steps.view(np.uint8)))


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
    """Describe A's blocks, B and C to TMA.

    Parameters
    ----------
    kernel : Variant
        Its WGMMA_N gives the box of a column-major B.
    blocks : array, blocks x 64 x 64
    B, C : arrays
        k x n and m x n; of a column-major product n x k and n x m, as they lie in memory.
    """
    square = (BLOCK, BLOCK)
    b_box = (kernel.constants["WGMMA_N"], BLOCK) if layout == "column-major" else square
    c_box = (BLOCK, _SPAN_BYTES // C.itemsize)
    dtype_out = dtype_in if C.itemsize == 2 else "float32"
    return (
        TensorMap.over(blocks.reshape(-1, BLOCK), square, dtype_in, swizzle=_SPAN_BYTES),
        TensorMap.over(B, b_box, dtype_in, swizzle=_SPAN_BYTES),
        TensorMap.over(C, c_box, dtype_out, swizzle=_SPAN_BYTES),
    )


def launch_ring(kernel: Variant, artifact: Artifact, product: Product, output: Any) -> Launch:
    """Convert A, match its block rows, and make the product a function to be called: one launch.

    Raises
    ------
    DeviceError, MemoryLimitError, UnsupportedError
        Before anything is launched.
    """
    product.require(kernel.name, kernel.dtypes_in, kernel.layouts)
    if kernel.is_instrumented:
        raise UnsupportedError(f"{kernel.name} has no instruments: leave INSTRUMENT out")
    A, preprocess_us = product.converted(
        "bcsr64", lambda matrix: blocks_from_host(matrix, product.dtype_in)
    )
    pairs = None
    if kernel.launch_geometry.pairs:
        pairs, match_us = product.converted(TILES_NAME, lambda _: PairSchedule.of(A))
        preprocess_us += match_us
    B, C = product.B, output
    if product.layout == "column-major":
        B, C = B.T, C.T
    if C.size and C.shape[1] > 1 and C.strides[1] != C.itemsize:
        raise UnsupportedError(f"C has strides {output.strides}: pass a {product.layout} out")
    launch = _open(kernel, artifact, A, pairs, product, B, C)
    params = {"padded": not (is_aligned(B) and is_aligned(C))}
    return replace(launch, preprocess_us=preprocess_us, params=params)


def _open(
    kernel: Variant,
    artifact: Artifact,
    A: DeviceBcsr,
    pairs: PairSchedule | None,
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
    _require_int32(kernel.name, A.block_rows * -(-product.n // geometry.tile_columns), "tiles")
    _require_int32(kernel.name, len(A.blocks) * BLOCK, "rows of blocks")
    readable = B if is_aligned(B) else aligned_workspace(B)
    writable = C if is_aligned(C) else aligned_workspace(C)
    counters = cupy.zeros(2, dtype=cupy.int32)
    arguments = BcsrArguments(
        block_col_idx=A.block_col_idx.data.ptr,
        row_tasks=A.row_tasks.data.ptr,
        counters=counters.data.ptr,
        block_rows=A.block_rows,
        m=product.m,
        k=product.k,
        n=product.n,
    )
    if pairs is not None:
        arguments.pair_tasks, arguments.pair_steps = pairs.tasks.data.ptr, pairs.steps.data.ptr
        arguments.pair_count = A.pair_count
    maps = ring_maps(kernel, A.blocks, readable, writable, product.dtype_in, product.layout)
    for name, tensor_map in zip(("a_map", "b_map", "c_map"), maps, strict=True):
        getattr(arguments, name)[:] = tensor_map.encode().tobytes()
    grid = geometry.grid(A.block_rows, product.n, device_facts().sm_count)
    enqueue = load(artifact).prepare(grid, geometry.threads, geometry.shared_bytes, arguments)
    keep = (A, pairs, B, C, readable, writable, counters)  # the arguments hold bare addresses

    def run(_alive: tuple[object, ...] = keep) -> None:
        if readable is not B:
            readable[...] = B
        enqueue()
        if writable is not C:
            C[...] = writable

    return Launch(run)


def _require_int32(name: str, count: int, what: str) -> None:
    if count + _AHEAD >= _INT32_LIMIT:
        raise UnsupportedError(
            f"{name} counts {what} in 32 bits, and there are {count:,}: cut A into parts of fewer "
            "rows"
        )
