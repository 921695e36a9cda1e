"""A cluster of thread blocks that share A by TMA multicast, against opt3, and what it costs.

Clusters of 1, 2 and 4 along N; of 1 is opt3 with a cluster's barriers and nothing to share.  The
document names co-scheduling, the empty barrier across blocks and little reuse of A.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm.builds import cluster_sweep, unfenced
from asyncsparse_lab.spmm.geometry import BLOCK, stage_bytes
from asyncsparse_lab.spmm.variants import VARIANTS, Variant
from asyncsparse_lab.studies.base import Case, Drawing, Table

if TYPE_CHECKING:
    import pandas as pd

STUDY: Final = "cluster-multicast"
MATRICES: Final = ("gate_proj-keep10-uniform-s0", "mycielskian13")
N: Final = 4096
DTYPE_OUT: Final = "bfloat16"

CAUSES: Final = {
    "co_scheduling": ("start", "gaps", "setup", "leave", "tail"),
    "empty_barrier": ("remote", "release"),
    "loads": ("first_wait", "wait"),
    "products": ("multiply", "drain"),
    "bookkeeping": ("fetch", "rest"),
    "reset": ("reset",),
    "epilogue": ("epilogue",),
}
"""Cause to the parts of the mean SM's account that it is made of, see
:mod:`asyncsparse_lab.studies.cta_account`. The empty barrier costs where its slot is waited for,
and where consumers arrive on it, across the cluster behind a fence."""
NAMED: Final = ("co_scheduling", "empty_barrier")
"""Causes of a loss that the document names; little reuse of A is why nothing makes up for it."""


def cases() -> list[Case]:
    """Return a case for each matrix."""
    return [Case(f"{matrix}-n{N}", matrix, N, seconds=18.0) for matrix in MATRICES]


def variants() -> list[Variant]:
    """Return opt3 and the multicast kernel in clusters of 1, 2 and 4."""
    return [VARIANTS["bcsr-opt3"], *cluster_sweep()]


def measure(case: Case) -> list[Record]:
    """Time the kernels, let their probes account for the difference, and read counters."""
    from asyncsparse_lab.studies import cta_times
    from asyncsparse_lab.studies.spmm_cases import measure_case

    assert case.matrix is not None
    compared = variants()
    measured = measure_case(STUDY, case, compared, dtype_out=DTYPE_OUT, seconds=0.1)
    probes = cta_times.account_probes(
        compared, measured, STUDY, case.name, case.matrix, level=2, twins={"unfenced": unfenced}
    )
    probes = cta_times.explain(probes, CAUSES, NAMED)
    records = cta_times.counters(measured.records, compared, measured, case.matrix)
    return [_with_reuse(record) for record in (*records, *probes)]


def _with_reuse(record: Record) -> Record:
    """Add the part of the bytes into shared memory that sharing A saves, by the tile's shape."""
    if record.status != "passed":
        return record
    saved = saved_share(record.params["wgmma_n"], record.params.get("cluster", 1))
    return replace(record, result={**record.result, "saved_share": saved})


def saved_share(wgmma_n: int, cluster: int) -> float:
    """Return the part of a stage's bytes that need not be read from L2: A, by all blocks but one.

    (1 - 1 / cluster) 64 * 64 * 2 bytes of A, of those and 64 x 2 WGMMA_N x 2 bytes of B.
    """
    return (1.0 - 1.0 / cluster) * BLOCK * BLOCK * 2 / stage_bytes(wgmma_n)


def draw(
    frame: pd.DataFrame,
    claims: pd.DataFrame,
    *,
    matrices: tuple[str, ...] = (),
    n: int = 0,
    l2: str = "cold",
    gpu: str = "",
) -> dict[str, Drawing | Table]:
    """Draw speed over opt3, waits by cluster size, the loss by cause, when SMs end.

    The parameters are those of :func:`asyncsparse_lab.studies.wgmma_n.draw`; what probes count
    is of a cold L2.
    """
    from asyncsparse_lab.studies import cta_figures, cta_reasons, cta_tables
    from asyncsparse_lab.studies.spmm_cases import chosen_rows

    rows = chosen_rows(frame, matrices=matrices, n=n, l2=l2, gpu=gpu)
    timed = rows[rows["role"] != "probe"]
    probes = chosen_rows(frame, matrices=matrices, n=n, l2="cold", gpu=gpu)
    probes = cta_tables.with_medians(probes[probes["role"] == "probe"], probes)
    claim = "multicast-regression"
    return {
        "speed": cta_figures.speed(timed, claims, claim),
        "waits": cta_figures.waits(probes),
        "causes": cta_figures.causes(probes, list(CAUSES)),
        "ends": cta_figures.ends(probes),
        "causes-table": cta_tables.cause_table(probes, list(CAUSES), NAMED),
        "reasons": cta_reasons.multicast(probes, timed),
        "counters": cta_tables.counter_table(timed),
    }
