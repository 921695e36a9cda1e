"""Pictures and tables of the studies ``wcsr-ablation`` and ``selection``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncsparse_lab.records.frame import geometric_mean, ratios
from asyncsparse_lab.studies.base import Drawing, Table
from asyncsparse_lab.studies.bcsr_figures import plain_log
from asyncsparse_lab.studies.cta_tables import short
from asyncsparse_lab.studies.spmm_cases import claimed

if TYPE_CHECKING:
    import pandas as pd

    from asyncsparse_lab.studies.ceilings import MeasuredCeilings

ENOUGH: Final = 3.0
"""Speed over Blocked-ELL below which the study has to say why."""
BLOCKED_ELL: Final = "backend == 'cusparse' and variant == 'blocked-ell'"
UNSPLIT: Final = "variant == 'wcsr-paper-unsplit'"
SPLIT: Final = "variant == 'wcsr-paper'"
_PARTS: Final = (
    ("gather", "gathering rows of B"),
    ("wait", "waiting for A and for each other"),
    ("multiply", "WGMMA"),
    ("epilogue", "writing or adding C"),
    ("setup", "setting up"),
    ("rest", "rest"),
)


def _lengths(sweep: pd.DataFrame) -> pd.DataFrame:
    """Return the split kernel's rows at the table's tile, with the unsplit time of their case."""
    width = sweep.loc[sweep["variant"] == "wcsr-paper-unsplit", "params.wgmma_n"]
    whole = sweep[sweep["variant"] == "wcsr-paper-unsplit"].set_index("case")["median_us"]
    rows = sweep[(sweep["variant"] == "wcsr-paper") & sweep["params.wgmma_n"].isin(width)]
    return rows.assign(gain=rows["case"].map(whole) / rows["median_us"])


def threshold(sweep: pd.DataFrame) -> Drawing:
    """Draw what cutting windows gains against max_cols_per_task, a line for each matrix."""
    import seaborn as sns
    from matplotlib import pyplot as plt

    from asyncsparse_lab.studies import style

    rows = _lengths(sweep).sort_values("params.max_cols_per_task")
    rows["kind"] = rows["case"].str.split("-").str[1]
    figure, axes = plt.subplots(figsize=(7.4, 3.9))
    for kind, palette, line in (("skewed", "flare", "-"), ("even", "crest", "--")):
        names = list(dict.fromkeys(rows.loc[rows["kind"] == kind, "matrix"]))
        for color, matrix in zip(sns.color_palette(palette, len(names)), names, strict=True):
            part = rows[(rows["matrix"] == matrix) & (rows["kind"] == kind)]
            axes.plot(
                part["params.max_cols_per_task"], part["gain"], line, color=color, marker="o",
                markersize=4, label=f"{short(matrix)} ({kind})",
            )  # fmt: skip
    axes.axhline(1.0, color="#707070", linewidth=1, linestyle=":")
    axes.set_xscale("log", base=2)
    lengths = sorted(set(rows["params.max_cols_per_task"].astype(int)))
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.set(
        yscale="log", xlabel="max_cols_per_task", ylabel="speed over whole windows",
        title="Cutting long windows into tasks",
    )  # fmt: skip
    plain_log(axes)
    figure.legend(fontsize=7, ncols=3, loc="outside upper center")
    style.provenance(figure, sweep)
    names = ["variant", "matrix", "kind", "n", "params.max_cols_per_task", "median_us", "gain"]
    return Drawing(
        figure,
        rows[names].reset_index(drop=True),
        "Speed of the article's WCSR kernel with windows cut at so many columns over the same "
        "kernel with whole windows; clearing and adding up are in the time.",
    )


def bound(probes: pd.DataFrame) -> Drawing:
    """Draw where the kernel's thread blocks spend their time, by matrix, split and unsplit."""
    import seaborn as sns
    from matplotlib import pyplot as plt

    from asyncsparse_lab.studies import style

    rows = probes.sort_values(["matrix", "variant"]).reset_index(drop=True)
    colors = sns.color_palette("colorblind", len(_PARTS))
    figure, axes = plt.subplots(figsize=(8.4, 0.9 + 0.32 * len(rows)))
    left = np.zeros(len(rows))
    for color, (name, words) in zip(colors, _PARTS, strict=True):
        share = 100 * rows[f"result.share_{name}"].to_numpy(dtype=float)
        axes.barh(range(len(rows)), share, left=left, color=color, label=words)
        left += share
    labels = [
        f"{short(matrix)}, {'whole' if 'unsplit' in variant else 'cut'}"
        for matrix, variant in zip(rows["matrix"], rows["variant"], strict=True)
    ]
    axes.set_yticks(range(len(rows)), labels, fontsize=7)
    axes.set(xlabel="% of the thread blocks' time", xlim=(0, 100), title="What bounds the kernel")
    axes.set_ylim(-0.6, len(rows) - 0.4)
    figure.legend(fontsize=7, loc="outside upper center", ncols=3)
    style.provenance(figure, probes)
    names = ["variant", "matrix", *(f"result.share_{name}" for name, _ in _PARTS)]
    return Drawing(
        figure,
        rows[names],
        "Time of all thread blocks of an instrumented build, L2 cold. Loads and products follow "
        "each other in this kernel, so what is not WGMMA is time without products.",
    )


def over_blocked_ell(dense: pd.DataFrame) -> pd.DataFrame:
    """Return the kernel's speed over Blocked-ELL on each matrix, split or not, the better."""
    found = ratios(dense, f"{SPLIT} or {UNSPLIT}", BLOCKED_ELL).reset_index()
    return found.assign(variant="wcsr-paper")[["variant", "matrix", "n", "of", "over", "ratio"]]


def blocked_ell(dense: pd.DataFrame, claims: pd.DataFrame) -> Drawing:
    """Draw the speed over Blocked-ELL by matrix, and the geometric mean beside the document's."""
    from matplotlib import pyplot as plt

    from asyncsparse_lab.studies import style

    found = over_blocked_ell(dense).sort_values("ratio", ignore_index=True)
    mean = geometric_mean(found["ratio"])
    figure, axes = plt.subplots(figsize=(8.2, 3.9))
    color = style.look("wcsr-paper").color
    axes.bar(range(len(found)), found["ratio"] - 1.0, bottom=1.0, color=color)
    for place, ratio in enumerate(found["ratio"]):
        axes.annotate(
            f"{ratio:.2f}", (place, ratio), (0, 3 if ratio > 1 else -9), ha="center", fontsize=6.5,
            textcoords="offset points",
        )  # fmt: skip
    axes.plot(len(found) + 0.3, mean, "o", color=color, markersize=9)
    axes.annotate(f"{mean:.2f}", (len(found) + 0.3, mean), (8, -3), textcoords="offset points")
    stated = claimed(claims, "suite-wcsr-cusparse")
    style.document_mark(axes, len(found) + 0.3, stated, label="document", size=11)
    axes.axhline(1.0, color="#707070", linewidth=1, linestyle="--")
    axes.axhline(ENOUGH, color="#707070", linewidth=0.8, linestyle=":")
    axes.text(-0.6, 1.02 * ENOUGH, f"{ENOUGH:g}", fontsize=7, color="#707070", va="bottom")
    axes.set_xticks(
        [*range(len(found)), len(found) + 0.3],
        [*map(short, found["matrix"]), "geometric mean"],
        fontsize=7, rotation=40, ha="right",
    )  # fmt: skip
    axes.set(yscale="log", ylabel="times Blocked-ELL's speed", title="WCSR beside Blocked-ELL")
    axes.set_xlim(-0.7, len(found) + 1.3)
    axes.grid(axis="x", visible=False)
    axes.set_ylim(0.8 * found["ratio"].min(), None)
    plain_log(axes)
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(0.06, 0.98))
    style.provenance(figure, dense)
    return Drawing(
        figure,
        found,
        "The article's WCSR kernel, windows cut or whole, over cuSPARSE's Blocked-ELL on matrices "
        "of density 1 % and above; the hollow mark is the document's mean over its own matrices.",
    )


def sweep_table(sweep: pd.DataFrame, ceilings: MeasuredCeilings | None) -> Table:
    """Return for each matrix the windows, the best length, the tile, and the rate of the gather."""
    import pandas as pd

    lengths = _lengths(sweep)
    lines: list[dict[str, Any]] = []
    for matrix, case in sweep.groupby("matrix"):
        own = lengths[lengths["matrix"] == matrix]
        best = own.sort_values("median_us").iloc[0]
        widths = case[case["variant"].isin(["wcsr-paper", "wcsr-paper-unsplit"])]
        fastest = widths.sort_values("median_us").iloc[0]
        rate = fastest["result.gathered_bytes"] / fastest["median_us"] * 1e6
        lines.append(
            {
                "matrix": short(str(matrix)),
                "columns, median": best["result.columns_median"],
                "columns, most": best["result.columns_max"],
                "best max_cols_per_task": int(best["params.max_cols_per_task"]),
                "tasks": int(best["result.tasks"]),
                "cut windows": int(best["result.split_windows"]),
                "over whole windows": best["gain"],
                "best WGMMA_N": int(fastest["params.wgmma_n"]),
                "its time, us": fastest["median_us"],
                "gathered, TB/s": rate / 1e12,
                "of the gather's ceiling, %": 100 * rate / ceilings.gather_bytes_per_s
                if ceilings
                else np.nan,
                "over Blocked-ELL": _best_ratio(case, BLOCKED_ELL),
                "over the best CSR": _best_ratio(case, "variant in ('csr-alg2', 'csr-alg3')"),
                "over dense cuBLAS": _best_ratio(case, "backend == 'cublas'"),
            }
        )
    return Table(
        pd.DataFrame(lines),
        "The sweep: float32 C. Gathered bytes are 2 N for each column of each window; the ceiling "
        "is the probe that gathers rows from L2 and does nothing else.",
    )


def dense_table(dense: pd.DataFrame) -> Table:
    """Return the times behind the comparison with Blocked-ELL."""
    found = over_blocked_ell(dense).rename(
        columns={"of": "WCSR, us", "over": "Blocked-ELL, us", "ratio": "WCSR / Blocked-ELL"}
    )
    extra = dense.drop_duplicates("matrix").set_index("matrix")["density"]
    found.insert(2, "density, %", 100 * found["matrix"].map(extra))
    mean = geometric_mean(found["WCSR / Blocked-ELL"])
    return Table(
        found.drop(columns="variant"),
        f"Beside Blocked-ELL; the geometric mean of the ratio is {mean:.2f}.",
    )


def _best_ratio(case: pd.DataFrame, over: str) -> float:
    found = ratios(case, f"{SPLIT} or {UNSPLIT}", over)["ratio"]
    return float(found.iloc[0]) if len(found) else float("nan")


def compared(rows: pd.DataFrame) -> pd.DataFrame:
    """Return BCSR's time over WCSR's (the better of cut and whole windows), by fill."""
    bcsr = rows[rows["variant"] == "bcsr-opt3"]
    times = {
        "bcsr_us": bcsr.set_index("case")["median_us"],
        "wcsr_us": rows[rows["variant"].str.startswith("wcsr")].groupby("case")["median_us"].min(),
        "dense_us": rows[rows["backend"] == "cublas"].set_index("case")["median_us"],
    }
    table = bcsr[["case", "matrix", "n"]].assign(fill=bcsr["result.fill_percent"])
    for name, time in times.items():
        table[name] = table["case"].map(time)
    table["bcsr_over_wcsr"] = table["bcsr_us"] / table["wcsr_us"]
    return table.sort_values("fill", ignore_index=True)


def break_even(table: pd.DataFrame) -> float:
    """Return the fill in % at which BCSR and WCSR are equally fast, NaN if they never are.

    Between two measured fills the logarithms of fill and ratio are taken as linear.
    """
    fill, ratio = np.log(table["fill"]), np.log(table["bcsr_over_wcsr"])
    for index in range(len(table) - 1):
        low, high = ratio.iloc[index], ratio.iloc[index + 1]
        if low > 0 >= high:
            part = low / (low - high)
            return float(
                np.exp(fill.iloc[index] + part * (fill.iloc[index + 1] - fill.iloc[index]))
            )
    return float("nan")


def selection(rows: pd.DataFrame, claims: pd.DataFrame) -> Drawing:
    """Draw BCSR's time over WCSR's against fill, with break-even and the stated thresholds."""
    from matplotlib import pyplot as plt

    from asyncsparse_lab.studies import style

    table = compared(rows)
    equal = break_even(table)
    figure, axes = plt.subplots(figsize=(7.0, 3.8))
    look = style.look("bcsr-opt3")
    axes.plot(table["fill"], table["bcsr_over_wcsr"], look.marker, color=look.color, linestyle="-")
    axes.axhline(1.0, color="#707070", linewidth=1, linestyle="--")
    axes.fill_between((0.8, 120), 1.0, 10.0, color="#808080", alpha=0.08, linewidth=0)
    axes.text(0.85, 1.03, "WCSR faster", fontsize=7.5, color="#606060", va="bottom")
    axes.text(0.85, 0.97, "BCSR faster", fontsize=7.5, color="#606060", va="top")
    for claim, words in (
        ("bcsr-suitable-fill", "document's thresholds"),
        ("bcsr-good-fill", None),
    ):
        style.document_mark(axes, claimed(claims, claim), 1.0, size=11, label=words)
        axes.axvline(claimed(claims, claim), color="#b0b0b0", linewidth=0.8, zorder=0)
    if equal == equal:
        axes.axvline(equal, color=look.color, linewidth=1)
        axes.annotate(f"break-even {equal:.1f} %", (equal, 1.0), (6, 8),
                      textcoords="offset points", fontsize=8)  # fmt: skip
    axes.set(
        xscale="log", yscale="log", xlabel="fill of the 64 x 64 blocks, %",
        ylabel="BCSR's time / WCSR's", title="Which format is faster, by fill",
    )  # fmt: skip
    axes.set_xticks([1, 2, 5, 10, 20, 50, 70, 100], ["1", "2", "5", "10", "20", "50", "70", "100"])
    axes.minorticks_off()
    low, high = table["bcsr_over_wcsr"].min(), table["bcsr_over_wcsr"].max()
    axes.set_xlim(0.8, 120)
    ratios_shown = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.5, 2, 3, 5)
    axes.set_yticks(ratios_shown, [f"{value:g}" for value in ratios_shown])
    axes.set_ylim(0.9 * min(low, 1.0), 1.15 * max(high, 1.0))
    axes.minorticks_off()
    axes.legend(fontsize=7, loc="center right")
    style.provenance(figure, rows)
    always = "BCSR is faster at every fill" if (table["bcsr_over_wcsr"] < 1).all() else (
        "WCSR is faster at every fill" if (table["bcsr_over_wcsr"] > 1).all() else
        f"both are equally fast at {equal:.1f} %")  # fmt: skip
    return Drawing(
        figure,
        table.assign(variant="bcsr-opt3"),
        "opt3's time over that of the article's WCSR kernel on the same blocks, thinned inside; "
        f"above the line WCSR is faster. Here {always}; hollow marks are the thresholds that the "
        "article states.",
    )


def selection_table(rows: pd.DataFrame) -> Table:
    """Return the times by fill, and what the rule takes."""
    from asyncsparse_lab.formats import choose_by_fill

    table = compared(rows)
    faster = np.where(table["bcsr_over_wcsr"] < 1, "bcsr", "wcsr")
    return Table(
        table.drop(columns=["case", "matrix"]).assign(
            faster=faster, rule=[choose_by_fill(fill / 100).format for fill in table["fill"]]
        ),
        "Times by fill, the faster format, and the one that the article's rule takes.",
    )
