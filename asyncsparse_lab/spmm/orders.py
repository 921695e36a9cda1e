r"""Orders of A's rows in which rows that share columns stand in one window.

A window gathers a row of B for each column with a non-zero in it, so an order is the better the
fewer columns its windows have, all together.  An order depends on the pattern of A alone, and
is the same each time.

By similarity, rows are sorted by :data:`KEYS` keys.  With a ranking :math:`\pi` of the columns, a
key of row i is :math:`\min \{\pi(j) : a_{ij} \ne 0\}`.  Two rankings are tried:

* random ones, another for each key: rows agree in a key with the probability |intersection| /
  |union| of their patterns (Broder, 1997);
* by number of non-zeros, most first: the keys are then the fullest columns of a row, in turn.

The order that gives fewer columns in a sample of windows of 64 rows is taken.  Reverse
Cuthill-McKee is SciPy's, for square A.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, csr_matrix

from asyncsparse_lab.errors import InputError, UnsupportedError
from asyncsparse_lab.formats import WCSR

AS_STORED: Final = 0
SIMILARITY: Final = 1
CUTHILL_MCKEE: Final = 2
ORDERS: Final = {
    "as-stored": AS_STORED,
    "similarity": SIMILARITY,
    "cuthill-mckee": CUTHILL_MCKEE,
}
"""Name of an order to its code, the option ``row_order`` of a kernel."""
NAMES: Final = {code: name for name, code in ORDERS.items()}

KEYS: Final = 3

_WINDOW: Final = 64
_SAMPLED_WINDOWS: Final = 64

IntArray = npt.NDArray[np.int64]


def row_order(A: csr_array, code: int) -> IntArray:
    """Return the rows of A in another order.

    Parameters
    ----------
    A : scipy.sparse.csr_array, m x k
        Canonical; only its pattern is looked at.
    code : int
        One of :data:`ORDERS`.

    Returns
    -------
    int64 array, m
        The row that comes i-th.

    Raises
    ------
    InputError
        There is no such order.
    UnsupportedError
        Reverse Cuthill-McKee of a matrix that is not square.
    """
    if code == AS_STORED:
        return np.arange(A.shape[0])
    if code == SIMILARITY:
        return _by_similarity(A)
    if code == CUTHILL_MCKEE:
        return _by_bandwidth(A)
    raise InputError(f"row_order={code}: use {', '.join(f'{c} ({n})' for c, n in NAMES.items())}")


def order_rows(A: csr_array, code: int) -> tuple[csr_array, float]:
    """Return A with its rows in another order, and the microseconds that it took."""
    import scipy.sparse.csgraph  # noqa: F401  # once a process: not what ordering takes

    begin = perf_counter()
    ordered = A[row_order(A, code)]
    return ordered, 1e6 * (perf_counter() - begin)


def orders_of(shape: tuple[int, int]) -> dict[str, int]:
    """Return the orders other than the stored one that there are for a matrix of this shape."""
    square = shape[0] == shape[1]
    return {
        name: code for name, code in ORDERS.items()
        if code != AS_STORED and (square or code != CUTHILL_MCKEE)
    }  # fmt: skip


def _by_similarity(A: csr_array) -> IntArray:
    return min((_by_random_keys(A), _by_full_columns(A)), key=lambda rows: _sampled(A, rows))


def _by_random_keys(A: csr_array) -> IntArray:
    rng = np.random.default_rng(0)
    rankings = (rng.permutation(A.shape[1]).astype(np.int32) for _ in range(KEYS))
    return np.lexsort([_least(A, ranking[A.indices]) for ranking in rankings])


def _by_full_columns(A: csr_array) -> IntArray:
    k = A.shape[1]
    ranking = np.empty(k, dtype=np.int32)
    ranking[np.argsort(-np.bincount(A.indices, minlength=k), kind="stable")] = np.arange(k)
    ranks, keys = ranking[A.indices], []
    for _ in range(KEYS):
        keys.append(_least(A, ranks))
        ranks[ranks == np.repeat(keys[-1], np.diff(A.indptr))] = k
    return np.lexsort(keys[::-1])  # the last key is the first to be compared


def _least(A: csr_array, ranks: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return the least rank in each row; k in empty ones, which come last."""
    filled = np.flatnonzero(np.diff(A.indptr))
    least = np.full(A.shape[0], A.shape[1], dtype=np.int32)
    if len(filled):
        least[filled] = np.minimum.reduceat(ranks, A.indptr[filled])
    return least


def _sampled(A: csr_array, order: IntArray) -> int:
    """Return the columns of some windows, evenly spread over the rows in this order."""
    windows = -(-len(order) // _WINDOW)
    sample = np.unique(np.linspace(0, max(windows - 1, 0), _SAMPLED_WINDOWS).astype(np.int64))
    rows = (sample[:, None] * _WINDOW + np.arange(_WINDOW)).ravel()
    return int(WCSR.count_columns(A[order[rows[rows < len(order)]]], _WINDOW).sum())


def _by_bandwidth(A: csr_array) -> IntArray:
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    m, k = A.shape
    if m != k:
        raise UnsupportedError(f"A is {m} x {k}: only square matrices have a Cuthill-McKee order")
    if not m:  # SciPy fails there
        return np.arange(0)
    ones: Any = np.ones(A.nnz, np.int8)
    pattern = csr_matrix((ones, A.indices, A.indptr), shape=A.shape)
    return np.asarray(reverse_cuthill_mckee(pattern, symmetric_mode=False), dtype=np.int64)
