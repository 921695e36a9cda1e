"""Pictures of the part of the matrix in view: density, row and column lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from asyncsparse_lab.explore.binning import Density, Window
from asyncsparse_lab.explore.canvas import INK, MUTED, TITLE, distribution, moments, new_figure

#: Width and height of the density's picture and of its axes, in inches: 520 pixels, so that
#: each of 512 bins has one.
_WIDTH, _HEIGHT, _SIDE, _LEFT, _BOTTOM = 6.2, 7.2, 5.2, 0.8, 1.2

#: Longest side over shortest side up to which a window is drawn to scale.
_TO_SCALE = 5.0

#: Blocks along a side of the picture up to which their edges are drawn.
_MOST_BLOCKS = 24


def shows_blocks(window: Window, block: int) -> bool:
    """Whether blocks of that size are large enough in view for their edges to be drawn."""
    return max(window.shape) <= _MOST_BLOCKS * block


def density_picture(density: Density, name: str, block: int) -> Figure:
    """Draw the non-zeros per position of each bin, on a logarithmic scale.

    Empty bins are white.  Close up, lines show the blocks.  A window whose sides differ by more
    than a factor of five is not drawn to scale, and its title says so.
    """
    window = density.window
    figure = new_figure(_WIDTH, _HEIGHT)
    axes = figure.add_axes(_inches(_LEFT, _BOTTOM, _SIDE, _SIDE))
    fraction = np.ma.masked_equal(density.fraction, 0.0)
    lowest, highest = (float(fraction.min()), float(fraction.max())) if density.nnz else (1.0, 1.0)
    norm: Normalize = LogNorm(lowest, highest) if lowest < highest else Normalize(0.0, highest)
    to_scale = max(window.shape) <= _TO_SCALE * min(window.shape)
    axes.imshow(
        fraction,
        cmap=_shades(),
        norm=norm,
        interpolation="nearest",
        aspect="equal" if to_scale else "auto",
        extent=(window.columns[0], window.columns[1], window.rows[1], window.rows[0]),
    )
    axes.set_anchor("NW")
    for spine in axes.spines.values():
        spine.set_position(("outward", 1))  # or else it lies on the first and last bins
    each = _bin_size(density)
    notes = [f"a bin is {each}"]
    if shows_blocks(window, block):
        _block_lines(axes, window, block)
        notes.append(f"lines: {block} × {block} blocks")
    if not to_scale:
        notes.append("not drawn to scale")
    axes.set_xlabel("column")
    axes.set_ylabel("row")
    axes.tick_params(labelsize=9)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(6, integer=True))
        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    heading = (
        f"rows {_span(window.rows)}, columns {_span(window.columns)}: "
        f"{density.nnz:,} non-zeros\n{'; '.join(notes)}"
    )
    left = _LEFT / _WIDTH
    figure.text(left, 0.968, _shortened(name), fontsize=12, fontweight="bold", color=INK)
    figure.text(left, 0.905, heading, fontsize=9.5, color=INK, linespacing=1.4)
    if each != "one position":  # else a bin is full or empty: no scale to speak of
        _scale(figure, norm)
    return figure


def lengths_picture(density: Density) -> Figure:
    """Draw how many rows and columns of the window have how many non-zeros."""
    figure = new_figure(4.4, _HEIGHT)
    for bottom, lengths, one, color in (
        (0.575, density.row_lengths, "row", "#4c72b0"),
        (0.085, density.column_lengths, "column", "#8172b3"),
    ):
        axes = figure.add_axes((0.16, bottom, 0.80, 0.325))
        distribution(axes, lengths, color, f"non-zeros in a {one}")
        axes.set_ylabel(f"{one}s")
        axes.set_title(f"{one.capitalize()} lengths in view\n{moments(lengths)}", **TITLE)
    return figure


def _inches(left: float, bottom: float, width: float, height: float) -> Any:
    return left / _WIDTH, bottom / _HEIGHT, width / _WIDTH, height / _HEIGHT


def _scale(figure: Figure, norm: Normalize) -> None:
    """Draw the scale below the picture, with its ends and the powers of ten between."""
    bar = figure.add_axes(_inches(_LEFT, 0.5, _SIDE, 0.14))
    figure.colorbar(ScalarMappable(norm, _shades()), cax=bar, orientation="horizontal")
    low, high = float(norm.vmin or 0.0), float(norm.vmax or 1.0)
    ticks = [low, high]
    if isinstance(norm, LogNorm):
        decades = 10.0 ** np.arange(np.ceil(np.log10(low)), np.floor(np.log10(high)) + 1)
        # Powers of ten that would not run into the labels of the ends.
        room = (high / low) ** 0.12
        ticks += [float(ten) for ten in decades if low * room < ten < high / room]
    bar.set_xticks(ticks, [f"{100 * tick:.3g}" for tick in ticks])
    bar.minorticks_off()
    bar.tick_params(labelsize=9)
    log = ", log scale" if isinstance(norm, LogNorm) else ""
    bar.set_xlabel(f"non-zeros per 100 positions (white: none{log})", fontsize=9.5)


def _shades() -> ListedColormap:
    """Return the colours: from a green that a single pixel shows on white to near black."""
    return ListedColormap(colormaps["viridis_r"](np.linspace(0.15, 1.0, 256)))


def _bin_size(density: Density) -> str:
    spans = [int(np.diff(edges).max()) for edges in (density.row_edges, density.column_edges)]
    return "one position" if spans == [1, 1] else f"{spans[0]:,} × {spans[1]:,} positions"


def _block_lines(axes: Axes, window: Window, block: int) -> None:
    for draw, (low, high) in ((axes.axhline, window.rows), (axes.axvline, window.columns)):
        for edge in range(-(-low // block) * block, high + 1, block):
            draw(edge, color=MUTED, lw=0.6, alpha=0.7)


def _span(bounds: tuple[int, int]) -> str:
    return f"{bounds[0]:,} to {bounds[1] - 1:,}"


def _shortened(name: str, most: int = 56) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
