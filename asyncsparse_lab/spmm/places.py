"""Where formats put each non-zero of a matrix that was converted already; new values go there.

Where a format puts each non-zero is not written down a second time here: it is read off the
conversion itself.  The matrix whose values are the digits of their own numbers, 1 + digit in base
256, which bf16 and float16 hold exactly, is converted, once a digit; what is found at a place of
the converted values says whose place it is.  From then on new values are one scatter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from typing import Any, Final

import numpy as np
from scipy.sparse import csr_array

from asyncsparse_lab.errors import UnsupportedError
from asyncsparse_lab.formats.arrays import INT32_LIMIT, Array, array_module
from asyncsparse_lab.spmm.elementwise import widen
from asyncsparse_lab.spmm.product import Product

DERIVED: Final = "matrix"  # float32 values, which conversions read: made again when needed

_DIGIT_BITS: Final = 8

Places = dict[str, list[Array]]
"""Name of a conversion to the place of each non-zero in each of its arrays of values."""


def read_places(
    product: Product, prepare: Callable[[Product], object]
) -> tuple[Places, dict[str, Any]]:
    """Find where the formats of a product keep each non-zero.

    Parameters
    ----------
    product : Product
        Its matrices are not read or written.
    prepare : callable
        Converts A of the product that it gets, as the contenders in use do.

    Returns
    -------
    places : Places
    conversions : dict
        Of a matrix of this pattern, with room for all its non-zeros; the values are to be written.

    Raises
    ------
    UnsupportedError
        A format does not keep each non-zero exactly once, or none is known.
    """
    A, count = product.A, int(product.A.nnz)
    numbers = np.arange(count, dtype=np.int64)
    owners: dict[str, list[Array]] = {}
    digits = max(1, -(-max(count - 1, 0).bit_length() // _DIGIT_BITS))
    for digit in range(digits):
        shift = digit * _DIGIT_BITS
        values = ((numbers >> shift) % (1 << _DIGIT_BITS) + 1).astype(np.float32)
        named = product.with_matrix(csr_array((values, A.indices, A.indptr), shape=A.shape))
        prepare(named)
        for name, converted in named.conversions.matrices().items():
            if name == DERIVED:
                continue
            read = [_stored(array, product.dtype_in) - 1 for array in value_arrays(converted)]
            if digit == 0:
                owners[name] = read
                continue
            for total, more in zip(owners[name], read, strict=True):
                total += more << shift
    named.conversions.forget(DERIVED)
    conversions = named.conversions.matrices()
    places = {
        name: [
            _invert(owner, array, count, name)
            for owner, array in zip(owners[name], value_arrays(converted), strict=True)
        ]
        for name, converted in conversions.items()
    }
    if not any(places.values()):
        raise UnsupportedError("the kernel keeps A's values where a plan does not see them")
    return places, conversions


def scatter(conversions: dict[str, Any], places: Places, values: Array) -> None:
    """Write new values, of the 16-bit type that the formats hold, to their places."""
    for name, found in places.items():
        for array, place in zip(value_arrays(conversions[name]), found, strict=True):
            array.reshape(-1)[place] = values.view(array.dtype)


def value_arrays(converted: Any) -> list[Array]:
    """Return the arrays of values of a converted matrix: those of a 16-bit type."""
    if is_dataclass(converted) and not isinstance(converted, type):
        parts: Iterable[Any] = (getattr(converted, part.name) for part in fields(converted))
    else:
        parts = converted if isinstance(converted, tuple | list) else (converted,)
    return [part for part in parts if str(getattr(part, "dtype", "")) in ("uint16", "float16")]


def _stored(array: Array, dtype: str) -> Array:
    """Return what is stored that is not zero, in memory order, as whole numbers."""
    flat = array.reshape(-1)
    found = flat[flat != 0]
    if dtype == "float16":  # some formats keep its bits
        found = found.view(np.float16)
    return widen(found, dtype).astype(np.int64)


def _invert(owner: Array, array: Array, count: int, name: str) -> Array:
    xp = array_module(array)
    flat = array.reshape(-1)
    stored = xp.flatnonzero(flat != 0)
    if len(stored) != count:
        raise UnsupportedError(f"{name} keeps {len(stored)} values of {count} non-zeros")
    place = xp.empty(count, dtype=np.int32 if array.size < INT32_LIMIT else np.int64)
    place[owner] = stored
    return place
