"""Figures and tables of the study ``formats``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.studies import style
from asyncsparse_lab.studies.base import Drawing
from asyncsparse_lab.studies.formats import SIZES, VALUE_BYTES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE: Final = 64
"""Block size and window height of the article's kernels."""
SUITE_TITLES: Final = {"smoke": "generated matrices", "shared": "real matrices"}
FORMAT_TITLES: Final = {"bcsr": "BCSR", "wcsr": "WCSR"}
VERDICTS: Final = {
    "preferred": "BCSR, preferred",
    "suitable": "BCSR, suitable",
    "unsuitable": "WCSR",
}


def rows_of(frame: pd.DataFrame, suites: list[str]) -> pd.DataFrame:
    """Return the passed records of the suites, with ``suite`` and ``size`` as columns.

    Raises
    ------
    InputError
        A suite has no record, or none is named.
    """
    rows = frame[frame["status"] == "passed"].copy()
    rows["suite"] = rows["case"].str.split("/").str[0]
    rows["size"] = rows["params.block"].fillna(rows["params.window"]).astype(int)
    there = ", ".join(sorted(set(rows["suite"]))) or "none"
    if not suites:
        raise InputError(f"suites=[] chooses no matrix; there are: {there}")
    for suite in suites:
        if suite not in set(rows["suite"]):
            raise InputError(f"suite {suite!r} has no record of formats; there are: {there}")
    order = {suite: place for place, suite in enumerate(suites)}
    rows = rows[rows["suite"].isin(suites)]
    return rows.sort_values(
        ["suite", "case", "variant", "size"],
        key=lambda column: column.map(order) if column.name == "suite" else column,
    ).reset_index(drop=True)


def fill(rows: pd.DataFrame, claims: pd.DataFrame) -> Drawing:
    """Draw fill against block size and window height, a line a matrix."""
    suites = list(rows["suite"].unique())
    figure, axes = _panels(len(suites), len(FORMAT_TITLES), height=2.9, sharey=True)
    for line, suite in zip(axes, suites, strict=True):
        for axis, variant in zip(line, FORMAT_TITLES, strict=True):
            part = rows[(rows["suite"] == suite) & (rows["variant"] == variant)]
            _fill_lines(axis, part, variant)
            axis.set_title(
                f"{FORMAT_TITLES[variant]}, {part['case'].nunique()} {_suite_title(suite)}"
            )
            if variant == "bcsr":
                _draw_thresholds(axis, claims)
        line[0].set_ylabel("fill ratio")
    axes[-1][0].set_xlabel("rows and columns of a block")
    axes[-1][1].set_xlabel("rows of a window")
    axes[0][0].set_ylim(top=2.5)
    for axis in axes[0]:
        axis.legend(loc="lower left", fontsize=7)
    _provenance(figure, rows)
    return Drawing(
        figure,
        _table(rows, "variant", "size", "fill_ratio"),
        "Share of stored values that are non-zero, against the size of BCSR's blocks and the "
        "height of WCSR's windows (padding columns not counted). Every grey line is a matrix; "
        "the coloured line is the median, the band holds half of the matrices. Dashed: the "
        "article's thresholds.",
    )


def _fill_lines(axis: Axes, part: pd.DataFrame, variant: str) -> None:
    table = part.pivot(index="size", columns="case", values="result.fill_ratio")
    lines = axis.plot(table.index, table.to_numpy(), color="#808080", linewidth=0.6, alpha=0.4)
    lines[0].set_label("a matrix")
    color = style.look(variant).color
    low, high = table.quantile(0.25, axis=1), table.quantile(0.75, axis=1)
    axis.fill_between(
        table.index, low, high, color=color, alpha=0.35, linewidth=0, label="middle half", zorder=3
    )
    axis.plot(
        table.index,
        table.median(axis=1),
        color=color,
        marker=style.look(variant).marker,
        label="median",
        zorder=4,
    )
    best = part[part["size"] == SIZE].sort_values("result.fill_ratio").iloc[-1]
    axis.annotate(
        _short(best["matrix"]),
        (SIZE, best["result.fill_ratio"]),
        xytext=(0, 3),
        textcoords="offset points",
        ha="center",
        fontsize=7,
    )
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.xaxis.set_major_locator(FixedLocator(list(SIZES)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axis.yaxis.set_major_formatter(FuncFormatter(_percent))


def stored_bytes(rows: pd.DataFrame) -> Drawing:
    """Draw the bytes of each format for a non-zero, against density."""
    chosen = rows[rows["size"] == SIZE]
    table = chosen.pivot(
        index=["suite", "case", "matrix", "m", "k", "nnz"],
        columns="variant",
        values="result.bytes",
    ).reset_index()
    table["csr"] = table["nnz"] * (VALUE_BYTES + 4) + 8 * (table["m"] + 1)
    table["dense"] = table["m"] * table["k"] * VALUE_BYTES
    table["density"] = table["nnz"] / (table["m"] * table["k"])
    suites = list(chosen["suite"].unique())
    figure, axes = _panels(1, len(suites), height=3.6, sharex=True, sharey=True)
    names = {
        "dense": "dense",
        "bcsr": f"BCSR {SIZE} x {SIZE}",
        "wcsr": f"WCSR {SIZE}",
        "csr": "CSR",
    }
    for axis, suite in zip(axes[0], suites, strict=True):
        part = table[table["suite"] == suite].sort_values("density")
        for variant, name in names.items():
            color, marker = style.look(variant)
            axis.plot(
                part["density"],
                part[variant] / part["nnz"],
                color=color,
                marker="" if variant == "dense" else marker,
                linestyle="-" if variant == "dense" else "none",
                markersize=4,
                alpha=0.8,
                label=name,
            )
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.xaxis.set_major_formatter(FuncFormatter(_percent))
        axis.set_xlabel("density")
        axis.set_title(f"{len(part)} {_suite_title(suite)}")
    axes[0][0].set_ylabel("stored bytes per non-zero")
    axes[0][-1].legend(loc="upper right", fontsize=7)
    _provenance(figure, chosen)
    for name in names:
        table[f"bytes_{name}"] = table[name].astype("int64")
    columns = ["suite", "matrix", "density", "nnz", *(f"bytes_{name}" for name in names)]
    data = pd.DataFrame(table[columns].to_numpy(), columns=columns).infer_objects()
    return Drawing(
        figure,
        data,
        f"Bytes that a matrix takes for each of its non-zeros, values as bfloat16 "
        f"({VALUE_BYTES} bytes), column indices of 4 bytes, row pointers of 8. Above the line "
        "of the dense matrix a format stores more than all zeros would take.",
    )


def columns(rows: pd.DataFrame) -> Drawing:
    """Draw columns per window against non-zeros per window."""
    chosen = rows[(rows["variant"] == "wcsr") & (rows["size"] == SIZE)].copy()
    chosen["window_nnz"] = chosen["nnz"] / np.ceil(chosen["m"] / SIZE)
    suites = list(chosen["suite"].unique())
    figure, axes = _panels(1, len(suites), height=3.8, sharex=True, sharey=True)
    top = 1.5 * float(chosen["result.columns_max"].max())
    nnz = chosen.loc[chosen["nnz"] > 0, "window_nnz"]
    ends = np.array([0.7 * nnz.min(), 1.4 * nnz.max()])
    for axis, suite in zip(axes[0], suites, strict=True):
        part = chosen[chosen["suite"] == suite]
        x = part["window_nnz"]
        color, marker = style.look("wcsr")
        axis.vlines(
            x,
            part["result.columns_min"].clip(lower=0.5),
            part["result.columns_max"],
            color=color,
            alpha=0.4,
            linewidth=1,
            label="least to most",
        )
        axis.plot(
            x,
            part["result.columns_median"].clip(lower=0.5),
            linestyle="none",
            color=color,
            marker=marker,
            markersize=4,
            clip_on=False,
            label="median window",
        )
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_ylim(0.5, top)
        axis.plot(ends, ends, color="#404040", linewidth=0.9, label="a non-zero a column")
        axis.plot(ends, ends / SIZE, color="#404040", linewidth=0.9, linestyle=":",
                  label="columns without a zero")  # fmt: skip
        axis.axhline(16, color="#404040", linewidth=0.9, linestyle="--", label="one WGMMA step")
        axis.set_title(f"{len(part)} {_suite_title(suite)}")
        axis.set_xlabel(f"non-zeros of a window of {SIZE} rows, mean")
    axes[0][0].set_ylabel("stored columns of a window")
    axes[0][0].set_xlim(ends[0], ends[1])
    _legend_above(figure, axes[0][0])
    _provenance(figure, chosen)
    data = _table(
        chosen, "window_nnz", "columns_min", "columns_q1", "columns_median", "columns_q3",
        "columns_max",
    )  # fmt: skip
    return Drawing(
        figure,
        data,
        f"Columns that hold a non-zero in a window of {SIZE} rows, for each matrix: median "
        "window, and the span from the smallest to the largest (a span that starts at the bottom "
        "has windows without any). Each such column gathers one row of B. Solid: no two "
        "non-zeros of a window share a column; dotted: columns without a zero; dashed: the 16 "
        "columns to which kernels pad.",
    )


def choice(rows: pd.DataFrame, claims: pd.DataFrame) -> Drawing:
    """Draw how many matrices the rule sends to which format, for each block size."""
    chosen = rows[rows["variant"] == "bcsr"]
    suites = list(chosen["suite"].unique())
    figure, axes = _panels(1, len(suites), height=3.0)
    bcsr, wcsr = style.look("bcsr").color, style.look("wcsr").color
    looks = {
        "preferred": {"color": bcsr},
        "suitable": {"color": bcsr, "alpha": 0.5, "hatch": "///", "edgecolor": "white"},
        "unsuitable": {"color": wcsr},
    }
    labels = [f"{size} x {size}" for size in SIZES]
    for axis, suite in zip(axes[0], suites, strict=True):
        counts = _verdicts(chosen[chosen["suite"] == suite])
        left = np.zeros(len(SIZES))
        for verdict, name in VERDICTS.items():
            width = counts[verdict].to_numpy()
            bars = axis.barh(labels, width, left=left, label=name, **looks[verdict])
            texts = [str(count) if count else "" for count in width]
            axis.bar_label(bars, texts, label_type="center", fontsize=7)
            left += width
        axis.set_title(f"{int(left[0])} {_suite_title(suite)}")
        axis.set_xlabel("matrices")
        axis.grid(False, axis="y")
        axis.invert_yaxis()
    axes[0][0].set_ylabel("block size")
    _legend_above(figure, axes[0][0])
    _provenance(figure, chosen)
    return Drawing(
        figure,
        _table(chosen, "size", "fill_ratio", "verdict", "picks"),
        "What the article's rule picks for each matrix if the fill ratio is taken with blocks of "
        f"this size: {_rule_text(claims)}. The article's kernels have {SIZE} x {SIZE}.",
    )


def _verdicts(rows: pd.DataFrame) -> pd.DataFrame:
    counts = rows.groupby(["size", "result.verdict"]).size().unstack(fill_value=0)
    return counts.reindex(index=list(SIZES), columns=list(VERDICTS), fill_value=0)


def _panels(lines: int, columns: int, height: float, **options: Any) -> tuple[Figure, Any]:
    figure = Figure(figsize=(3.7 * columns, height * lines), layout="constrained")
    return figure, figure.subplots(lines, columns, squeeze=False, **options)


def _draw_thresholds(axis: Axes, claims: pd.DataFrame) -> None:
    good, suitable = _thresholds_of(claims)
    looks: dict[str, Any] = {"color": style.DOCUMENT_COLOUR, "linewidth": 1.0, "linestyle": "--"}
    axis.axhline(suitable / 100, label=f"article: {suitable:g} % and {good:g} %", **looks)
    axis.axhline(good / 100, **looks)


def _thresholds_of(claims: pd.DataFrame) -> list[float]:
    """Return the fill ratios, in per cent, above which BCSR is preferred and is suitable."""
    return claims["number"].loc[["bcsr-good-fill", "bcsr-suitable-fill"]].tolist()


def _rule_text(claims: pd.DataFrame) -> str:
    good, suitable = _thresholds_of(claims)
    return f"BCSR above {good:g} %, BCSR suitable above {suitable:g} %, else WCSR"


def _table(rows: pd.DataFrame, *names: str) -> pd.DataFrame:
    """Return these columns, or results of these names, beside suite and matrix."""
    sources = {name: name if name in rows else f"result.{name}" for name in names}
    result = rows[["suite", "matrix", *sources.values()]].copy()
    result.columns = pd.Index(["suite", "matrix", *sources])
    return result.reset_index(drop=True)


def _legend_above(figure: Figure, axis: Axes) -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=5, fontsize=7)


def _provenance(figure: Figure, rows: pd.DataFrame) -> None:
    """Write the line below, in which a matrix of two suites counts twice, as it is drawn."""
    style.provenance(figure, rows.assign(matrix=rows["case"]))


def _suite_title(suite: str) -> str:
    return SUITE_TITLES.get(suite, f"matrices of {suite}")


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name.split('(')[0]}(...)"


def _percent(value: float, _: int) -> str:
    return f"{100 * value:g} %"
