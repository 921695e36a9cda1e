"""Pictures and tables of study ``lsmr-fusion``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from asyncsparse_lab.studies import style
from asyncsparse_lab.studies.base import Drawing, Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_REMOVED = "#c0392b"
_LABELS = {
    "statements": "CuPy's statements",
    "update-unfused": "two kernels",
    "update-fused": "fused",
    "update-fused-float4": "fused, float4",
}
_CLAIMS = {"update-unfused": "unfused", "update-fused": "fused"}


def draw_fusion(rows: pd.DataFrame, claims: pd.DataFrame, l2: str) -> dict[str, Drawing | Table]:
    """Return the data flow, the times, and the table of launches and bytes."""
    rows = rows[rows["status"] == "passed"]
    return {
        "data-flow": data_flow(claims),
        "times": times(rows[rows["l2"] == l2]),
        "bytes": bytes_and_launches(rows, claims),
    }


def data_flow(claims: pd.DataFrame) -> Drawing:
    """Draw which arrays the updates read and write, before and after fusing."""
    import pandas as pd

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.4))
    _flow(
        left, [("hbar = h - c hbar", ["h", "hbar"], "hbar"), ("x = x + s hbar", ["hbar", "x"], "x")]
    )
    _flow(right, [("hbar = h - c hbar\nx = x + s hbar", ["h", "hbar", "x"], "hbar, x")])
    lines = []
    for axes, name, arrays in ((left, "unfused", 6), (right, "fused", 5)):
        stated: Any = claims.loc[f"lsmr-bytes-{name}", "number"]
        launches: Any = claims.loc[f"lsmr-launches-{name}", "number"]
        axes.set_title(
            f"{name}: {arrays} passes over n floats = {4 * arrays}n bytes "
            f"(stated: {stated:g}n, {launches:g} launch{'es' if launches > 1 else ''})",
            fontsize=9,
        )
        lines.append(
            {"variant": name, "passes": arrays, "bytes an element": 4 * arrays,
             "stated bytes": stated, "stated launches": launches}
        )  # fmt: skip
    return Drawing(
        figure,
        pd.DataFrame(lines),
        "The updates of hbar and x as two kernels (left) and fused (right). Red: the trip of hbar "
        "through memory that fusing removes.",
    )


def _flow(axes: Axes, kernels: list[tuple[str, list[str], str]]) -> None:
    axes.set_xlim(0, 10)
    axes.set_ylim(0, 10)
    axes.axis("off")
    centres = [5.0] if len(kernels) == 1 else [2.6, 7.4]
    for place, (text, reads, writes) in zip(centres, kernels, strict=True):
        axes.add_patch(
            FancyBboxPatch(
                (place - 1.9, 4.2), 3.8, 1.7, boxstyle="round,pad=0.1", fc="#dfe8f3", ec="black"
            )
        )
        axes.text(place, 5.05, text, ha="center", va="center", fontsize=8, family="monospace")
        second = place > 6
        for index, array in enumerate(reads):
            x = place + 1.4 * (index - (len(reads) - 1) / 2)
            removed = second and array == "hbar"
            _arrow(axes, (x, 8.2), (x, 6.15), removed)
            axes.text(
                x, 8.5, array, ha="center", fontsize=8, color=_REMOVED if removed else "black"
            )
        for index, array in enumerate(writes.split(", ")):
            count = len(writes.split(", "))
            x = place + 1.4 * (index - (count - 1) / 2)
            removed = len(kernels) == 2 and not second and array == "hbar"
            _arrow(axes, (x, 3.95), (x, 1.9), False)
            axes.text(x, 1.2, array, ha="center", fontsize=8)
            if removed:  # between the two kernels, around both
                axes.plot([x + 0.5, 5.0, 5.0], [1.4, 1.4, 8.7], color=_REMOVED, lw=2.0)
                _arrow(axes, (4.95, 8.7), (6.35, 8.7), True)
    axes.text(0.1, 8.5, "read", fontsize=7, color="#606060")
    axes.text(0.1, 1.2, "written", fontsize=7, color="#606060")


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], removed: bool) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=11,
            color=_REMOVED if removed else "black",
            lw=2.0 if removed else 1.0,
        )
    )


def times(rows: pd.DataFrame) -> Drawing:
    """Draw the time of each way against n, for hbar and x alone and with h."""
    import seaborn as sns

    colors = sns.color_palette("colorblind")
    figure, panels = plt.subplots(1, 2, figsize=(8.6, 3.2), sharey=True)
    for axes, with_h in zip(panels, (False, True), strict=True):
        here = rows[rows["params.with_h"] == with_h]
        for index, (name, text) in enumerate(_LABELS.items()):
            one = here[here["variant"] == name].sort_values("k")
            axes.plot(
                one["k"],
                one["median_us"],
                marker="o^sD"[index],
                color=style.look("cupy").color if name == "statements" else colors[index - 1],
                ls=("-.", "--", "-", ":")[index],
                label=text,
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("n, elements of a vector")
        axes.set_title("hbar, x and h" if with_h else "hbar and x")
    panels[0].set_ylabel("time, us")
    panels[0].legend(fontsize=7)
    style.provenance(figure, rows)
    names = ["k", "variant", "params.with_h", "median_us", "q1_us", "q3_us"]
    table = rows[names].sort_values(names[:3]).reset_index(drop=True)
    return Drawing(
        figure,
        table,
        "Time of the vector updates, launches hidden. For short vectors the launches decide, for "
        "long ones the bytes; CuPy keeps hbar in FP64.",
    )


def bytes_and_launches(rows: pd.DataFrame, claims: pd.DataFrame) -> Table:
    """Tabulate launches, counted and measured bytes an element, and time."""
    import pandas as pd

    lines: list[dict[str, Any]] = []
    order = ["k", "params.with_h", "result.launches"]
    cold = rows[rows["l2"] == "cold"].sort_values(order, ascending=[True, True, False])
    for _, row in cold.iterrows():
        with_h = bool(row["params.with_h"])
        stated = None if with_h else _CLAIMS.get(row["variant"])
        line = {
            "n": int(row["k"]),
            "vectors": "hbar, x, h" if with_h else "hbar, x",
            "way": _LABELS[row["variant"]],
            "variant": row["variant"],
            "launches": int(row["result.launches"]),
            "bytes an element": row["result.bytes_an_element"],
            "stated": claims.loc[f"lsmr-bytes-{stated}", "number"] if stated else None,
            "time, cold L2, us": row["median_us"],
        }
        for column in ("l2_bytes", "dram_bytes"):
            value = row.get(f"result.{column}")
            line[f"{column.split('_')[0].upper()} bytes an element, measured"] = (
                value / row["k"] if value is not None else None
            )
        lines.append(line)
    return Table(
        pd.DataFrame(lines),
        "Launches and bytes of the updates of hbar and x, and with that of h (all five of CuPy's "
        "statements): counted, stated by the document, and measured by the profiler where its "
        "counters could be read. Times and measured bytes are those of a cold L2.",
    )
