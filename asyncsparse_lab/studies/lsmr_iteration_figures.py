"""Pictures and tables of studies ``lsmr-breakdown`` and ``lsmr-scaling``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from matplotlib import pyplot as plt

from asyncsparse_lab.studies import style
from asyncsparse_lab.studies.base import Drawing, Table
from asyncsparse_lab.studies.reasons import span

if TYPE_CHECKING:
    import pandas as pd

# Colours are of seaborn's colourblind palette.
_PARTS: Final[dict[str, tuple[str, str]]] = {
    "products": ("products", "#0173b2"),
    "norms": ("norms", "#de8f05"),
    "vector_updates": ("vector updates", "#029e73"),
    "copies": ("copies to the host", "#cc78bc"),
    "exchanges": ("exchanges: barriers and norms", "#d55e00"),
    "products_and_updates": ("products, updates, scalars", "#56b4e9"),
    "waiting": ("gaps and host waits", "#d0d0d0"),
}
_FLOORS: Final = (
    ("result.bandwidth_floor_us", ":", "bandwidth floor"),
    ("result.traffic_floor_us", "--", "DRAM's measured bytes at a copy's rate"),
    ("result.exchange_floor_us", "-.", "exchange floor"),
)
_ORDER: Final = ("cupy lsmr", "document", "persistent", "scipy lsmr")


def draw_breakdown(rows: pd.DataFrame) -> dict[str, Drawing | Table]:
    """Return the bars and their table."""
    rows = _named(rows)
    matrices = list(dict.fromkeys(rows["matrix"]))
    figure, panels = plt.subplots(
        len(matrices), 1, figsize=(7.0, 1.6 * len(matrices) + 0.6), squeeze=False
    )
    drawn: set[str] = set()
    for axes, matrix in zip(panels[:, 0], matrices, strict=True):
        here = rows[rows["matrix"] == matrix]
        names = [name for name in _ORDER if name in set(here["name"])]
        for place, name in enumerate(names):
            row = here[here["name"] == name].iloc[0]
            left, total = 0.0, sum(_value(row, f"result.{part}_us") for part in _PARTS)
            for part, (text, color) in _PARTS.items():
                value = 100 * _value(row, f"result.{part}_us") / total
                if value > 0:
                    axes.barh(
                        place, value, left=left, color=color, label="" if text in drawn else text
                    )
                    drawn.add(text)
                    left += value
            axes.text(left, place, f" {row['median_us']:.3g} us", va="center", fontsize=7)
        axes.set_yticks(range(len(names)), names, fontsize=7)
        axes.set_xlim(0, 112)
        axes.grid(visible=False, axis="y")
        axes.set_title(
            f"{matrix}: rows of {here['result.mean_row'].iloc[0]:.1f} on average, "
            f"{int(here['result.longest_row'].iloc[0]):,} at most",
            fontsize=9,
        )
    panels[-1, 0].set_xlabel("share of an iteration, per cent; its wall time beside the bar")
    figure.legend(loc="outside upper center", ncols=4, fontsize=7)
    style.provenance(figure, rows)
    columns = [f"result.{part}_us" for part in _PARTS if f"result.{part}_us" in rows]
    names = ["matrix", "name", "variant", "median_us", *columns, "result.host_syncs"]
    table = rows[names].reset_index(drop=True)
    return {
        "parts": Drawing(
            figure,
            table,
            "The shares of an iteration of each solver: what the GPU does, part by part with "
            "launches hidden, and what is left of the wall time. The persistent kernel's exchanges "
            "are what a probe takes on the same grid.",
        ),
        "table": Table(table, "The same in numbers, in microseconds."),
    }


def draw_scaling(rows: pd.DataFrame) -> dict[str, Drawing | Table]:
    """Return time against n with the floors, and the table."""
    import pandas as pd

    rows = _named(rows)
    figure, axes = plt.subplots(figsize=(6.4, 4.0))
    for name in _ORDER:
        one = rows[rows["name"] == name].sort_values("k")
        if one.empty:
            continue
        look = style.look(name)
        axes.plot(one["k"], one["median_us"], color=look.color, marker=look.marker, label=name)
        if name == "document":
            axes.plot(
                one["k"],
                one["result.counted_us"],
                color=look.color,
                ls="--",
                label="document: GPU busy + 2 host waits",
            )
    ours = rows[rows["name"] == "persistent"].sort_values("k")
    for column, dashes, label in _FLOORS:
        if column in ours:
            axes.plot(ours["k"], ours[column], color="black", ls=dashes, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("n")
    axes.set_ylabel("time of an iteration, us")
    axes.legend(fontsize=7)
    style.provenance(figure, rows)
    lines: list[dict[str, Any]] = []
    sizes: Any = rows.groupby("k")
    for n, here in sizes:
        by_name = {row["name"]: row for _, row in here.iterrows()}
        mine = by_name.get("persistent")
        if mine is None:
            continue
        line: dict[str, Any] = {
            "n": int(n),
            "non-zeros": int(mine["nnz"]),
            "persistent, us": mine["median_us"],
            "exchange floor, us": mine["result.exchange_floor_us"],
            "bandwidth floor, us": mine["result.bandwidth_floor_us"],
            "share of the bandwidth floor": mine["result.share_of_bandwidth"],
            "DRAM's measured bytes, us": mine.get("result.traffic_floor_us"),
            "share of them": mine.get("result.share_of_traffic"),
            "grid": f"{int(mine['params.blocks'])} x {int(mine['params.threads'])}",
            "staged": bool(mine["params.staged"]),
            "units of a warp": int(_value(mine, "params.units")) or 1,
        }
        for name, column in (("cupy lsmr", "median_us"), ("document", "result.counted_us"),
                             ("scipy lsmr", "median_us")):  # fmt: skip
            other = by_name.get(name)
            times = None if other is None else other[column] / mine["median_us"]
            line[f"times faster than {name}"] = times
        lines.append(line)
    names = ["k", "name", "variant", "median_us", "q1_us", "q3_us", "result.bandwidth_floor_us"]
    return {
        "scaling": Drawing(
            figure,
            rows[names].sort_values(names[:2]).rename(columns={"k": "n"}).reset_index(drop=True),
            f"Time of an iteration on feeders of growing size. {_decides(ours)}The bandwidth floor "
            "counts each byte once and does not bind while all of it stays in L2; what DRAM moved "
            "instead is the profiler's count.",
        ),
        "table": Table(
            pd.DataFrame(lines),
            "The persistent kernel by size: a warp that streams has one unit of its part for "
            "itself, and shares the others. The document's time is its GPU-busy time and two host "
            "waits an iteration.",
        ),
    }


def _decides(ours: pd.DataFrame) -> str:
    """Return which part of an iteration its higher floor is, for the sizes of either."""
    exchanges, bandwidth = "result.exchange_floor_us", "result.bandwidth_floor_us"
    higher = ours[[exchanges, bandwidth]].idxmax(axis=1)
    words = ""
    for column, sizes, name in (
        (exchanges, "Up to n = {most:,}", "exchanges over the grid"),
        (bandwidth, "From n = {least:,} on", "the bytes at a copy's rate"),
    ):
        here = ours[higher == column]
        if not here.empty:
            sizes = sizes.format(least=int(here["k"].min()), most=int(here["k"].max()))
            share = span(100 * here[column] / here["median_us"])
            words += f"{sizes} {name} are {share} % of the persistent kernel's iteration. "
    return words


def _named(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows[rows["status"] == "passed"]
    names = [
        style.contender_name(*pair) for pair in zip(rows["backend"], rows["variant"], strict=True)
    ]
    return rows.assign(name=names)


def _value(row: Any, column: str) -> float:
    import pandas as pd

    value = row.get(column)
    return 0.0 if value is None or pd.isna(value) else float(value)
