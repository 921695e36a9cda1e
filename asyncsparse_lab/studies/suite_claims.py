"""The columns by which the document's claims about other codes are judged, from recorded peers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from asyncsparse_lab.records.frame import geometric_mean
from asyncsparse_lab.studies.suite_frame import (
    BCSR,
    BEST_OF_ALL,
    CLASSES,
    DENSE,
    WCSR,
    Evaluation,
    codes,
)

if TYPE_CHECKING:
    import pandas as pd

FEWEST: Final = 5
"""Matrices over which a mean is worth telling."""
_FLASHSPARSE: Final = ("FlashSparse fp16", "FlashSparse tf32")
_COLUMNS: Final = (
    "article.wcsr_tflops", "peer.over_accspmm", "peer.over_flashsparse", "peer.accspmm_tflops",
    "peer.flashsparse_tflops", "peer.all_fall", "peer.bcsr_passes_percent",
)  # fmt: skip


def with_peer_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return records with what claims say of other codes, at n = 1024 where not said.

    ``article.wcsr_tflops`` (of the article's WCSR at its better threshold, on the rows of
    ``wcsr-paper``), ``peer.over_accspmm``, ``peer.over_flashsparse`` (its speed over them),
    ``peer.accspmm_tflops``, ``peer.flashsparse_tflops`` (on the same rows), ``peer.all_fall`` (1 if
    the useful TFLOPS of every code fall from n = 256 to 1024 at a density of 1 % and more, else 0),
    ``peer.bcsr_passes_percent`` (the density from which BCSR passes all sparse baselines; 100 if
    none). Those of peers are NaN where libraries measured live do not agree with their recorded
    times.
    """
    out = frame.assign(**dict.fromkeys(_COLUMNS, math.nan))
    cold = frame[(frame["status"] == "passed") & (frame["l2"] == "cold")]
    paper = (out["variant"] == "wcsr-paper") & (out["l2"] == "cold")
    paper &= ~out["case"].str.startswith("search-")  # which would count matrices twice
    for gpu in sorted(set(cold["gpu"])):
        evaluation = Evaluation.of(frame, n=int(cold.loc[cold["gpu"] == gpu, "n"].max()), gpu=gpu)
        out["peer.all_fall"] = float(_codes_fall(evaluation))
        for n in sorted(set(cold["n"])):
            here = (out["gpu"] == gpu) & (out["n"] == n)
            table = evaluation.compared(n)
            if WCSR not in table:
                continue
            own = here & paper
            names = out.loc[own, "matrix"]
            flops = 2.0 * out.loc[own, "nnz"] * n
            wcsr_us = table[WCSR].reindex(names).to_numpy()
            out.loc[own, "article.wcsr_tflops"] = flops / wcsr_us / 1e6
            if BEST_OF_ALL not in table:
                continue
            out.loc[here, "peer.bcsr_passes_percent"] = bcsr_passes(evaluation, table)
            for key, series in (("accspmm", ("AccSpMM",)), ("flashsparse", _FLASHSPARSE)):
                times = table[list(series)].min(axis=1).reindex(names).to_numpy()
                out.loc[own, f"peer.over_{key}"] = times / wcsr_us
                out.loc[own, f"peer.{key}_tflops"] = flops / times / 1e6
    return out


def _codes_fall(evaluation: Evaluation) -> bool:
    dense = evaluation.peers[evaluation.peers["density"] >= CLASSES[">= 1 %"][0]]
    means = dense.groupby(["series", "n"])["useful_tflops"].agg(geometric_mean).unstack("n")
    return bool((means.loc[codes(), 1024] < means.loc[codes(), 256]).all())


def bcsr_passes(evaluation: Evaluation, table: pd.DataFrame) -> float:
    """Return the density in % from which BCSR's mean is above every baseline's; 100 if none.

    For the matrices of at least that density, at least five, the geometric mean of BCSR's speed
    over each sparse library and each recorded peer is above 1.
    """
    names = [name for name in (*evaluation.libraries(table), *codes()) if name != DENSE]
    both = table[names].div(table[BCSR], axis=0).map(math.log)  # densest first
    enough = both.expanding(min_periods=1).mean().iloc[FEWEST - 1 :]
    passes = (enough.fillna(0.0) > 0).all(axis=1)
    if not passes.any():
        return 100.0
    last = passes[passes].index[-1]
    return 100.0 * float(evaluation.facts["density"].loc[last])
