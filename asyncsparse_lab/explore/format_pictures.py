"""Pictures of the whole matrix in the formats: fill, columns per window, bytes; and its facts."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from asyncsparse_lab.explore.canvas import (
    INK,
    MUTED,
    TITLE,
    distribution,
    moments,
    new_figure,
    plain,
    readable_bytes,
    three_digits,
)
from asyncsparse_lab.explore.structure import Structure
from asyncsparse_lab.formats.selection import PREFERRED_FILL, SUITABLE_FILL
from asyncsparse_lab.studies.style import look

_WIDTH = 10.6


def formats_picture(structure: Structure, block: int, height: int) -> Figure:
    """Draw what the rule picks, fill, columns per window and bytes.

    Parameters
    ----------
    structure : Structure
        The matrix and its facts.
    block, height : int
        Block size and window height to mark; each is in the sweep of the facts.
    """
    figure = new_figure(_WIDTH, 4.4)
    choice = structure.choice(block)
    figure.text(
        0.012,
        0.955,
        f"With {block} × {block} blocks the article's rule picks {choice.format.upper()}",
        fontsize=11,
        fontweight="bold",
        color=INK,
    )
    figure.text(0.012, 0.905, "; ".join(choice.reasons), fontsize=9.5, color=INK)
    _fill(figure.add_axes((0.06, 0.225, 0.26, 0.53)), structure, block, height)
    axes = figure.add_axes((0.395, 0.225, 0.26, 0.53))
    columns = structure.window_columns(height)
    distribution(axes, columns, look("wcsr").color, "columns with a non-zero")
    axes.set_ylabel("windows")
    axes.set_title(f"Columns per window of {height} rows\n{moments(columns)}", **TITLE)
    _bytes(figure.add_axes((0.79, 0.225, 0.185, 0.53)), structure, block, height)
    return figure


def facts_picture(rows: Mapping[str, str]) -> Figure:
    """Write the facts as a table: for pages without a kernel."""
    lines = [
        (title if first else "", line)
        for title, text in rows.items()
        for first, line in zip([True] + [False] * len(text), wrap(text, 112), strict=False)
    ]
    figure = new_figure(_WIDTH, 0.2 * len(lines) + 0.3)
    for place, (title, line) in enumerate(lines):
        bottom = 1 - (0.2 * place + 0.3) / (0.2 * len(lines) + 0.3)
        figure.text(0.012, bottom, title, fontsize=9.5, color=INK, fontweight="bold")
        figure.text(0.16, bottom, line, fontsize=9.5, color=INK)
    return figure


def _fill(axes: Axes, structure: Structure, block: int, height: int) -> None:
    """Draw fill against block size and window height, with the rule's thresholds."""
    sizes = list(structure.facts.block_fill)
    for name, label, sweep, chosen in (
        ("bcsr", "BCSR, s × s blocks", structure.facts.block_fill, block),
        ("wcsr", "WCSR, windows of s rows", structure.facts.window_fill, height),
    ):
        style = look(name)
        fills = [100 * sweep[size] for size in sizes]
        axes.plot(sizes, fills, color=style.color, marker=style.marker, label=label)
        axes.plot(chosen, 100 * sweep[chosen], "o", color=style.color, ms=13, fillstyle="none")
    for threshold, text in ((SUITABLE_FILL, "BCSR suitable"), (PREFERRED_FILL, "BCSR preferred")):
        axes.axhline(100 * threshold, color=MUTED, lw=1, ls="--", zorder=0)
        axes.text(sizes[-1] * 1.12, 100 * threshold + 1.5, text, ha="right", fontsize=8, color=INK)
    axes.set_xscale("log", base=2)
    axes.set_xlim(sizes[0] / 1.25, sizes[-1] * 1.25)
    axes.set_ylim(0, 106)
    axes.set_xlabel("block size or window height s (circled: chosen)")
    axes.set_ylabel("fill ratio [%]")
    axes.set_title("Stored values that are non-zero\ndashed: the article's rule", **TITLE)
    axes.legend(
        fontsize=8.5, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2,
        columnspacing=1.0, handlelength=1.5,
    )  # fmt: skip
    plain(axes)
    axes.set_xticks(sizes, [str(size) for size in sizes])


def _bytes(axes: Axes, structure: Structure, block: int, height: int) -> None:
    """Draw the bytes of the matrix in each format, on a logarithmic scale."""
    sizes = structure.format_bytes(block, height)
    places = range(len(sizes))
    colors = [look(name.split()[0].lower()).color for name in sizes]
    axes.barh(places, list(sizes.values()), color=colors, height=0.62)
    axes.invert_yaxis()
    axes.set_xscale("log")
    # Room to the right of the longest bar for its label.
    low, high = min(sizes.values()) / 3, max(sizes.values())
    axes.set_xlim(low, high * (high / low) ** 0.7)
    for place, size in zip(places, sizes.values(), strict=True):
        text = f" {three_digits(size / sizes['CSR'])} × CSR"
        axes.text(size, place, text, va="center", fontsize=8.5, color=INK)
    axes.set_xlabel("bytes (log scale)")
    value_bytes = structure.facts.value_bytes
    axes.set_title(f"The matrix in each format\nvalues of {value_bytes} bytes", **TITLE)
    plain(axes)
    axes.set_yticks(places, [f"{name}\n{readable_bytes(size)}" for name, size in sizes.items()])
    axes.xaxis.set_major_locator(LogLocator(numticks=4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: readable_bytes(value)))
