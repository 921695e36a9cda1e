"""What the document's design takes from cuSPARSE and cuBLAS, as calls with everything bound.

A bound call costs a ctypes call and the library's own work.  Scalars are read from host memory
when the call is made, so a call is bound once and its scalars are changed before each use.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any, Final

from asyncsparse_lab.baselines.libraries import R_32F, load_library, pointer
from asyncsparse_lab.errors import DeviceError, UnsupportedError

NON_TRANSPOSE: Final = 0
TRANSPOSE: Final = 1
_INDEX_32I: Final = 2
_BASE_ZERO: Final = 0
_POINTER_MODE_DEVICE: Final = 1

# cusparseSpMVAlg_t
SPMV_DEFAULT: Final = 0
SPMV_DETERMINISTIC: Final = 3  # CUSPARSE_SPMV_CSR_ALG2

_ADDRESS, _INT, _INT64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_SPMV: Final = (
    _ADDRESS, _INT, _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS, _INT, _INT, _ADDRESS,
)  # fmt: skip
_SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    "cusparseCreate": (_ADDRESS,),
    "cusparseDestroy": (_ADDRESS,),
    "cusparseSetStream": (_ADDRESS, _ADDRESS),
    "cusparseCreateCsr": (_ADDRESS, *3 * (_INT64,), *3 * (_ADDRESS,), *4 * (_INT,)),
    "cusparseCreateDnVec": (_ADDRESS, _INT64, _ADDRESS, _INT),
    "cusparseDestroySpMat": (_ADDRESS,),
    "cusparseDestroyDnVec": (_ADDRESS,),
    "cusparseSpMV_bufferSize": _SPMV,
    "cusparseSpMV_preprocess": _SPMV,
    "cusparseSpMV": _SPMV,
    "cublasCreate_v2": (_ADDRESS,),
    "cublasDestroy_v2": (_ADDRESS,),
    "cublasSetStream_v2": (_ADDRESS, _ADDRESS),
    "cublasSetPointerMode_v2": (_ADDRESS, _INT),
    "cublasSnrm2_v2": (_ADDRESS, _INT, _ADDRESS, _INT, _ADDRESS),
    "cublasSscal_v2": (_ADDRESS, _INT, _ADDRESS, _ADDRESS, _INT),
    "cublasSgemv_v2": (
        _ADDRESS, _INT, _INT, _INT, _ADDRESS, _ADDRESS, _INT, _ADDRESS, _INT, _ADDRESS, _ADDRESS,
        _INT,
    ),
}  # fmt: skip


class Scalar:
    """A float on the host that bound calls read."""

    def __init__(self, value: float) -> None:
        self._float = ctypes.c_float(value)
        self.address = ctypes.c_void_p(ctypes.addressof(self._float))

    def set(self, value: float) -> None:
        """Change it for the calls to come."""
        self._float.value = value


class _Library:
    """A library with one handle on one stream."""

    def __init__(self, name: str, create: str, destroy: str, set_stream: str, stream: Any) -> None:
        self.name = name
        self._loaded = load_library(name)
        self.handle = ctypes.c_void_p()
        self.call(create, ctypes.byref(self.handle))
        weakref.finalize(self, self._function(destroy), self.handle)
        self.call(set_stream, self.handle, ctypes.c_void_p(stream.ptr))

    def has(self, name: str) -> bool:
        """Return whether the installed version has a function."""
        return hasattr(self._loaded, name)

    def _function(self, name: str) -> Any:
        if not self.has(name):
            raise UnsupportedError(f"{self.name} has no {name}: install a newer CUDA toolkit")
        function = getattr(self._loaded, name)
        function.argtypes = _SIGNATURES[name]
        return function

    def call(self, name: str, *arguments: Any) -> None:
        """Call once."""
        self.bind(name, *arguments)()

    def bind(self, name: str, *arguments: Any, keep: Any = None) -> Callable[[], None]:
        """Return a call with its arguments; ``keep`` lives as long as it does."""
        function = self._function(name)

        def run(_keep: Any = keep) -> None:
            status = function(*arguments)
            if status:
                raise DeviceError(f"{name} failed with status {status}")

        return run


class Blas(_Library):
    """cuBLAS on FP32 vectors; norms are written to device memory, so that none waits."""

    def __init__(self, stream: Any, *, device_scalars: bool) -> None:
        super().__init__(
            "cublas", "cublasCreate_v2", "cublasDestroy_v2", "cublasSetStream_v2", stream
        )
        if device_scalars:
            self.call("cublasSetPointerMode_v2", self.handle, _POINTER_MODE_DEVICE)

    def norm(self, x: Any, result: int) -> Callable[[], None]:
        """Bind ``*result = |x|``, result an address on the device."""
        where = ctypes.c_void_p(result)
        return self.bind("cublasSnrm2_v2", self.handle, x.size, pointer(x), 1, where, keep=x)

    def scale(self, x: Any, factor: Scalar) -> Callable[[], None]:
        """Bind ``x = factor x``."""
        return self.bind(
            "cublasSscal_v2", self.handle, x.size, factor.address, pointer(x), 1, keep=(x, factor)
        )

    def product(
        self, matrix: Any, transposed: bool, alpha: Scalar, x: Any, beta: Scalar, y: Any
    ) -> Callable[[], None]:
        """Bind ``y = alpha A x + beta y`` for a dense row-major A, or its transpose."""
        # What lies row by row here is the transpose, column by column, there.
        columns, rows = matrix.shape
        operation = NON_TRANSPOSE if transposed else TRANSPOSE
        return self.bind(
            "cublasSgemv_v2",
            self.handle,
            operation,
            rows,
            columns,
            alpha.address,
            pointer(matrix),
            rows,
            pointer(x),
            1,
            beta.address,
            pointer(y),
            1,
            keep=(matrix, x, y, alpha, beta),
        )


class Sparse(_Library):
    """cuSPARSE's product of a CSR matrix and a vector in FP32, with 32-bit indices."""

    def __init__(self, stream: Any) -> None:
        super().__init__(
            "cusparse", "cusparseCreate", "cusparseDestroy", "cusparseSetStream", stream
        )

    def product(
        self,
        csr: tuple[Any, Any, Any],
        shape: tuple[int, int],
        operation: int,
        alpha: Scalar,
        x: Any,
        beta: Scalar,
        y: Any,
        algorithm: int,
        allocate: Callable[[int], Any],
    ) -> Callable[[], None]:
        """Bind ``y = alpha op(A) x + beta y``.

        Parameters
        ----------
        csr : tuple of ndarray
            Row pointers and columns (int32) and values (float32) of A on the device.
        shape : (int, int)
            Of A.
        operation : int
            ``NON_TRANSPOSE`` or ``TRANSPOSE``.
        algorithm : int
            ``SPMV_DEFAULT`` or ``SPMV_DETERMINISTIC``.
        allocate : callable
            Returns a device array of so many bytes.
        """
        indptr, indices, values = csr
        matrix = self._descriptor(
            "cusparseCreateCsr", *shape, indices.size,
            *map(pointer, (indptr, indices, values)), _INDEX_32I, _INDEX_32I, _BASE_ZERO, R_32F,
        )  # fmt: skip
        vector_x, vector_y = self._vector(x), self._vector(y)
        bound = (
            self.handle, operation, alpha.address, matrix, vector_x, beta.address, vector_y, R_32F,
            algorithm,
        )  # fmt: skip
        size = ctypes.c_size_t()
        self.call("cusparseSpMV_bufferSize", *bound, ctypes.byref(size))
        buffer = allocate(max(size.value, 1))
        arguments = (*bound, pointer(buffer))
        if operation == NON_TRANSPOSE and self.has("cusparseSpMV_preprocess"):
            self.call("cusparseSpMV_preprocess", *arguments)
        call = self.bind("cusparseSpMV", *arguments, keep=(csr, x, y, alpha, beta, buffer))
        for create, descriptor in (("SpMat", matrix), ("DnVec", vector_x), ("DnVec", vector_y)):
            weakref.finalize(call, self._function(f"cusparseDestroy{create}"), descriptor)
        return call

    def _vector(self, array: Any) -> ctypes.c_void_p:
        return self._descriptor("cusparseCreateDnVec", array.size, pointer(array), R_32F)

    def _descriptor(self, create: str, *arguments: Any) -> ctypes.c_void_p:
        descriptor = ctypes.c_void_p()
        self.call(create, ctypes.byref(descriptor), *arguments)
        return descriptor
