"""What is done to dense matrices around a product: rounding to 16 bits, and alpha and beta.

On the GPU each is one kernel; on the CPU the same in NumPy.  From float64 the way to 16 bits goes
through float32 *rounded to odd* (cut off, the last bit set if anything was lost), so that the
second rounding sees on which side of a tie the value was and the result is that of one rounding.

Source of the rule: S. Boldo and G. Melquiond, "When double rounding is odd", 2005.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

from asyncsparse_lab.formats.arrays import Array, array_module
from asyncsparse_lab.formats.rounding import bfloat16_from_bits, in_type

_PREAMBLE: Final = """
__device__ inline float narrow(float x) { return x; }
__device__ inline float narrow(double x) {  // rounded to odd; NaN and infinity as they are
    if (x != x || isinf(x)) return (float)x;
    const float cut = __double2float_rz(x);
    return (double)cut == x ? cut : __uint_as_float(__float_as_uint(cut) | 1u);
}
__device__ inline unsigned short bfloat16_bits(float x) {
    const unsigned bits = __float_as_uint(x);
    if (x != x) return (unsigned short)((bits >> 16) | 0x40u);
    return (unsigned short)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}
__device__ inline float widen_bfloat16(unsigned short bits) {
    return __uint_as_float((unsigned)bits << 16);
}
"""


def round_dense(x: Array, dtype: str, compute: str) -> Array:
    """Round real values of any type to the nearest bfloat16 (as bits) or float16, ties to even.

    Parameters
    ----------
    x : array
        Any strides; the result has C order, or F order if only the columns of x are contiguous.
    dtype : str
        x's type; "bfloat16" means bits in uint16.
    compute : {"bfloat16", "float16"}

    Returns
    -------
    array of uint16 or float16; x itself if it has the type already.
    """
    if dtype == compute:
        return x
    if x.ndim == 2 and x.strides[0] == x.itemsize != x.strides[1]:
        return round_dense(x.T, dtype, compute).T
    xp = array_module(x)
    if dtype == "bfloat16":
        wide = bfloat16_from_bits(x)
    elif dtype in ("float32", "float64"):
        wide = x
    else:  # bool, integers and float16: exact in float32 up to 16 bits
        wide = x.astype(np.float32 if x.dtype.itemsize <= 2 else np.float64)
    if xp is np:
        with np.errstate(over="ignore", under="ignore"):
            return in_type(_narrow(wide), compute)
    y = xp.empty(x.shape, dtype=np.uint16 if compute == "bfloat16" else np.float16)
    _kernel(f"round_{compute}")(wide, y)
    return y


def combine(product: Array, out: Array, dtype_out: str, alpha: float, beta: float) -> None:
    """Compute out = alpha product + beta out; with beta = 0, out is not looked at.

    Parameters
    ----------
    product : array of float32, m x n
    out : array, m x n
        Of ``dtype_out`` (bf16 as bits in uint16); rounded once.
    """
    if array_module(out) is not np:
        name = "combine_bfloat16" if dtype_out == "bfloat16" else "combine"
        _kernel(name)(product, out, np.float32(alpha), np.float32(beta), out)
        return
    total = np.float32(alpha) * product
    if beta:
        total += np.float32(beta) * widen(out, dtype_out)
    with np.errstate(over="ignore", under="ignore"):
        out[...] = in_type(total, dtype_out)


def widen(x: Array, dtype: str) -> Array:
    """Return 16-bit values as float32, exactly; float32 as it is."""
    return bfloat16_from_bits(x) if dtype == "bfloat16" else x.astype(np.float32, copy=False)


def _narrow(x: Array) -> Array:
    """Return float64 as float32 rounded to odd; float32 as it is."""
    if x.dtype == np.float32:
        return x
    near = np.ascontiguousarray(x).astype(np.float32)
    bits = near.view(np.uint32)
    inexact = np.isfinite(x) & (near != x)
    bits -= inexact & (np.abs(near) > np.abs(x))  # back to the value cut off
    bits |= inexact
    return near


_KERNELS: Final[dict[str, tuple[str, str, str]]] = {
    "round_bfloat16": ("T x", "uint16 y", "y = bfloat16_bits(narrow(x))"),
    "round_float16": ("T x", "float16 y", "y = float16(narrow(x))"),
    "combine_bfloat16": (
        "float32 p, uint16 c, float32 alpha, float32 beta",
        "uint16 y",
        "y = bfloat16_bits(beta == 0 ? alpha * p : alpha * p + beta * widen_bfloat16(c))",
    ),
    "combine": (
        "float32 p, T c, float32 alpha, float32 beta",
        "T y",
        "y = T(beta == 0 ? alpha * p : alpha * p + beta * (float)c)",
    ),
}


@cache
def _kernel(name: str) -> Any:
    import cupy

    inputs, outputs, operation = _KERNELS[name]
    return cupy.ElementwiseKernel(inputs, outputs, operation, f"asl_{name}", preamble=_PREAMBLE)
