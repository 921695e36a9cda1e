"""Print how long ten million non-zeros take into and out of BCSR and WCSR on one CPU core.

A report, not a test: the time depends on how fast the machine hands out fresh memory, so the
fastest of several is told beside the median.
"""

from __future__ import annotations

import os
from statistics import median
from time import perf_counter

import numpy as np
from scipy.sparse import csr_array

from asyncsparse_lab.formats import BCSR, WCSR

ROWS = 100_000
PER_ROW = 104
HALF_BANDWIDTH = 1000
REPEATS = 7


def banded() -> csr_array:
    """Return a square matrix with about ten million non-zeros, scattered in a band."""
    rng = np.random.default_rng(0)
    rows = np.repeat(np.arange(ROWS), PER_ROW)
    cols = rows + rng.integers(-HALF_BANDWIDTH, HALF_BANDWIDTH, len(rows))
    inside = (cols >= 0) & (cols < ROWS)
    entries = (np.ones(inside.sum(), "float32"), (rows[inside], cols[inside]))
    return csr_array(entries, shape=(ROWS, ROWS))


def main() -> None:
    """Time both formats and print a line each."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    A = banded()
    for kind in (BCSR, WCSR):
        there, back = [], []
        for _ in range(REPEATS):
            start = perf_counter()
            matrix = kind.from_csr(A)
            middle = perf_counter()
            matrix.to_csr()
            there.append(middle - start)
            back.append(perf_counter() - middle)
        print(
            f"{kind.__name__}: {A.nnz / 1e6:.1f} M non-zeros, {matrix.nbytes / 1e6:.0f} MB; "
            f"from CSR {min(there):.2f} s (median {median(there):.2f}), "
            f"to CSR {min(back):.2f} s (median {median(back):.2f})"
        )


if __name__ == "__main__":
    main()
