"""A of a caller, from whichever library, as what a product is planned and converted from.

Planning and conversion read CSR on the host.  What A already has on the GPU in the form that
kernels read is handed on as it is: CSR arrays of CuPy, and 64 x 64 blocks of torch or of our BCSR.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

import numpy as np
from scipy.sparse import bsr_array, csr_array

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.formats import BCSR, WCSR
from asyncsparse_lab.formats.arrays import INT32_LIMIT, Array, check_csr
from asyncsparse_lab.spmm.elementwise import round_dense, widen
from asyncsparse_lab.spmm.operands import library_of, refuse_gradient, tensor_array
from asyncsparse_lab.spmm.product import INPUT_TYPES

BLOCK: Final = 64

Arrays: TypeAlias = tuple[Array, Array, Array]
"""indptr, indices, values."""


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
    make : callable
        Gives ``indptr``, ``indices`` and ``values``: in host memory and the caller's order, bf16
        and float16 widened to float32.  Called once, when they are first looked at.
    device : (indptr, indices, values) or None
        The same on the GPU, where the caller has them there.
    blocks : Blocks or None
        The same as 64 x 64 blocks that fill the matrix, where the caller has those.
    """

    shape: tuple[int, int]
    dtype: str
    make: Callable[[], Arrays] = field(repr=False)
    device: Arrays | None = field(default=None, repr=False)
    blocks: Blocks | None = field(default=None, repr=False)

    @cached_property
    def arrays(self) -> Arrays:
        """What ``make`` gives."""
        return self.make()

    @property
    def indptr(self) -> Array:
        """Offsets of the rows."""
        return self.arrays[0]

    @property
    def indices(self) -> Array:
        """Columns."""
        return self.arrays[1]

    @property
    def values(self) -> Array:
        """Values: bf16 and float16 as float32, others as they are."""
        return self.arrays[2]

    def with_values(self, values: Array) -> Sparse:
        """Return other values in the same places of host memory."""
        arrays = (self.indptr, self.indices, values)
        return Sparse(self.shape, self.dtype, lambda: arrays)

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
        arrays = (exact.indptr, exact.indices, exact.data)
        summed = Sparse(self.shape, self.dtype, lambda: arrays)
        return summed.canonical(compute)[0], places[:0]


class DeferredCsr:
    """Blocks as the CSR matrix that they are, made when somebody reads more than its sizes.

    Kernels for blocks do not.  Stands where a ``csr_array`` of float32 is expected.
    """

    def __init__(self, A: Sparse, compute: str) -> None:
        assert A.blocks is not None
        self.shape: Final = A.shape
        self.nnz: Final = int(A.blocks.values.size)
        self._make: Callable[[], csr_array] = lambda: A.canonical(compute)[0]

    @cached_property
    def csr(self) -> csr_array:
        """The matrix."""
        return self._make()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.csr, name)


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


def _from_host(shape: Any, arrays: Arrays, dtype: str = "", device: Arrays | None = None) -> Sparse:
    """Check CSR arrays in host memory."""
    indptr, indices, values = arrays
    _check(shape, arrays)
    count = int(indptr[-1])
    kind = dtype or values.dtype.name
    wide = widen(values[:count], kind) if kind in INPUT_TYPES else values[:count]
    checked = (indptr, indices[:count], wide)
    return Sparse((int(shape[0]), int(shape[1])), kind, lambda: checked, device)


def _check(shape: Any, arrays: Arrays) -> None:
    indptr, indices, values = arrays
    check_csr(SimpleNamespace(shape=shape, indptr=indptr, indices=indices, data=values))
    if shape[0] >= INT32_LIMIT:
        raise InputError(f"{shape[0]} rows: the kernels count them in 32 bits")
    if values.dtype.kind == "c":
        raise InputError("A is complex: the kernels multiply real numbers, pass A.real")


def _of_ours(A: BCSR | WCSR) -> Sparse:
    values = A.blocks if isinstance(A, BCSR) else A.values
    dtype = "bfloat16" if values.dtype == np.uint16 else values.dtype.name
    if isinstance(A, BCSR):
        blocks = Blocks(A.block_row_ptr, A.block_col_idx, A.blocks)
        if _are_read(A.shape, A.block, dtype, blocks):
            return _of_blocks(A.shape, dtype, blocks)
    csr = _on_host(A, dtype).to_csr()
    return replace(_from_host(A.shape, (csr.indptr, csr.indices, csr.data)), dtype=dtype)


def _are_read(shape: tuple[int, ...], block: tuple[int, ...], dtype: str, blocks: Blocks) -> bool:
    """Whether kernels can read the blocks where they are."""
    fills = block == (BLOCK, BLOCK) and not any(size % BLOCK for size in shape)
    return fills and dtype in INPUT_TYPES and bool(blocks.values.flags.c_contiguous)


def _of_blocks(shape: tuple[int, int], dtype: str, blocks: Blocks) -> Sparse:
    def make() -> Arrays:
        parts = (widen(_host(blocks.values), dtype), _host(blocks.columns), _host(blocks.pointer))
        csr = bsr_array(parts, shape=shape).tocsr()
        csr.eliminate_zeros()
        return csr.indptr, csr.indices, csr.data

    return Sparse(shape, dtype, make, None, blocks)


def _host(array: Array) -> Array:
    return array if isinstance(array, np.ndarray) else array.get()


def _on_host(A: BCSR | WCSR, dtype: str) -> BCSR | WCSR:
    """Return the matrix in NumPy arrays, 16-bit values as float32."""

    def wide(array: Array) -> Array:
        return widen(_host(array), dtype) if dtype in INPUT_TYPES else _host(array)

    if isinstance(A, BCSR):
        arrays = (_host(A.block_row_ptr), _host(A.block_col_idx), wide(A.blocks))
        return BCSR(A.shape, A.block, *arrays)
    arrays = (_host(A.window_row_ptr), _host(A.window_col_idx), wide(A.values))
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
    dtype, shape = _type_name(A), (int(A.shape[0]), int(A.shape[1]))
    blocks = Blocks(*map(tensor_array, (A.crow_indices(), A.col_indices(), A.values())))
    _, height, width = blocks.values.shape
    pattern = (_host(blocks.pointer), _host(blocks.columns))
    counts = (shape[0] // height, shape[1] // width)
    _check(counts, (*pattern, blocks.values))
    ones = np.ones(len(pattern[1]), dtype=np.int8)
    is_canonical = csr_array((ones, pattern[1], pattern[0]), shape=counts).has_canonical_format
    if is_canonical and _are_read(shape, (height, width), dtype, blocks):
        return _of_blocks(shape, dtype, blocks)
    values = _host(blocks.values)
    wide = widen(values, dtype) if dtype in INPUT_TYPES else values
    csr = bsr_array((wide, pattern[1], pattern[0]), shape=shape).tocsr()
    csr.eliminate_zeros()
    return replace(_from_host(shape, (csr.indptr, csr.indices, csr.data)), dtype=dtype)


def _type_name(A: Any) -> str:
    return str(A.dtype).partition(".")[2]
