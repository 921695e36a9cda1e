"""The part of cuSPARSE's generic interface that a product needs, through ctypes.

Descriptors are freed with the Python object that holds them; each holds on to the device arrays
that it points to.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NoReturn

from asyncsparse_lab.baselines.blocked_ell import BlockedEll
from asyncsparse_lab.baselines.libraries import (
    DATA_TYPES,
    ONE,
    R_16BF,
    R_32F,
    ZERO,
    current_stream,
    load_library,
    pointer,
)
from asyncsparse_lab.baselines.operands import Operands
from asyncsparse_lab.errors import DeviceError, MemoryLimitError, UnsupportedError
from asyncsparse_lab.formats.arrays import Array
from asyncsparse_lab.spmm.product import DeviceCsr, require_memory

_NON_TRANSPOSE: Final = 0
_INDEX_32I: Final = 2
_BASE_ZERO: Final = 0
_ORDER_ROW: Final = 2
_ALLOC_FAILED: Final = 2
_NOT_SUPPORTED: Final = 10

_ADDRESS, _INT, _INT64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_SPMM: Final = (
    _ADDRESS, _INT, _INT, _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS, _INT, _INT, _ADDRESS,
)  # fmt: skip
_SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    "cusparseCreate": (_ADDRESS,),
    "cusparseGetVersion": (_ADDRESS, _ADDRESS),
    "cusparseSetStream": (_ADDRESS, _ADDRESS),
    "cusparseCreateCsr": (_ADDRESS, *3 * (_INT64,), *3 * (_ADDRESS,), *4 * (_INT,)),
    "cusparseCreateBsr": (_ADDRESS, *5 * (_INT64,), *3 * (_ADDRESS,), *5 * (_INT,)),
    "cusparseCreateBlockedEll": (_ADDRESS, *4 * (_INT64,), *2 * (_ADDRESS,), *3 * (_INT,)),
    "cusparseCreateDnMat": (_ADDRESS, *3 * (_INT64,), _ADDRESS, _INT, _INT),
    "cusparseDestroySpMat": (_ADDRESS,),
    "cusparseDestroyDnMat": (_ADDRESS,),
    "cusparseSpMM_bufferSize": _SPMM,
    "cusparseSpMM_preprocess": _SPMM,
    "cusparseSpMM": _SPMM,
}


class Descriptor:
    """A cuSPARSE descriptor, freed with this object."""

    def __init__(
        self, library: Library, create: str, destroy: str, arguments: Any, arrays: Any
    ) -> None:
        self.handle = ctypes.c_void_p()
        self.arrays = arrays
        library.call(create, ctypes.byref(self.handle), *arguments)
        weakref.finalize(self, library.function(destroy), self.handle)


class Library:
    """cuSPARSE with one handle.

    Raises
    ------
    UnsupportedError
        cuSPARSE is not installed.
    DeviceError
        It cannot start on this GPU.
    """

    def __init__(self) -> None:
        self._loaded = load_library("cusparse")
        self._loaded.cusparseGetErrorString.restype = ctypes.c_char_p
        self.version = "cuSPARSE"
        self.handle = ctypes.c_void_p()
        self.call("cusparseCreate", ctypes.byref(self.handle))
        number = ctypes.c_int()
        self.call("cusparseGetVersion", self.handle, ctypes.byref(number))
        self.version = version_text(number.value)
        self.set_stream = self.function("cusparseSetStream")

    def function(self, name: str) -> Any:
        """Return a function with its argument types set."""
        try:
            function = getattr(self._loaded, name)
        except AttributeError:
            raise UnsupportedError(
                f"{self.version} has no {name}: install a newer CUDA toolkit"
            ) from None
        function.argtypes = _SIGNATURES[name]
        return function

    def require(self, name: str) -> None:
        """Refuse when the installed version lacks a function."""
        self.function(name)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function and raise what its status means."""
        status = self.function(name)(*arguments)
        if status:
            self.fail(name, status)

    def fail(self, name: str, status: int) -> NoReturn:
        """Raise what a status means."""
        reason = self._loaded.cusparseGetErrorString(status).decode()
        if status == _NOT_SUPPORTED:
            raise UnsupportedError(f"{name} of {self.version} refuses: {reason}")
        if status == _ALLOC_FAILED:
            raise MemoryLimitError(f"{name} could not allocate: take a smaller n")
        raise DeviceError(f"{name} failed with status {status} ({reason})")

    def csr(self, shape: tuple[int, int], csr: DeviceCsr) -> Descriptor:
        """Describe A as CSR with 32-bit indices and bf16 values."""
        arrays = (csr.indptr, csr.indices, csr.values)
        return Descriptor(
            self,
            "cusparseCreateCsr",
            "cusparseDestroySpMat",
            (
                *shape,
                csr.indices.size,
                *map(pointer, arrays),
                _INDEX_32I,
                _INDEX_32I,
                _BASE_ZERO,
                R_16BF,
            ),
            arrays,
        )

    def bsr(self, arrays: tuple[Array, Array, Array], block_columns: int, block: int) -> Descriptor:
        """Describe A as square row-major blocks of bf16."""
        offsets, columns, _ = arrays
        return Descriptor(
            self,
            "cusparseCreateBsr",
            "cusparseDestroySpMat",
            (
                offsets.size - 1,
                block_columns,
                columns.size,
                block,
                block,
                *map(pointer, arrays),
                _INDEX_32I,
                _INDEX_32I,
                _BASE_ZERO,
                R_16BF,
                _ORDER_ROW,
            ),
            arrays,
        )

    def blocked_ell(self, matrix: BlockedEll, columns: int, block: int) -> Descriptor:
        """Describe A as Blocked-ELL with ``columns`` columns."""
        arrays = (matrix.column_indices, matrix.values)
        rows, ell_columns = matrix.values.shape
        return Descriptor(
            self,
            "cusparseCreateBlockedEll",
            "cusparseDestroySpMat",
            (
                rows,
                columns,
                block,
                ell_columns,
                *map(pointer, arrays),
                _INDEX_32I,
                _BASE_ZERO,
                R_16BF,
            ),
            arrays,
        )

    def dense(self, array: Array, data_type: int) -> Descriptor:
        """Describe a row-major dense matrix with any row stride."""
        rows, columns = array.shape
        stride = array.strides[0] // array.itemsize
        return Descriptor(
            self,
            "cusparseCreateDnMat",
            "cusparseDestroyDnMat",
            (rows, columns, stride, pointer(array), data_type, _ORDER_ROW),
            array,
        )


class SpMM:
    """One ``cusparseSpMM`` with everything bound; calling it enqueues the product.

    Parameters
    ----------
    preprocess : bool
        Let cuSPARSE analyse A first.

    Raises
    ------
    UnsupportedError
        cuSPARSE refuses the types or the format.
    MemoryLimitError
        Its buffer would not fit.
    """

    def __init__(
        self,
        library: Library,
        matrix: Descriptor,
        operands: Operands,
        dtype_out: str,
        algorithm: int,
        *,
        preprocess: bool = False,
    ) -> None:
        import cupy

        self._library = library
        self._matrix = matrix
        self._B = library.dense(operands.B, R_16BF)
        self._C = library.dense(operands.C, DATA_TYPES[dtype_out])
        bound = (
            library.handle,
            _NON_TRANSPOSE,
            _NON_TRANSPOSE,
            ctypes.byref(ONE),
            matrix.handle,
            self._B.handle,
            ctypes.byref(ZERO),
            self._C.handle,
            R_32F,
            algorithm,
        )
        size = ctypes.c_size_t()
        library.set_stream(library.handle, current_stream())
        library.call("cusparseSpMM_bufferSize", *bound, ctypes.byref(size))
        require_memory(size.value, "cuSPARSE's buffer", cupy)
        self._buffer = cupy.empty(max(size.value, 1), dtype=cupy.uint8)
        self._arguments = (*bound, pointer(self._buffer))
        if preprocess:
            library.call("cusparseSpMM_preprocess", *self._arguments)
        self._function: Callable[..., int] = library.function("cusparseSpMM")

    def __call__(self) -> None:
        """Enqueue C = A B on the current CuPy stream."""
        self._library.set_stream(self._library.handle, current_stream())
        status = self._function(*self._arguments)
        if status:
            self._library.fail("cusparseSpMM", status)


@cache
def library() -> Library:
    """Return cuSPARSE, loaded once."""
    return Library()


def version_text(number: int) -> str:
    """Return cuSPARSE's version number in words: 12603 is "cuSPARSE 12.6.3"."""
    return f"cuSPARSE {number // 1000}.{number // 100 % 10}.{number % 100}"
