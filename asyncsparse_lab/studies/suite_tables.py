"""Tables of the study ``suite``, and the columns by which claims about other codes are judged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncsparse_lab.records.frame import geometric_mean
from asyncsparse_lab.records.peers import AGREEMENT, read_series, run_facts
from asyncsparse_lab.studies.base import Table
from asyncsparse_lab.studies.suite import SUITES
from asyncsparse_lab.studies.suite_frame import (
    AUTO,
    BCSR,
    BEST_LIVE,
    BEST_OF_ALL,
    BEST_OURS,
    BEST_SPARSE,
    BESTS,
    CLASSES,
    CSR_VECTOR,
    DENSE,
    LIBRARY_NAMES,
    OUR_WCSR,
    WCSR,
    Evaluation,
    codes,
)
from asyncsparse_lab.studies.wcsr_beyond import WANTED_TFLOPS

if TYPE_CHECKING:
    import pandas as pd

LARGE: Final = 100_000
"""Non-zeros above which no ratio may be below the last target."""


@dataclass(frozen=True, slots=True)
class Target:
    """What the evaluation must show at n = 1024.

    Attributes
    ----------
    of, over : str
        Columns of :meth:`Evaluation.compared`; over "" is useful TFLOPS of ``of``.
    suite, density : str
        On which matrices.
    wanted : float
        Of the geometric mean, or of the smallest value.
    smallest : bool
        Whether each matrix of more than :data:`LARGE` non-zeros has to reach it.
    """

    of: str
    over: str
    suite: str
    wanted: float
    density: str = "all"
    smallest: bool = False


_TIMED_WARM: Final = {
    "cuBLAS dense": (DENSE,),
    "best of cuSPARSE": tuple(name for name in LIBRARY_NAMES.values() if "cuSPARSE" in name),
    "best of the article": (BCSR, WCSR),
}

TARGETS: Final = (
    Target(OUR_WCSR, WCSR, "dense1", 2.0),
    Target(OUR_WCSR, BEST_SPARSE, "dense1", 2.0),
    Target(OUR_WCSR, BEST_LIVE, "dense1", 1.2),
    Target(OUR_WCSR, "", "both", WANTED_TFLOPS),
    Target(AUTO, BEST_LIVE, "shared", 1.5, ">= 0.1 %"),
    Target(AUTO, BEST_LIVE, "shared", 1.7, "< 0.1 %"),
    Target(AUTO, BEST_OF_ALL, "shared", 1.3),
    Target(AUTO, BEST_LIVE, "shared", 0.9, smallest=True),
    Target(AUTO, BEST_OF_ALL, "shared", 0.9, smallest=True),
    Target(AUTO, BEST_OURS, "shared", 0.95),
    Target(AUTO, BEST_OURS, "dense1", 0.95),
    Target(CSR_VECTOR, BEST_SPARSE, "shared", 1.0, "< 0.1 %"),
)


def targets(evaluation: Evaluation) -> Table:
    """Return what was wanted and what was measured."""
    import pandas as pd

    lines = [_judged_target(evaluation, target) for target in TARGETS]
    return Table(
        pd.DataFrame(lines),
        f"What the evaluation has to show, cold L2, bf16 out, n = {evaluation.n} (the targets are "
        "set for 1024; other n are reported). Means are geometric; TFLOPS are useful ones, on the "
        f"matrices of both suites; 'smallest' is the smallest ratio on matrices above {LARGE:,} "
        "non-zeros; 'at the floor' is what a kernel would show that took the least time that the "
        "table of matrices names; the study wcsr-beyond has tighter floors of WCSR, the article's "
        "kernel at two more thresholds, and a search for our best WCSR, of which only a few "
        "configurations are measured here." + _without_peers(evaluation),
    )


def _judged_target(evaluation: Evaluation, target: Target) -> dict[str, Any]:
    values = _values(evaluation, target)
    measured = _of(values, target)
    worst = values.idxmin() if len(values) else None
    line = {
        "what": f"{target.of} / {target.over}" if target.over else f"{target.of}, TFLOPS",
        "suite": "shared and dense1" if target.suite == "both" else target.suite,
        "density": target.density,
        "of": "smallest" if target.smallest else "mean",
        "matrices": len(values),
        "wanted": target.wanted,
        "measured": measured,
        "reached": "" if math.isnan(measured) else "yes" if measured >= target.wanted else "no",
        "at the floor": _at_the_floor(evaluation, target),
        "lowest": values.min() if len(values) else math.nan,
        "lowest on": evaluation.facts["label"].get(worst, ""),
    }
    others = [n for n in evaluation.drawn_sizes if n != evaluation.n]
    return line | {f"n = {n}": _of(_values(evaluation, target, n), target) for n in others}


def _of(values: pd.Series[float], target: Target) -> float:
    return float(values.min()) if target.smallest else geometric_mean(values)


def _values(
    evaluation: Evaluation,
    target: Target,
    n: int = 0,
    times: pd.Series[float] | None = None,
) -> pd.Series[float]:
    """Return a target's ratios or TFLOPS by matrix, of these times in place of the measured."""
    import pandas as pd

    table = evaluation.compared(n)
    facts = evaluation.facts.reindex(table.index)
    chosen = facts["shared"] & facts["dense1"] if target.suite == "both" else facts[target.suite]
    if target.smallest:
        chosen = chosen & (facts["nnz"] > LARGE)
    rows = evaluation.in_class(target.density, table[chosen])
    if target.of not in rows or (target.over and target.over not in rows):
        return pd.Series(dtype="float64")
    own = rows[target.of] if times is None else times.reindex(rows.index)
    if target.over:
        return (rows[target.over] / own).dropna()
    flops = 2.0 * facts["nnz"].reindex(rows.index) * (n or evaluation.n)
    return (flops / own / 1e6).dropna()


def _at_the_floor(evaluation: Evaluation, target: Target) -> float:
    """Return what a kernel that took no longer than the floor would show, NaN against our own."""
    if target.over in (WCSR, BEST_OURS):
        return math.nan
    return _of(_values(evaluation, target, times=_floors(evaluation)), target)


def _without_peers(evaluation: Evaluation) -> str:
    if evaluation.peers_agree:
        return ""
    return " Recorded peers are left out: the libraries measured live do not agree with them."


def summary(evaluation: Evaluation) -> Table:
    """Return geometric means of auto's speedup over each rival, by class of density."""
    import pandas as pd

    table = evaluation.compared()
    facts = evaluation.facts
    types = {series.name: series.types for series in read_series()}
    lines = []
    for rival in rivals(evaluation, table):
        line: dict[str, Any] = {"over": rival}
        ratio = (table[rival] / table[AUTO]).dropna()
        for name in CLASSES:
            part = evaluation.in_class(name, ratio.to_frame("ratio"))["ratio"]
            line[f"{name}"] = geometric_mean(part)
        worst = ratio.idxmin() if len(ratio) else None
        line |= {
            "matrices": len(ratio),
            "faster on, %": 100.0 * float((ratio > 1.0).mean()) if len(ratio) else math.nan,
            "worst": ratio.min() if len(ratio) else math.nan,
            "worst on": facts["label"].get(worst, ""),
            "types": types.get(rival, ""),
        }
        lines.append(line)
    return Table(
        pd.DataFrame(lines),
        f"Speed of auto over each rival, geometric means by density, n = {evaluation.n}, cold L2, "
        "bf16 out. Recorded peers have types of their own, named in the last column."
        + _without_peers(evaluation),
    )


def rivals(evaluation: Evaluation, table: pd.DataFrame) -> list[str]:
    """Return who auto is compared with: libraries, peers, the bests, the article, the kernels."""
    kernels = sorted(set(evaluation.drawn.loc[evaluation.drawn["role"] == "ours", "who"]))
    wanted = [*evaluation.libraries(table), *codes(), *BESTS, BCSR, WCSR, *kernels, BEST_OURS]
    return [name for name in wanted if name in table and table[name].notna().any()]


def agreement_table(evaluation: Evaluation) -> Table:
    """Return how libraries measured live stand to their recorded times."""
    facts = run_facts()
    found = evaluation.found.rename(columns={"ratio": "live time / recorded"})
    return Table(
        found,
        f"Libraries measured live beside their times recorded on an {facts['gpu']} on "
        f"{facts['date']}: recorded peers are compared with only where each is within "
        f"{100 * AGREEMENT:g} % on the geometric mean.",
    )


def peers_table(evaluation: Evaluation) -> Table:
    """Return who the recorded peers are, and their useful TFLOPS with float32 rivals beside."""
    import pandas as pd

    recorded = evaluation.peers[evaluation.peers["n"] == evaluation.n]
    wide = evaluation.times(dtype_out="float32")
    compare = evaluation.peers_agree and AUTO in wide
    lines = []
    for series in read_series():
        rows = recorded[recorded["series"] == series.name].set_index("matrix")
        line: dict[str, Any] = {
            "peer": series.name,
            "version": series.version,
            "types": series.types,
            "matrices": len(rows),
            "useful TFLOPS": geometric_mean(rows["useful_tflops"]),
        }
        if compare:
            ratio = (rows["product_us"].reindex(wide.index) / wide[AUTO]).dropna()
            line["auto with fp32 out, times faster"] = geometric_mean(ratio)
        line["remark"] = series.remark
        lines.append(line)
    facts = run_facts()
    return Table(
        pd.DataFrame(lines),
        f"Recorded peers at n = {evaluation.n}: {facts['gpu']}, {facts['date']}, driver "
        f"{facts['driver']}, CUDA {facts['cuda']}, the zeroing of C counted.",
    )


def matrices_table(evaluation: Evaluation) -> Table:
    """Return of each matrix what auto chose and took, and who else was the fastest."""
    table = evaluation.compared()
    facts = evaluation.facts.reindex(table.index)
    lines = facts[["label", "m", "k", "nnz"]].rename(columns={"label": "matrix"}).copy()
    lines["density, %"] = 100.0 * facts["density"]
    rows = evaluation.drawn
    auto = rows[rows["role"] == "planner"].set_index("matrix")
    lines["chosen"] = auto["params.chosen"].reindex(table.index) if "params.chosen" in auto else ""
    lines["floor, us"] = _floors(evaluation).reindex(table.index)
    lines["auto, us"] = table[AUTO]
    lines["floor, % of it"] = 100.0 * lines["floor, us"] / table[AUTO]
    lines["TFLOPS"] = 2.0 * facts["nnz"] * evaluation.n / table[AUTO] / 1e6
    fastest = (
        ("library", [*evaluation.libraries(table)]),
        ("peer", [name for name in codes() if name in table]),
    )
    for kind, names in fastest:
        if names:
            times = table[names].dropna(how="all")
            lines[f"best {kind}"] = times.idxmin(axis=1).reindex(table.index).fillna("")
            lines[f"{kind} / auto"] = times.min(axis=1).reindex(table.index) / table[AUTO]
    lines["our best / auto"] = table[BEST_OURS] / table[AUTO]
    return Table(
        lines.reset_index(drop=True),
        f"Every matrix at n = {evaluation.n}, cold L2, bf16 out, densest first. The floor is an "
        "empty kernel, or A's values, the rows of B that are needed and C at the measured rate of "
        "HBM, whichever takes longer; ratios above 1 are for auto." + _without_peers(evaluation),
    )


def times_table(evaluation: Evaluation) -> Table:
    """Return the time of everybody on each matrix."""
    table = evaluation.compared()
    kernels = sorted(set(evaluation.drawn.loc[evaluation.drawn["role"] == "ours", "who"]))
    names = [AUTO, BCSR, WCSR, *kernels, *evaluation.libraries(table), *codes()]
    lines = table[[name for name in names if name in table]].copy()
    lines.insert(0, "matrix", evaluation.facts["label"].reindex(table.index))
    return Table(
        lines.reset_index(drop=True),
        f"Microseconds at n = {evaluation.n}, cold L2, bf16 out; kernels of several configurations "
        "at the best of them, recorded peers with the zeroing of C." + _without_peers(evaluation),
    )


def means(evaluation: Evaluation) -> Table:
    """Return auto's speed over the best of others at every n, by suite and class of density."""
    import pandas as pd

    lines = []
    sizes = evaluation.drawn_sizes
    for n in sizes:
        table = evaluation.compared(n)
        for suite in SUITES:
            own = table[evaluation.facts[suite].reindex(table.index)]
            for rival in (BEST_LIVE, BEST_OF_ALL, BEST_SPARSE, BEST_OURS):
                if rival not in own or own[rival].isna().all():
                    continue
                ratio = (own[rival] / own[AUTO]).dropna().to_frame("ratio")
                line: dict[str, Any] = {"n": n, "suite": suite, "over": rival}
                for name in CLASSES:
                    line[name] = geometric_mean(evaluation.in_class(name, ratio)["ratio"])
                large = evaluation.facts["nnz"].reindex(ratio.index) > LARGE
                worst = ratio["ratio"].idxmin() if len(ratio) else None
                line |= {
                    "faster on, %": 100.0 * float((ratio["ratio"] > 1.0).mean()),
                    "lowest": ratio["ratio"].min(),
                    "lowest on": evaluation.facts["label"].get(worst, ""),
                    "lowest, large": ratio.loc[large, "ratio"].min(),
                }
                lines.append(line)
    return Table(
        pd.DataFrame(lines),
        "Speed of auto at every n, geometric means by density, cold L2, bf16 out; 'large' are "
        f"matrices above {LARGE:,} non-zeros. Recorded peers count where libraries agree.",
    )


def sizes_table(evaluation: Evaluation) -> Table:
    """Return of each matrix and every n what auto took, and the best of others over it."""
    tables = {n: evaluation.compared(n) for n in evaluation.drawn_sizes}
    names = [
        name for name in evaluation.facts.index if any(name in t.index for t in tables.values())
    ]
    lines = evaluation.facts.loc[names, ["label"]].rename(columns={"label": "matrix"})
    lines["density, %"] = 100.0 * evaluation.facts["density"]
    for n, table in tables.items():
        own = table.reindex(names)
        lines[f"auto, us, n = {n}"] = own[AUTO]
        for word, rival in (("live", BEST_LIVE), ("of all", BEST_OF_ALL), ("ours", BEST_OURS)):
            if rival in own:
                lines[f"best {word} / auto, n = {n}"] = own[rival] / own[AUTO]
    return Table(
        lines.reset_index(drop=True),
        "Every matrix at every n, cold L2, bf16 out, densest first: ratios above 1 are for auto; "
        "'of all' has the recorded peers in it.",
    )


def warm(evaluation: Evaluation) -> Table:
    """Return auto's speed over those that were timed in both states of L2."""
    import pandas as pd

    lines = []
    for n in evaluation.drawn_sizes:
        states = {l2: evaluation.times(n, l2=l2) for l2 in ("cold", "warm")}
        if AUTO not in states["warm"]:
            continue
        both = states["warm"].index
        for rival, names in _TIMED_WARM.items():
            line: dict[str, Any] = {"n": n, "over": rival}
            for l2, table in states.items():
                there = [name for name in names if name in states["warm"]]
                here = table.loc[both, there].where(states["warm"][there].notna())
                ratio = (here.min(axis=1) / table.loc[both, AUTO]).dropna()
                line[l2] = geometric_mean(ratio)
                line["matrices"] = len(ratio)
            lines.append(line)
    return Table(
        pd.DataFrame(lines, columns=["n", "over", "matrices", "cold", "warm"]),
        "Speed of auto on a cold and on a warm L2, geometric means over the same matrices; of the "
        "article's kernels and of cuSPARSE the one that was the fastest on a cold L2.",
    )


def _floors(evaluation: Evaluation) -> pd.Series[float]:
    """Return the least time of each matrix in microseconds, NaN without recorded ceilings."""
    from asyncsparse_lab.studies.rooflines import ceilings_for

    rows = evaluation.drawn
    rows = rows[rows["role"] == "planner"].set_index("matrix")
    ceilings = ceilings_for(rows)
    if ceilings is None or "result.least_bytes" not in rows:
        return rows["median_us"] * np.nan
    moved = 1e6 * rows["result.least_bytes"].astype("float64") / ceilings.hbm_bytes_per_s
    return moved.clip(lower=ceilings.empty_us)
