"""Figures of the study ``suite`` about who is the fastest, and how far the others are behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from asyncsparse_lab.studies import style
from asyncsparse_lab.studies.base import Drawing
from asyncsparse_lab.studies.suite_figures import look, peer_sentence, say_peers, shown
from asyncsparse_lab.studies.suite_frame import AUTO, BEST_OF_ALL, PARTS, Evaluation, codes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LIVE: Final = "measured live"
LABELLED: Final = 8.0  # in % of the matrices: the narrowest bar that has room for its number


def profile(evaluation: Evaluation) -> Drawing:
    """Draw Dolan and More's performance profile: the share of matrices within a factor."""
    import pandas as pd

    factors = np.geomspace(1.0, 10.0, 121)
    found = _comparisons(evaluation)
    figure, panels = _panels(found, height=3.4)
    lines = []
    handles: dict[str, Any] = {}
    for axes, (n, title, table, names) in zip(panels, found, strict=True):
        behind = table[names].div(table[names].min(axis=1), axis=0).fillna(np.inf)
        for name in names:
            share = [100.0 * float((behind[name] <= factor).mean()) for factor in factors]
            own = look(name)
            (handles[name],) = axes.plot(
                factors, share, own.line, drawstyle="steps-post", color=own.color, label=name,
                linewidth=2.4 if name == AUTO else 1.3, marker=own.marker, markevery=24,
                markerfacecolor=own.face, markersize=8 if name == AUTO else 4.5,
            )  # fmt: skip
            lines += [
                {"n": n, "comparison": title, "who": name, "factor": factor, "share": part}
                for factor, part in zip(factors[::10], share[::10], strict=True)
            ]
        axes.set(xscale="log", xlim=(1, 10), ylim=(0, 102),
                 title=f"n = {n}, {title}, {len(table)} matrices")  # fmt: skip
        axes.set_xticks([1, 1.5, 2, 3, 5, 10], ["1", "1.5", "2", "3", "5", "10"])
        axes.minorticks_off()
    figure.supxlabel("times the fastest contender's time", fontsize=9)
    figure.supylabel("% of the matrices", fontsize=9)
    figure.legend(list(handles.values()), list(handles), fontsize=7, loc="outside right upper")
    style.provenance(figure, evaluation.drawn_everywhere)
    say_peers(figure, evaluation)
    return Drawing(
        figure,
        pd.DataFrame(lines),
        "Performance profile (Dolan and More, 2002): on which share of the matrices a contender "
        "takes at most so many times the time of the fastest; who did not run on a matrix never "
        f"reaches it. {peer_sentence(evaluation)}",
    )


def wins(evaluation: Evaluation) -> Drawing:
    """Draw on which share of the matrices each contender is the fastest, by density."""
    import pandas as pd

    found = _comparisons(evaluation)
    figure, panels = _panels(found, height=2.1)
    classes = ("all", *PARTS)
    lines = []
    winners: dict[str, Any] = {}
    for axes, (n, title, table, names) in zip(panels, found, strict=True):
        counts = []
        for place, density in enumerate(classes):
            part = evaluation.in_class(density, table[names]).dropna(how="all")
            counts.append(len(part))
            left = 0.0
            fastest = part.idxmin(axis=1)
            for name in names:
                share = 100.0 * float((fastest == name).mean()) if len(part) else 0.0
                lines.append({"n": n, "comparison": title, "density": density, "who": name,
                              "matrices": len(part), "share": share})  # fmt: skip
                if share == 0.0:
                    continue
                own = look(name)
                bar = axes.barh(
                    place, share, 0.62, left=left, color=own.color, edgecolor="white",
                    hatch="///" if own.is_peer else None,
                )  # fmt: skip
                winners.setdefault(name, bar)
                if share >= LABELLED:
                    axes.text(
                        left + share / 2, place, f"{share:.0f}", ha="center", va="center",
                        fontsize=7, color="black",
                        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
                    )  # fmt: skip
                left += share
        axes.set_yticks(range(len(classes)), classes)
        axes.set(xlim=(0, 100), title=f"n = {n}, {title}, {counts[0]} matrices")
        axes.grid(axis="y", visible=False)
    panels[0].set_ylim(len(classes) - 0.5, -0.5)
    figure.supxlabel("% of the matrices", fontsize=9)
    figure.supylabel("density", fontsize=9)
    figure.legend(list(winners.values()), list(winners), fontsize=7, loc="outside right upper")
    style.provenance(figure, evaluation.drawn_everywhere)
    say_peers(figure, evaluation)
    return Drawing(
        figure,
        pd.DataFrame(lines),
        "Who is the fastest on which share of the matrices, cold L2; recorded peers are hatched. "
        f"{peer_sentence(evaluation)}",
    )


class Comparison(NamedTuple):
    """Times by matrix at one n, and who of the columns is compared."""

    n: int
    title: str
    table: pd.DataFrame
    names: list[str]


def _comparisons(evaluation: Evaluation) -> list[Comparison]:
    """Return at every n all that was measured live, and with recorded peers where they may.

    The article's kernels stand beside auto; the other configurations of ours are in it.
    """
    found = []
    for n in evaluation.drawn_sizes:
        table = evaluation.compared(n)
        names = shown(evaluation, table)
        live = [name for name in names if name not in codes()]
        found.append(Comparison(n, LIVE, table, live))
        if evaluation.peers_agree_at(n):
            recorded = table[table[BEST_OF_ALL].notna()]
            found.append(Comparison(n, "with recorded peers", recorded, names))
    return found


def _panels(found: Sequence[Comparison], height: float) -> tuple[Figure, list[Axes]]:
    """Return a panel for each comparison, those of one n in a row."""
    from matplotlib import pyplot as plt

    sizes = list(dict.fromkeys(one.n for one in found))
    columns = 1 + any(one.title != LIVE for one in found)
    figure, grid = plt.subplots(
        len(sizes), columns, figsize=(4.6 * columns + 1.6, height * len(sizes) + 0.7),
        sharex=True, sharey=True, squeeze=False,
    )  # fmt: skip
    places = [(sizes.index(one.n), int(one.title != LIVE)) for one in found]
    for place, axes in np.ndenumerate(grid):
        axes.set_visible(place in places)
    return figure, [grid[place] for place in places]
