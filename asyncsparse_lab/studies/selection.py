"""Where BCSR overtakes WCSR: both kernels on block masks that are thinned inside the blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm.variants import VARIANTS, Variant
from asyncsparse_lab.studies.base import Case, Drawing, Table

if TYPE_CHECKING:
    import pandas as pd

STUDY: Final = "selection"
FILLS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0)
N: Final = 1024
DTYPE_OUT: Final = "bfloat16"


def matrix_name(fill: float) -> str:
    """Return the generator call: 10 % of the blocks, the same ones at every fill."""
    return f"thinned_blocks(rows=12288, cols=4096, block=64, keep=0.1, fill={fill}, seed=0)"


def cases() -> list[Case]:
    """Return a case for each fill."""
    return [
        Case(f"fill{100 * fill:g}", matrix_name(fill), N, {"fill": fill}, 1.2 + 1.5 * fill)
        for fill in FILLS
    ]


def variants() -> list[Variant]:
    """Return opt3 and the article's WCSR kernel, with windows cut and whole."""
    return [VARIANTS[name] for name in ("bcsr-opt3", "wcsr-paper", "wcsr-paper-unsplit")]


def measure(case: Case) -> list[Record]:
    """Measure both kernels, and dense cuBLAS.

    BCSR's records get ``fill_percent`` and ``over_wcsr``: WCSR's time, the better of cut and whole
    windows, over BCSR's.
    """
    from asyncsparse_lab.baselines import BASELINES
    from asyncsparse_lab.studies.spmm_cases import measure_case

    libraries = [BASELINES["cublas-dense"]]
    records = measure_case(STUDY, case, variants(), libraries, dtype_out=DTYPE_OUT).records
    return [_with_ratio(record, records) for record in records]


def _with_ratio(record: Record, records: Sequence[Record]) -> Record:
    """Add WCSR's time over BCSR's to a record of BCSR."""
    times = [
        other.median_us
        for other in records
        if other.variant.startswith("wcsr") and other.l2 == record.l2 and other.median_us
    ]
    if not record.variant.startswith("bcsr") or record.median_us is None or not times:
        return record
    fill = 100 * float(record.result["fill_ratio"])
    found = {"fill_percent": round(fill, 3), "over_wcsr": min(times) / record.median_us}
    return replace(record, result={**record.result, **found})


def draw(
    frame: pd.DataFrame,
    claims: pd.DataFrame,
    *,
    matrices: tuple[str, ...] = (),
    n: int = 0,
    l2: str = "cold",
    gpu: str = "",
) -> dict[str, Drawing | Table]:
    """Draw BCSR's time over WCSR's against fill, the break-even beside the stated thresholds.

    The parameters are those of :func:`asyncsparse_lab.studies.wgmma_n.draw`.
    """
    from asyncsparse_lab.studies import reasons, wcsr_figures
    from asyncsparse_lab.studies.spmm_cases import chosen_rows

    rows = chosen_rows(frame, matrices=matrices, n=n, l2=l2, gpu=gpu)
    return {
        "break-even": wcsr_figures.selection(rows, claims),
        "selection": wcsr_figures.selection_table(rows),
        "reasons": reasons.selection(wcsr_figures.compared(rows), claims),
    }
