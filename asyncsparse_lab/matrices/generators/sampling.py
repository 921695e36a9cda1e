"""Random choices that generators share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from asyncsparse_lab.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_array

Ints = np.ndarray[tuple[int], np.dtype[np.int64]]


def sorted_distinct(values: Ints) -> Ints:
    """Sort and drop repetitions; several times faster than ``np.unique`` on many integers."""
    ordered = np.sort(values)
    first = np.ones(ordered.size, dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def distinct_integers(rng: np.random.Generator, population: int, count: int) -> Ints:
    """Draw ``count`` different integers from [0, population), uniformly, in ascending order.

    Memory is of the order of ``count``, not of ``population``.

    Raises
    ------
    InputError
        ``count`` exceeds ``population``.
    """
    if count > population:
        raise InputError(f"{count} distinct positions do not fit into {population}")
    if 2 * count > population:
        kept = np.ones(population, dtype=bool)
        kept[distinct_integers(rng, population, population - count)] = False
        return np.flatnonzero(kept)
    found: Ints = np.empty(0, dtype=np.int64)
    while found.size < count:
        # Enough that a second round is rare: duplicates are at most about a third here.
        extra = int(1.5 * (count - found.size)) + 16
        drawn = rng.integers(0, population, extra)
        found = sorted_distinct(np.concatenate((found, drawn)))
    if found.size > count:
        surplus = rng.choice(found.size, found.size - count, replace=False)
        found = np.delete(found, surplus)
    return found


def from_flat(
    positions: Ints, shape: tuple[int, int], values: NDArray[np.float64]
) -> csr_array[Any]:
    """Make a CSR matrix from ascending flat positions ``row * columns + column``."""
    rows, cols = np.divmod(positions, max(shape[1], 1))
    offsets = np.zeros(shape[0] + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=shape[0]), out=offsets[1:])
    index = np.int32 if positions.size < 2**31 else np.int64
    return sp.csr_array(
        (values, cols.astype(index), offsets.astype(index)), shape=shape, dtype=np.float64
    )


def nonzero_normal(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Draw normal values; an exact zero, which would not be stored, becomes one."""
    values = rng.standard_normal(count)
    values[values == 0] = 1.0
    return values


def symmetric_from_pairs(
    low: Ints, high: Ints, values: NDArray[np.float64], diagonal: NDArray[np.float64]
) -> csr_array[Any]:
    """Make a symmetric CSR matrix from pairs ``low < high`` and a diagonal."""
    n = diagonal.size
    where = np.arange(n)
    coo = sp.coo_array(
        (
            np.concatenate((values, values, diagonal)),
            (np.concatenate((low, high, where)), np.concatenate((high, low, where))),
        ),
        shape=(n, n),
    )
    result = coo.tocsr()
    result.sum_duplicates()
    result.eliminate_zeros()
    return result


def dominant_diagonal(low: Ints, high: Ints, values: NDArray[np.float64], n: int) -> Any:
    """Return 1 + the sum of absolute off-diagonal values of each row: positive definite."""
    weight = np.abs(values)
    total = np.bincount(low, weight, minlength=n) + np.bincount(high, weight, minlength=n)
    return 1.0 + total
