"""One product C = A B on the device, shared by all contenders that compute it.

A is m x k, sparse; B is k x n, dense, held as the 16-bit patterns of bf16 or as float16;
C is m x n, float32, float16 or bf16 bits.  Values of A are rounded to B's type on the host once, so
that a kernel, a library and the FP64 reference all multiply exactly the same numbers.

Both dense matrices are row-major, or both column-major: PyTorch's [tokens, features].

The arrays' module is NumPy or CuPy, whichever B comes from: everything but the kernels
themselves can be tried on a machine without a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np
from scipy.sparse import csr_array

from asyncsparse_lab.errors import InputError, MemoryLimitError, UnsupportedError
from asyncsparse_lab.formats.arrays import Array, array_module, csr_class, free_bytes
from asyncsparse_lab.formats.rounding import in_type, round_to
from asyncsparse_lab.spmm.conversions import Conversions

T = TypeVar("T")

BFLOAT16_NAN: Final = 0x7FC0
ITEM_BYTES: Final[dict[str, int]] = {"bfloat16": 2, "float16": 2, "float32": 4}
INPUT_TYPES: Final = ("bfloat16", "float16")
LAYOUTS: Final = ("row-major", "column-major")
PADDED_ROWS: Final = 64  # B's memory goes on with zeros to a multiple of this many rows

_CHUNK_ELEMENTS: Final = 1 << 26  # of B at a time: bounds the float32 temporaries to 256 MiB


@dataclass(frozen=True, slots=True)
class DeviceCsr:
    """CSR arrays of A beside B: offsets int32 (int64 above 2**31), columns int32, B's type."""

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
    dtype_in : {"bfloat16", "float16"}
        Type of A and B as multiplied.
    dtype_out : {"bfloat16", "float16", "float32"}
        Type of C; float16 only from float16.
    layout : {"row-major", "column-major"}
        Of B and C.
    B : array, k x n
        bf16 bits as uint16, or float16; NumPy or CuPy; any stride between rows (columns, if
        column-major), the elements of one contiguous.
    padded_B : array or None
        The memory behind B when its rows go on with zeros to a multiple of 64: a library that
        wants K padded reads it in place.  Row-major only.
    out : array, m x n, or None
        Where C goes; new memory full of NaN for each contender if None.
    conversions : Conversions
        Of A, made when a contender first asks.

    Raises
    ------
    InputError
        A shape, type or layout is not as described, or a value of A is not of ``dtype_in``.
    """

    A: csr_array
    n: int
    dtype_in: str
    dtype_out: str
    layout: str
    B: Array = field(repr=False)
    padded_B: Array | None = field(default=None, repr=False)
    out: Array | None = field(default=None, repr=False)
    conversions: Conversions = field(default_factory=Conversions, repr=False)

    def __post_init__(self) -> None:
        self._check_dense()
        if self.A.dtype != np.float32:
            raise InputError(f"A holds {self.A.dtype}: use Product.random, or formats.round_to")
        if not self.A.has_canonical_format:
            raise InputError("A is not canonical CSR: call A.sum_duplicates() first")
        if not np.array_equal(round_to(self.A.data, self.dtype_in), self.A.data, equal_nan=True):
            raise InputError(f"A holds values that {self.dtype_in} does not: use formats.round_to")

    def _check_dense(self) -> None:
        check_types(self.dtype_in, self.dtype_out, self.layout)
        m, k = self.A.shape
        expected = _array_type(self.dtype_in)
        if self.B.shape != (k, self.n) or self.B.dtype != expected:
            raise InputError(
                f"B is {self.B.shape} {self.B.dtype}: A is {m} x {k} and n is {self.n}, "
                f"so B must be ({k}, {self.n}) {expected}"
            )
        if not _is_in_layout(self.B, self.layout):
            raise InputError(
                f"B has strides {self.B.strides}: it is not {self.layout} with contiguous elements"
            )

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
            Elements from one row of B to the next; n by default.  Row-major only.
        first_column : int
            Elements before the first one of B in its memory: odd ones leave it unaligned.
        values : {"normal", "matrix"}
            Standard normal values for A too, or those of A rounded to ``dtype_in``.
        xp : module, optional
            NumPy or CuPy; CuPy by default.

        Raises
        ------
        InputError
            n or the stride is too small, A is complex, or ``values`` is unknown.
        MemoryLimitError
            B and C would not fit; nothing was allocated.
        """
        check_types(dtype_in, dtype_out, layout)
        if xp is None:
            import cupy

            xp = cupy
        m, k = A.shape
        stride = first_column + n if row_stride is None else row_stride
        if n < 1:
            raise InputError(f"n={n}: B needs at least one column")
        if layout == "column-major" and (row_stride is not None or first_column):
            raise InputError("row_stride and first_column are of row-major products: leave them")
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
        rounded = csr_array((round_to(data, dtype_in), A.indices, A.indptr), shape=A.shape)
        rounded.sum_duplicates()

        if layout == "column-major":
            B, padded_B = xp.empty((n, k), dtype=_array_type(dtype_in)).T, None
        else:
            memory = xp.zeros((k + -k % PADDED_ROWS, stride), dtype=_array_type(dtype_in))
            padded_B = memory[:, first_column : first_column + n]
            B = padded_B[:k]
        rng = xp.random.default_rng(seed)
        step = max(1, _CHUNK_ELEMENTS // n)
        for start in range(0, k, step):
            stop = min(start + step, k)
            slab = rng.standard_normal((stop - start, n), dtype=xp.float32)
            B[start:stop] = in_type(slab, dtype_in)
        return cls(rounded, n, dtype_in, dtype_out, layout, B, padded_B)

    def with_output(self, dtype_out: str) -> Product:
        """Return the same product with another output type, sharing all device memory."""
        other = replace(self, dtype_out=dtype_out)
        if "compulsory_bytes" in self.__dict__:
            other.__dict__["compulsory_bytes"] = self.__dict__["compulsory_bytes"]
        return other

    def with_operands(
        self, B: Array, dtype_out: str, layout: str, out: Array | None = None
    ) -> Product:
        """Return the product of the same A, converted once for all, with another B."""
        other = copy(self)
        other.B, other.n, other.padded_B = B, B.shape[1], None
        other.dtype_out, other.layout, other.out = dtype_out, layout, out
        for name in ("xp", "compulsory_bytes"):
            other.__dict__.pop(name, None)
        other._check_dense()
        return other

    def with_matrix(self, A: csr_array) -> Product:
        """Return the product of another A, not checked and not converted, with the same B."""
        other = copy(self)
        other.A, other.conversions = A, Conversions(self.conversions.makers)
        other.__dict__.pop("compulsory_bytes", None)
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

        def make() -> tuple[T, float]:
            start = time.perf_counter()
            maker: Callable[[Product], T] | None = self.conversions.makers.get(name)
            matrix = convert(self.A) if maker is None else maker(self)
            if self.xp is not np:
                self.xp.cuda.get_current_stream().synchronize()
            return matrix, (time.perf_counter() - start) * 1e6

        return self.conversions.get(name, make)

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

    @property
    def device_csr(self) -> DeviceCsr:
        """CSR arrays of A where B is; copied once, shared by all contenders."""
        xp = self.xp

        def copy_arrays(A: csr_array) -> DeviceCsr:
            require_memory(6 * int(A.nnz) + 8 * (self.m + 1), "A as CSR", xp)
            offset_type = np.int32 if A.nnz < 2**31 else np.int64
            return DeviceCsr(
                indptr=xp.asarray(A.indptr.astype(offset_type)),
                indices=xp.asarray(A.indices.astype(np.int32)),
                values=in_type(xp.asarray(A.data), self.dtype_in),
            )

        return self.converted("csr", copy_arrays)[0]

    @property
    def device_matrix(self) -> Any:
        """A where B is, as the CSR class of SciPy or CuPy, float32: what is converted from."""
        xp, csr = self.xp, self.device_csr

        def copy_values(A: csr_array) -> Any:
            return csr_class(xp)((xp.asarray(A.data), csr.indices, csr.indptr), shape=A.shape)

        return self.converted("matrix", copy_values)[0]

    @cached_property
    def compulsory_bytes(self) -> int:
        """Bytes that no kernel can avoid to read: A's values, and the rows of B that A touches."""
        is_touched = np.zeros(self.k, dtype=bool)
        is_touched[self.A.indices] = True
        return 2 * int(self.A.nnz) + 2 * self.n * int(is_touched.sum())

    def new_output(self, rows: int | None = None, columns: int | None = None) -> Array:
        """Return ``out``, or new memory full of NaN; the latter too for a larger shape than m x n.

        It has the product's layout.
        """
        shape = (rows or self.m, columns or self.n)
        if self.out is not None and shape == self.out.shape:
            return self.out
        dtype = _array_type(self.dtype_out)
        if self.layout == "column-major":
            output = self.xp.empty(shape[::-1], dtype=dtype).T
        else:
            output = self.xp.empty(shape, dtype=dtype)
        poison(output)
        return output

    def require(
        self,
        who: str,
        dtypes_in: tuple[str, ...] = ("bfloat16",),
        layouts: tuple[str, ...] = ("row-major",),
    ) -> None:
        """Raise :class:`UnsupportedError` unless the product has one of these types and layouts."""
        if self.dtype_in not in dtypes_in:
            raise UnsupportedError(
                f"{who} takes {' or '.join(dtypes_in)} here, not {self.dtype_in}"
            )
        if self.layout not in layouts:
            raise UnsupportedError(f"{who} takes {' or '.join(layouts)}, not {self.layout}")


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


def check_types(dtype_in: str, dtype_out: str, layout: str) -> None:
    """Refuse types and a layout that no product has, by :class:`InputError`."""
    if dtype_in not in INPUT_TYPES:
        raise InputError(f"dtype_in={dtype_in!r} is not one of {', '.join(INPUT_TYPES)}")
    outputs = (dtype_in, "float32")
    if dtype_out not in outputs:
        raise InputError(f"dtype_out={dtype_out!r} is not one of {', '.join(outputs)}")
    if layout not in LAYOUTS:
        raise InputError(f"layout={layout!r} is not one of {', '.join(LAYOUTS)}")


def _array_type(dtype: str) -> Any:
    """Return the NumPy type that holds values of a product's type."""
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)


def _is_in_layout(array: Array, layout: str) -> bool:
    """Whether the elements of a row, or of a column, lie one after the other."""
    axis = 1 if layout == "row-major" else 0
    contiguous = array.strides[axis] == array.itemsize
    return not array.size or array.shape[axis] == 1 or bool(contiguous)
