"""The device layout of BCSR that the kernels read, and its launch arguments.

Part of every record's ``host_hash``: a change here makes the records of all BCSR kernels stale.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from asyncsparse_lab.errors import UnsupportedError
from asyncsparse_lab.spmm.arguments import BcsrArguments
from asyncsparse_lab.spmm.pairs import pair_schedule
from asyncsparse_lab.spmm.variants import BLOCK, Geometry

ROW_BYTES = 16
"""What tensor maps and vector loads ask of row strides and of the first address."""
_ROW_TASK = np.dtype([("begin", np.int64), ("blocks", np.int32), ("block_row", np.int32)])


@dataclass(frozen=True)
class DeviceBcsr:
    """BCSR with 64 x 64 blocks in device memory.

    ``block_row_ptr`` is int64, ``block_col_idx`` int32, ``blocks`` the bf16 bits of
    [blocks, 64, 64], row-major: TMA swizzles them on the way.  ``row_tasks`` are the bytes of
    (first block, blocks, block row), longest block row first.
    """

    shape: tuple[int, int]
    block_row_ptr: Any
    block_col_idx: Any
    blocks: Any
    row_tasks: Any

    @classmethod
    def from_csr(cls, A: Any) -> DeviceBcsr:
        """Convert on the host and copy to the current device.

        Parameters
        ----------
        A : scipy.sparse.csr_array, m x k
            float32, values exact in bf16.

        Raises
        ------
        MemoryLimitError
            If the blocks would not fit into device memory.
        """
        import cupy

        from asyncsparse_lab.formats import BCSR, bfloat16_bits
        from asyncsparse_lab.spmm.product import require_memory

        # float32 blocks on the way to bf16 bits: 4 + 2 bytes a stored value at the peak.
        size = BCSR.predict(A, (BLOCK, BLOCK))
        require_memory(6 * size.values, "A in 64 x 64 blocks", cupy)
        host = BCSR.from_csr(A, (BLOCK, BLOCK))
        blocks = bfloat16_bits(cupy.asarray(host.blocks))
        if not len(blocks):  # a tensor map needs memory to point to
            blocks = cupy.zeros((1, BLOCK, BLOCK), dtype=cupy.uint16)
        return cls(
            shape=host.shape,
            block_row_ptr=cupy.asarray(host.block_row_ptr),
            block_col_idx=cupy.asarray(host.block_col_idx),
            blocks=blocks,
            row_tasks=cupy.asarray(_row_tasks(host.block_row_ptr).view(np.uint8)),
        )

    @cached_property
    def pairs(self) -> tuple[Any, Any]:
        """The bytes of the pair tasks and steps, on the device; made when first asked for."""
        import cupy

        tasks, steps = pair_schedule(self.block_row_ptr.get(), self.block_col_idx.get())
        return cupy.asarray(tasks.view(np.uint8)), cupy.asarray(steps.view(np.uint8))

    @property
    def pair_count(self) -> int:
        """Pairs of block rows, an odd one counted as one."""
        return -(-self.block_rows // 2)

    @property
    def block_rows(self) -> int:
        """Number of block rows, the last possibly partial."""
        return len(self.block_row_ptr) - 1


def _row_tasks(block_row_ptr: Any) -> Any:
    lengths = np.diff(block_row_ptr)
    order = np.argsort(-lengths, kind="stable")
    tasks = np.empty(len(lengths), dtype=_ROW_TASK)
    tasks["begin"] = block_row_ptr[:-1][order]
    tasks["blocks"] = lengths[order]
    tasks["block_row"] = order
    return tasks


def _swizzle(row_bytes: int) -> Literal[0, 32, 64, 128]:
    """Return the swizzle of a box with such rows; rows of 16 bytes are one core matrix wide."""
    spans: dict[int, Literal[0, 32, 64, 128]] = {16: 0, 32: 32, 64: 64, 128: 128}
    return spans[row_bytes]


def is_aligned(matrix: Any) -> bool:
    """Whether a row-major matrix can be reached through a tensor map as it is."""
    return bool(matrix.data.ptr % ROW_BYTES == 0 and matrix.strides[0] % ROW_BYTES == 0)


def aligned_workspace(like: Any) -> Any:
    """Return an uninitialised matrix of the same shape and type with 16-byte rows."""
    import cupy

    rows, columns = like.shape
    padded = columns + -columns % (ROW_BYTES // like.itemsize)
    return cupy.empty((rows, padded), dtype=like.dtype)[:, :columns]


def bcsr_arguments(A: DeviceBcsr, B: Any, C: Any, geometry: Geometry) -> BcsrArguments:
    """Fill the argument struct for C = A B.

    Parameters
    ----------
    A : DeviceBcsr, m x k
    B : cupy.ndarray of uint16, k x n
        Row-major, rows aligned to 16 bytes.
    C : cupy.ndarray, m x n
        Row-major; any row stride, or 16-byte rows where the kernel stores by TMA.
    geometry : Geometry
        Gives the box of B's tensor map, and what the kernel needs beyond.

    Raises
    ------
    UnsupportedError
        If C's columns are not contiguous.
    """
    from asyncsparse_lab.gpu.describe import TensorMap

    (m, k), n = A.shape, B.shape[1]
    if n > 1 and C.strides[1] != C.itemsize:
        raise UnsupportedError(f"C has strides {C.strides}: pass a row-major out")
    arguments = BcsrArguments(
        block_row_ptr=A.block_row_ptr.data.ptr,
        block_col_idx=A.block_col_idx.data.ptr,
        blocks=A.blocks.data.ptr,
        row_tasks=A.row_tasks.data.ptr,
        b=B.data.ptr,
        c=C.data.ptr,
        block_rows=A.block_rows,
        m=m,
        k=k,
        n=n,
        ldb=B.strides[0] // B.itemsize,
        ldc=C.strides[0] // C.itemsize,
    )
    if geometry.slice_columns:
        rows = A.blocks.reshape(-1, BLOCK)
        stage_k = geometry.stage_k
        a_map = TensorMap.over(rows, (BLOCK, stage_k), "bfloat16", swizzle=_swizzle(2 * stage_k))
        b_box = (stage_k, geometry.slice_columns)
        b_map = TensorMap.over(B, b_box, "bfloat16", swizzle=_swizzle(2 * geometry.slice_columns))
        arguments.a_map[:] = a_map.encode().tobytes()
        arguments.b_map[:] = b_map.encode().tobytes()
    if geometry.pairs:
        tasks, steps = A.pairs
        arguments.pair_tasks, arguments.pair_steps = tasks.data.ptr, steps.data.ptr
        arguments.pair_count = A.pair_count
    if geometry.stores_by_tma:
        dtype = "bfloat16" if C.itemsize == 2 else "float32"
        c_map = TensorMap.over(C, (BLOCK, 128 // C.itemsize), dtype, swizzle=128)
        arguments.c_map[:] = c_map.encode().tobytes()
    return arguments
