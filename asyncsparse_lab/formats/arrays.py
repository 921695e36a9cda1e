"""What both formats need of NumPy, CuPy and CSR, written once for the two array modules.

Only functions that NumPy and CuPy both have are used, with the same keywords; the module in use
is found from the argument.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from asyncsparse_lab.errors import InputError

Array: TypeAlias = Any  # numpy.ndarray or cupy.ndarray: no common static type exists

INT32_LIMIT = 2**31


def array_module(array: Array) -> Any:
    """Return the module, :mod:`numpy` or :mod:`cupy`, that `array` belongs to."""
    if isinstance(array, np.ndarray):
        return np
    if type(array).__module__.partition(".")[0] == "cupy":
        import cupy

        return cupy
    raise InputError(f"expected a NumPy or CuPy array, got {type(array).__name__}")


def csr_class(xp: Any) -> Any:
    """Return the CSR class that goes with the array module."""
    if xp is np:
        from scipy.sparse import csr_array

        return csr_array
    from cupyx.scipy.sparse import csr_matrix

    return csr_matrix


def free_bytes(xp: Any) -> int:
    """Return the bytes that can still be allocated where arrays of this module live."""
    if xp is not np:
        return int(xp.cuda.Device().mem_info[0] + xp.get_default_memory_pool().free_bytes())
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux: fall back to all of the physical memory
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, eq=False)
class CanonicalCSR:
    """Arrays of a CSR matrix whose rows are sorted, without duplicates and explicit zeros.

    Attributes
    ----------
    shape : (int, int)
    indptr : int64 array, m + 1
    indices : integer array, nnz
    data : array, nnz
    """

    shape: tuple[int, int]
    indptr: Array
    indices: Array
    data: Array

    @property
    def xp(self) -> Any:
        """Array module of the three arrays."""
        return array_module(self.data)

    @cached_property
    def rows(self) -> Array:
        """Row of each entry, int64."""
        # A running sum of the jumps where rows begin: CuPy's repeat takes no array of counts.
        xp = self.xp
        filled = xp.nonzero(self.indptr[1:] > self.indptr[:-1])[0]
        jumps = filled.copy()
        jumps[1:] -= filled[:-1]
        steps = xp.zeros(len(self.data), dtype=xp.int64)
        steps[self.indptr[filled]] = jumps
        return xp.cumsum(steps)


def canonical_csr(A: Any) -> CanonicalCSR:
    """Check a CSR matrix and bring it into canonical form.

    Duplicates are summed, rows sorted and explicit zeros dropped, on a copy: `A` stays as it is.

    Parameters
    ----------
    A : scipy.sparse CSR array or matrix, or cupyx.scipy.sparse.csr_matrix
        Real, complex or integer values.

    Raises
    ------
    InputError
        `A` is not CSR, its values are neither numbers nor NumPy's, or `indptr` and `indices`
        do not describe a matrix of `A.shape`.
    """
    if getattr(A, "format", None) != "csr":
        kind = getattr(A, "format", type(A).__name__)
        raise InputError(f"expected a CSR matrix, got {kind}: convert it with .tocsr()")
    check_csr(A)
    xp = array_module(A.data)
    nnz = int(A.indptr[-1])
    indptr, indices, data = A.indptr, A.indices[:nnz], A.data[:nnz]
    if not _is_canonical(xp, indptr, indices, data):
        # A fresh object, since A may carry a has_canonical_format that is no longer true.
        arrays = (data.copy(), indices.copy(), indptr.copy())
        copy = csr_class(xp)(arrays, shape=A.shape)
        copy.sum_duplicates()
        indptr, indices, data = _without_zeros(xp, copy.indptr, copy.indices, copy.data)
    m, k = A.shape
    return CanonicalCSR((int(m), int(k)), indptr.astype(xp.int64), indices, data)


def check_csr(A: Any) -> None:
    """Refuse arrays ``indptr``, ``indices`` and ``data`` that are no CSR matrix of ``A.shape``."""
    m, k = A.shape
    if A.data.dtype.kind not in "fciu":
        raise InputError(f"values of type {A.data.dtype}: convert them with .astype('float32')")
    if k >= INT32_LIMIT:
        raise InputError(f"{k} columns: column indices are 32-bit, so k must be below 2**31")
    check_pointer("indptr", A.indptr, m)
    nnz = int(A.indptr[-1])
    if len(A.indices) < nnz or len(A.data) < nnz:
        raise InputError(
            f"indptr ends at {nnz}, but there are {len(A.indices)} indices and "
            f"{len(A.data)} values: the CSR arrays are truncated"
        )
    check_range("indices", A.indices[:nnz], 0, k)


def _is_canonical(xp: Any, indptr: Array, indices: Array, data: Array) -> bool:
    if bool((data == 0).any()):
        return False
    descends = indices[1:] <= indices[:-1]
    starts = indptr[1:-1]
    descends[starts[(starts > 0) & (starts < len(indices))] - 1] = False
    return not bool(descends.any())


def _without_zeros(
    xp: Any, indptr: Array, indices: Array, data: Array
) -> tuple[Array, Array, Array]:
    """Drop explicit zeros; CuPy 14.2's eliminate_zeros gave wrong matrices on CUDA 13."""
    keep = data != 0
    before = xp.zeros(len(data) + 1, dtype=indptr.dtype)
    before[1:] = xp.cumsum(keep)
    return before[indptr], indices[keep], data[keep]


def check_pointer(name: str, pointer: Array, count: int) -> None:
    """Refuse a row pointer that does not hold `count` rows, rising from zero."""
    if pointer.dtype.kind not in "iu" or pointer.ndim != 1 or len(pointer) != count + 1:
        raise InputError(
            f"{name} must be {count + 1} integers, got {pointer.dtype} of shape {pointer.shape}"
        )
    if int(pointer[0]) != 0:
        raise InputError(f"{name} must start at 0, got {int(pointer[0])}")
    if bool((pointer[1:] < pointer[:-1]).any()):
        row = int((pointer[1:] < pointer[:-1]).argmax())
        raise InputError(f"{name} must not fall, but does after entry {row}")


def check_range(name: str, values: Array, low: int, high: int) -> None:
    """Refuse integers outside ``low <= value < high``."""
    if values.dtype.kind not in "iu":
        raise InputError(f"{name} must be integers, got {values.dtype}")
    if len(values) == 0:
        return
    smallest, largest = int(values.min()), int(values.max())
    if smallest < low or largest >= high:
        wrong = smallest if smallest < low else largest
        raise InputError(f"{name} holds {wrong}, outside {low} <= value < {high}")


def check_multiple_of_8(name: str, value: Any) -> int:
    """Return a block size or window height as int; refuse what is no positive multiple of 8."""
    if not isinstance(value, int | np.integer) or value <= 0 or value % 8:
        raise InputError(f"{name} is {value!r}, but must be a positive multiple of 8")
    return int(value)


def same_module(arrays: Sequence[Array]) -> Any:
    """Return the one module that all `arrays` belong to."""
    modules = {array_module(array).__name__ for array in arrays}
    if len(modules) > 1:
        raise InputError("NumPy and CuPy arrays in one matrix: move all of them to one side")
    return array_module(arrays[0])


def dense_operand(B: Array, k: int, xp: Any) -> Array:
    """Check the right-hand side of a reference product."""
    if array_module(B) is not xp or B.ndim != 2 or B.shape[0] != k:
        raise InputError(
            f"B must be a {xp.__name__} array of shape ({k}, n), got "
            f"{type(B).__module__.partition('.')[0]} {B.shape}"
        )
    return B
