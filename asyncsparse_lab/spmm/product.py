"""One product C = A B on the device, shared by all contenders that compute it.

A is m x k, sparse; B is k x n, dense, row-major, held as the 16-bit patterns of bf16; C is
m x n, float32 or bf16 bits.  Values of A are rounded to bf16 on the host once, so that a kernel,
a library and the FP64 reference all multiply exactly the same numbers.

The arrays' module is NumPy or CuPy, whichever B comes from: everything but the kernels
themselves can be tried on a machine without a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from scipy.sparse import csr_array

from asyncsparse_lab.errors import InputError, MemoryLimitError
from asyncsparse_lab.formats import bfloat16_bits, round_to_bfloat16
from asyncsparse_lab.formats.arrays import Array, array_module, csr_class, free_bytes

T = TypeVar("T")

BFLOAT16_NAN: Final = 0x7FC0
ITEM_BYTES: Final[dict[str, int]] = {"bfloat16": 2, "float32": 4}
PADDED_ROWS: Final = 64  # B's memory goes on with zeros to a multiple of this many rows

_CHUNK_ELEMENTS: Final = 1 << 26  # of B at a time: bounds the float32 temporaries to 256 MiB


@dataclass(frozen=True, slots=True)
class DeviceCsr:
    """CSR arrays of A beside B: offsets int32 (int64 above 2**31), columns int32, bf16 bits."""

    indptr: Array
    indices: Array
    values: Array


@dataclass(eq=False)
class Product:
    r"""C = A B with float32 accumulation.

    Attributes
    ----------
    A : scipy.sparse.csr_array, m x k
        Canonical, float32, each value exactly representable in ``dtype_in``.
    n : int
        Columns of B and C.
    dtype_in : {"bfloat16"}
        Type of A and B as multiplied.
    dtype_out : {"bfloat16", "float32"}
        Type of C.
    layout : {"row-major"}
        Of B and C.
    B : array of uint16, k x n
        bf16 bits, NumPy or CuPy; any row stride, elements of a row contiguous.
    padded_B : array of uint16 or None
        The memory behind B when its rows go on with zeros to a multiple of 64: a library that
        wants K padded reads it in place.

    Raises
    ------
    InputError
        A shape, type or layout is not as described, or a value of A is not a bf16 number.
    """

    A: csr_array
    n: int
    dtype_in: str
    dtype_out: str
    layout: str
    B: Array = field(repr=False)
    padded_B: Array | None = field(default=None, repr=False)
    _conversions: dict[str, tuple[Any, float]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        _check_types(self.dtype_in, self.dtype_out, self.layout)
        m, k = self.A.shape
        if self.B.shape != (k, self.n) or self.B.dtype != np.uint16:
            raise InputError(
                f"B is {self.B.shape} {self.B.dtype}: A is {m} x {k} and n is {self.n}, "
                f"so B must be ({k}, {self.n}) uint16"
            )
        if self.B.size and self.n > 1 and self.B.strides[1] != 2:
            raise InputError(f"B has strides {self.B.strides}: its rows must be contiguous")
        if self.A.dtype != np.float32:
            raise InputError(f"A holds {self.A.dtype}: use Product.random, or round it to bfloat16")
        if not self.A.has_canonical_format:
            raise InputError("A is not canonical CSR: call A.sum_duplicates() first")
        if (self.A.data.view(np.uint32) & 0xFFFF).any():
            raise InputError("A holds values that bfloat16 does not: use round_to_bfloat16 first")

    @classmethod
    def random(
        cls,
        A: csr_array,
        n: int,
        *,
        dtype_in: str = "bfloat16",
        dtype_out: str = "float32",
        layout: str = "row-major",
        seed: int = 0,
        row_stride: int | None = None,
        first_column: int = 0,
        values: str = "normal",
        xp: Any = None,
    ) -> Product:
        """Make a product with standard normal B, and A of the given pattern.

        Parameters
        ----------
        A : scipy.sparse.csr_array, m x k
            Any real type; the original is not changed.
        n : int
            Columns of B.
        seed : int
            A fresh one for each measurement: results that were cached by address then show.
        row_stride : int, optional
            Elements from one row of B to the next; n by default.
        first_column : int
            Elements before the first one of B in its memory: odd ones leave it unaligned.
        values : {"normal", "matrix"}
            Standard normal values for A too, or those of A rounded to bf16.
        xp : module, optional
            NumPy or CuPy; CuPy by default.

        Raises
        ------
        InputError
            n or the stride is too small, A is complex, or ``values`` is unknown.
        MemoryLimitError
            B and C would not fit; nothing was allocated.
        """
        _check_types(dtype_in, dtype_out, layout)
        if xp is None:
            import cupy

            xp = cupy
        m, k = A.shape
        stride = first_column + n if row_stride is None else row_stride
        if n < 1:
            raise InputError(f"n={n}: B needs at least one column")
        if first_column < 0 or stride < first_column + n:
            raise InputError(f"row_stride={stride} cannot hold {n} columns after {first_column}")
        if A.dtype.kind == "c":
            raise InputError("A is complex: the kernels multiply real numbers, pass A.real")
        require_memory(predicted_bytes(A, n, dtype_out, stride), f"a {m} x {k} x {n} product", xp)

        if values == "normal":
            data = np.random.default_rng([seed, 1]).standard_normal(A.nnz, dtype=np.float32)
            data[data == 0] = 1.0  # one in 2**24 is drawn as zero: the pattern must stay
        elif values == "matrix":
            data = A.data.astype(np.float32)
        else:
            raise InputError(f"values={values!r} is not one of normal, matrix")
        rounded = csr_array((round_to_bfloat16(data), A.indices, A.indptr), shape=A.shape)
        rounded.sum_duplicates()

        memory = xp.zeros((k + -k % PADDED_ROWS, stride), dtype=xp.uint16)
        padded_B = memory[:, first_column : first_column + n]
        rng = xp.random.default_rng(seed)
        step = max(1, _CHUNK_ELEMENTS // n)
        for start in range(0, k, step):
            stop = min(start + step, k)
            slab = rng.standard_normal((stop - start, n), dtype=xp.float32)
            padded_B[start:stop] = bfloat16_bits(slab)
        return cls(rounded, n, dtype_in, dtype_out, layout, padded_B[:k], padded_B)

    def with_output(self, dtype_out: str) -> Product:
        """Return the same product with another output type, sharing all device memory."""
        other = replace(self, dtype_out=dtype_out)
        for name in ("device_csr", "device_matrix", "compulsory_bytes"):
            if name in self.__dict__:
                other.__dict__[name] = self.__dict__[name]
        return other

    def converted(self, name: str, convert: Callable[[csr_array], T]) -> tuple[T, float]:
        """Return A in another format and the microseconds of its conversion.

        Each format is converted and measured once, and shared by the variants that read it.

        Parameters
        ----------
        name : str
            The format with its parameters.
        convert : callable
            Makes it from A, on the device.
        """
        if name not in self._conversions:
            start = time.perf_counter()
            matrix = convert(self.A)
            if self.xp is not np:
                self.xp.cuda.get_current_stream().synchronize()
            self._conversions[name] = matrix, (time.perf_counter() - start) * 1e6
        return self._conversions[name]

    @property
    def m(self) -> int:
        """Rows of A and C."""
        return int(self.A.shape[0])

    @property
    def k(self) -> int:
        """Columns of A, rows of B."""
        return int(self.A.shape[1])

    @property
    def useful_flops(self) -> int:
        """Floating point operations that the product needs: 2 nnz n."""
        return 2 * int(self.A.nnz) * self.n

    @cached_property
    def xp(self) -> Any:
        """NumPy or CuPy, after B."""
        return array_module(self.B)

    @cached_property
    def device_csr(self) -> DeviceCsr:
        """CSR arrays of A where B is; copied once, shared by all contenders."""
        xp, A = self.xp, self.A
        offset_type = np.int32 if A.nnz < 2**31 else np.int64
        return DeviceCsr(
            indptr=xp.asarray(A.indptr.astype(offset_type)),
            indices=xp.asarray(A.indices.astype(np.int32)),
            values=bfloat16_bits(xp.asarray(A.data)),
        )

    @cached_property
    def device_matrix(self) -> Any:
        """A where B is, as the CSR class of SciPy or CuPy, float32: what is converted from."""
        xp, A = self.xp, self.A
        arrays = (xp.asarray(A.data), self.device_csr.indices, self.device_csr.indptr)
        return csr_class(xp)(arrays, shape=A.shape)

    @cached_property
    def compulsory_bytes(self) -> int:
        """Bytes that no kernel can avoid to read: A's values, and the rows of B that A touches."""
        is_touched = np.zeros(self.k, dtype=bool)
        is_touched[self.A.indices] = True
        return 2 * int(self.A.nnz) + 2 * self.n * int(is_touched.sum())

    def new_output(self, rows: int | None = None, columns: int | None = None) -> Array:
        """Return memory for C filled with NaN; more rows or columns than m x n if asked."""
        shape = (rows or self.m, columns or self.n)
        dtype = self.xp.float32 if self.dtype_out == "float32" else self.xp.uint16
        output = self.xp.empty(shape, dtype=dtype)
        poison(output)
        return output


@dataclass
class Prepared:
    """A contender that is ready to run on one product.

    Attributes
    ----------
    run : callable
        Enqueues one product on the current CuPy stream; no host synchronisation.
    output : array, m x n
        float32, or uint16 bits of bf16; where ``run`` leaves C.
    preprocess_us : float
        Conversion of A and setup, measured once.
    params : dict
        What was chosen: algorithm, padded, wgmma_n, stages ...
    kernel_hash, host_hash : str or None
        Of our kernels; None for a library.
    compiler : str or None
        What made the code: NVRTC's version, or the library's.
    measurements : array or None
        Of an instrumented build, the rows that its last run filled.
    """

    run: Callable[[], None]
    output: Array
    preprocess_us: float
    params: dict[str, Any] = field(default_factory=dict)
    kernel_hash: str | None = None
    host_hash: str | None = None
    compiler: str | None = None
    measurements: Array | None = None


class Contender(Protocol):
    """What computes a product: one of our variants, or a library."""

    @property
    def role(self) -> str:
        """``paper``, ``ours``, ``planner``, ``library`` or ``probe``."""

    @property
    def backend(self) -> str:
        """``asyncsparse``, ``cublas``, ``cusparse``, ``torch`` ..."""

    @property
    def variant(self) -> str:
        """Name within the backend."""

    @property
    def params(self) -> dict[str, Any]:
        """What is fixed before a product is seen."""

    def prepare(self, product: Product) -> Prepared:
        """Convert A and allocate C.

        Raises
        ------
        UnsupportedError
            These types or shapes are not offered.
        MemoryLimitError
            The converted matrix would not fit; nothing was allocated.
        """


def poison(output: Array) -> None:
    """Fill an output with NaN, so that an element that is not written shows."""
    output.fill(BFLOAT16_NAN if output.dtype == np.uint16 else np.nan)


def predicted_bytes(A: csr_array, n: int, dtype_out: str, row_stride: int | None = None) -> int:
    """Return the device bytes of A as CSR, B, C and the temporaries of filling B."""
    m, k = A.shape
    stride = n if row_stride is None else row_stride
    csr = 6 * int(A.nnz) + 8 * (m + 1)
    dense = 2 * (k + -k % PADDED_ROWS) * stride + ITEM_BYTES[dtype_out] * m * n
    return csr + dense + 8 * min(k * n, max(n, _CHUNK_ELEMENTS))


def require_memory(needed: int, what: str, xp: Any, limit: int | None = None) -> None:
    """Refuse an allocation before it is tried.

    Parameters
    ----------
    needed : int
        Predicted bytes.
    what : str
        For the message.
    xp : module
        NumPy or CuPy: where it would be allocated.
    limit : int, optional
        Refuse above this, whatever is free.

    Raises
    ------
    MemoryLimitError
        More bytes are needed than are free or allowed.
    """
    allowed = free_bytes(xp) if limit is None else min(free_bytes(xp), limit)
    if needed > allowed:
        raise MemoryLimitError(
            f"{what} needs {needed:,} bytes, {allowed:,} are allowed: take a smaller n or another "
            f"format"
        )


def _check_types(dtype_in: str, dtype_out: str, layout: str) -> None:
    if dtype_in != "bfloat16":
        raise InputError(f"dtype_in={dtype_in!r}: only bfloat16 is offered")
    if dtype_out not in ITEM_BYTES:
        raise InputError(f"dtype_out={dtype_out!r} is not one of {', '.join(ITEM_BYTES)}")
    if layout != "row-major":
        raise InputError(f"layout={layout!r}: only row-major is offered")
