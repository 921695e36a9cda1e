"""BCSR and WCSR on each matrix: fill, stored bytes, columns per window, what the rule picks.

Needs no GPU.  A case is one matrix of a suite; it gives a record for each block size of BCSR and
for each window height of WCSR.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncsparse_lab.formats import BCSR, WCSR, FormatSize, choose_by_fill
from asyncsparse_lab.matrices import SuiteEntry, load_suite
from asyncsparse_lab.records import Record
from asyncsparse_lab.studies.base import Case, Drawing, Table

if TYPE_CHECKING:
    import pandas as pd

STUDY: Final = "formats"
SUITES: Final = ("smoke", "shared")
SIZES: Final = (8, 16, 32, 64, 128)
"""Rows (and columns) of a block, rows of a window."""
VALUE_BYTES: Final = 2
"""Stored bytes are counted for bfloat16, which the kernels read."""
CONVERSION_LIMIT: Final = 2**30
"""A conversion that takes more bytes than this is predicted, but not carried out and timed."""
CONVERSIONS: Final = 3
"""How often a conversion is timed; the fastest counts, since all it can do is be disturbed."""


def cases() -> list[Case]:
    """Return a case for each matrix of the suites that this machine has."""
    return [
        Case(
            name=f"{suite}/{entry.name}",
            matrix=entry.name,
            params={"suite": suite},
            seconds=0.3 + entry.nnz / 5e5 + entry.rows / 1.5e4,
        )
        for suite in SUITES
        for entry in load_suite(suite).available()
    ]


def measure(case: Case) -> list[Record]:
    """Count, convert and convert back one matrix in all sizes of both formats.

    ``preprocess_us`` is the conversion from float32 CSR, null beyond :data:`CONVERSION_LIMIT`.
    ``result`` holds ``stored`` (blocks or columns), ``values``, ``bytes`` (bfloat16 values),
    ``fill_ratio``; for BCSR what the article's rule says of it (``verdict``, ``picks``); for WCSR
    the columns per window without padding (``columns``, ``columns_min``, ``columns_q1``,
    ``columns_median``, ``columns_q3``, ``columns_max``).
    """
    A = _entry(case).load()
    single = _single(A)
    records = []
    for size in SIZES:
        blocks = BCSR.predict(A, (size, size), VALUE_BYTES)
        records.append(_record(case, A, "bcsr", size, blocks, _rule(blocks), single))
    for size in SIZES:
        windows = WCSR.predict(A, size, value_bytes=VALUE_BYTES)
        columns = _spread(WCSR.count_columns(A, size))
        records.append(_record(case, A, "wcsr", size, windows, columns, single))
    return records


def draw(
    frame: pd.DataFrame, claims: pd.DataFrame, *, suites: list[str] | None = None
) -> dict[str, Drawing | Table]:
    """Draw the figures and tables of the study.

    Parameters
    ----------
    frame, claims
        As from :func:`asyncsparse_lab.report.open_study`.
    suites : list of str, optional
        Whose matrices are drawn; by default all that were measured.

    Raises
    ------
    InputError
        No record belongs to one of the suites.
    """
    from asyncsparse_lab.studies import formats_figures as figures
    from asyncsparse_lab.studies import formats_tables as tables

    rows = figures.rows_of(frame, list(SUITES) if suites is None else suites)
    return {
        "fill": figures.fill(rows, claims),
        "bytes": figures.stored_bytes(rows),
        "columns": figures.columns(rows),
        "choice": figures.choice(rows, claims),
        "matrices": tables.matrices(rows),
        "kernels": tables.kernels(rows),
    }


def _entry(case: Case) -> SuiteEntry:
    suite = load_suite(case.params["suite"])
    return next(entry for entry in suite if entry.name == case.matrix)


def _single(A: Any) -> Any:
    """Return the matrix with the values that kernels start from."""
    with np.errstate(over="ignore", under="ignore"):
        return A.astype("complex64" if A.dtype.kind == "c" else "float32")


def _rule(size: FormatSize) -> dict[str, Any]:
    choice = choose_by_fill(size.fill_ratio)
    return {"verdict": choice.verdict, "picks": choice.format}


def _spread(columns: Any) -> dict[str, Any]:
    low, q1, median, q3, high = np.percentile(columns, [0, 25, 50, 75, 100]).tolist()
    return {
        "columns": int(columns.sum()),
        "columns_min": int(low),
        "columns_q1": q1,
        "columns_median": median,
        "columns_q3": q3,
        "columns_max": int(high),
    }


def _record(
    case: Case,
    A: Any,
    variant: str,
    size: int,
    predicted: FormatSize,
    extra: dict[str, Any],
    single: Any,
) -> Record:
    converted = 4 * predicted.values <= CONVERSION_LIMIT
    preprocess_us, same = _convert(single, variant, size) if converted else (None, True)
    preprocess_us = preprocess_us if same else None
    return Record(
        study=STUDY,
        case=case.name,
        op="format",
        role="paper",
        backend="asyncsparse",
        variant=variant,
        matrix=case.matrix,
        m=A.shape[0],
        k=A.shape[1],
        nnz=A.nnz,
        dtype_in="bfloat16",
        clock=None if preprocess_us is None else "wall",
        status="passed" if same else "wrong",
        reason=None if same else "converted back, the matrix is another one",
        preprocess_us=preprocess_us,
        params={"block" if variant == "bcsr" else "window": size},
        result={
            "stored": predicted.stored,
            "values": predicted.values,
            "bytes": predicted.bytes,
            "fill_ratio": predicted.fill_ratio,
            **extra,
        },
    )


def _convert(single: Any, variant: str, size: int) -> tuple[float, bool]:
    """Return the time of the fastest conversion, in microseconds, and whether it is right."""
    times = []
    for _ in range(CONVERSIONS):
        start = perf_counter()
        if variant == "bcsr":
            matrix: BCSR | WCSR = BCSR.from_csr(single, (size, size))
        else:
            matrix = WCSR.from_csr(single, size)
        times.append(1e6 * (perf_counter() - start))
    return round(min(times), 1), (matrix.to_csr() != single).nnz == 0
