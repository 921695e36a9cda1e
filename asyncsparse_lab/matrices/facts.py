"""What there is to know about a matrix before a product: for the command line and the explorer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncsparse_lab.matrices.matrix_market import LoadedMatrix

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from scipy.sparse import csr_array

    from asyncsparse_lab.formats import FormatChoice

SIZES: Final = (8, 16, 32, 64, 128)
"""Block sides and window heights that are looked at."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Moments of a list of lengths: non-zeros of rows or columns, columns of windows.

    Attributes
    ----------
    count, smallest, largest, empty : int
        How many there are, the extremes, and how many are zero.
    mean, deviation : float
        ``deviation`` is the standard deviation.
    variation : float
        Deviation over mean; 0 where the mean is 0.
    skewness : float
        Third standardised moment; 0 where all lengths are equal.
    """

    count: int
    smallest: int
    largest: int
    empty: int
    mean: float
    deviation: float
    variation: float
    skewness: float

    @classmethod
    def of(cls, lengths: NDArray[Any]) -> Lengths:
        """Compute the moments of an array of lengths."""
        if lengths.size == 0:
            return cls(0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0)
        mean = float(lengths.mean())
        centred = lengths - mean
        deviation = float(np.sqrt(np.mean(centred**2)))
        return cls(
            count=lengths.size,
            smallest=int(lengths.min()),
            largest=int(lengths.max()),
            empty=int(np.count_nonzero(lengths == 0)),
            mean=mean,
            deviation=deviation,
            variation=deviation / mean if mean else 0.0,
            skewness=float(np.mean(centred**3)) / deviation**3 if deviation else 0.0,
        )


@dataclass(frozen=True, slots=True)
class MatrixFacts:
    r"""Facts of a canonical matrix.

    Attributes
    ----------
    rows, cols, nnz : int
    density : float
        nnz / (rows cols); 0 for an empty shape.
    field : str
        ``real`` or ``complex``.
    explicit_zeros, duplicates : int or None
        Dropped and summed on loading; None if the matrix did not come from a file.
    pattern_symmetry : float
        Share of off-diagonal entries whose mirror image is an entry; 1 if there are none, 0 if
        the matrix is not square.
    value_symmetry : float
        The same, with equal values.
    bandwidth : int
        Largest :math:`|i - j|` of an entry.
    row_lengths, col_lengths : Lengths
    block_fill : mapping of int to float
        Block side -> nnz over the values that BCSR stores with such blocks.
    window_fill : mapping of int to float
        Window height -> the same for WCSR, its padding columns not counted.
    window_columns : Lengths
        Columns per window of 64 rows.
    value_bytes : int
        Bytes of a value for the next: 2, as the kernels read them, unless asked otherwise.
    format_bytes : mapping of str to int
        ``csr`` (32-bit columns, 64-bit offsets), ``bcsr-64x64``, ``wcsr-64``, ``dense``.
    choice : FormatChoice
        What the article's rule picks at 64 x 64, and why.
    """

    rows: int
    cols: int
    nnz: int
    density: float
    field: str
    explicit_zeros: int | None
    duplicates: int | None
    pattern_symmetry: float
    value_symmetry: float
    bandwidth: int
    row_lengths: Lengths
    col_lengths: Lengths
    block_fill: Mapping[int, float]
    window_fill: Mapping[int, float]
    window_columns: Lengths
    value_bytes: int
    format_bytes: Mapping[str, int]
    choice: FormatChoice

    @property
    def symmetry(self) -> str:
        """In words: ``symmetric``, ``symmetric pattern`` or ``unsymmetric``."""
        if self.value_symmetry == 1 and self.rows == self.cols:
            return "symmetric"
        if self.pattern_symmetry == 1 and self.rows == self.cols:
            return "symmetric pattern"
        return "unsymmetric"


def describe(
    matrix: csr_array[Any] | LoadedMatrix, value_bytes: int = 2, sizes: Sequence[int] = SIZES
) -> MatrixFacts:
    """Gather the facts of a matrix; about half a second for a million non-zeros.

    Parameters
    ----------
    matrix : csr_array or LoadedMatrix
        Canonical, as :func:`asyncsparse_lab.load_matrix` gives it.
    value_bytes : int
        Bytes of a stored value for the sizes of formats.
    sizes : sequence of int
        Block sides and window heights, multiples of 8.
    """
    from asyncsparse_lab.formats import BCSR, WCSR, choose_by_fill

    loaded = matrix if isinstance(matrix, LoadedMatrix) else None
    csr: csr_array[Any] = matrix.matrix if isinstance(matrix, LoadedMatrix) else matrix
    rows, cols = csr.shape
    nnz = int(csr.nnz)
    row_lengths = np.diff(csr.indptr)
    entry_rows = np.repeat(np.arange(rows, dtype=np.int64), row_lengths)
    pattern, value = _symmetry(csr)
    bcsr = {size: BCSR.predict(csr, (size, size), value_bytes) for size in {*sizes, 64}}
    wcsr = {size: WCSR.predict(csr, size, value_bytes=value_bytes) for size in {*sizes, 64}}
    return MatrixFacts(
        rows=rows,
        cols=cols,
        nnz=nnz,
        density=nnz / (rows * cols) if rows and cols else 0.0,
        field="complex" if np.iscomplexobj(csr.data) else "real",
        explicit_zeros=loaded.explicit_zeros if loaded else None,
        duplicates=loaded.duplicates if loaded else None,
        pattern_symmetry=pattern,
        value_symmetry=value,
        bandwidth=int(np.abs(entry_rows - csr.indices).max()) if nnz else 0,
        row_lengths=Lengths.of(row_lengths),
        col_lengths=Lengths.of(np.bincount(csr.indices, minlength=cols)),
        block_fill={size: bcsr[size].fill_ratio for size in sizes},
        window_fill={size: wcsr[size].fill_ratio for size in sizes},
        window_columns=Lengths.of(np.asarray(WCSR.count_columns(csr, 64))),
        value_bytes=value_bytes,
        format_bytes={
            "csr": nnz * (value_bytes + 4) + 8 * (rows + 1),
            "bcsr-64x64": bcsr[64].bytes,
            "wcsr-64": wcsr[64].bytes,
            "dense": rows * cols * value_bytes,
        },
        choice=choose_by_fill(bcsr[64].fill_ratio),
    )


def fact_rows(facts: MatrixFacts) -> Iterator[tuple[str, str]]:
    """Yield the facts as pairs of words (what, value), in the order of reading."""
    yield "size", f"{facts.rows:,} x {facts.cols:,}, {facts.field}"
    yield "non-zeros", f"{facts.nnz:,} ({facts.density:.3%})"
    if facts.explicit_zeros or facts.duplicates:
        yield (
            "in the file",
            f"{facts.explicit_zeros:,} explicit zeros dropped,"
            f" {facts.duplicates:,} duplicates summed",
        )
    yield (
        "symmetry",
        f"{facts.symmetry} (pattern {facts.pattern_symmetry:.1%}, values"
        f" {facts.value_symmetry:.1%}), bandwidth {facts.bandwidth:,}",
    )
    for what, lengths in (("row lengths", facts.row_lengths), ("columns", facts.col_lengths)):
        yield (
            what,
            f"{lengths.smallest:,} to {lengths.largest:,}, mean {lengths.mean:.1f},"
            f" deviation/mean {lengths.variation:.2f}, skewness {lengths.skewness:.1f},"
            f" {lengths.empty:,} empty",
        )
    for what, fills in (("BCSR fill", facts.block_fill), ("WCSR fill", facts.window_fill)):
        yield what, "  ".join(f"{size}: {fill:.1%}" for size, fill in fills.items())
    windows = facts.window_columns
    yield (
        "columns/window",
        f"{windows.smallest:,} to {windows.largest:,}, mean {windows.mean:.1f} (64 rows)",
    )
    yield (
        "bytes",
        "  ".join(f"{name}: {count:,}" for name, count in facts.format_bytes.items())
        + f" ({facts.value_bytes}-byte values)",
    )
    yield "the rule picks", f"{facts.choice.format}: " + "; ".join(facts.choice.reasons)


def _symmetry(csr: csr_array[Any]) -> tuple[float, float]:
    """Return the shares of off-diagonal entries with a mirror image, and with an equal one."""
    rows, cols = csr.shape
    if rows != cols:
        return 0.0, 0.0
    mirror = csr.T.tocsr()
    diagonal = int(np.count_nonzero(csr.diagonal()))
    off = csr.nnz - diagonal
    if off == 0:
        return 1.0, 1.0
    if np.array_equal(csr.indptr, mirror.indptr) and np.array_equal(csr.indices, mirror.indices):
        equal = int(np.count_nonzero(csr.data == mirror.data))
        return 1.0, (equal - diagonal) / off
    key = np.repeat(np.arange(rows, dtype=np.int64) * cols, np.diff(csr.indptr)) + csr.indices
    mirrored = np.repeat(np.arange(rows, dtype=np.int64) * cols, np.diff(mirror.indptr))
    mirrored += mirror.indices
    place = np.minimum(np.searchsorted(mirrored, key), mirrored.size - 1)
    both = mirrored[place] == key
    equal = int(np.count_nonzero(both & (mirror.data[place] == csr.data)))
    return (int(np.count_nonzero(both)) - diagonal) / off, (equal - diagonal) / off
