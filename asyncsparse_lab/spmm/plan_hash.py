"""Which planner it was: a hash of the planner's code and rates.

A time of ``auto`` is that of the kernel it chose, and is judged by that kernel's hashes; a fit to
the evaluation's own records would else make the evaluation stale.  What the planner of today would
choose costs no GPU to find out: records of the study ``planner`` hold this hash, and are stale as
soon as it changes.  Those of ``auto`` name it (``params["planner"]``), so that the study can tell
where the two choose differently.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from asyncsparse_lab.spmm.code_hash import code_digest
from asyncsparse_lab.spmm.plan_rates import Rates, load_rates, rates_text

MODULES: Final = (
    "builds", "cost", "geometry", "orders", "plan_models", "plan_schedule", "plan_structure",
    "plan_works", "planner", "variants",
)  # fmt: skip
"""Whose code decides what is chosen."""


def plan_hash(rates: Rates | None = None) -> str:
    """Return twelve digits of the SHA-256 of the planner with these rates, else the H200's."""
    text = rates_text(rates or load_rates())
    return hashlib.sha256(f"{_code()}{text}".encode()).hexdigest()[:12]


@cache
def _code() -> str:
    folder = Path(__file__).parent
    return code_digest(folder / f"{name}.py" for name in MODULES)
