"""A for the kernels: what the caller has on the GPU is handed on, the rest converted there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Final

import numpy as np
from scipy.sparse import csr_array, eye_array, kron

from asyncsparse_lab.formats.arrays import Array, same_module
from asyncsparse_lab.spmm.convert import can_convert, device_blocks, wcsr_from_csr
from asyncsparse_lab.spmm.elementwise import round_dense
from asyncsparse_lab.spmm.layout import DeviceBcsr, _row_tasks
from asyncsparse_lab.spmm.plan_structure import Structure, structure_of
from asyncsparse_lab.spmm.product import DeviceCsr, Product
from asyncsparse_lab.spmm.sparse_operands import BLOCK, Blocks, Sparse
from asyncsparse_lab.spmm.wcsr import DeviceWcsr

BCSR_NAME: Final = "bcsr64"
"""Name under which the kernels look for :class:`DeviceBcsr`."""


def _blocks(product: Product) -> DeviceBcsr:
    return device_blocks(product.device_csr, product.A)


def _windows(product: Product) -> DeviceWcsr:
    csr = product.device_csr
    if not can_convert(csr):
        return DeviceWcsr.from_csr(product.A)
    return wcsr_from_csr(csr, product.A.shape)


ON_THE_GPU: Final[Mapping[str, Callable[[Product], object]]] = {
    BCSR_NAME: _blocks,
    "wcsr64": _windows,
}
"""Names of formats to their conversion on the GPU, where the kernels' families convert on the host;
the arrays are the same."""


def handed_on(A: Sparse, compute: str, in_order: bool, device: int) -> dict[str, Any]:
    """Return the conversions that A brings along.

    Parameters
    ----------
    compute : str
        Type of the product.
    in_order : bool
        Whether A's CSR arrays are canonical.
    device : int
        GPU of the product; what lies on another is not handed on.
    """
    found: dict[str, Any] = {}
    if A.device is not None and in_order and int(A.device[2].device.id) == device:
        indptr, indices, values = A.device
        own = values.copy() if A.dtype == compute else round_dense(values, A.dtype, compute)
        found["csr"] = DeviceCsr(_as_int32(indptr), _as_int32(indices), own)
    if A.blocks is not None and A.dtype == compute and len(A.blocks.values):
        found[BCSR_NAME] = device_bcsr(A.shape, A.blocks)
    return found


def device_bcsr(shape: tuple[int, int], blocks: Blocks) -> DeviceBcsr:
    """Return what the kernels read, on the caller's blocks where these lie on the GPU."""
    import cupy

    pointer = blocks.pointer.astype(np.int64, copy=False)
    on_host = pointer if isinstance(pointer, np.ndarray) else pointer.get()
    return DeviceBcsr(
        shape=shape,
        block_row_ptr=cupy.asarray(pointer),
        block_col_idx=cupy.asarray(blocks.columns.astype(np.int32, copy=False)),
        blocks=_bits(blocks),
        row_tasks=cupy.asarray(_row_tasks(on_host).view(np.uint8)),
    )


def structure_of_blocks(shape: tuple[int, int], blocks: Blocks) -> Structure:
    """Return the structure of a matrix of full 64 x 64 blocks, from the diagonals of the blocks.

    A diagonal has a non-zero in each row and in each column of its block, so that windows and
    block rows are those of the full blocks, at a 64th of the work; only non-zeros are 64 times
    as many.
    """
    pattern = (
        array if isinstance(array, np.ndarray) else array.get()
        for array in (blocks.columns, blocks.pointer)
    )
    ones = np.ones(len(blocks.columns), dtype=np.int8)
    tiles = csr_array((ones, *pattern), shape=(shape[0] // BLOCK, shape[1] // BLOCK))
    thin = structure_of(kron(tiles, eye_array(BLOCK, dtype=np.int8), format="csr"))
    return replace(thin, nnz=BLOCK * thin.nnz, row_lengths=BLOCK * thin.row_lengths, csr=None)


def same_blocks(old: Blocks, new: Blocks) -> bool:
    """Whether both store the same places."""
    if old.values.shape != new.values.shape:
        return False
    pairs = ((old.pointer, new.pointer), (old.columns, new.columns))
    return all(bool((_like(b, a) == a).all()) for a, b in pairs)


def with_blocks(converted: DeviceBcsr, blocks: Blocks) -> DeviceBcsr:
    """Return the same pattern, with what was derived from it, on other blocks."""
    other = copy(converted)
    object.__setattr__(other, "blocks", _bits(blocks))
    return other


def _bits(blocks: Blocks) -> Array:
    """Return the values as the kernels take them: bits, on the GPU, copied if not there."""
    import cupy

    return cupy.asarray(blocks.values.view(np.uint16))


def _like(array: Array, other: Array) -> Array:
    if same_module((other,)) is np:
        return array if isinstance(array, np.ndarray) else array.get()
    return same_module((other,)).asarray(array)


def _as_int32(array: Array) -> Array:
    return array.astype(np.int32, copy=False)
