"""Pictures of the studies ``cluster-multicast`` and ``persistent``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncsparse_lab.records.frame import geometric_mean, ratios
from asyncsparse_lab.studies.base import Drawing
from asyncsparse_lab.studies.bcsr_figures import plain_log
from asyncsparse_lab.studies.cta_tables import WORDS, labelled, order, resolution, short
from asyncsparse_lab.studies.spmm_cases import claimed

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OPT3: Final = "variant == 'bcsr-opt3'"
LINE_COLORS: Final = ("#202020", "#0072b2", "#d55e00", "#8a3fa0")
"""Dark on white, and told apart by line as well: opt3 first, then a study's other kernels."""
LINE_STYLES: Final = ("-", "--", "-.", ":")
BLOCKED_ELL: Final = "backend == 'cusparse' and variant == 'blocked-ell'"


def speedups(timed: pd.DataFrame, over: str) -> pd.DataFrame:
    """Return how many times faster than ``over`` each of our kernels is, by case and label."""
    import pandas as pd

    ours = labelled(timed)
    parts = []
    for label in order(ours[ours["backend"] == "asyncsparse"]):
        found = ratios(ours, f"label == {label!r}", over).reset_index()
        parts.append(found.assign(label=label)[["label", "matrix", "n", "ratio"]])
    return pd.concat(parts, ignore_index=True)


def speed(timed: pd.DataFrame, claims: pd.DataFrame, claim: str) -> Drawing:
    """Draw each kernel's speed over opt3, a group for each matrix, and where the document is.

    The document gives no number for either regression: what it says is an area, not a mark.
    """
    from asyncsparse_lab.studies import style

    drawing = _bars(
        timed,
        speedups(timed, OPT3).query("label != 'opt3'"),
        "times opt3's speed",
        "Speed over opt3 in the same case.",
    )
    if claim in claims.index:
        axes = drawing.figure.axes[0]
        low, high = axes.get_xlim()
        limit = claimed(claims, claim)
        axes.fill_between(
            (low, high), 0, limit, facecolor="none", edgecolor=style.DOCUMENT_COLOUR, alpha=0.18,
            hatch="//", linewidth=0, zorder=0.5, label="document: somewhere below opt3",
        )  # fmt: skip
        axes.set_xlim(low, high)
        _legend_outside(drawing.figure, axes)
        statement = str(claims["statement"][claim])
        drawing.caption += f" {statement}, the document says without a number."
    return drawing


def over_blocked_ell(timed: pd.DataFrame, claims: pd.DataFrame) -> Drawing:
    """Draw each kernel's speed over Blocked-ELL, with the value that is told of the persistent."""
    from asyncsparse_lab.studies import style

    drawing = _bars(
        timed,
        speedups(timed, BLOCKED_ELL),
        "times Blocked-ELL's speed",
        "Speed over cuSPARSE's Blocked-ELL, which pads every block row to the longest: on uneven "
        "matrices that is what the ratio shows. The hollow mark, what is told of the document's "
        "persistent kernel, belongs beside the even matrix.",
    )
    axes = drawing.figure.axes[0]
    told = claimed(claims, "persistent-cusparse")
    style.document_mark(axes, -0.45, told, "elsewhere", label="document, persistent")
    axes.set(yscale="log")
    axes.set_ylim(0.8, 1.5 * float(drawing.data["ratio"].max()))
    plain_log(axes)
    _legend_outside(drawing.figure, axes)
    return drawing


def _bars(timed: pd.DataFrame, found: pd.DataFrame, ylabel: str, caption: str) -> Drawing:
    from matplotlib import pyplot as plt

    from asyncsparse_lab.studies import style

    figure, axes = plt.subplots(figsize=(8.2, 3.6))
    labels = list(dict.fromkeys(found["label"]))
    matrices = list(dict.fromkeys(found["matrix"]))
    width = 0.8 / max(len(labels), 1)
    for index, label in enumerate(labels):
        part = found[found["label"] == label].groupby("matrix")["ratio"].agg(geometric_mean)
        places = np.arange(len(matrices)) + (index - (len(labels) - 1) / 2) * width
        values = part.reindex(matrices).to_numpy()
        axes.bar(places, values, 0.92 * width, color=shade(label, index), label=label)
        for place, value in zip(places, values, strict=True):
            if value == value:
                axes.annotate(
                    f"{value:.2f}", (place, value), (0, -10), textcoords="offset points",
                    ha="center", fontsize=7.5, zorder=6,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.8},
                )  # fmt: skip
    axes.axhline(1.0, color="#404040", linewidth=1, linestyle="--")
    axes.set_xticks(range(len(matrices)), [short(matrix) for matrix in matrices])
    columns = ", ".join(str(n) for n in sorted(set(found["n"])))
    axes.set(ylabel=ylabel, title=f"{ylabel[0].upper()}{ylabel[1:]}, N = {columns}")
    axes.margins(y=0.1)
    axes.grid(axis="x", visible=False)
    _legend_outside(figure, axes)
    style.provenance(figure, timed)
    return Drawing(figure, found.reset_index(drop=True), caption)


def _legend_outside(figure: Figure, axes: Axes, fontsize: float = 8.5) -> None:
    """Put one legend above the panels, where it hides nothing."""
    for old in figure.legends:
        old.remove()
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=fontsize, loc="outside upper center", ncols=4)


def shade(label: str, index: int) -> Any:
    """Return the colour of a kernel; clusters of several sizes differ in lightness."""
    import seaborn as sns

    from asyncsparse_lab.studies import style

    size = label.rpartition(" ")[2]
    if not size.isdigit():
        return style.look(f"bcsr-{label}").color
    lightness = {1: 1, 2: 3, 4: 5}.get(int(size), 2)
    return sns.dark_palette(style.look("bcsr-multicast").color, 7, reverse=True)[lightness]


def waits(probes: pd.DataFrame) -> Drawing:
    """Draw the cycles of waits on empty barriers and of arrivals there, by cluster size."""
    from matplotlib import pyplot as plt

    from asyncsparse_lab.studies import style

    rows = labelled(probes)
    labels, matrices = order(rows), list(dict.fromkeys(rows["matrix"]))
    bars = {
        "result.empty_wait_cycles": ("a wait of any producer", "#56b4e9"),
        "result.remote_wait_cycles": (
            "of the block that loads A, after its own consumers were done", "#de8f05"
        ),
        "result.release_cycles": ("a consumer's release of a slot", "#404040"),
    }  # fmt: skip
    bars = {name: look for name, look in bars.items() if name in rows}
    figure, panels = plt.subplots(
        1, len(matrices), figsize=(4.4 * len(matrices), 3.4), squeeze=False
    )
    for axes, matrix in zip(panels[0], matrices, strict=True):
        part = rows[rows["matrix"] == matrix].set_index("label").reindex(labels)
        places = np.arange(len(labels))
        width = 0.8 / len(bars)
        for number, (name, (label, color)) in enumerate(bars.items()):
            offset = (number - (len(bars) - 1) / 2) * width
            axes.bar(places + offset, part[name], 0.95 * width, color=color, label=label)
        axes.set_xticks(places, labels, fontsize=8)
        axes.set(ylabel="cycles a slot", title=short(matrix))
    _legend_outside(figure, panels[0, 0])
    style.provenance(figure, rows)
    return Drawing(
        figure,
        rows[["variant", "label", "matrix", *bars]].reset_index(drop=True),
        "Empty barriers, counted by instrumented builds of opt3 and of clusters of 1, 2 and 4: "
        "waits of producers, what the block that loads A waits for the others, and what a consumer "
        "takes to arrive on its own barrier and, in clusters, on that of the first block.",
    )


def causes(probes: pd.DataFrame, names: Sequence[str]) -> Drawing:
    """Draw what each cause adds to opt3's time, beside the measured difference."""
    import seaborn as sns
    from matplotlib import pyplot as plt

    from asyncsparse_lab.studies import style

    rows = labelled(probes)
    rows = rows[rows["label"] != "opt3"]
    matrices = list(dict.fromkeys(rows["matrix"]))
    names = [name for name in (*names, "instruments") if f"result.loss_{name}_us" in rows]
    colors: dict[str, Any] = dict(
        zip(names, sns.color_palette("colorblind", len(names)), strict=True)
    )
    colors["instruments"] = "#d0d0d0"
    figure, panels = plt.subplots(
        1, len(matrices), figsize=(1.5 + 3.4 * len(matrices), 3.9), squeeze=False
    )
    for axes, matrix in zip(panels[0], matrices, strict=True):
        part = rows[rows["matrix"] == matrix].sort_values("label")
        places = np.arange(len(part))
        up, down = np.zeros(len(part)), np.zeros(len(part))
        for name in names:
            values = part[f"result.loss_{name}_us"].to_numpy(dtype=float)
            base = np.where(values >= 0, up, down)
            axes.bar(places, values, 0.62, bottom=base, color=colors[name], label=WORDS[name])
            up, down = up + np.maximum(values, 0), down + np.minimum(values, 0)
        axes.plot(
            places, part["result.loss_us"], "_", color="black", markersize=14, markeredgewidth=2.5,
            label="sum",
        )  # fmt: skip
        axes.plot(
            places, part["result.measured_loss_us"], "D", color="black", markersize=5,
            label="measured without instruments",
        )  # fmt: skip
        axes.axhline(0, color="#404040", linewidth=0.8)
        axes.set_xticks(places, part["label"], fontsize=8)
        axes.set(ylabel="slower than opt3 by, us", title=short(matrix))
        lowest, highest = min(down.min(), 0.0), max(up.max(), part["result.measured_loss_us"].max())
        room = 0.06 * (highest - lowest)
        axes.set_ylim(lowest - room, highest + room)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8.5, loc="outside upper center", ncols=3)
    style.provenance(figure, rows)
    columns = [f"result.loss_{name}_us" for name in names]
    kept = ["variant", "label", "matrix", *columns, "result.loss_us", "result.measured_loss_us"]
    return Drawing(
        figure,
        rows[kept].reset_index(drop=True),
        "Where the difference to opt3 comes from, by the accounts of instrumented builds, less "
        "what their instruments cost; bars below zero are gains. The dash marks their sum, the "
        f"diamond the difference of the kernels without instruments. {resolution(probes)}",
    )


def ends(probes: pd.DataFrame) -> Drawing:
    """Draw when each SM ended its last block."""
    import pandas as pd
    from matplotlib import pyplot as plt

    from asyncsparse_lab.studies import style

    rows = labelled(probes)
    matrices = list(dict.fromkeys(rows["matrix"]))
    figure, panels = plt.subplots(
        1, len(matrices), figsize=(1.2 + 3.4 * len(matrices), 3.9), squeeze=False
    )
    lines = []
    for axes, matrix in zip(panels[0], matrices, strict=True):
        part = rows[rows["matrix"] == matrix].set_index("label")
        for index, label in enumerate(order(rows[rows["matrix"] == matrix])):
            times = np.sort(np.asarray(part.loc[label, "result.sm_end_us"], dtype=float))
            axes.step(
                times, np.arange(1, len(times) + 1), label=label, linewidth=2.2,
                color=LINE_COLORS[index % len(LINE_COLORS)],
                linestyle=LINE_STYLES[index % len(LINE_STYLES)],
            )  # fmt: skip
            lines.append(
                {
                    "variant": part.loc[label, "variant"],
                    "label": label,
                    "matrix": matrix,
                    "first SM ends, us": times[0],
                    "median, us": float(np.median(times)),
                    "last, us": times[-1],
                    "SMs with work": len(times),
                    "idle, % of the span": 100
                    * float(
                        part.loc[label, "result.spent_tail"] / part.loc[label, "result.span_us"]
                    ),
                }
            )
        axes.set_xlabel("us after the first begin", fontsize=11)
        axes.set_title(short(matrix), fontsize=12)
        axes.tick_params(labelsize=10)
    panels[0, 0].set_ylabel("SMs that ended", fontsize=11)
    _legend_outside(figure, panels[0, 0], fontsize=11)
    style.provenance(figure, rows)
    return Drawing(
        figure,
        pd.DataFrame(lines),
        "When each SM ended its last thread block, in one launch of the instrumented builds with "
        "a cold L2: the flatter the line, the more SMs idle before the last one is done. A line "
        "that ends below the number of SMs had SMs without any block.",
    )
