"""Figures of the study ``suite`` about who is the fastest, and how far the others are behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncsparse_lab.studies import style
from asyncsparse_lab.studies.base import Drawing
from asyncsparse_lab.studies.suite_figures import look, peer_sentence, say_peers, shown
from asyncsparse_lab.studies.suite_frame import AUTO, BEST_OF_ALL, PARTS, Evaluation, codes

if TYPE_CHECKING:
    import pandas as pd

LABELLED: Final = 8.0  # in % of the matrices: the narrowest bar that has room for its number


def profile(evaluation: Evaluation) -> Drawing:
    """Draw Dolan and More's performance profile: the share of matrices within a factor."""
    import pandas as pd
    from matplotlib import pyplot as plt

    factors = np.geomspace(1.0, 10.0, 121)
    found = _comparisons(evaluation)
    figure, panels = plt.subplots(
        1, len(found), figsize=(4.6 * len(found) + 1.6, 4.1), sharey=True, squeeze=False
    )
    lines = []
    for axes, (title, table, names) in zip(panels[0], found, strict=True):
        behind = table[names].div(table[names].min(axis=1), axis=0).fillna(np.inf)
        for name in names:
            share = [100.0 * float((behind[name] <= factor).mean()) for factor in factors]
            own = look(name)
            axes.plot(
                factors, share, own.line, drawstyle="steps-post", color=own.color, label=name,
                linewidth=2.4 if name == AUTO else 1.3, marker=own.marker, markevery=24,
                markerfacecolor=own.face, markersize=8 if name == AUTO else 4.5,
            )  # fmt: skip
            lines += [
                {"comparison": title, "who": name, "factor": factor, "share": part}
                for factor, part in zip(factors[::10], share[::10], strict=True)
            ]
        axes.set(xscale="log", xlim=(1, 10), ylim=(0, 102), title=f"{title}, {len(table)} matrices",
                 xlabel="times the fastest contender's time")  # fmt: skip
        axes.set_xticks([1, 1.5, 2, 3, 5, 10], ["1", "1.5", "2", "3", "5", "10"])
        axes.minorticks_off()
    panels[0][0].set_ylabel("% of the matrices")
    handles, labels = panels[0][-1].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=7, loc="outside right upper")
    style.provenance(figure, evaluation.drawn)
    say_peers(figure, evaluation)
    return Drawing(
        figure,
        pd.DataFrame(lines),
        f"Performance profile (Dolan and More, 2002) at n = {evaluation.n}: on which share of the "
        "matrices a contender takes at most so many times the time of the fastest; who did not run "
        f"on a matrix never reaches it. {peer_sentence(evaluation)}",
    )


def wins(evaluation: Evaluation) -> Drawing:
    """Draw on which share of the matrices each contender is the fastest, by density."""
    import pandas as pd
    from matplotlib import pyplot as plt

    found = _comparisons(evaluation)
    figure, panels = plt.subplots(
        1, len(found), figsize=(4.6 * len(found) + 1.6, 2.6), sharey=True, squeeze=False
    )
    classes = ("all", *PARTS)
    lines = []
    winners: dict[str, Any] = {}
    for axes, (title, table, names) in zip(panels[0], found, strict=True):
        counts = []
        for place, density in enumerate(classes):
            part = evaluation.in_class(density, table[names]).dropna(how="all")
            counts.append(len(part))
            left = 0.0
            fastest = part.idxmin(axis=1)
            for name in names:
                share = 100.0 * float((fastest == name).mean()) if len(part) else 0.0
                lines.append({"comparison": title, "density": density, "who": name,
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
        axes.set(xlim=(0, 100), xlabel="% of the matrices", title=f"{title}, {counts[0]} matrices")
        axes.grid(axis="y", visible=False)
    panels[0][0].set_ylim(len(classes) - 0.5, -0.5)
    panels[0][0].set_ylabel("density")
    figure.legend(list(winners.values()), list(winners), fontsize=7, loc="outside right upper")
    style.provenance(figure, evaluation.drawn)
    say_peers(figure, evaluation)
    return Drawing(
        figure,
        pd.DataFrame(lines),
        f"Who is the fastest on which share of the matrices, n = {evaluation.n}, cold L2; recorded "
        f"peers are hatched. {peer_sentence(evaluation)}",
    )


def _comparisons(evaluation: Evaluation) -> list[tuple[str, pd.DataFrame, list[str]]]:
    """Return (title, times, who): all that was measured live, and with recorded peers if they may.

    The article's kernels stand beside auto; the other configurations of ours are in it.
    """
    table = evaluation.compared()
    names = shown(evaluation, table)
    live = [name for name in names if name not in codes()]
    found = [("measured live", table, live)]
    if evaluation.peers_agree:
        recorded = table[table[BEST_OF_ALL].notna()]
        found.append(("with recorded peers", recorded, names))
    return found
