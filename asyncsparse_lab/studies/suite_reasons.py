"""Why the evaluation's values differ from the document's, in sentences with computed numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncsparse_lab.records.frame import geometric_mean
from asyncsparse_lab.studies.base import Table
from asyncsparse_lab.studies.reasons import span, table_of, times
from asyncsparse_lab.studies.spmm_cases import claimed
from asyncsparse_lab.studies.suite_frame import BCSR, CLASSES, DENSE, WCSR, Evaluation, codes

if TYPE_CHECKING:
    import pandas as pd

DENSE_CLASS: Final = ">= 1 %"
MANY: Final = 1_000_000
"""Non-zeros that each of the document's matrices has at least."""


def reasons(evaluation: Evaluation, claims: pd.DataFrame) -> Table:
    """Return the lines about throughput, about Blocked-ELL and about other codes."""
    lines = [
        _throughput(evaluation, WCSR, claimed(claims, "suite-wcsr-tflops")),
        _throughput(evaluation, BCSR, claimed(claims, "suite-bcsr-tflops")),
        _blocked_ell(evaluation, claims),
        _against_codes(evaluation, claims),
        _with_n(evaluation, claims),
    ]
    return table_of(
        [line for line in lines if line],
        f"Why the values at n = {evaluation.n} differ from the document's at 1024, by the records.",
    )


def _throughput(evaluation: Evaluation, kernel: str, stated: float) -> dict[str, str]:
    """Return what small matrices do to the mean."""
    table = evaluation.in_class(DENSE_CLASS, evaluation.times())
    if kernel not in table:
        return {}
    nnz = evaluation.facts["nnz"].reindex(table.index)
    tflops = (2.0 * nnz * evaluation.n / table[kernel] / 1e6).dropna()
    large, small = (tflops[part.reindex(tflops.index)] for part in (nnz >= MANY, nnz < MANY))
    took = table[kernel].reindex(small.index)
    because = (
        f"What are probably the document's matrices have a million non-zeros and more. On the "
        f"{len(large)} such here "
        f"the mean is {geometric_mean(large):.1f} TFLOPS; {len(small)} have fewer, "
        f"{nnz[small.index].median():,.0f} in the median, and take {span(took)} us"
        f"{_empty(evaluation)}: {geometric_mean(small):.1f} TFLOPS."
        if len(large) and len(small)
        else f"All {len(tflops)} matrices here are of one kind: the mean is of them alone."
    )
    return {
        "question": f"{kernel}, useful TFLOPS at {DENSE_CLASS}",
        "here": f"{geometric_mean(tflops):.2f}",
        "document": f"{stated:.2f}",
        "because": because,
    }


def _empty(evaluation: Evaluation) -> str:
    from asyncsparse_lab.studies.rooflines import ceilings_for

    ceilings = ceilings_for(evaluation.drawn)
    return f", of which a kernel that does nothing is {ceilings.empty_us:.1f}" if ceilings else ""


def _blocked_ell(evaluation: Evaluation, claims: pd.DataFrame) -> dict[str, str]:
    table = evaluation.in_class(DENSE_CLASS, evaluation.times())
    rival = "cuSPARSE Blocked-ELL"
    if not {rival, WCSR} <= set(table):
        return {}
    ratio = (table[rival] / table[WCSR]).dropna()
    nnz = evaluation.facts["nnz"].reindex(table.index)
    tflops = geometric_mean((2.0 * nnz * evaluation.n / table[rival] / 1e6).dropna())
    dense = geometric_mean((table[rival] / table[DENSE]).dropna()) if DENSE in table else 1.0
    return {
        "question": f"WCSR over Blocked-ELL at {DENSE_CLASS}",
        "here": times(geometric_mean(ratio)),
        "document": times(claimed(claims, "suite-wcsr-cusparse")),
        "because": f"Blocked-ELL reaches {tflops:.2f} useful TFLOPS here, "
        f"{claimed(claims, 'suite-bell-tflops-derived'):.2f} by the document's numbers, and takes "
        f"{times(dense)} the time of dense cuBLAS; by matrix the ratio is {span(ratio, 2)}.",
    }


def _against_codes(evaluation: Evaluation, claims: pd.DataFrame) -> dict[str, str]:
    """Return how WCSR stands to AccSpMM and FlashSparse, and how fast those are here."""
    table = evaluation.in_class(DENSE_CLASS, evaluation.compared())
    fastest = "FlashSparse fp16"
    if not {"AccSpMM", fastest, WCSR} <= set(table):
        return {}
    said = []
    found = []
    for name, claim in (("AccSpMM", "accspmm"), (fastest, "flashsparse")):
        ratio = (table[name] / table[WCSR]).dropna()
        rows = evaluation.peers
        rows = rows[(rows["series"] == name) & (rows["n"] == evaluation.n)]
        here = geometric_mean(rows.loc[rows["density"] >= CLASSES[DENSE_CLASS][0], "useful_tflops"])
        said.append(f"{name} {times(geometric_mean(ratio))}")
        stated = claimed(claims, f"suite-{claim}-tflops-derived")
        found.append(f"{name} reaches {here:.2f} useful TFLOPS on the shared ones, {stated:.2f} by "
                     "the document's numbers")  # fmt: skip
    factors = [claimed(claims, f"suite-wcsr-{name}") for name in ("accspmm", "flashsparse")]
    return {
        "question": f"WCSR over recorded codes at {DENSE_CLASS}",
        "here": ", ".join(said),
        "document": f"AccSpMM {times(factors[0])}, FlashSparse {times(factors[1])}",
        "because": "; ".join(found) + ".",
    }


def _with_n(evaluation: Evaluation, claims: pd.DataFrame) -> dict[str, str]:
    """Return whether other codes fall with n."""
    rows = evaluation.peers
    rows = rows[rows["density"] >= CLASSES[DENSE_CLASS][0]]
    means = rows.groupby(["series", "n"])["useful_tflops"].agg(geometric_mean).unstack("n")
    first, last = int(means.columns.min()), int(means.columns.max())
    gain = (means[last] / means[first]).loc[codes()]
    return {
        "question": f"other codes from n = {first} to {last} at {DENSE_CLASS}",
        "here": f"{int((gain < 1).sum())} of {len(gain)} fall",
        "document": str(claims["value"]["suite-others-fall"]),
        "because": f"On the recorded matrices every code gains {span(gain, 2)} in useful TFLOPS: "
        "a longer row of B is a longer vector for each non-zero that was read."
        if (gain >= 1).all()
        else f"On the recorded matrices the codes change by {span(gain, 2)} in useful TFLOPS.",
    }
