"""The one form in which every matrix of the workbench arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp

from asyncsparse_lab.errors import InputError

if TYPE_CHECKING:
    from scipy.sparse import coo_array, csr_array


class Canonical(NamedTuple):
    """A canonical matrix and what was tidied away on the way to it."""

    matrix: csr_array[Any]
    explicit_zeros: int
    duplicates: int


def canonical(matrix: coo_array[Any] | csr_array[Any]) -> Canonical:
    """Sort columns within rows, sum duplicates, drop explicit zeros.

    Two entries at one position count as one duplicate; an explicit zero is an entry whose value
    is zero after duplicates were summed.

    Parameters
    ----------
    matrix : coo_array or csr_array
        Any real, boolean, integer or complex type. Integers up to 2^53 and booleans become
        float64 exactly.

    Returns
    -------
    Canonical
        ``matrix`` is a ``csr_array`` of float64 or complex128 that shares no memory with the
        argument.

    Raises
    ------
    InputError
        An integer does not fit float64 exactly.
    """
    data = matrix.data
    if np.issubdtype(data.dtype, np.integer) and data.size:
        limit = 2**53
        largest = max(int(data.max()), -int(data.min()))
        if largest > limit:
            raise InputError(f"integer value {largest} is above 2^53 and would be rounded")
    dtype = np.complex128 if np.issubdtype(data.dtype, np.complexfloating) else np.float64
    result: csr_array[Any] = sp.csr_array(cast(Any, matrix), dtype=dtype, copy=True)
    before = matrix.nnz  # the conversion has summed some duplicates already
    result.sum_duplicates()
    summed = result.nnz
    result.eliminate_zeros()
    return Canonical(
        with_small_index(result),
        explicit_zeros=summed - result.nnz,
        duplicates=before - summed,
    )


def with_small_index(matrix: csr_array[Any]) -> csr_array[Any]:
    """Return the matrix with int32 indices where they suffice, int64 where they do not.

    SciPy wants one type for offsets and columns; which one comes out of its operations varies.
    """
    index = np.int32 if max(matrix.nnz, *matrix.shape) < 2**31 else np.int64
    if matrix.indices.dtype == index and matrix.indptr.dtype == index:
        return matrix
    small = sp.csr_array(
        (matrix.data, matrix.indices.astype(index), matrix.indptr.astype(index)),
        shape=matrix.shape,
    )
    small.has_canonical_format = matrix.has_canonical_format
    return small
