"""What a study is: cases to measure, and a picture of what was measured.

A study module holds ``cases()``, ``measure(case)`` and ``draw(frame, claims, **parameters)``;
:data:`asyncsparse_lab.studies.STUDIES` names the module.  Nothing here imports a plotting
library: a bare GPU machine measures with these modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison, measured whole or not at all.

    Attributes
    ----------
    name : str
        Unique within the study; what ``--only`` matches.
    matrix : str or None
        Name for :func:`asyncsparse_lab.load_matrix`.
    n : int or None
        Columns of B.
    params : mapping
        What else the case fixes (output type, l2 state, ...).
    seconds : float
        Predicted wall time of the whole case, for ``--dry-run`` and ``--budget``.
    part : str
        Of a large study: the file of records that the case goes to, ``STUDY.PART.jsonl``.
    """

    name: str
    matrix: str | None = None
    n: int | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 1.0
    part: str = ""


@dataclass(frozen=True, slots=True)
class Study:
    """An entry of the table of studies.

    Attributes
    ----------
    name : str
        As in ``asyncsparse measure NAME`` and ``data/recorded/<gpu>/NAME.jsonl``; a large study
        has a file for each part, ``NAME.PART.jsonl``.
    title : str
        One line for the report.
    module : str
        Module below :mod:`asyncsparse_lab.studies` that holds the code.
    notebook : str or None
        File stem below ``notebooks/``.
    device : {"cpu", "gpu"}
        Where it is measured; ``cpu`` records live in ``data/recorded/cpu``.
    """

    name: str
    title: str
    module: str
    notebook: str | None
    device: Literal["cpu", "gpu"]


@dataclass(slots=True)
class Drawing:
    """A figure, the table behind it (hashed by ``reproduce --check``) and its caption.

    ``cases`` names the cases that it shows, all of the study if empty: kernels that changed since
    are looked for in these.
    """

    figure: Figure
    data: pd.DataFrame
    caption: str
    cases: frozenset[str] = frozenset()


@dataclass(slots=True)
class Table:
    """A table for the report; written as CSV and LaTeX."""

    data: pd.DataFrame
    caption: str


@dataclass(frozen=True, slots=True)
class Missing:
    """In place of a picture or table whose part of the study was not measured."""

    command: str
    """What measures it."""
