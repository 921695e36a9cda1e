"""Pictures and tables of the planner: predictions, the cost of choices, planning time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncsparse_lab.records.frame import geometric_mean
from asyncsparse_lab.spmm.plan_hash import plan_hash
from asyncsparse_lab.spmm.plan_rates import load_rates
from asyncsparse_lab.studies import style
from asyncsparse_lab.studies.base import Drawing, Table
from asyncsparse_lab.studies.bcsr_figures import plain_log
from asyncsparse_lab.studies.planner_frame import STRATEGIES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

WITHIN: Final = (5, 10, 25)
"""Percent within which shares are tabulated."""
TARGET_NONZEROS: Final = 10_000_000
TARGET_US: Final = 1e6
"""Planning so many non-zeros should take no longer than that."""

_BAND: Final = 1.25
_MISSES: Final = 12
_LINES: Final = {"auto": ("#000000", "-"), "model": ("#707070", ":"), "rule": ("#b06000", "--"),
                 "cublas": ("#404040", "-.")}  # fmt: skip


def prediction(rows: pd.DataFrame) -> Drawing:
    """Draw predicted against measured time, a panel a kernel."""
    import matplotlib.pyplot as plt

    kernels = sorted(set(rows["kernel"]), key=_kernel_order)
    across = min(4, len(kernels))
    down = -(-len(kernels) // across)
    figure, grid = plt.subplots(
        down, across, figsize=(2.5 * across, 2.5 * down + 0.4), sharex=True, sharey=True,
        squeeze=False,
    )  # fmt: skip
    low = 0.8 * float(min(rows["median_us"].min(), rows["predicted_us"].min()))
    high = 1.25 * float(max(rows["median_us"].max(), rows["predicted_us"].max()))
    ends = np.array([low, high])
    for axes, kernel in zip(grid.flat, kernels, strict=False):
        part = rows[rows["kernel"] == kernel]
        look = style.look(_label(kernel))
        axes.fill_between(ends, ends / _BAND, ends * _BAND, color="#e4e4e4", linewidth=0)
        axes.plot(ends, ends, color="#808080", linewidth=0.8)
        axes.plot(
            part["median_us"], part["predicted_us"], look.marker, color=look.color,
            markersize=3, markerfacecolor="none", markeredgewidth=0.7, linestyle="none",
        )  # fmt: skip
        error = np.abs(part["ratio"] - 1)
        axes.set_title(_label(kernel), fontsize=8)
        axes.text(
            0.04, 0.94, f"{len(part)} products\nmedian error {100 * error.median():.1f} %",
            transform=axes.transAxes, fontsize=7, va="top",
        )  # fmt: skip
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
        for which in "xy":
            plain_log(axes, which, steps=(1.0,))
        axes.tick_params(labelsize=7)
    for axes in grid.flat[len(kernels) :]:
        axes.set_visible(False)
    figure.supxlabel("measured, us", fontsize=9)
    figure.supylabel("predicted, us", fontsize=9)
    style.provenance(figure, rows)
    columns = ["kernel", "matrix", "n", "configuration", "median_us", "predicted_us", "bound_by"]
    return Drawing(
        figure,
        rows[columns].sort_values(["kernel", "matrix", "n", "configuration"], ignore_index=True),
        "Predicted against measured time of the suite's products, bf16 out. Each kernel has three "
        "coefficients, fitted to its recorded times (these among them); all else is measured "
        "ceilings and counts of the matrix. The band is 25 % to either side.",
    )


def regret(chosen: pd.DataFrame) -> Drawing:
    """Draw how much longer than the best candidate each way to choose takes: distributions."""
    import matplotlib.pyplot as plt

    chosen = chosen[~chosen["search"]]
    columns = sorted(set(chosen["n"]))
    figure, grid = plt.subplots(
        1, len(columns), figsize=(1.2 + 3.2 * len(columns), 3.2), sharey=True, squeeze=False
    )
    for axes, n in zip(grid.flat, columns, strict=True):
        part = chosen[chosen["n"] == n]
        for name, words in STRATEGIES.items():
            _distribution(axes, part[name].to_numpy(), name, words)
        axes.set(xscale="log", xlabel="time over the best candidate's", title=f"n = {n}")
        axes.set_xlim(0.99, 20)
        axes.set_xticks([1, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20])
        axes.set_xticklabels(["1", "", "", "1.5", "2", "3", "5", "10", "20"])
        axes.minorticks_off()
    grid.flat[0].set(ylabel="share of matrices", ylim=(0, 1.02))
    grid.flat[-1].legend(fontsize=7, loc="lower right")
    style.provenance(figure, chosen)
    names = ["matrix", "n", "density", "best", "best_us", "chosen", *STRATEGIES]
    return Drawing(
        figure,
        chosen[names].sort_values(["matrix", "n"], ignore_index=True),
        "Share of the evaluation's matrices on which a way to choose takes at most so many times "
        "what the fastest of all measured candidates takes, libraries among them. The "
        "article's rule takes BCSR above a fill of 50 %, with the article's kernels; lines that "
        "end below 1 were not measured on the rest (memory, or types).",
    )


def _distribution(axes: Axes, ratios: Any, name: str, words: str) -> None:
    color, line = _LINES[name]
    values = np.sort(ratios[~np.isnan(ratios)])
    if len(values):
        shares = np.arange(1, len(values) + 1) / len(ratios)
        axes.step(
            np.r_[1.0, values], np.r_[0.0, shares], where="post", color=color, linestyle=line,
            label=words, linewidth=1.5,
        )  # fmt: skip


def planning(frame: pd.DataFrame) -> Drawing:
    """Draw the time that planning takes against non-zeros."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5.2, 3.2))
    axes.plot(
        frame["nnz"], frame["preprocess_us"] / 1e3, "o", color="#404040", markersize=3,
        markerfacecolor="none", linestyle="none", label="a product",
    )  # fmt: skip
    axes.plot(
        TARGET_NONZEROS, TARGET_US / 1e3, "v", color="#b00020", markersize=7,
        label="10 M non-zeros in 1 s",
    )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="non-zeros", ylabel="planning, ms")
    plain_log(axes)
    axes.legend(fontsize=7)
    style.provenance(figure, frame)
    names = ["matrix", "n", "nnz", "preprocess_us"]
    return Drawing(
        figure,
        frame[names].sort_values(["matrix", "n"], ignore_index=True),
        "Time of planning from CSR on one core of the processor named below: counting the "
        "pattern, costing every candidate, sorting." + _at_the_target(frame),
    )


def _at_the_target(frame: pd.DataFrame) -> str:
    large = frame[frame["nnz"] >= TARGET_NONZEROS]
    if large.empty:
        return ""
    slowest = float((large["preprocess_us"] / large["nnz"]).max()) * TARGET_NONZEROS
    return (
        f" The slowest of {large['matrix'].nunique()} matrices of {TARGET_NONZEROS:,} non-zeros "
        f"and more takes {slowest / 1e6:.2f} s for so many; wanted: {TARGET_US / 1e6:g} s."
    )


def errors_table(rows: pd.DataFrame, gpu: str) -> Table:
    """Return each kernel's coefficients and how near its predictions are."""
    import pandas as pd

    rates = load_rates(gpu)
    lines = []
    for kernel, part in rows.groupby("kernel"):
        coefficients = rates.of(str(kernel))
        error = np.abs(part["ratio"] - 1)
        line: dict[str, Any] = {
            "kernel": _label(str(kernel)),
            "products": len(part),
            "fixed, us": coefficients.fixed_us,
            "efficiency": coefficients.efficiency,
            "us a step": coefficients.task_us,
            "median error, %": 100 * error.median(),
            "predicted / measured": geometric_mean(part["ratio"]),
        }
        line |= {f"within {x} %": float((error <= x / 100).mean()) for x in WITHIN}
        lines.append(line)
    return Table(
        pd.DataFrame(lines),
        "The cost model of each kernel on the suite: fitted coefficients, median error, geometric "
        "mean of predicted over measured time, and the share of products within 5, 10 and 25 %. "
        "An efficiency above 1 is that of a rate which SMs that read the same lines together can "
        "pass; 20 is the most that the fit allows, where something else takes the time.",
    )


def choices_table(chosen: pd.DataFrame) -> Table:
    """Return what each way to choose costs, for each n."""
    import pandas as pd

    lines = []
    for (n, search), part in chosen.groupby(["n", "search"]):
        for name, words in STRATEGIES.items():
            ratios = part[name].dropna()
            if len(ratios):
                line: dict[str, Any] = {
                    "n": n,
                    "candidates": "all configurations" if search else "the evaluation's",
                    "choice": words,
                    "matrices": len(ratios),
                    "mean over best": geometric_mean(ratios),
                    "worst": float(ratios.max()),
                }
                lines.append(
                    line | {f"within {x} %": float((ratios <= 1 + x / 100).mean()) for x in WITHIN}
                )
    return Table(
        pd.DataFrame(lines),
        "Time of what is chosen over that of the fastest measured candidate, cold L2, bf16 out: "
        "geometric mean, worst matrix, share of matrices within 5, 10 and 25 %. Candidates are a "
        "few configurations of each kernel, and libraries; on the matrices of the search all "
        "configurations, and no library. The committed model was fitted to these measurements; "
        "auto, as measured, chose by the coefficients of its day.",
    )


def misses_table(chosen: pd.DataFrame) -> Table:
    """Return the products on which auto lost most."""
    worst = chosen.sort_values("auto", ascending=False).head(_MISSES)
    names = ["matrix", "n", "nnz", "density", "chosen", "auto_us", "best", "best_us", "auto"]
    return Table(
        worst[names].rename(columns={"auto": "auto over best"}).reset_index(drop=True),
        "The products on which auto was farthest from the best candidate.",
    )


def planners_table(chosen: pd.DataFrame) -> Table:
    """Return by which planners auto was measured, and where the committed one chooses otherwise."""
    import pandas as pd

    lines = []
    for planner, part in chosen.groupby(chosen["planner"].fillna("not recorded")):
        others = part[part["differs"].astype(bool)]
        lines.append(
            {
                "planner": planner,
                "is the committed one": planner == plan_hash(),
                "products": len(part),
                "chosen otherwise now": len(others),
                "predicted gain on those": geometric_mean(others["loss"].dropna()),
                "predicted for": int(others["loss"].notna().sum()),
            }
        )
    return Table(
        pd.DataFrame(lines),
        "The planners that auto was measured with, by the hash of their code and rates. Where the "
        "committed planner chooses another kernel or configuration, the gain is auto's choice over "
        "its own, both as it predicts them, where it predicted both.",
    )


def _label(kernel: str) -> str:
    """Return a kernel's name as the other figures write it."""
    for backend in ("cublas", "cusparse"):
        if kernel.startswith(f"{backend}-"):
            return style.contender_name(backend, kernel.removeprefix(f"{backend}-"))
    return kernel


def _kernel_order(kernel: str) -> tuple[bool, str]:
    return kernel.startswith("cu"), kernel
