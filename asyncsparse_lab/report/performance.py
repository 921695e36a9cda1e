"""``docs/performance.md``: how near the kernels come to what bounds them, from the records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from asyncsparse_lab.records.files import Source

if TYPE_CHECKING:
    import pandas as pd

PAGE: Final = Path("docs") / "performance.md"

_HEAD: Final = """\
# Performance

Written by `asyncsparse reproduce` from the records of the study `bcsr-beyond`: do not edit. Times
are medians with cold L2, of products whose output has the input's type. Dense is cuBLAS in the same
case, with the same types and layout: bf16 and row-major unless its name says otherwise.

A kernel's floor is the longer of two times. *Loads and stores* is measured in the same case: the
kernel's producer alone moves the same bytes of A, B and C between memory and shared memory, in the
same tiles and order, and waits for no product. What L2 and HBM need for loads beside stores is in
it, whichever of them binds. *Tensor cores* is the operations of the stored blocks at the measured
rate. It is a floor of these tiles in this order, not of every kernel that could be written. That of
`bcsr-opt3` is measured by the producer of `bcsr-overlap`, which has the same tiles.
"""
_COLUMNS: Final = (
    ("kernel", "{}"),
    ("measured, us", "{:.1f}"),
    ("times dense", "{:.2f}"),
    ("loads and stores, us", "{:.1f}"),
    ("tensor cores, us", "{:.1f}"),
    ("share of the floor", "{:.0%}"),
    ("bound by", "{}"),
)


def performance_page(records: Source = "recorded") -> str:
    """Return the page as Markdown: a section for each GPU, a table for each case.

    Raises
    ------
    InputError
        There are no records of the study.
    """
    from asyncsparse_lab.records.frame import load_records
    from asyncsparse_lab.studies.bcsr_beyond import STUDY
    from asyncsparse_lab.studies.bcsr_beyond_figures import floors
    from asyncsparse_lab.studies.spmm_cases import chosen_rows

    frame = load_records(STUDY, records)
    parts = [_HEAD]
    for gpu in sorted(set(frame["gpu"])):
        rows = chosen_rows(frame, matrices=(), n=0, l2="cold", gpu=gpu)
        parts.append(f"## {rows['gpu_name'].iloc[0]}\n")
        for case, lines in floors(rows).data.groupby("case", sort=False):
            parts.append(f"### {case}\n\n{_table(lines)}")
    return "\n".join(parts)


def _table(lines: pd.DataFrame) -> str:
    head = " | ".join(title for title, _ in _COLUMNS)
    rows = [f"| {head} |", "| --- " * len(_COLUMNS) + "|"]
    for _, line in lines.iterrows():
        cells = [
            "" if line[key] is None or line[key] != line[key] else form.format(line[key])
            for key, form in _COLUMNS
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"
