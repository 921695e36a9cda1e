"""cuBLAS: A as a dense matrix, K and M padded to multiples of 8 with real zeros.

Unpadded odd sizes keep cuBLAS from its fast kernels (measured: 3.9 times slower), so a fair
comparison pads.  All types of output come from ``cublasGemmEx`` with float32 compute.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from asyncsparse_lab.baselines.libraries import (
    DATA_TYPES,
    ONE,
    ZERO,
    current_stream,
    load_library,
    pointer,
)
from asyncsparse_lab.baselines.operands import Operands, library_operands, timed_conversion
from asyncsparse_lab.errors import DeviceError, UnsupportedError
from asyncsparse_lab.formats.arrays import Array, canonical_csr
from asyncsparse_lab.formats.rounding import in_type
from asyncsparse_lab.spmm.contender import Prepared
from asyncsparse_lab.spmm.product import INPUT_TYPES, LAYOUTS, Product, require_memory

ALIGNED: Final = 8
DENSE_LIMIT_BYTES: Final = 8 << 30  # at 8 GiB of A, a product of n = 1024 takes over 5 ms

_OP_N: Final = 0
_OP_T: Final = 1
_COMPUTE_32F: Final = 68
_GEMM_DEFAULT: Final = -1
_FLOAT32_REDUCTION: Final = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
_NOT_SUPPORTED: Final = 15
_INT_LIMIT: Final = 2**31


@dataclass(frozen=True)
class DenseGemm:
    """C = A B with dense A, by ``cublasGemmEx``."""

    role: str = "library"
    backend: str = "cublas"
    variant: str = "dense"
    limit_bytes: int = DENSE_LIMIT_BYTES
    params: dict[str, Any] = field(default_factory=dict)

    def prepare(self, product: Product) -> Prepared:
        """Scatter A into a dense matrix.

        Raises
        ------
        UnsupportedError
            cuBLAS is missing, or a size exceeds its 32-bit interface.
        MemoryLimitError
            Dense A would exceed ``limit_bytes`` or the free memory; nothing was allocated.
        """
        if max(product.m, product.k, product.n) >= _INT_LIMIT - ALIGNED:
            raise UnsupportedError("cublasGemmEx takes 32-bit sizes: this product is larger")

        def scatter() -> tuple[Array, float]:
            require_memory(predicted_bytes(product), "dense A", product.xp, self.limit_bytes)
            _library()  # refused before anything is converted
            return timed_conversion("dense", lambda: dense_bits(product), product.xp)

        A, preprocess_us = product.conversions.get("dense", scatter)
        library = _library()
        is_transposed = product.layout == "column-major"
        operands = library_operands(
            product,
            k_multiple=ALIGNED,
            row_multiple=ALIGNED if is_transposed else 1,
            column_multiple=1 if is_transposed else ALIGNED,
            dtypes_in=INPUT_TYPES,
            layouts=LAYOUTS,
        )
        call = gemm_arguments(A, operands, product)
        return Prepared(
            run=operands.around(_gemm(library, A, operands, call)),
            output=operands.output,
            preprocess_us=preprocess_us,
            params={"algorithm": "cublasGemmEx", "padded": operands.padded},
            compiler=library.version,
        )


def predicted_bytes(product: Product) -> int:
    """Return the bytes of A as a dense matrix of a 16-bit type with padded M and K."""
    return 2 * (product.m + -product.m % ALIGNED) * (product.k + -product.k % ALIGNED)


def dense_bits(product: Product) -> Array:
    """Return A as a dense matrix, padded m x padded k, of 16-bit patterns."""
    xp, inner = product.xp, product.k + -product.k % ALIGNED
    csr = canonical_csr(product.device_matrix)
    dense = xp.zeros((product.m + -product.m % ALIGNED) * inner, dtype=xp.uint16)
    dense[csr.rows * inner + csr.indices] = in_type(csr.data, product.dtype_in).view(xp.uint16)
    return dense.reshape(-1, inner)


def gemm_arguments(A: Array, operands: Operands, product: Product) -> tuple[Any, ...]:
    """Return what ``cublasGemmEx`` gets after its handle.

    cuBLAS is column-major: row-major C = A B is C' = B' A', and a column-major product takes
    row-major A as A' transposed.
    """
    B, C = operands.B, operands.C
    dtype_in, dtype_out = DATA_TYPES[product.dtype_in], DATA_TYPES[product.dtype_out]
    inner, lda = int(A.shape[1]), int(A.strides[0]) // 2
    if product.layout == "column-major":
        operations, sizes = (_OP_T, _OP_N), (int(C.shape[0]), int(B.shape[1]), inner)
        ldb, ldc = int(B.strides[1]) // 2, int(C.strides[1]) // C.itemsize
        factors = (pointer(A), dtype_in, lda), (pointer(B), dtype_in, ldb)
    else:
        operations, sizes = (_OP_N, _OP_N), (int(B.shape[1]), int(C.shape[0]), inner)
        ldb, ldc = int(B.strides[0]) // 2, int(C.strides[0]) // C.itemsize
        factors = (pointer(B), dtype_in, ldb), (pointer(A), dtype_in, lda)
    first, second = factors
    return (
        *operations,
        *sizes,
        ctypes.byref(ONE),
        *first,
        *second,
        ctypes.byref(ZERO),
        pointer(C),
        dtype_out,
        ldc,
        _COMPUTE_32F,
        _GEMM_DEFAULT,
    )


def _gemm(
    library: _Library, A: Array, operands: Operands, arguments: tuple[Any, ...]
) -> Callable[[], None]:
    """Return the call on the current stream; it keeps A and the operands alive."""

    def call() -> None:
        library.set_stream(library.handle, current_stream())
        status = library.gemm_ex(library.handle, *arguments)
        if status:
            library.fail(status, A, operands.B)

    return call


class _Library:
    """cuBLAS with one handle."""

    def __init__(self) -> None:
        loaded = load_library("cublas")
        self.set_stream = loaded.cublasSetStream_v2
        self.set_stream.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self.gemm_ex = loaded.cublasGemmEx
        integer, address = ctypes.c_int, ctypes.c_void_p
        self.gemm_ex.argtypes = (
            address, integer, integer, integer, integer, integer, address,
            address, integer, integer, address, integer, integer, address,
            address, integer, integer, integer, integer,
        )  # fmt: skip
        self.handle = ctypes.c_void_p()
        status = loaded.cublasCreate_v2(ctypes.byref(self.handle))
        if status:
            raise DeviceError(f"cublasCreate failed with status {status}: check asyncsparse doctor")
        # The product is defined with float32 sums; without this, split-K may add up in bf16.
        loaded.cublasSetMathMode(self.handle, _FLOAT32_REDUCTION)
        number = ctypes.c_int()
        loaded.cublasGetVersion_v2(self.handle, ctypes.byref(number))
        self.version = version_text(number.value)

    @staticmethod
    def fail(status: int, A: Array, B: Array) -> None:
        """Raise what a status means."""
        sizes = f"A {A.shape}, B {B.shape}"
        if status == _NOT_SUPPORTED:
            raise UnsupportedError(f"cublasGemmEx does not support {sizes}: use another library")
        raise DeviceError(f"cublasGemmEx failed with status {status} on {sizes}")


@cache
def _library() -> _Library:
    return _Library()


def version_text(number: int) -> str:
    """Return cuBLAS's version number in words: 130002 is "cuBLAS 13.0.2"."""
    return f"cuBLAS {number // 10000}.{number // 100 % 100}.{number % 100}"
