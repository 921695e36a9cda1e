"""Pictures and tables of the study ``bcsr-ablation``."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncsparse_lab.records.frame import COMPARABLE, geometric_mean, ratios
from asyncsparse_lab.studies.base import Drawing, Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LADDER: Final = ("bcsr-opt0", "bcsr-opt1", "bcsr-opt2", "bcsr-opt3")
HEADLINE: Final = "gate_proj-keep10-uniform-s0"
BLOCKED_ELL: Final = "backend == 'cusparse' and variant == 'blocked-ell'"
DENSE: Final = "backend == 'cublas'"
LIBRARIES: Final = "role == 'library'"
_SHORT: Final = {
    HEADLINE: "gate_proj\n(10 % of blocks)",
    "dlmc_rn50_magnitude90_proj4": "rn50 proj4",
}


def speedups(rows: pd.DataFrame, over: str, variants: Sequence[str] = LADDER) -> pd.DataFrame:
    """Return how many times faster each of our variants is, a row for each case and variant."""
    import pandas as pd

    parts = []
    for variant in variants:
        found = ratios(rows, f"variant == '{variant}'", over).reset_index()
        parts.append(found.assign(variant=variant)[["variant", "matrix", "n", "ratio"]])
    return pd.concat(parts, ignore_index=True)


def steps(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the gain of each step of the ladder over the one before, in each case."""
    import pandas as pd

    parts = []
    for before, after in pairwise(LADDER):
        found = ratios(rows, f"variant == '{after}'", f"variant == '{before}'").reset_index()
        parts.append(found.assign(variant=after)[["variant", "matrix", "n", "ratio"]])
    return pd.concat(parts, ignore_index=True)


def ladder(rows: pd.DataFrame, claims: pd.DataFrame) -> Drawing:
    """Draw the document's ablation: speed over Blocked-ELL, and the gain of each step."""
    import pandas as pd
    from matplotlib import pyplot as plt

    from asyncsparse_lab.studies import style

    over, gains = speedups(rows, BLOCKED_ELL), steps(rows)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.9), width_ratios=(1.35, 1))
    places = range(len(LADDER))
    for (_, _), case in over.groupby(["matrix", "n"]):
        values = case.set_index("variant")["ratio"].reindex(LADDER)
        left.plot(places, values, color="#c8c8c8", linewidth=0.8, zorder=1)
    means = over.groupby("variant")["ratio"].agg(geometric_mean).reindex(LADDER)
    left.plot(places, means, color="#404040", linewidth=1.2, zorder=2)
    for place, name in enumerate(LADDER):
        look = style.look(name)
        left.plot(place, means[name], look.marker, color=look.color, markersize=8, zorder=4)
        _value(left, place, means[name], f"{means[name]:.2f}")
    for name, kind, label in (
        ("bcsr-{}-cusparse", "stated", "document"),
        ("bcsr-{}-cusparse-derived", "derived", "document"),
    ):
        for place, variant in enumerate(LADDER):
            claim = name.format(variant.removeprefix("bcsr-"))
            if claim in claims.index:
                style.document_mark(
                    left, place, claims.loc[claim, "number"], kind, label=label, size=11
                )
    left.axhline(1.0, color="#707070", linewidth=1, linestyle="--")
    left.text(-0.3, 1.05, "cuSPARSE Blocked-ELL", fontsize=7, color="#707070", va="bottom")
    left.set(
        yscale="log",
        xticks=list(places),
        xticklabels=["opt0\nFMA", "opt1\n+ WGMMA", "opt2\n+ TMA", "opt3\n+ ring"],
        xlim=(-0.4, len(LADDER) - 0.6),
        ylabel="times Blocked-ELL's speed",
        title=_title("Speed", over),
    )
    plain_log(left)
    _legend(left, "geometric mean", "one case")

    data = [over.assign(quantity="over Blocked-ELL")]
    for place, name in enumerate(LADDER[1:]):
        found = gains.loc[gains["variant"] == name, "ratio"]
        if found.empty:
            continue
        look, mean = style.look(name), geometric_mean(found)
        right.plot(np.full(len(found), place - 0.18), found, "_", color="#a0a0a0", markersize=9)
        right.plot(place, mean, look.marker, color=look.color, markersize=8)
        _value(right, place, mean, f"{mean:.2f}")
        claim = f"bcsr-step-{name.removeprefix('bcsr-')}"
        if claim in claims.index:
            style.document_mark(right, place, claims.loc[claim, "number"], "stated", size=11)
    right.axhline(1.0, color="#707070", linewidth=1, linestyle="--")
    right.set(
        yscale="log",
        xticks=range(len(LADDER) - 1),
        xticklabels=["opt1 / opt0", "opt2 / opt1", "opt3 / opt2"],
        xlim=(-0.5, len(LADDER) - 1.3),
        ylabel="gain of the step",
        title="Gain of each step",
    )
    plain_log(right)
    style.provenance(figure, rows)
    data.append(gains.assign(quantity="over the step before"))
    return Drawing(
        figure,
        pd.concat(data, ignore_index=True),
        "The ladder from scalar FMA to a warp-specialised ring. Left: speed over cuSPARSE's "
        "Blocked-ELL, grey lines are single cases. Right: what each step gains. Hollow marks are "
        "the document's values on an H100, lighter where derived from what it states.",
    )


def per_matrix(rows: pd.DataFrame, claims: pd.DataFrame) -> Drawing:
    """Draw each matrix's speed over Blocked-ELL, a panel for each n."""
    from matplotlib import pyplot as plt

    from asyncsparse_lab.studies import style

    over = speedups(rows, BLOCKED_ELL)
    columns = sorted(set(rows["n"]))
    order = _by_fill(rows)
    figure, panels = plt.subplots(
        len(columns), 1, figsize=(9.8, 0.9 + 2.5 * len(columns)), sharex=True, squeeze=False
    )
    for axes, n in zip(panels[:, 0], columns, strict=True):
        for shift, name in zip((-0.27, -0.09, 0.09, 0.27), LADDER, strict=True):
            look = style.look(name)
            found = over[(over["variant"] == name) & (over["n"] == n)].set_index("matrix")["ratio"]
            values = found.reindex(order)
            places = np.arange(len(order)) + shift
            axes.vlines(places, 1.0, values, color=look.color, linewidth=2.5, alpha=0.55)
            axes.plot(places, values, look.marker, color=look.color, label=name, markersize=6)
            mean = geometric_mean(found)
            axes.plot(len(order) + shift, mean, look.marker, color=look.color, markersize=8)
            _mark_mean(axes, claims, name, len(order) + shift)
        missing = [m for m in order if m not in set(over.loc[over["n"] == n, "matrix"])]
        for matrix in missing:
            axes.text(
                order.index(matrix), 1.1, "no Blocked-ELL", fontsize=7, ha="center", color="#707070"
            )
        axes.axhline(1.0, color="#707070", linewidth=1, linestyle="--")
        axes.axvline(len(order) - 0.5, color="#c0c0c0", linewidth=1)
        axes.set(yscale="log", ylabel="x Blocked-ELL", title=f"N = {n}")
        plain_log(axes)
    last = panels[-1, 0]
    names = [_label(rows, matrix) for matrix in order]
    last.set_xticks(range(len(order) + 1), [*names, "geometric\nmean"], fontsize=6.5)
    last.set_xlim(-0.6, len(order) + 0.6)
    handles, labels = last.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    figure.legend(
        list(unique.values()), list(unique), ncols=6, fontsize=7.5, loc="outside upper right"
    )
    style.provenance(figure, rows)
    return Drawing(
        figure,
        over,
        "Speed over cuSPARSE's Blocked-ELL on each matrix; the percentage is the fill of its "
        "64 x 64 blocks. Hollow marks beside the geometric mean are the document's values.",
    )


def ranking(rows: pd.DataFrame) -> Drawing:
    """Draw all contenders' speed over dense cuBLAS: the pruned layer, and the other matrices."""
    import pandas as pd
    from matplotlib import pyplot as plt

    from asyncsparse_lab.studies import style

    rows = rows.assign(contender=[*map(style.contender_name, rows["backend"], rows["variant"])])
    groups = {
        "Pruned layer gate_proj": rows[rows["matrix"] == HEADLINE],
        "Other matrices": rows[rows["matrix"] != HEADLINE],
    }
    groups = {title: part for title, part in groups.items() if len(part)}
    figure, panels = plt.subplots(1, len(groups), figsize=(9.2, 3.6), squeeze=False)
    data = []
    for axes, (title, part) in zip(panels[0], groups.items(), strict=True):
        table = _speeds(part)
        data.append(table.assign(group=title))
        for place, line in enumerate(table.to_dict("records")):
            _bar(axes, place, line)
        axes.set_yticks(range(len(table)), table["contender"], fontsize=7.5)
        axes.axvline(1.0, color="#404040", linewidth=1, linestyle="--", zorder=0)
        axes.set(xlabel="times dense cuBLAS's speed (geometric mean)", title=title)
        axes.set_xlim(0, 1.3 * float(table["speed"].max()))
        axes.grid(axis="y", visible=False)
    style.provenance(figure, rows)
    table = pd.concat(data, ignore_index=True)
    caption = (
        "All contenders over dense cuBLAS with K padded, geometric means over matrices and N. Pale "
        "bars are means over fewer cases, since a library refused the others; compare them with "
        "care."
    )
    if table["failures"].str.contains("wrong").any():
        caption += (
            " 'wrong': the result misses the bound of FP32 accumulation and one rounding, as it "
            "would if partial sums were rounded to bf16 too."
        )
    return Drawing(figure, table, caption)


def _speeds(part: pd.DataFrame) -> pd.DataFrame:
    """Return each contender's mean speed over dense cuBLAS, slowest first, and its failures."""
    import pandas as pd

    cases = len(part[["matrix", "n"]].drop_duplicates())
    passed = part[part["status"] == "passed"]
    best = passed.groupby([*COMPARABLE, "contender"], dropna=False)["median_us"].min().reset_index()
    dense = best[best["contender"] == "cublas dense"].drop(columns="contender")
    pairs = best.merge(dense, on=list(COMPARABLE), suffixes=("", "_dense"))
    speed = pairs["median_us_dense"] / pairs["median_us"]
    lines = []
    for contender, own in part.groupby("contender"):
        found = speed[pairs["contender"] == contender]
        failures = sorted(set(own.loc[own["status"] != "passed", "status"]))
        lines.append(
            {
                "contender": contender,
                "variant": own["variant"].iloc[0],
                "speed": geometric_mean(found),
                "cases": len(found),
                "of_cases": cases,
                "failures": "/".join(failures),
            }
        )
    return pd.DataFrame(lines).sort_values("speed", na_position="first", ignore_index=True)


def _bar(axes: Axes, place: int, line: Mapping[Hashable, Any]) -> None:
    from asyncsparse_lab.studies import style

    partial = line["cases"] < line["of_cases"]
    speed = line["speed"] if line["cases"] else 0.0
    color = style.look(line["contender"]).color
    axes.barh(place, speed, color=color, height=0.7, alpha=0.45 if partial else 0.9)
    note = f"{speed:.2f}" if line["cases"] else "no case passed"
    if partial:
        note += f"  ({line['cases']} of {line['of_cases']} cases; {line['failures']})"
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    axes.annotate(
        note, (speed, place), (4, 0), textcoords="offset points", va="center", fontsize=7, bbox=box
    )


def ratio_table(rows: pd.DataFrame) -> Table:
    """Return for each case the times of the ladder, and opt3 over what it is compared with."""
    import pandas as pd

    key = ["matrix", "n"]
    passed = rows[rows["status"] == "passed"]
    times = passed[passed["variant"].isin(LADDER)].pivot_table(
        index=key, columns="variant", values="median_us", aggfunc="min"
    )
    parts = {f"{name.removeprefix('bcsr-')}, us": times.get(name) for name in LADDER}
    for title, over in (
        ("opt3 / Blocked-ELL", BLOCKED_ELL),
        ("opt3 / cuBLAS dense", DENSE),
        ("opt3 / best library", LIBRARIES),
    ):
        found = ratios(rows, "variant == 'bcsr-opt3'", over).reset_index()
        parts[title] = found.set_index(key)["ratio"]
    table = pd.DataFrame(parts).reset_index()
    fills = {matrix: _fill(rows[rows["matrix"] == matrix]) for matrix in set(rows["matrix"])}
    table.insert(2, "fill, %", 100 * table["matrix"].map(fills))
    mean: dict[str, Any] = {"matrix": "geometric mean", "n": np.nan}
    for title in table.columns[3:]:
        mean[title] = geometric_mean(table[title].dropna()) if "/" in title else np.nan
    table = pd.concat([table, pd.DataFrame([mean])], ignore_index=True)
    table["n"] = table["n"].astype("Int64")
    return Table(table, "Times of the ladder and what opt3 gains, in each case.")


def own_kernel_table(rows: pd.DataFrame) -> Table:
    """Return the example of one's own kernel beside opt3 and dense cuBLAS."""
    import pandas as pd

    from asyncsparse_lab.studies import style

    lines = []
    rows = rows[rows["status"] == "passed"]
    for (backend, name, l2), found in rows.groupby(["backend", "variant", "l2"]):
        opt3 = ratios(rows[rows["l2"] == l2], f"variant == {name!r}", "variant == 'bcsr-opt3'")
        lines.append(
            {
                "contender": style.contender_name(str(backend), str(name)),
                "L2": l2,
                "median, us": found["median_us"].iloc[0],
                "q1, us": found["q1_us"].iloc[0],
                "q3, us": found["q3_us"].iloc[0],
                "speed / opt3": opt3["ratio"].iloc[0] if len(opt3) else np.nan,
                "rel_err / bound": (found["rel_err"] / found["err_bound"]).iloc[0],
            }
        )
    caption = (
        "One's own kernel, kernels/examples/my_kernel.cu (opt3 with another order of tiles), "
        f"measured against opt3 in one run on {HEADLINE}, N = 4096, bf16 out."
    )
    return Table(pd.DataFrame(lines), caption)


def _mark_mean(axes: Axes, claims: pd.DataFrame, variant: str, place: float) -> None:
    from asyncsparse_lab.studies import style

    name = variant.removeprefix("bcsr-")
    for claim, kind in ((f"bcsr-{name}-cusparse", "stated"),
                        (f"bcsr-{name}-cusparse-derived", "derived")):  # fmt: skip
        if claim in claims.index:
            number = claims.loc[claim, "number"]
            style.document_mark(axes, place, number, kind, size=10, label="document")
            return


def _by_fill(rows: pd.DataFrame) -> list[str]:
    """Return the matrices, fullest blocks first; those whose fill is unknown last."""
    if "result.fill_ratio" not in rows:
        return sorted(set(rows["matrix"]))
    fill = rows.groupby("matrix")["result.fill_ratio"].max()
    return list(fill.sort_values(ascending=False, na_position="last").index)


def _label(rows: pd.DataFrame, matrix: str) -> str:
    name = _SHORT.get(matrix, matrix)
    fill = _fill(rows[rows["matrix"] == matrix])
    return name if matrix == HEADLINE or fill != fill else f"{name}\n{100 * fill:.0f} %"


def _fill(rows: pd.DataFrame) -> float:
    """Return the fill of the blocks that our kernels were given, NaN where none passed."""
    return float(rows["result.fill_ratio"].max()) if "result.fill_ratio" in rows else np.nan


def _title(what: str, over: pd.DataFrame) -> str:
    cases = over[["matrix", "n"]].drop_duplicates()
    columns = ", ".join(str(n) for n in sorted(set(cases["n"])))
    return f"{what} on {cases['matrix'].nunique()} matrices, N = {columns}"


def _value(axes: Axes, x: float, y: float, text: str) -> None:
    axes.annotate(text, (x, y), (9, -3), textcoords="offset points", fontsize=8, zorder=6)


def plain_log(axes: Axes, which: str = "y", steps: tuple[float, ...] = (1.0, 2.0, 5.0)) -> None:
    """Label a logarithmic axis (``"x"`` or ``"y"``) 0.1, 1, 10 instead of powers.

    ``steps`` are what is labelled in each decade.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(LogLocator(subs=()))


def _legend(axes: Axes, mean: str, case: str) -> None:
    from matplotlib.lines import Line2D

    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    unique[mean] = Line2D([], [], color="#404040", marker="o", linewidth=1.2)
    unique[case] = Line2D([], [], color="#c8c8c8", linewidth=0.8)
    axes.legend(list(unique.values()), list(unique), fontsize=7, loc="lower right", markerscale=0.7)
