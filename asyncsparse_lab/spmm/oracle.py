"""The truth that a product is held to: C = A B in FP64, compared element by element.

For C of any kernel or library, with R = A B and S = abs(A) abs(B) in FP64::

    rel_err = max over i, j of |C - R|_ij / S_ij        (0 / 0 = 0)

is held to ``u_out + 2**-23 * longest row``: one rounding to the output type, plus one unit of
FP32 accumulation for each term of the longest sum.  An element that is not finite where R is
finite makes ``rel_err`` infinite, and so does a finite element where R is not.

One code for NumPy and CuPy: the arrays' module follows B.  On the CPU the sparse product is
SciPy's, on the GPU CuPy's; ``asyncsparse verify`` checks one against the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.formats import bfloat16_from_bits
from asyncsparse_lab.formats.arrays import array_module

UNIT_ROUNDOFF: Final[dict[str, float]] = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 0.0}

FLOAT16_NORMAL: Final = 2.0**-14
"""Smallest normal number of float16; of bf16 and float32 it is 2^-126, which no product meets."""

_CHUNK_ELEMENTS: Final = 1 << 25  # 256 MiB of FP64: bounds the temporaries, not the result
_SAMPLE_ABOVE: Final = 1 << 30  # elements of C beyond which R and S would take over 16 GiB


def err_bound(longest_row: int, dtype_out: str) -> float:
    """Return the largest ``rel_err`` that FP32 accumulation and one rounding can explain.

    Parameters
    ----------
    longest_row : int
        Non-zeros in the longest row of A.
    dtype_out : str
        ``bfloat16``, ``float16`` or ``float32``.

    Raises
    ------
    InputError
        The output type is not one of these.
    """
    if dtype_out not in UNIT_ROUNDOFF:
        raise InputError(f"no error bound for {dtype_out!r}; there are {', '.join(UNIT_ROUNDOFF)}")
    return UNIT_ROUNDOFF[dtype_out] + longest_row * 2.0**-23


@dataclass(frozen=True, slots=True)
class Deviation:
    """The element of C that is furthest from the truth, by ``rel_err``."""

    rel_err: float
    row: int
    column: int
    value: float
    expected: float


@dataclass(frozen=True, slots=True)
class Reference:
    """R = A B and S = abs(A) abs(B) in FP64, of all rows or of a sample.

    Attributes
    ----------
    values, scale : array of float64, rows x n
        R and S, NumPy or CuPy.
    rows : array of int64 or None
        Which rows of C they are; None means all.
    shape : tuple of int
        Of C.
    longest_row : int
        Non-zeros in the longest row of A.
    """

    values: Any
    scale: Any
    rows: NDArray[np.int64] | None
    shape: tuple[int, int]
    longest_row: int

    def err_bound(self, dtype_out: str) -> float:
        """Return :func:`err_bound` for this product."""
        return err_bound(self.longest_row, dtype_out)

    def relative_error(self, C: Any) -> float:
        """Return ``rel_err`` of C (float32, float16, float64, or uint16 bits of bf16)."""
        return self.worst(C).rel_err

    def worst(self, C: Any) -> Deviation:
        """Return the worst element of C; every element of the rows is compared.

        Raises
        ------
        InputError
            C does not have the shape of the product.
        """
        if C.shape != self.shape:
            raise InputError(f"C is {C.shape}, the product is {self.shape}: pass the whole output")
        xp = array_module(C)
        worst = Deviation(0.0, 0, 0, 0.0, 0.0)
        for start, stop in _chunks(self.values.shape[0], self.values.shape[1]):
            rows = slice(start, stop) if self.rows is None else xp.asarray(self.rows[start:stop])
            actual = as_float64(C[rows])
            expected = self.values[start:stop]
            scale = self.scale[start:stop]
            if C.dtype == np.float16:  # below its normal numbers the unit in the last place stays
                scale = xp.maximum(scale, FLOAT16_NORMAL)
            ratio = _ratio(xp, actual, expected, scale)
            place = int(ratio.argmax())
            found = float(ratio.flat[place])
            if found > worst.rel_err:
                i, j = divmod(place, self.shape[1])
                row = start + i if self.rows is None else int(self.rows[start + i])
                worst = Deviation(found, row, j, float(actual[i, j]), float(expected[i, j]))
        return worst


def reference(A: csr_array, B: Any, rows: NDArray[np.int64] | None = None) -> Reference:
    """Compute R = A B and S = abs(A) abs(B) in FP64.

    Rows of B that no non-zero of A touches are never read, so NaN or Inf there has no effect,
    as the definition of the product wants it.

    Parameters
    ----------
    A : scipy.sparse.csr_array, m x k
    B : array, k x n
        NumPy or CuPy, any strides; float, or uint16 bits of bf16.
    rows : array of int, optional
        Only these rows of C (see :func:`sample_rows`).

    Raises
    ------
    InputError
        The shapes do not match.
    """
    m, k = A.shape
    if B.ndim != 2 or B.shape[0] != k:
        raise InputError(f"A is {A.shape} and B is {B.shape}: B needs {k} rows")
    longest_row = int(np.diff(A.indptr).max(initial=0))
    chosen = A if rows is None else A[rows]
    xp, n = array_module(B), int(B.shape[1])
    values = xp.zeros((chosen.shape[0], n))
    scale = xp.zeros((chosen.shape[0], n))
    if chosen.nnz and n:
        is_touched = np.zeros(k, dtype=bool)
        is_touched[chosen.indices] = True
        touched = np.flatnonzero(is_touched)
        position = np.cumsum(is_touched) - 1
        compact = csr_array(
            (chosen.data.astype(np.float64), position[chosen.indices], chosen.indptr),
            shape=(chosen.shape[0], touched.size),
        )
        signed, magnitude = _on_device(xp, compact), _on_device(xp, abs(compact))
        touched = xp.asarray(touched)
        for start, stop in _chunks(n, max(touched.size, chosen.shape[0])):
            slab = as_float64(B[touched, start:stop])
            values[:, start:stop] = signed @ slab
            scale[:, start:stop] = magnitude @ abs(slab)
    return Reference(values, scale, rows, (m, n), longest_row)


def sample_rows(A: csr_array, n: int, count: int = 2048, seed: int = 0) -> NDArray[np.int64] | None:
    """Return the rows to compare when C is too large to compare whole, else None.

    The sample holds the first and the last 128 rows (where 32-bit offsets would wrap), the
    longest rows, and random ones, half of them among rows that are not empty.
    """
    m = A.shape[0]
    if m * n <= _SAMPLE_ABOVE:
        return None
    rng = np.random.default_rng(seed)
    lengths = np.diff(A.indptr)
    filled = np.flatnonzero(lengths)
    edge = min(128, m)
    parts = [
        np.arange(edge),
        np.arange(m - edge, m),
        np.argpartition(lengths, m - edge)[m - edge :],
        rng.integers(0, m, count // 2),
        rng.choice(filled, count // 2) if filled.size else np.empty(0, np.int64),
    ]
    return np.unique(np.concatenate(parts)).astype(np.int64)


def as_float64(values: Any) -> Any:
    """Return an array as float64; uint16 is read as the bits of bf16."""
    if values.dtype == np.uint16:
        values = bfloat16_from_bits(values)
    return values.astype(np.float64)


def _ratio(xp: Any, actual: Any, expected: Any, scale: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        error = abs(actual - expected)
        ratio = xp.where(error == 0, 0.0, error / scale)
    actual_is_finite, expected_is_finite = xp.isfinite(actual), xp.isfinite(expected)
    ratio = xp.where(actual_is_finite & expected_is_finite, ratio, xp.inf)
    return xp.where(actual_is_finite | expected_is_finite, ratio, 0.0)


def _chunks(length: int, width: int) -> Iterator[tuple[int, int]]:
    """Split ``length`` so that each part holds at most ``_CHUNK_ELEMENTS`` elements."""
    step = max(1, _CHUNK_ELEMENTS // max(width, 1))
    for start in range(0, length, step):
        yield start, min(start + step, length)


def _on_device(xp: Any, A: csr_array) -> Any:
    if xp is np:
        return A
    from cupyx.scipy.sparse import csr_matrix

    arrays = (xp.asarray(A.data), xp.asarray(A.indices.astype(np.int32)), xp.asarray(A.indptr))
    return csr_matrix(arrays, shape=A.shape)
