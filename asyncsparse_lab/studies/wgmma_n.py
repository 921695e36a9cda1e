"""Width of a WGMMA: throughput against WGMMA_N for several N, padding, and the article's two rules.

A tile of opt3 covers BN = 2 WGMMA_N columns.  Where BN does not divide N, the last tile of each
block row multiplies columns that are not there: 1 - N / (BN ceil(N / BN)) of the products are
wasted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm.geometry import CONSUMERS, WGMMA_COLUMNS
from asyncsparse_lab.spmm.variants import VARIANTS, Variant
from asyncsparse_lab.studies.base import Case, Drawing, Table

if TYPE_CHECKING:
    import pandas as pd

STUDY: Final = "wgmma-n"
MATRICES: Final = ("gate_proj-keep10-uniform-s0", "mycielskian13", "bcsstk16")
COLUMNS: Final = (64, 100, 256, 512, 1000, 1024, 4096)
STAGES: Final = 3
CLOSE: Final = 1.05
"""Times up to this factor above the best count as the best."""
VARIABLE_N: Final = (64, 128, 256)
"""The article's choices of WGMMA_N where N varies."""


def cases() -> list[Case]:
    """Return a case for each matrix and N."""
    return [
        Case(f"{matrix}-n{n}", matrix, n, seconds=_seconds(matrix, n))
        for matrix in MATRICES
        for n in COLUMNS
    ]


def _seconds(matrix: str, n: int) -> float:
    return (2.2 + n / 2000) if matrix == MATRICES[0] else (1.0 + n / 4000)


def variants() -> list[Variant]:
    """Return opt3 at every WGMMA_N, with three stages."""
    opt3 = VARIANTS["bcsr-opt3"]
    return [opt3.with_constants(WGMMA_N=width, STAGES=STAGES) for width in WGMMA_COLUMNS]


def measure(case: Case) -> list[Record]:
    """Measure opt3 at every WGMMA_N.

    Each record has ``padding_waste``; that of the width which the rule of least padding gives has
    ``least_padding_holds`` too: 1 if it is the best of 64, 128, 256, or within 5 % of it, else 0.
    """
    from asyncsparse_lab.studies.spmm_cases import measure_case

    records = measure_case(STUDY, case, variants()).records
    return [_with_padding(record, records) for record in records]


def _with_padding(record: Record, records: Sequence[Record]) -> Record:
    assert record.n is not None
    width = record.params["wgmma_n"]
    found = {"padding_waste": padding_waste(record.n, width)}
    if width == padding_rule(record.n) and record.median_us is not None:
        times = [
            other.median_us
            for other in records
            if other.params["wgmma_n"] in VARIABLE_N and other.l2 == record.l2 and other.median_us
        ]
        found["least_padding_holds"] = float(record.median_us <= CLOSE * min(times))
    return replace(record, result={**record.result, **found})


def padding_waste(n: int, wgmma_n: int) -> float:
    """Return the part of the multiplied columns that are not there."""
    tile = CONSUMERS * wgmma_n
    return 1.0 - n / (tile * -(-n // tile))


def dividing_rule(n: int) -> int | None:
    """Return the largest WGMMA_N whose BN divides N, None if there is none."""
    fitting = [width for width in WGMMA_COLUMNS if n % (CONSUMERS * width) == 0]
    return max(fitting, default=None)


def padding_rule(n: int) -> int:
    """Return which of 64, 128 and 256 pads N least, the largest of equals."""
    return min(VARIABLE_N, key=lambda width: (padding_waste(n, width), -width))


def draw(
    frame: pd.DataFrame,
    claims: pd.DataFrame,
    *,
    matrices: tuple[str, ...] = (),
    n: int = 0,
    l2: str = "cold",
    gpu: str = "",
) -> dict[str, Drawing | Table]:
    """Draw throughput and padding against WGMMA_N; tabulate the rules beside the best.

    Parameters
    ----------
    matrices : tuple of str
        Only these; all if empty.
    n : int
        Only this number of columns of B; all if 0.
    l2 : {"cold", "warm"}
        State of L2 before each sample.
    gpu : str
        Folder of the GPU's records; the only one there is if empty.
    """
    from asyncsparse_lab.studies import reasons, tile_figures
    from asyncsparse_lab.studies.spmm_cases import chosen_rows

    rows = chosen_rows(frame, matrices=matrices, n=n, l2=l2, gpu=gpu)
    rules = tile_figures.rules(rows, claims)
    return {
        "throughput": tile_figures.throughput(rows, claims),
        "rules": rules,
        "reasons": reasons.widths(rules.data, claims),
    }
