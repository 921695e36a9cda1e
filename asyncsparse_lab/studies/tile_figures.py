"""Pictures and tables of the studies ``wgmma-n`` and ``stages``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncsparse_lab.records.frame import geometric_mean
from asyncsparse_lab.studies.base import Drawing, Table
from asyncsparse_lab.studies.bcsr_figures import plain_log
from asyncsparse_lab.studies.cta_tables import short
from asyncsparse_lab.studies.spmm_cases import claimed
from asyncsparse_lab.studies.wgmma_n import dividing_rule, padding_rule, padding_waste

if TYPE_CHECKING:
    import pandas as pd


COLORS: Final = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#8a3fa0", "#202020", "#c2185b")
MARKERS: Final = ("o", "v", "^", "D", "X", "P", "h")
DASHES: Final = ("-", "--", ":")
"""Colours, marks and lines of the values of N: neighbours differ in more than a shade."""


def mean_throughput(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the geometric mean of useful TFLOPS over the matrices, WGMMA_N by N."""
    table = rows.pivot_table(
        index=["n", "matrix"], columns="params.wgmma_n", values="result.useful_tflops"
    ).dropna()
    means = table.groupby(level="n").agg(geometric_mean)
    means.columns = means.columns.astype(int)
    return means


def throughput(rows: pd.DataFrame, claims: pd.DataFrame) -> Drawing:
    """Draw useful TFLOPS and the padding against WGMMA_N, a line for each N."""
    import pandas as pd
    from matplotlib import pyplot as plt

    from asyncsparse_lab.studies import style

    means = mean_throughput(rows)
    widths = [int(width) for width in means.columns.to_numpy()]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 4.6), width_ratios=(1.4, 1))
    places = range(len(widths))
    example = claimed(claims, "wgmma-n-1024")
    data = []
    for number, n in enumerate(means.index):
        color, marker, dashes = COLORS[number % 7], MARKERS[number % 7], DASHES[number % 3]
        look = {"color": color, "marker": marker, "linestyle": dashes, "markersize": 5.5}
        rates = means.loc[n].to_numpy(dtype=float)
        wastes = [padding_waste(n, width) for width in widths]
        best = int(rates.argmax())
        left.plot(places, rates, label=f"N = {n}", **look)
        left.plot(best, rates[best], "*", color=color, markersize=15)
        rule = dividing_rule(n)
        if rule in widths:
            place = widths.index(rule)
            left.plot(place, rates[place], "s", color=color, markersize=11, markerfacecolor="none")
        if n == 1024 and example in widths:
            place = widths.index(int(example))
            style.document_mark(left, place, rates[place], size=13, label="document, N = 1024")
        right.plot(places, [100 * waste for waste in wastes], **look)
        data.append(
            pd.DataFrame(
                {"n": n, "wgmma_n": widths, "useful_tflops": rates, "padding_waste": wastes}
            )
        )
    for axes in (left, right):
        axes.set_xticks(list(places), [str(width) for width in widths])
        axes.set_xlabel("WGMMA_N")
    left.set(yscale="log", ylabel="useful TFLOPS (geometric mean)", title="Throughput")
    plain_log(left)
    left.plot([], [], "*", color="#606060", markersize=9, label="best for an N")
    left.plot([], [], "s", color="#606060", markerfacecolor="none", label="rule: BN divides N")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=9, loc="outside upper center", ncols=5, markerscale=0.8,
                  handlelength=3.5)  # fmt: skip
    right.set(ylabel="multiplied columns that are padding, %", title="Padding")
    style.provenance(figure, rows)
    return Drawing(
        figure,
        pd.concat(data, ignore_index=True).assign(variant="bcsr-opt3"),
        "opt3 with three stages against WGMMA_N. Stars are the best for an N, squares what the "
        "rule 'largest WGMMA_N whose BN = 2 WGMMA_N divides N' gives, the hollow circle the "
        "choice of the article's example. Right: how much of the last tiles is padding.",
    )


def rules(rows: pd.DataFrame, claims: pd.DataFrame) -> Table:
    """Return for each N the best WGMMA_N beside what the two rules and the article give."""
    import pandas as pd

    means = mean_throughput(rows)
    widths = [int(width) for width in means.columns.to_numpy()]
    example = claimed(claims, "wgmma-n-1024")
    lines: list[dict[str, Any]] = []
    for n in means.index:
        rates = dict(zip(widths, means.loc[n].to_numpy(dtype=float), strict=True))
        best, divides, least = max(rates, key=lambda w: rates[w]), dividing_rule(n), padding_rule(n)
        lines.append(
            {
                "N": n,
                "best WGMMA_N": best,
                "useful TFLOPS": rates[best],
                "largest that divides": divides,
                "of the best, %": 100 * rates.get(divides or 0, np.nan) / rates[best],
                "least padding of 64, 128, 256": least,
                "of the best, % (least padding)": 100 * rates.get(least, np.nan) / rates[best],
                "padding, % (least padding)": 100 * padding_waste(n, least),
                "article's example": int(example) if n == 1024 and example in widths else None,
                "example, % of the best": 100 * rates[int(example)] / rates[best]
                if n == 1024 and example in widths
                else np.nan,
            }
        )
    table = pd.DataFrame(lines)
    for name in ("largest that divides", "article's example"):
        table[name] = table[name].astype("Int64")
    return Table(
        table,
        "The article's two rules for WGMMA_N beside the measured best (geometric mean of useful "
        "TFLOPS): what each gives, and what part of the best throughput that has.",
    )


def depth(rows: pd.DataFrame, claims: pd.DataFrame) -> Drawing:
    """Draw time against the number of stages, a line for each WGMMA_N, a panel for each product."""
    import seaborn as sns
    from matplotlib import pyplot as plt
    from matplotlib.ticker import MaxNLocator

    from asyncsparse_lab.studies import style

    products = list(rows.groupby(["matrix", "n"]))
    figure, panels = plt.subplots(
        1, len(products), figsize=(4.7 * len(products), 3.9), squeeze=False
    )
    widths: list[int] = sorted(set(rows["params.wgmma_n"].astype(int)))
    colors = dict(zip(widths, sns.color_palette("viridis", len(widths)), strict=True))
    stated = claimed(claims, "ring-depth")
    for axes, ((matrix, n), part) in zip(panels[0], products, strict=True):
        for width in widths:
            line = part[part["params.wgmma_n"] == width].sort_values("params.stages")
            axes.plot(
                line["params.stages"], line["median_us"], color=colors[width], marker="o",
                markersize=4, label=f"WGMMA_N = {width}",
            )  # fmt: skip
            own = line[line["params.stages"] == stated]
            style.document_mark(
                axes, own["params.stages"], own["median_us"], size=10,
                label=f"document, Q = {stated:g}" if width == widths[0] else None,
            )  # fmt: skip
        axes.set(
            yscale="log",
            xlabel="stages",
            ylabel="median, us",
            title=f"{short(str(matrix))}, N = {n}",
        )
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        plain_log(axes)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=7, loc="outside upper center", ncols=4)
    style.provenance(figure, rows)
    names = ["variant", "matrix", "n", "params.wgmma_n", "params.stages", "median_us"]
    return Drawing(
        figure,
        rows.sort_values(names[1:5])[names].reset_index(drop=True),
        "Time of opt3 against the depth of its ring, for all depths that fit into shared memory. "
        "Hollow marks: the document's Q.",
    )


def best_depth(rows: pd.DataFrame) -> Table:
    """Return for each product and tile the best depth, and what 2 and 3 stages cost beside it."""
    import pandas as pd

    lines = []
    for _, part in rows.groupby(["matrix", "n", "params.wgmma_n"]):
        times = dict(zip(part["params.stages"].astype(int), part["median_us"], strict=True))
        best = min(times, key=lambda depth: times[depth])
        lines.append(
            {
                "matrix": part["matrix"].iloc[0],
                "N": part["n"].iloc[0],
                "WGMMA_N": int(part["params.wgmma_n"].iloc[0]),
                "deepest that fits": max(times),
                "best depth": best,
                "its time, us": times[best],
                "2 stages / best": times.get(2, np.nan) / times[best],
                "3 stages / best": times.get(3, np.nan) / times[best],
                "deepest / best": times[max(times)] / times[best],
            }
        )
    return Table(
        pd.DataFrame(lines), "Depth of the ring by tile: the best, and times of others beside it."
    )
