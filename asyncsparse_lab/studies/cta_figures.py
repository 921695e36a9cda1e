"""Pictures and tables of the studies ``cluster-multicast`` and ``persistent``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncsparse_lab.records.frame import geometric_mean, ratios
from asyncsparse_lab.studies.base import Drawing, Table
from asyncsparse_lab.studies.spmm_cases import claimed

if TYPE_CHECKING:
    import pandas as pd

_WORDS: Final[Mapping[str, str]] = {
    "co_scheduling": "co-scheduling: gaps, cluster barriers, idle ends",
    "empty_barrier": "empty barrier across blocks",
    "loads": "waits for loads",
    "first_loads": "waits for a tile's first stage",
    "products": "products and the rest",
    "reset": "resetting accumulators",
    "epilogue": "writing C",
    "imbalance": "imbalance: idle at the begin and the end",
    "launches": "launching blocks, setting up barriers",
}
OPT3: Final = "variant == 'bcsr-opt3'"
BLOCKED_ELL: Final = "backend == 'cusparse' and variant == 'blocked-ell'"


def labelled(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a column ``label``: the variant, and the size of its cluster."""
    names = rows["variant"].str.removeprefix("bcsr-")
    if "params.cluster" in rows:
        sizes = rows["params.cluster"]
        clusters = ["" if size != size else f" {int(size)}" for size in sizes.astype(float)]
        names = names + clusters
    return rows.assign(label=names)


def order(rows: pd.DataFrame) -> list[str]:
    """Return the labels, opt3 first."""
    return sorted(set(rows["label"]), key=lambda label: (label != "opt3", label))


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
    """Draw each kernel's speed over opt3, a group for each matrix."""
    return _bars(
        timed,
        speedups(timed, OPT3).query("label != 'opt3'"),
        "times opt3's speed",
        "Speed over opt3 in the same case. "
        + (str(claims.loc[claim, "statement"]) + ", the document says." if claim in claims.index
           else ""),
    )  # fmt: skip


def over_blocked_ell(timed: pd.DataFrame, claims: pd.DataFrame) -> Drawing:
    """Draw each kernel's speed over Blocked-ELL, with the value that is told of the persistent."""
    from asyncsparse_lab.studies import style

    drawing = _bars(
        timed,
        speedups(timed, BLOCKED_ELL),
        "times Blocked-ELL's speed",
        "Speed over cuSPARSE's Blocked-ELL; the hollow mark is what is told of the document's "
        "persistent kernel.",
    )
    axes = drawing.figure.axes[0]
    told = claimed(claims, "persistent-cusparse")
    style.document_mark(axes, 0, told, "elsewhere", label="document")
    axes.legend(fontsize=7)
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
                    f"{value:.2f}", (place, value), (0, 2), textcoords="offset points",
                    ha="center", fontsize=7,
                )  # fmt: skip
    axes.axhline(1.0, color="#707070", linewidth=1, linestyle="--")
    axes.set_xticks(range(len(matrices)), [short(matrix) for matrix in matrices])
    axes.set(ylabel=ylabel, title=ylabel[0].upper() + ylabel[1:])
    axes.margins(y=0.15)
    axes.legend(fontsize=7, ncols=len(labels))
    style.provenance(figure, timed)
    return Drawing(figure, found.reset_index(drop=True), caption)


def shade(label: str, index: int) -> Any:
    """Return the colour of a kernel; clusters of several sizes differ in lightness."""
    import seaborn as sns

    from asyncsparse_lab.studies import style

    name, _, size = label.partition(" ")
    color = style.look(f"bcsr-{name}").color
    return sns.light_palette(color, 5)[min(1 + int(size), 4)] if size else color


def short(matrix: str) -> str:
    """Return a matrix's name without the arguments of its generator."""
    return matrix.partition("(")[0].removesuffix("-keep10-uniform-s0")


def waits(probes: pd.DataFrame) -> Drawing:
    """Draw the cycles of a wait on an empty barrier by cluster size, and the cross-block part."""
    from matplotlib import pyplot as plt

    from asyncsparse_lab.studies import style

    rows = labelled(probes)
    labels, matrices = order(rows), list(dict.fromkeys(rows["matrix"]))
    figure, panels = plt.subplots(
        1, len(matrices), figsize=(4.4 * len(matrices), 3.4), squeeze=False
    )
    for axes, matrix in zip(panels[0], matrices, strict=True):
        part = rows[rows["matrix"] == matrix].set_index("label").reindex(labels)
        places = np.arange(len(labels))
        axes.bar(places - 0.2, part["result.empty_wait_cycles"], 0.38, color="#9bb8d3",
                 label="a wait of any producer")  # fmt: skip
        axes.bar(places + 0.2, part["result.remote_wait_cycles"], 0.38, color="#c44e52",
                 label="first block: after its own consumers were done")  # fmt: skip
        axes.set_xticks(places, labels, fontsize=8)
        axes.set(ylabel="cycles a wait", title=short(matrix))
    panels[0, 0].legend(fontsize=7)
    style.provenance(figure, rows)
    names = ["variant", "label", "matrix", "result.empty_wait_cycles", "result.remote_wait_cycles"]
    return Drawing(
        figure,
        rows[names].reset_index(drop=True),
        "Waits on empty barriers, counted by instrumented builds: by opt3 and by clusters of 1, 2 "
        "and 4. The second bar is what the block that loads A waits for the others.",
    )


def causes(probes: pd.DataFrame, names: Sequence[str]) -> Drawing:
    """Draw what each cause adds to opt3's time, beside the measured difference."""
    import seaborn as sns
    from matplotlib import pyplot as plt

    from asyncsparse_lab.studies import style

    rows = labelled(probes)
    rows = rows[rows["label"] != "opt3"]
    matrices = list(dict.fromkeys(rows["matrix"]))
    colors = dict(zip(names, sns.color_palette("colorblind", len(names)), strict=True))
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
            axes.bar(places, values, 0.62, bottom=base, color=colors[name], label=_WORDS[name])
            up, down = up + np.maximum(values, 0), down + np.minimum(values, 0)
        axes.plot(places, part["result.loss_us"], "_", color="black", markersize=30, label="sum")
        axes.plot(
            places, part["result.measured_loss_us"], "D", color="black", markersize=5,
            label="measured without instruments",
        )  # fmt: skip
        axes.axhline(0, color="#404040", linewidth=0.8)
        axes.set_xticks(places, part["label"], fontsize=8)
        axes.set(ylabel="slower than opt3 by, us", title=short(matrix))
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=7, loc="outside upper center", ncols=3)
    style.provenance(figure, rows)
    columns = [f"result.loss_{name}_us" for name in names]
    kept = ["variant", "label", "matrix", *columns, "result.loss_us", "result.measured_loss_us"]
    return Drawing(
        figure,
        rows[kept].reset_index(drop=True),
        "Where the difference to opt3 comes from, by the accounts of instrumented builds; bars "
        "below zero are gains. The bar marks their sum, the diamond the difference of the kernels' "
        "medians without instruments.",
    )


def ends(probes: pd.DataFrame) -> Drawing:
    """Draw when each SM ended its last block."""
    import pandas as pd
    from matplotlib import pyplot as plt

    from asyncsparse_lab.studies import style

    rows = labelled(probes)
    matrices = list(dict.fromkeys(rows["matrix"]))
    figure, panels = plt.subplots(
        1, len(matrices), figsize=(1.2 + 3.4 * len(matrices), 3.3), squeeze=False
    )
    lines = []
    for axes, matrix in zip(panels[0], matrices, strict=True):
        part = rows[rows["matrix"] == matrix].set_index("label")
        for index, label in enumerate(order(rows[rows["matrix"] == matrix])):
            times = np.sort(np.asarray(part.loc[label, "result.sm_end_us"], dtype=float))
            axes.step(times, np.arange(1, len(times) + 1), color=shade(label, index), label=label)
            lines.append(
                {
                    "variant": part.loc[label, "variant"],
                    "label": label,
                    "matrix": matrix,
                    "first SM ends, us": times[0],
                    "median, us": float(np.median(times)),
                    "last, us": times[-1],
                    "idle, % of the span": 100
                    * float(
                        part.loc[label, "result.spent_tail"] / part.loc[label, "result.span_us"]
                    ),
                }
            )
        axes.set(xlabel="us after the first begin", ylabel="SMs that ended", title=short(matrix))
        axes.legend(fontsize=7, loc="upper left")
    style.provenance(figure, rows)
    return Drawing(
        figure,
        pd.DataFrame(lines),
        "When each SM ended its last thread block, in one launch of the instrumented builds with "
        "a cold L2: the flatter the line, the more SMs idle before the last one is done.",
    )


def cause_table(probes: pd.DataFrame, names: Sequence[str], named: Sequence[str]) -> Table:
    """Return the account of each kernel: its loss by cause, whether that adds up, waits, ends."""
    import pandas as pd

    rows = labelled(probes)
    columns = {
        "matrix": "matrix",
        "label": "kernel",
        "result.span_us": "span, us",
        "result.measured_loss_us": "slower than opt3, us",
        **{f"result.loss_{name}_us": f"{_WORDS[name]}, us" for name in names},
        "result.loss_us": "sum of causes, us",
        "result.explained_share": "sum / measured",
        "result.named_causes_share": "causes that the document names / sum",
        "result.empty_wait_cycles": "cycles an empty-barrier wait",
        "result.reset_cycles": "cycles a reset",
        "result.spent_tail": "idle at the end, us an SM",
        "result.end_spread_us": "spread of SM ends, us",
    }
    rows = rows.sort_values(["matrix", "label"])
    table = pd.DataFrame({title: rows[name] for name, title in columns.items() if name in rows})
    words = " and ".join(_WORDS[name] for name in named)
    return Table(
        table.reset_index(drop=True),
        "The difference to opt3 by cause, for the mean SM and a cold L2. The document names "
        f"{words}.",
    )


def counter_table(timed: pd.DataFrame) -> Table:
    """Return bytes and hit rates that ncu counted beside each time, or why it did not."""
    import pandas as pd

    rows = labelled(timed[timed["backend"] == "asyncsparse"]).sort_values(["matrix", "label"])
    columns = {
        "matrix": ("matrix", 1.0),
        "label": ("kernel", 1.0),
        "median_us": ("median, us", 1.0),
        "result.l2_bytes": ("read from L2, GB", 1e-9),
        "result.l2_hit_rate": ("L2 hit rate, %", 100.0),
        "result.dram_bytes": ("DRAM, GB", 1e-9),
        "result.saved_share": ("of a stage saved by sharing A, %", 100.0),
        "result.counters": ("not counted because", 1.0),
    }
    table = {}
    for name, (title, factor) in columns.items():
        if name in rows and rows[name].notna().any():
            table[title] = rows[name] if factor == 1.0 else factor * rows[name].astype(float)
    return Table(
        pd.DataFrame(table).reset_index(drop=True),
        "What Nsight Compute counted in one launch of each kernel with flushed caches.",
    )
