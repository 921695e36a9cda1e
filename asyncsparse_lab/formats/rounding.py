"""Rounding to the 16-bit floating-point types of the tensor cores, as bit patterns.

A bfloat16 is the upper half of a float32.  For a float32 with bits u, rounding to nearest, ties
to even, is ``(u + 0x7FFF + ((u >> 16) & 1)) >> 16``: the addition carries into the upper half
exactly when the lower half is above one half, or equals it and the upper half is odd.  Values
that overflow become infinite; a NaN stays a NaN (made quiet, its sign and upper payload kept).

16-bit data on the device is ``uint16`` throughout, so that no array library needs to know bf16.
"""

from __future__ import annotations

import numpy as np

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.formats.arrays import Array, array_module


def bfloat16_bits(x: Array) -> Array:
    """Round float32 to bfloat16 bit patterns, uint16 of the same shape.

    Raises
    ------
    InputError
        `x` is not float32.  (From float64 one would round twice.)
    """
    xp = _float32_module(x)
    bits = xp.ascontiguousarray(x).view(xp.uint32).reshape(x.shape)
    upper = bits >> 16
    rounded = (bits + (upper & 1) + 0x7FFF) >> 16
    return xp.where(xp.isnan(x), upper | 0x40, rounded).astype(xp.uint16)


def bfloat16_from_bits(bits: Array) -> Array:
    """Widen bfloat16 bit patterns (uint16) to float32, exactly; undoes :func:`bfloat16_bits`."""
    xp = _uint16_module(bits)
    wide = xp.ascontiguousarray(bits).astype(xp.uint32) << 16
    return wide.view(xp.float32).reshape(bits.shape)


def round_to_bfloat16(x: Array) -> Array:
    """Round float32 to the nearest bfloat16, ties to even; the result is float32 again."""
    return bfloat16_from_bits(bfloat16_bits(x))


def float16_bits(x: Array) -> Array:
    """Round float32 to IEEE half bit patterns, uint16 of the same shape; as for bfloat16."""
    xp = _float32_module(x)
    with np.errstate(over="ignore", under="ignore"):
        return xp.ascontiguousarray(x.astype(xp.float16)).view(xp.uint16).reshape(x.shape)


def float16_from_bits(bits: Array) -> Array:
    """Widen IEEE half bit patterns (uint16) to float32, exactly."""
    xp = _uint16_module(bits)
    half = xp.ascontiguousarray(bits).view(xp.float16).reshape(bits.shape)
    return half.astype(xp.float32)


def round_to_float16(x: Array) -> Array:
    """Round float32 to the nearest IEEE half, ties to even; the result is float32 again."""
    return float16_from_bits(float16_bits(x))


def _float32_module(x: Array) -> Array:
    xp = array_module(x)
    if x.dtype != xp.float32:
        raise InputError(f"expected float32, got {x.dtype}: convert with .astype('float32')")
    return xp


def _uint16_module(bits: Array) -> Array:
    xp = array_module(bits)
    if bits.dtype != xp.uint16:
        raise InputError(f"expected uint16 bit patterns, got {bits.dtype}")
    return xp


def in_type(x: Array, dtype: str) -> Array:
    """Round float32 to what a product's arrays hold: bfloat16 as bits, others as themselves.

    Parameters
    ----------
    dtype : {"bfloat16", "float16", "float32"}
        bfloat16 gives uint16, since no array library needs to know it.
    """
    return bfloat16_bits(x) if dtype == "bfloat16" else x.astype(dtype, copy=False)


def round_to(x: Array, dtype: str) -> Array:
    """Round float32 to the nearest bfloat16 or float16; the result is float32 again."""
    return {"bfloat16": round_to_bfloat16, "float16": round_to_float16}[dtype](x)
