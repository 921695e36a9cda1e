"""Members of the SuiteSparse collection that follow from a definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse import csr_array

from asyncsparse_lab.matrices.generators.base import Generator, Parameter


def mycielskian(k: int) -> csr_array[Any]:
    r"""Adjacency matrix of the k-th Mycielskian, a triangle-free graph of chromatic number k.

    From the graph with adjacency matrix :math:`A` of order n, with :math:`e` all ones,

    .. math:: M(A) = \begin{pmatrix} A & A & 0 \\ A & 0 & e \\ 0 & e^T & 0 \end{pmatrix},

    starting with one edge at k = 2.  Order :math:`3 \cdot 2^{k-2} - 1`; identical to the
    collection's ``Mycielski/mycielskian<k>``.

    Source: J. Mycielski. Sur le coloriage des graphes. Colloquium Mathematicum 3, 1955.
    """
    # int8 keeps the intermediate copies small; they are as many as the result has entries.
    adjacency = csr_array(np.array([[0, 1], [1, 0]], dtype=np.int8))
    for _ in range(k - 2):
        n = adjacency.shape[0]
        ones = csr_array(np.ones((n, 1), dtype=np.int8))
        adjacency = sp.vstack(
            [
                sp.hstack([adjacency, adjacency, csr_array((n, 1), dtype=np.int8)], format="csr"),
                sp.hstack([adjacency, csr_array((n, n), dtype=np.int8), ones], format="csr"),
                sp.hstack(
                    [
                        csr_array((1, n), dtype=np.int8),
                        ones.T.tocsr(),
                        csr_array((1, 1), dtype=np.int8),
                    ],
                    format="csr",
                ),
            ],
            format="csr",
        )
    adjacency.sort_indices()
    return adjacency.astype(np.float64)


def first_primes(count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the first ``count`` primes."""
    # p_n < n (ln n + ln ln n) for n >= 6
    bound = 15 if count < 6 else int(count * (np.log(count) + np.log(np.log(count)))) + 1
    is_prime = np.ones(bound + 1, dtype=bool)
    is_prime[:2] = False
    for factor in range(2, int(bound**0.5) + 1):
        if is_prime[factor]:
            is_prime[factor * factor :: factor] = False
    return np.flatnonzero(is_prime)[:count]


def trefethen(n: int, drop: int) -> csr_array[Any]:
    r"""Trefethen's matrix: primes on the diagonal, ones where :math:`|i - j|` is a power of 2.

    Identical to the collection's ``JGD_Trefethen/Trefethen_<n>``; with the first row and column
    dropped (``drop=1``), to ``Trefethen_<n>b``.

    Source: L. N. Trefethen. A Hundred-dollar, Hundred-digit Challenge. SIAM News 35(1), 2002,
    problem 7.
    """
    offsets = [2**power for power in range(n.bit_length()) if 2**power < n]
    diagonals: Any = [first_primes(n).astype(np.float64)]
    diagonals += [np.ones(n - offset) for offset in offsets] * 2
    full = sp.diags_array(
        diagonals, offsets=[0, *offsets, *(-offset for offset in offsets)], format="csr"
    )
    return csr_array(full[drop:, drop:])


GENERATORS = (
    Generator(
        "mycielskian",
        "adjacency of the k-th Mycielskian graph; identical to the collection's",
        mycielskian,
        (Parameter("k", 11, "chromatic number", 2, 20),),
        lambda k: 3.0**k,
    ),
    Generator(
        "Trefethen",
        "primes on the diagonal, ones at distances 2^i; identical to the collection's",
        trefethen,
        (
            Parameter("n", 2000, "order", 2, 10_000_000),
            Parameter("drop", 0, "1 drops the first row and column (Trefethen_<n>b)", 0, 1),
        ),
        lambda n, drop: n * (2.0 * np.log2(n) + 1),
    ),
)
