"""A of a caller, from whichever library, as what a product is planned and converted from.

Planning and conversion read CSR on the host.  What A already has on the GPU in the form that
kernels read is handed on as it is: CSR arrays of CuPy, and 64 x 64 blocks of torch or of our BCSR.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
from scipy.sparse import bsr_array, csr_array

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.formats import BCSR, WCSR
from asyncsparse_lab.formats.arrays import INT32_LIMIT, Array, check_csr
from asyncsparse_lab.spmm.elementwise import round_dense, widen
from asyncsparse_lab.spmm.operands import library_of, refuse_gradient, tensor_array
from asyncsparse_lab.spmm.product import INPUT_TYPES

BLOCK: Final = 64


@dataclass(frozen=True, slots=True)
class Blocks:
    """A as dense blocks, NumPy or CuPy arrays on the caller's memory.

    Attributes
    ----------
    pointer, columns : integer array
        Offsets of the block rows, and block columns.
    values : array, blocks x 64 x 64
        Of a 16-bit type; bf16 as uint16.
    """

    pointer: Array
    columns: Array
    values: Array


@dataclass(frozen=True, eq=False)
class Sparse:
    """A, m x k.

    Attributes
    ----------
    shape : (int, int)
    dtype : str
        Type of the caller's values.
    indptr, indices, values : NumPy arrays
        In the caller's order; bf16 and float16 widened to float32.
    device : (indptr, indices, values) or None
        The same on the GPU, where the caller has them there.
    blocks : Blocks or None
        The same as 64 x 64 blocks, where the caller has those.
    """

    shape: tuple[int, int]
    dtype: str
    indptr: Array
    indices: Array
    values: Array = field(repr=False)
    device: tuple[Array, Array, Array] | None = field(default=None, repr=False)
    blocks: Blocks | None = field(default=None, repr=False)

    def same_pattern(self, other: Sparse) -> bool:
        """Whether the other matrix stores the same places in the same order."""
        return (
            self.shape == other.shape
            and np.array_equal(self.indptr, other.indptr)
            and np.array_equal(self.indices, other.indices)
        )

    def canonical(self, compute: str) -> tuple[csr_array, Array | None]:
        """Return A rounded to a type, as float32 in canonical CSR; stored zeros stay.

        Returns
        -------
        csr_array
        order : int64 array or None
            Its value p is the caller's value ``order[p]``; None if they are in the same order.
            An empty order means that duplicates were summed.

        Raises
        ------
        InputError
            A finite value is too large for the type.
        """
        values = widen(round_dense(self.values, self.values.dtype.name, compute), compute)
        if compute == "float16":  # bf16 reaches as far as float32
            too_large = np.isinf(values) & np.isfinite(self.values)
            if too_large.any():
                worst = self.values[too_large][0]
                raise InputError(f'A holds {worst}, which float16 does not: use compute="bfloat16"')
        A = csr_array((values, self.indices, self.indptr), shape=self.shape)
        if A.has_canonical_format:
            return A, None
        places = np.arange(len(values), dtype=np.int64)
        order = csr_array((places, self.indices.copy(), self.indptr.copy()), shape=self.shape)
        order.sort_indices()
        A = csr_array((values[order.data], order.indices, order.indptr), shape=self.shape)
        if A.has_canonical_format:
            return A, order.data
        # Summed before they are rounded: the caller's matrix is the sum.
        exact = csr_array((self.values[order.data], order.indices, order.indptr), shape=self.shape)
        exact.sum_duplicates()
        summed = Sparse(self.shape, self.dtype, exact.indptr, exact.indices, exact.data)
        return summed.canonical(compute)[0], places[:0]


def sparse(A: Any) -> Sparse:
    """Take in a sparse matrix.

    Parameters
    ----------
    A : sparse matrix
        Of SciPy or CuPy, in any format; of torch, as CSR, CSC, COO or BSR; our BCSR or WCSR.

    Raises
    ------
    InputError
        It is none of these, or its arrays are malformed.
    """
    if isinstance(A, BCSR | WCSR):
        return _of_ours(A)
    library = library_of(A)
    if library == "torch" and hasattr(A, "layout"):
        return _of_torch(A)
    if hasattr(A, "tocsr") and hasattr(A, "format"):
        return _of_arrays(A, library)
    if isinstance(A, np.ndarray) or hasattr(A, "__dlpack__"):
        raise InputError("A is dense: pass scipy.sparse.csr_array(A), or multiply it as it is")
    raise InputError(f"A is a {type(A).__name__}: pass a sparse matrix of SciPy, CuPy or torch")


def _of_arrays(A: Any, library: str) -> Sparse:
    if len(A.shape) != 2:
        raise InputError(f"A has {len(A.shape)} dimension, not 2: pass A.reshape(1, -1)")
    if A.dtype == np.uint16:
        raise InputError("A holds uint16, numbers or bits of bf16: pass A.astype('float32')")
    csr = A if A.format == "csr" else A.tocsr()
    on_gpu = library in ("cupy", "cupyx")
    host = csr.get() if on_gpu else csr
    count = int(host.indptr[-1]) if len(host.indptr) else 0
    device = (csr.indptr, csr.indices[:count], csr.data[:count]) if on_gpu else None
    return _from_host(A.shape, (host.indptr, host.indices, host.data), device=device)


def _from_host(
    shape: Any,
    arrays: tuple[Array, Array, Array],
    dtype: str = "",
    device: tuple[Array, Array, Array] | None = None,
    blocks: Blocks | None = None,
) -> Sparse:
    """Check CSR arrays (indptr, indices, values) in host memory."""
    indptr, indices, values = arrays
    check_csr(SimpleNamespace(shape=shape, indptr=indptr, indices=indices, data=values))
    rows, columns = map(int, shape)
    if rows >= INT32_LIMIT:
        raise InputError(f"{rows} rows: the kernels count them in 32 bits")
    if values.dtype.kind == "c":
        raise InputError("A is complex: the kernels multiply real numbers, pass A.real")
    count = int(indptr[-1])
    kind = dtype or values.dtype.name
    wide = widen(values[:count], kind) if kind in INPUT_TYPES else values[:count]
    return Sparse((rows, columns), kind, indptr, indices[:count], wide, device, blocks)


def _of_ours(A: BCSR | WCSR) -> Sparse:
    values = A.blocks if isinstance(A, BCSR) else A.values
    dtype = "bfloat16" if values.dtype == np.uint16 else values.dtype.name
    blocks = None
    if isinstance(A, BCSR) and A.block == (BLOCK, BLOCK) and dtype in INPUT_TYPES:
        blocks = Blocks(A.block_row_ptr, A.block_col_idx, A.blocks)
    csr = _on_host(A, dtype).to_csr()
    found = _from_host(A.shape, (csr.indptr, csr.indices, csr.data), blocks=blocks)
    return replace(found, dtype=dtype)


def _on_host(A: BCSR | WCSR, dtype: str) -> BCSR | WCSR:
    """Return the matrix in NumPy arrays, 16-bit values as float32."""

    def host(array: Array) -> Array:
        return array if isinstance(array, np.ndarray) else array.get()

    def wide(array: Array) -> Array:
        return widen(host(array), dtype) if dtype in INPUT_TYPES else host(array)

    if isinstance(A, BCSR):
        arrays = (host(A.block_row_ptr), host(A.block_col_idx), wide(A.blocks))
        return BCSR(A.shape, A.block, *arrays)
    arrays = (host(A.window_row_ptr), host(A.window_col_idx), wide(A.values))
    return WCSR(A.shape, A.window, *arrays)


def _of_torch(A: Any) -> Sparse:
    layout = str(A.layout).partition(".")[2]
    if layout == "strided":
        raise InputError("A is a dense tensor: pass A.to_sparse_csr(), or multiply it with torch")
    if A.dim() != 2:
        raise InputError(f"A has {A.dim()} dimensions, not 2: multiply one matrix of a batch")
    refuse_gradient(A, "A")
    A = A.detach()
    if layout == "sparse_bsr":
        return _of_torch_bsr(A)
    csr = A if layout == "sparse_csr" else A.to_sparse_csr()
    indptr, indices, values = csr.crow_indices(), csr.col_indices(), csr.values()
    if not A.is_cuda:
        arrays = (tensor_array(indptr), tensor_array(indices), tensor_array(values))
        return _from_host(tuple(A.shape), arrays, _type_name(A))
    device = (tensor_array(indptr), tensor_array(indices), tensor_array(values))
    arrays = (device[0].get(), device[1].get(), device[2].get())
    return _from_host(tuple(A.shape), arrays, _type_name(A), device)


def _of_torch_bsr(A: Any) -> Sparse:
    parts = (A.crow_indices(), A.col_indices(), A.values())
    pointer, columns, values = (tensor_array(part.cpu()) for part in parts)
    dtype = _type_name(A)
    wide = widen(values, dtype) if dtype in INPUT_TYPES else values
    _, rows, width = values.shape
    shape = (A.shape[0] // rows, A.shape[1] // width)
    check_csr(SimpleNamespace(shape=shape, indptr=pointer, indices=columns, data=values))
    csr = bsr_array((wide, columns, pointer), shape=tuple(A.shape)).tocsr()
    csr.eliminate_zeros()
    blocks = None
    if (rows, width) == (BLOCK, BLOCK) and dtype in INPUT_TYPES and parts[2].is_contiguous():
        blocks = Blocks(*map(tensor_array, parts))
    found = _from_host(A.shape, (csr.indptr, csr.indices, csr.data), blocks=blocks)
    return replace(found, dtype=dtype)


def _type_name(A: Any) -> str:
    return str(A.dtype).partition(".")[2]
