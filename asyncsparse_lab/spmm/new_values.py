"""New values for a plan, from whichever library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.formats import BCSR, WCSR
from asyncsparse_lab.formats.arrays import Array
from asyncsparse_lab.spmm.handed_on import same_blocks
from asyncsparse_lab.spmm.operands import from_dlpack, library_of, refuse_gradient, tensor_array
from asyncsparse_lab.spmm.sparse_operands import Sparse, sparse


@dataclass(frozen=True, slots=True)
class NewValues:
    """Values in the order in which A stores them.

    Attributes
    ----------
    array : array, stored values
        NumPy or CuPy; empty where ``blocks`` are given.
    dtype : str
        Type that the caller's values have.
    library : str
    blocks : Sparse or None
        The new A, where it came as blocks.
    """

    array: Array
    dtype: str
    library: str
    blocks: Sparse | None = None

    @property
    def held(self) -> str:
        """Type of the array: 16-bit values of a matrix on the host were widened."""
        return "bfloat16" if self.array.dtype == np.uint16 else str(self.array.dtype)


def new_values(new: Any, old: Sparse) -> NewValues:
    """Take in new values for a matrix.

    Parameters
    ----------
    new : array or sparse matrix

    Raises
    ------
    InputError
        They do not fit the matrix's pattern.
    """
    if _is_matrix(new):
        return _of_matrix(sparse(new), old, library_of(new))
    if old.blocks is not None:
        raise InputError("A came as blocks: pass new ones as a matrix with the same block pattern")
    library = library_of(new)
    if library == "torch":
        refuse_gradient(new, "the new values")
        array, dtype = tensor_array(new), str(new.dtype).partition(".")[2]
    elif library == "cupy" or isinstance(new, np.ndarray):
        dtype = new.dtype.name
        array = new.view(np.uint16) if dtype == "bfloat16" else new
        dtype = "bfloat16" if dtype == "uint16" else dtype
    elif hasattr(new, "__dlpack__"):
        return new_values(from_dlpack(new, "the new values"), old)
    else:
        raise InputError(f"the new values are a {type(new).__name__}: pass an array or a matrix")
    if array.shape != old.values.shape:
        raise InputError(
            f"the new values have shape {array.shape}, but A stores {len(old.values)}: pass one "
            "for each stored value, in CSR order"
        )
    if array.dtype.kind not in "fiub":
        raise InputError(f"the new values are {array.dtype}: the kernels multiply real numbers")
    return NewValues(array, dtype, library)


def _is_matrix(new: Any) -> bool:
    if isinstance(new, BCSR | WCSR) or (hasattr(new, "tocsr") and hasattr(new, "format")):
        return True
    return library_of(new) == "torch" and str(new.layout) != "torch.strided"


def _of_matrix(new: Sparse, old: Sparse, library: str) -> NewValues:
    remedy = "make a new plan of it"
    if old.blocks is not None:
        if new.blocks is None or new.shape != old.shape or not same_blocks(old.blocks, new.blocks):
            raise InputError(f"the new matrix has other blocks than the plan's: {remedy}")
        return NewValues(np.empty(0, np.float32), new.dtype, library, new)
    if not old.same_pattern(new):
        raise InputError(f"the new matrix has another pattern than the plan's: {remedy}")
    array = new.values if new.device is None else new.device[2]
    return NewValues(array, new.dtype, library)
