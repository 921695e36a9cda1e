"""The studies: one module a figure or table.

Who adds a study adds a module with ``cases``, ``measure`` and ``draw`` (see
:mod:`asyncsparse_lab.studies.base`), a line here and a notebook.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.studies.base import Case, Drawing, Study, Table

__all__ = ["STUDIES", "Case", "Drawing", "Study", "Table", "find_study", "load_study"]

STUDIES: Final[dict[str, Study]] = {
    study.name: study
    for study in (
        Study(
            name="formats",
            title="BCSR and WCSR on each matrix: fill, bytes, columns per window, the rule's pick",
            module="formats",
            notebook="01_formats",
            device="cpu",
        ),
        Study(
            name="bcsr-ablation",
            title="From scalar FMA to a warp-specialised ring: the ladder opt0 to opt3",
            module="bcsr_ablation",
            notebook="02_bcsr_ablation",
            device="gpu",
        ),
        Study(
            name="verify",
            title="Every kernel against the FP64 reference, ten thousand launches, the sanitizer",
            module="verify",
            notebook="02_bcsr_ablation",
            device="gpu",
        ),
        Study(
            name="registers",
            title="What setmaxnreg buys: registers, thread blocks per SM, time",
            module="registers",
            notebook="03_registers_and_ceilings",
            device="gpu",
        ),
        Study(
            name="ceilings",
            title="What this GPU can do at most: copies, tile products, barriers, an empty kernel",
            module="ceilings",
            notebook="03_registers_and_ceilings",
            device="gpu",
        ),
    )
}


def find_study(name: str) -> Study:
    """Return the entry of a study.

    Raises
    ------
    InputError
        There is no study of that name.
    """
    if name not in STUDIES:
        raise InputError(f"no study {name!r}; there are {', '.join(STUDIES)}")
    return STUDIES[name]


def load_study(name: str) -> ModuleType:
    """Import the module of a study."""
    return import_module(f"asyncsparse_lab.studies.{find_study(name).module}")
