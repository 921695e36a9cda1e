"""One thread block per SM with static round-robin, against opt3, on even and uneven matrices.

The document names imbalance, no reuse of B in L2, and the reset of the accumulators.  The swizzle
numbers tiles down the columns, so that blocks that run together share columns of B.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm.variants import VARIANTS, Variant
from asyncsparse_lab.studies.base import Case, Drawing, Table

if TYPE_CHECKING:
    import pandas as pd

STUDY: Final = "persistent"
EVEN: Final = ("gate_proj-keep10-uniform-s0",)
"""Block rows that are about equally long."""
UNEVEN: Final = ("mycielskian14", "arrow(n=16384, width=256, half_bandwidth=64)")
"""Long block rows among short ones: spread out, and four full ones at the end."""
N: Final = 4096
DTYPE_OUT: Final = "bfloat16"

CAUSES: Final = {
    "imbalance": ("start", "work"),
    "launches": ("gaps", "setup", "leave"),
    "bookkeeping": ("fetch", "rest"),
    "first_loads": ("first_wait",),
    "loads": ("wait",),
    "reset": ("reset",),
    "products": ("multiply", "release", "drain"),
    "epilogue": ("epilogue",),
}
"""Cause to the parts of the account of the last SM to end, which decides about the time, see
:mod:`asyncsparse_lab.studies.cta_account`."""
NAMED: Final = ("imbalance", "loads", "reset")
"""Causes that the document names; loads: what a missing reuse of B would cost."""


def cases() -> list[Case]:
    """Return a case for each matrix, even or uneven."""
    return [
        Case(f"{kind}-{matrix}-n{N}", matrix, N, {"kind": kind}, seconds=18.0)
        for kind, matrices in (("even", EVEN), ("uneven", UNEVEN))
        for matrix in matrices
    ]


def variants() -> list[Variant]:
    """Return opt3 and the persistent kernel, without swizzle and with it."""
    names = ("bcsr-opt3", "bcsr-persistent", "bcsr-persistent-swizzle")
    return [VARIANTS[name] for name in names]


def measure(case: Case) -> list[Record]:
    """Time the kernels and Blocked-ELL, let probes account for the difference, read counters."""
    from asyncsparse_lab.baselines import BASELINES
    from asyncsparse_lab.studies import cta_times
    from asyncsparse_lab.studies.cta_account import split_last
    from asyncsparse_lab.studies.spmm_cases import measure_case

    assert case.matrix is not None
    compared = variants()
    libraries = [BASELINES["cusparse-blocked-ell"]]
    measured = measure_case(STUDY, case, compared, libraries, dtype_out=DTYPE_OUT, seconds=0.1)
    probes = cta_times.account_probes(compared, measured, STUDY, case.name, case.matrix)
    probes = cta_times.explain(probes, CAUSES, NAMED, split_last)
    records = cta_times.counters(measured.records, compared, measured, case.matrix)
    return [*records, *probes]


def draw(
    frame: pd.DataFrame,
    claims: pd.DataFrame,
    *,
    matrices: tuple[str, ...] = (),
    n: int = 0,
    l2: str = "cold",
    gpu: str = "",
) -> dict[str, Drawing | Table]:
    """Draw speed over opt3, the loss by cause, when SMs end; tabulate counters.

    The parameters are those of :func:`asyncsparse_lab.studies.wgmma_n.draw`; what probes count
    is of a cold L2.
    """
    from asyncsparse_lab.studies import cta_figures, cta_reasons, cta_tables
    from asyncsparse_lab.studies.spmm_cases import chosen_rows

    rows = chosen_rows(frame, matrices=matrices, n=n, l2=l2, gpu=gpu)
    timed = rows[rows["role"] != "probe"]
    probes = chosen_rows(frame, matrices=matrices, n=n, l2="cold", gpu=gpu)
    probes = cta_tables.with_medians(probes[probes["role"] == "probe"], probes)
    return {
        "speed": cta_figures.speed(timed, claims, "persistent-regression"),
        "blocked-ell": cta_figures.over_blocked_ell(timed, claims),
        "causes": cta_figures.causes(probes, list(CAUSES)),
        "ends": cta_figures.ends(probes),
        "causes-table": cta_tables.cause_table(probes, list(CAUSES), NAMED),
        "reasons": cta_reasons.persistent(probes, timed),
        "counters": cta_tables.counter_table(timed),
    }
