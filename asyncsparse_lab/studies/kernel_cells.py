"""Measured figures for the article's comparison of its two kernels, from the studies' records."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from asyncsparse_lab.records.frame import geometric_mean, load_records, ratios

if TYPE_CHECKING:
    import pandas as pd

Cells = dict[tuple[str, str], str]


def measured_cells() -> Cells:
    """Return (feature, kernel) -> a figure in words, of every study that has recorded ones."""
    cells: Cells = {}
    for study, make in _MAKERS.items():
        frame = load_records(study)
        if not frame.empty:
            cold = frame[(frame["l2"] == "cold") & (frame["status"] == "passed")]
            cells |= make(cold)
    return cells


def _gain(rows: pd.DataFrame, of: str, over: str) -> float:
    return geometric_mean(ratios(rows, of, over)["ratio"])


def _ladder(cold: pd.DataFrame) -> Cells:
    from asyncsparse_lab.studies.bcsr_figures import HEADLINE
    from asyncsparse_lab.studies.rooflines import counted

    rows = cold[(cold["dtype_out"] == "bfloat16") & (cold["case"] != "own-kernel")]
    tma = _gain(rows, "variant == 'bcsr-opt2'", "variant == 'bcsr-opt1'")
    ring = _gain(rows, "variant == 'bcsr-opt3'", "variant == 'bcsr-opt2'")
    own = counted(rows[(rows["matrix"] == HEADLINE) & (rows["variant"] == "bcsr-opt3")])
    cells = {
        ("Loads of A", "bcsr"): f"TMA instead of threads' loads: {tma:.1f} times the speed",
        ("Overlap", "bcsr"): f"the ring over TMA loads alone: {ring:.2f} times the speed",
    }
    if len(own):
        rate = float((own["l2_bytes"] / own["seconds"]).max()) / 1e12
        cells["Loads of B", "bcsr"] = f"{rate:.1f} TB/s of A and B into shared memory"
    return cells


def _registers(cold: pd.DataFrame) -> Cells:
    rows = cold[cold["params.wgmma_n"] == 256]
    gain = _gain(rows, "`params.setmaxnreg` == 1", "`params.setmaxnreg` == 0")
    return {("Registers", "bcsr"): f"moved, at WGMMA_N = 256: {gain:.2f} times the speed"}


def _windows(cold: pd.DataFrame) -> Cells:
    cells: Cells = {}
    probes = cold[(cold["role"] == "probe") & (cold["variant"] == "wcsr-paper")]
    timed = cold[(cold["role"] != "probe") & (cold["variant"] == "wcsr-paper")]
    if len(probes):
        share = {part: probes[f"result.share_{part}"].median() for part in ("wait", "multiply")}
        cells["Loads of A", "wcsr"] = f"{share['wait']:.0%} of the time waiting for them"
        cells["Overlap", "wcsr"] = f"{share['multiply']:.0%} of the time is WGMMA"
    if len(timed):
        rate = (timed["result.gathered_bytes"] / timed["median_us"]).groupby(timed["case"]).max()
        cells["Loads of B", "wcsr"] = f"{rate.median() / 1e6:.1f} TB/s gathered"
    if "result.registers" in timed and timed["result.registers"].notna().any():
        known = timed[timed["result.registers"].notna()]
        usual = known[known["params.wgmma_n"] == known["params.wgmma_n"].median()].iloc[0]
        cells["Registers", "wcsr"] = (
            f"{usual['result.registers']:.0f} a thread, "
            f"{usual['result.blocks_per_sm']:.0f} blocks per SM"
        )
    skewed = cold[cold["case"].str.startswith("sweep-skewed")]
    if len(skewed):
        gain = _gain(skewed, "variant == 'wcsr-paper'", "variant == 'wcsr-paper-unsplit'")
        cells["Balance", "wcsr"] = f"cutting long windows: {gain:.1f} times the speed"
    return cells


def _balance(cold: pd.DataFrame) -> Cells:
    probes = cold[(cold["role"] == "probe") & (cold["variant"] == "bcsr-opt3")]
    idle = (probes["result.spent_tail"] / probes["result.span_us"]).dropna()
    if idle.empty:
        return {}
    return {("Balance", "bcsr"): f"SMs idle at the end: {idle.min():.0%} to {idle.max():.0%}"}


_MAKERS: Final[dict[str, Callable[[pd.DataFrame], Cells]]] = {
    "bcsr-ablation": _ladder,
    "registers": _registers,
    "wcsr-ablation": _windows,
    "persistent": _balance,
}
