"""Figures of the study ``suite``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from asyncsparse_lab.records.frame import geometric_mean
from asyncsparse_lab.records.peers import AGREEMENT, run_facts
from asyncsparse_lab.studies import style
from asyncsparse_lab.studies.base import Drawing
from asyncsparse_lab.studies.bcsr_figures import plain_log
from asyncsparse_lab.studies.spmm_cases import claimed
from asyncsparse_lab.studies.suite_frame import (
    AUTO,
    BCSR,
    BEST_LIVE,
    BEST_OF_ALL,
    CLASSES,
    DOCUMENT_CLASSES,
    PARTS,
    WCSR,
    Evaluation,
    codes,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS_OF_PANELS: Final = 4
HIGHEST_SPEEDUP: Final = 200.0
"""Of the frame; one library is up to a thousand times slower on a few matrices."""

# Palette place or grey, marker, dashed or not: recorded peers are dashed and hollow.
_LOOKS: Final[dict[str, tuple[int | str, str]]] = {
    AUTO: ("#000000", "*"),
    BCSR: (2, "o"),
    WCSR: (1, "s"),
    "cuBLAS dense": ("#404040", "D"),
    "cuSPARSE CSR ALG1": ("#8a8a8a", "<"),
    "cuSPARSE CSR ALG2": ("#8a8a8a", "v"),
    "cuSPARSE CSR ALG3": ("#8a8a8a", "^"),
    "cuSPARSE Blocked-ELL": ("#6b6b6b", "s"),
    "cuSPARSE BSR": ("#6b6b6b", "P"),
    "PyTorch BSR": ("#b0a0b0", "h"),
    "AccSpMM": (0, "o"),
    "FlashSparse fp16": (3, "s"),
    "FlashSparse tf32": (4, "D"),
    "RoDe": (9, "^"),
    "Voltrix-SpMM": (5, "v"),
    "DTC-SpMM": (6, "h"),
}


class Look(NamedTuple):
    """How a contender is drawn."""

    color: Any
    marker: str
    is_peer: bool

    @property
    def face(self) -> Any:
        """Fill of the marker: recorded peers are hollow."""
        return "none" if self.is_peer else self.color

    @property
    def line(self) -> str:
        """Line style: recorded peers are dashed."""
        return "--" if self.is_peer else "-"


def look(name: str) -> Look:
    """Return colour and marker of a contender of the evaluation."""
    if name not in _LOOKS:
        return Look(*style.look(name), is_peer=False)
    import seaborn as sns

    color, marker = _LOOKS[name]
    picked = sns.color_palette("colorblind")[color] if isinstance(color, int) else color
    return Look(picked, marker, name in codes())


def shown(evaluation: Evaluation, table: pd.DataFrame) -> list[str]:
    """Return who is drawn: auto, the article's kernels, libraries, recorded peers."""
    wanted = [AUTO, BCSR, WCSR, *evaluation.libraries(table), *codes()]
    return [name for name in wanted if name in table and table[name].notna().any()]


def speedup(evaluation: Evaluation) -> Drawing:
    """Draw auto's speed over each library and peer against density, a panel each."""
    from matplotlib import pyplot as plt

    table = evaluation.compared()
    names = [name for name in shown(evaluation, table) if name != AUTO]
    names += [name for name in (BEST_LIVE, BEST_OF_ALL) if name in table]
    ratios = table[names].div(table[AUTO], axis=0)
    rows = -(-len(names) // COLUMNS_OF_PANELS)
    figure, grid = plt.subplots(
        rows, COLUMNS_OF_PANELS, figsize=(10.4, 2.05 * rows + 0.5), sharex=True, sharey=True
    )
    panels = np.ravel(grid)
    facts = evaluation.facts
    stand_ins = facts["label"].str.endswith("(stand-in)")
    for axes, name in zip(panels, names, strict=False):
        ratio = ratios[name].dropna()
        density = 100.0 * facts["density"].reindex(ratio.index)
        generated = stand_ins.reindex(ratio.index)
        color = look(name).color if name in _LOOKS else "#000000"
        for kind, fill in ((~generated, color), (generated, "none")):
            axes.plot(
                density[kind], ratio[kind], "o", markersize=3.6, color=color, markerfacecolor=fill,
                markeredgewidth=0.9,
            )  # fmt: skip
        axes.axhline(1.0, color="#707070", linewidth=1, linestyle="--")
        for part in PARTS:
            own = evaluation.in_class(part, ratio.to_frame("ratio"))["ratio"]
            low, high = CLASSES[part]
            ends = (100 * max(low, 1e-5), min(100 * high, 100.0))
            mean = geometric_mean(own)
            axes.plot(ends, (mean, mean), color=color, linewidth=1.6, alpha=0.8)
        mean = geometric_mean(ratio)
        title = f"{name}: {mean:.2f}" if name not in codes() else f"{name} (recorded): {mean:.2f}"
        axes.set_title(title, fontsize=8)
        axes.set(xscale="log", yscale="log")
    low, high = np.nanmin(ratios.to_numpy()), np.nanmax(ratios.to_numpy())
    highest = min(1.25 * high, HIGHEST_SPEEDUP)
    panels[0].set_ylim(0.8 * min(low, 1.0), highest)
    panels[0].set_xlim(1e-3, 100)
    for axes in panels:
        plain_log(axes)
        plain_log(axes, "x")
        axes.xaxis.set_major_locator(_decades())
        axes.tick_params(labelsize=7)
    for place, axes in enumerate(panels):
        axes.set_visible(place < len(names))
        axes.tick_params(labelbottom=place + COLUMNS_OF_PANELS >= len(names))
    figure.supxlabel("density of A, %", fontsize=9)
    figure.supylabel("speed of auto over the rival", fontsize=9)
    style.provenance(figure, evaluation.drawn)
    say_peers(figure, evaluation)
    data = ratios.assign(density=facts["density"].reindex(ratios.index)).reset_index()
    return Drawing(
        figure,
        data.melt(["matrix", "density"], var_name="over", value_name="speedup").dropna(),
        f"Speed of auto over each rival at n = {evaluation.n}, a point a matrix, hollow for "
        "stand-ins; lines are geometric means of the matrices of 1 % and more, of 0.1 to 1 %, and "
        f"below; the number is that of all. {_outside(ratios, highest)}{peer_sentence(evaluation)}",
    )


def _outside(ratios: pd.DataFrame, highest: float) -> str:
    """Return how many points lie above a figure's frame, in words; nothing if none does."""
    above = (ratios > highest).sum()
    found = ", ".join(f"{count} over {name}" for name, count in above[above > 0].items())
    return f"Above the frame: {found}. " if found else ""


def throughput(evaluation: Evaluation, claims: pd.DataFrame) -> Drawing:
    """Draw the distribution of useful TFLOPS by contender, in the document's classes."""
    from matplotlib import pyplot as plt

    table = evaluation.compared()
    names = shown(evaluation, table)
    tflops = _tflops(evaluation, table[names])
    figure, panels = plt.subplots(
        1, len(DOCUMENT_CLASSES), figsize=(10.4, 0.36 * len(names) + 1.1), sharey=True
    )
    lines = []
    for axes, density in zip(panels, DOCUMENT_CLASSES, strict=True):
        part = evaluation.in_class(density, tflops)
        for place, name in enumerate(names):
            values = part[name].dropna()
            if values.empty:
                continue
            own = look(name)
            axes.boxplot(
                [values], positions=[place], orientation="horizontal", widths=0.55, whis=(5, 95),
                showfliers=False, manage_ticks=False, patch_artist=True,
                boxprops={"facecolor": "none", "edgecolor": own.color, "linestyle": own.line},
                medianprops={"color": own.color},
                whiskerprops={"color": own.color}, capprops={"color": own.color},
            )  # fmt: skip
            mean = geometric_mean(values)
            axes.plot(
                mean, place, own.marker, color=own.color, markerfacecolor=own.face,
                markersize=9 if name == AUTO else 6,
            )  # fmt: skip
            axes.annotate(
                f"{mean:.3g} ({len(values)})", (1.0, place), (3, 0), ha="left", va="center",
                xycoords=("axes fraction", "data"), textcoords="offset points", fontsize=6.5,
            )  # fmt: skip
            lines.append(
                {"density": density, "who": name, "matrices": len(values), "mean": mean}
                | {f"quantile {q:g}": values.quantile(q) for q in (0.05, 0.25, 0.5, 0.75, 0.95)}
            )
        axes.set(xscale="log", xlabel="useful TFLOPS", title=_class_title(density))
        plain_log(axes, "x")
        axes.xaxis.set_major_locator(_decades())
        axes.tick_params(labelsize=7.5)
        axes.grid(axis="y", visible=False)
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_ylim(len(names) - 0.4, -0.6)
    _documents_means(panels[-1], names, claims, evaluation.n)
    style.provenance(figure, evaluation.drawn)
    say_peers(figure, evaluation)
    import pandas as pd

    return Drawing(
        figure,
        pd.DataFrame(lines),
        f"Useful TFLOPS at n = {evaluation.n}: quartiles, 5 to 95 % of the matrices, and the "
        "geometric mean (the marker; its value and the number of matrices at the right). Hollow "
        f"circles are the document's means. {peer_sentence(evaluation)}",
    )


def _documents_means(axes: Axes, names: list[str], claims: pd.DataFrame, n: int) -> None:
    """Mark what the document states or lets derive for 1 % and more at n = 1024."""
    if n != 1024:
        return
    for claim, name in (
        ("suite-wcsr-tflops", WCSR),
        ("suite-bcsr-tflops", BCSR),
        ("suite-bell-tflops-derived", "cuSPARSE Blocked-ELL"),
        ("suite-accspmm-tflops-derived", "AccSpMM"),
        ("suite-flashsparse-tflops-derived", "FlashSparse fp16"),
    ):
        if name in names and claim in claims.index:
            kind = str(claims["kind"][claim])
            style.document_mark(axes, claimed(claims, claim), names.index(name), kind, size=10)


def columns(evaluation: Evaluation, claims: pd.DataFrame) -> Drawing:
    """Draw geometric means of useful TFLOPS against n, on the matrices that all share."""
    import pandas as pd
    from matplotlib import pyplot as plt

    sizes = evaluation.drawn_sizes
    tables = {n: evaluation.compared(n) for n in sizes}
    names = shown(evaluation, evaluation.compared())
    agree = evaluation.peers_agree
    figure, panels = plt.subplots(1, 2, figsize=(9.2, 4.0))
    lines = []
    for axes, density in zip(panels, ("all", ">= 1 %"), strict=True):
        for name in names:
            means = []
            for n in sizes:
                table = evaluation.in_class(density, tables[n])
                if agree:
                    table = table[evaluation.facts["shared"].reindex(table.index)]
                values = _tflops(evaluation, table.reindex(columns=[name]), n)[name].dropna()
                means.append(geometric_mean(values))
                lines.append({"density": density, "who": name, "n": n, "matrices": len(values),
                              "mean": means[-1]})  # fmt: skip
            own = look(name)
            axes.plot(
                sizes, means, own.line, marker=own.marker, color=own.color, label=name,
                markerfacecolor=own.face, markersize=9 if name == AUTO else 5.5,
                linewidth=2.0 if name == AUTO else 1.2,
            )  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel="n, columns of B", ylabel="useful TFLOPS",
                 title=_class_title(density))  # fmt: skip
        axes.set_xticks(sizes, [str(n) for n in sizes])
        axes.minorticks_off()
        plain_log(axes)
    for claim, name in (("suite-wcsr-tflops", WCSR), ("suite-bcsr-tflops", BCSR)):
        if name in names and 1024 in sizes:
            value = claimed(claims, claim)
            style.document_mark(panels[1], 1024, value, marker=look(name).marker, size=9)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=7, loc="outside right upper")
    everything = evaluation.rows[evaluation.rows["who"].isin(names)]
    style.provenance(figure, everything[everything["l2"] == "cold"])
    say_peers(figure, evaluation)
    where = "the shared matrices" if agree else "all matrices"
    return Drawing(
        figure,
        pd.DataFrame(lines),
        f"Geometric means of useful TFLOPS against n on {where}, cold L2, bf16 out, of each "
        "contender over those that it ran on with a right result. Hollow marks without a line "
        "are the document's means of WCSR and BCSR over its own matrices. "
        f"{peer_sentence(evaluation)}",
    )


def _tflops(evaluation: Evaluation, times: pd.DataFrame, n: int = 0) -> pd.DataFrame:
    flops = 2.0 * evaluation.facts["nnz"].reindex(times.index) * (n or evaluation.n)
    return times.rdiv(flops, axis=0) / 1e6


def _class_title(density: str) -> str:
    return "all densities" if density == "all" else f"density {density}"


def _decades() -> Any:
    from matplotlib.ticker import LogLocator

    return LogLocator(numticks=12)


def peer_sentence(evaluation: Evaluation) -> str:
    """Return what a caption says of recorded peers."""
    facts = run_facts()
    if evaluation.peers_agree:
        return (
            f"Peers were recorded on an {facts['gpu']} on {facts['date']} (dashed, hollow or "
            "hatched), with types of their own and the zeroing of C counted."
        )
    return "Recorded peers are not drawn."


def say_peers(figure: Figure, evaluation: Evaluation) -> None:
    """Write below a figure why recorded peers are not in it, or by what right they are."""
    here = evaluation.found[evaluation.found["n"] == evaluation.n]
    told = ", ".join(
        f"{series} {ratio:.3f}" for series, ratio in zip(here["series"], here["ratio"], strict=True)
    )
    within = f"live time / recorded time: {told or 'not measured'}; allowed: 1 +- {AGREEMENT:g}"
    if evaluation.peers_agree:
        style.footnote(figure, f"Recorded peers: {within}")
    else:
        style.footnote(figure, f"No recorded peers drawn: {within}", color=style.STALE_COLOUR)
