"""The explorer's pictures, drawn without pyplot and returned as figures.

Each function takes computed numbers and returns a ``matplotlib.figure.Figure``;
:func:`png` turns one into bytes.  Fixed margins instead of a layout engine keep one picture
near a tenth of a second, so that pictures follow a moving control.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import NDArray

from asyncsparse_lab.studies.style import look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from asyncsparse_lab.explore.binning import Density, Window
    from asyncsparse_lab.explore.structure import Structure

DPI = 100
INK, MUTED = "#222222", "#9a9a9a"

#: Longest side over shortest side up to which a window is drawn to scale.
_TO_SCALE = 5.0

#: Blocks along a side of the picture up to which their edges are drawn.
_MOST_BLOCKS = 40

_TITLE: dict[str, Any] = {"loc": "left", "size": 10}

#: Left, bottom, width and height of the density's axes: 512 pixels or more, so no bin is lost.
_PLOT = (0.125, 0.085, 0.71, 0.79)

#: The widths and heights (inches) of the pictures; the notebook stacks them.
DENSITY_SIZE = (7.4, 6.8)
LENGTHS_SIZE = (5.0, 6.8)
STRUCTURE_SIZE = (12.4, 3.9)

#: A longest row of more than so many medians is drawn on a logarithmic scale.
_SKEWED = 8


def png(figure: Figure) -> bytes:
    """Return the figure as PNG bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, pil_kwargs={"compress_level": 3})
    return buffer.getvalue()


def density_picture(density: Density, name: str, block: int) -> Figure:
    """Draw the non-zeros per position of each bin, on a logarithmic scale.

    Empty bins are white.  Close up, lines show the blocks.  A window whose sides differ by more
    than a factor of five is not drawn to scale, and its title says so.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm, Normalize

    window = density.window
    figure = _figure(DENSITY_SIZE)
    axes = figure.add_axes(_PLOT)
    fraction = np.ma.masked_equal(density.fraction, 0.0)
    lowest, highest = (float(fraction.min()), float(fraction.max())) if density.nnz else (1.0, 1.0)
    several = lowest < highest
    norm: Normalize = LogNorm(lowest, highest) if several else Normalize(0.0, highest)
    to_scale = max(window.shape) <= _TO_SCALE * min(window.shape)
    axes.imshow(
        fraction,
        cmap=_shades(),
        norm=norm,
        interpolation="nearest",
        aspect="equal" if to_scale else "auto",
        extent=(window.columns[0], window.columns[1], window.rows[1], window.rows[0]),
    )
    each = _bin_size(density)
    notes = [f"a bin is {each}"]
    if max(window.shape) <= _MOST_BLOCKS * block:
        _block_lines(axes, window, block)
        notes.append(f"lines: {block} × {block} blocks")
    if not to_scale:
        notes.append("not drawn to scale")
    axes.set_xlabel("column")
    axes.set_ylabel("row")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(6, integer=True))
        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    figure.text(_PLOT[0], 0.965, _shortened(name), fontsize=12, fontweight="bold", color=INK)
    figure.text(
        _PLOT[0],
        0.90,
        f"rows {_span(window.rows)}, columns {_span(window.columns)}: "
        f"{density.nnz:,} non-zeros\n{'; '.join(notes)}",
        fontsize=9.5,
        color=INK,
        linespacing=1.4,
    )
    if each == "one position":
        return figure  # dark or white: no scale to speak of
    bar = figure.add_axes((0.86, _PLOT[1], 0.022, _PLOT[3]))
    figure.colorbar(ScalarMappable(norm, _shades()), cax=bar)
    bar.set_ylabel("non-zeros per 100 positions" + (" (log scale)" if several else ""))
    bar.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}")
    bar.minorticks_off()
    return figure


def _bin_size(density: Density) -> str:
    spans = [int(np.diff(edges).max()) for edges in (density.row_edges, density.column_edges)]
    return "one position" if spans == [1, 1] else f"{spans[0]:,} × {spans[1]:,} positions"


def _block_lines(axes: Axes, window: Window, block: int) -> None:
    for draw, (low, high) in ((axes.axhline, window.rows), (axes.axvline, window.columns)):
        for edge in range(-(-low // block) * block, high + 1, block):
            draw(edge, color=MUTED, lw=0.6, alpha=0.7)


def lengths_picture(density: Density) -> Figure:
    """Draw how many rows and columns of the window have how many non-zeros."""
    figure = _figure(LENGTHS_SIZE)
    for bottom, lengths, one, color in (
        (0.57, density.row_lengths, "row", "#4c72b0"),
        (0.08, density.column_lengths, "column", "#8172b3"),
    ):
        axes = figure.add_axes((0.15, bottom, 0.81, 0.33))
        _distribution(axes, lengths, color, f"non-zeros in a {one}")
        axes.set_ylabel(f"{one}s")
        axes.set_title(f"{one.capitalize()} lengths in the window\n{_moments(lengths)}", **_TITLE)
    return figure


def structure_picture(structure: Structure, block: int, height: int) -> Figure:
    """Draw fill, columns per window and bytes for the chosen block size and window height.

    Parameters
    ----------
    structure : Structure
        The sweeps over block sizes and window heights.
    block, height : int
        The sizes to mark; each must be in the sweep.
    """
    figure = _figure(STRUCTURE_SIZE)
    _fill(figure.add_axes((0.05, 0.27, 0.27, 0.61)), structure, block, height)
    axes = figure.add_axes((0.385, 0.27, 0.27, 0.61))
    columns = structure.window_columns[height]
    _distribution(axes, columns, look("wcsr").color, "columns with a non-zero")
    axes.set_ylabel("windows")
    axes.set_title(f"Columns per window of {height} rows\n{_moments(columns)}", **_TITLE)
    _bytes(figure.add_axes((0.755, 0.27, 0.235, 0.61)), structure, block, height)
    return figure


def stack(pictures: list[bytes]) -> bytes:
    """Return the pictures below each other as one PNG: what a page without a kernel shows.

    Neighbours that fit into the width of the widest stand side by side.
    """
    from PIL import Image

    images = [Image.open(BytesIO(picture)).convert("RGB") for picture in pictures]
    width = max(image.width for image in images)
    lines: list[list[Any]] = [[]]
    for image in images:
        if sum(other.width for other in lines[-1]) + image.width > width and lines[-1]:
            lines.append([])
        lines[-1].append(image)
    heights = [max(image.height for image in line) for line in lines]
    page = Image.new("RGB", (width, sum(heights)), "white")
    top = 0
    for line, height in zip(lines, heights, strict=True):
        left = 0
        for image in line:
            page.paste(image, (left, top))
            left += image.width
        top += height
    buffer = BytesIO()
    page.save(buffer, format="PNG")
    return buffer.getvalue()


def _figure(size: tuple[float, float]) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=size, facecolor="white")


def _shades() -> Any:
    """Return the colour map: from a blue that a single pixel shows on white to near black."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["viridis_r"](np.linspace(0.15, 1.0, 256)))


def _span(bounds: tuple[int, int]) -> str:
    return f"{bounds[0]:,} to {bounds[1] - 1:,}"


def _shortened(name: str, most: int = 64) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _moments(lengths: NDArray[np.int64]) -> str:
    return (
        f"mean {lengths.mean():.4g}, median {np.median(lengths):.4g}, "
        f"longest {lengths.max():,}, empty {np.count_nonzero(lengths == 0):,}"
    )


def _distribution(axes: Axes, lengths: NDArray[np.int64], color: Any, kind: str) -> None:
    """Draw a histogram of the lengths: bins of equal width, or of equal ratio where skewed.

    Bin edges lie between integers, so that no bin is empty only because it can hold none.
    """
    some = lengths[lengths > 0]
    shortest, longest = (int(some.min()), int(some.max())) if some.size else (0, 0)
    if some.size and longest > _SKEWED * float(np.median(some)):
        edges: NDArray[Any] = np.unique(np.floor(np.geomspace(shortest, longest + 1, 41))) - 0.5
        axes.set_xscale("log")
        kind += " (log scale, without the empty)"
    else:
        shortest = int(lengths.min())
        width = max(1, -(-(longest + 1 - shortest) // 41))
        edges = np.arange(shortest, longest + width + 1, width) - 0.5
        if edges.size < 8:  # a lone bar would fill the whole axis
            axes.set_xlim(edges[0] - 4, edges[-1] + 4)
    counts, _ = np.histogram(lengths, edges)
    axes.stairs(counts, edges, fill=True, color=color)
    axes.axvline(float(lengths.mean()), color=INK, lw=1, ls="--")
    if counts.max() > 100:
        axes.set_yscale("log")
        axes.set_ylim(0.5, counts.max() * 2)
    axes.set_xlabel(kind)
    _plain(axes)


def _plain(axes: Axes) -> None:
    """Set sizes, remove what frames nothing, and write numbers without powers of ten.

    Typesetting 10^3 and minor ticks would take two thirds of a picture's time.
    """
    from matplotlib.ticker import FuncFormatter

    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)
    axes.xaxis.label.set_fontsize(9.5)
    axes.yaxis.label.set_fontsize(9.5)
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "linear":
            axis.set_major_locator(MaxNLocator(6, integer=True))
        else:
            axis.set_major_formatter(FuncFormatter(_counted))
    axes.minorticks_off()


def _counted(value: float, _: int | None = None) -> str:
    return f"{value:,.0f}" if value >= 1 else ""


def _fill(axes: Axes, structure: Structure, block: int, height: int) -> None:
    """Draw fill against block size and window height, with the rule's thresholds."""
    from asyncsparse_lab.formats.selection import PREFERRED_FILL, SUITABLE_FILL

    for name, label, sweep, chosen in (
        ("bcsr", "BCSR, s × s blocks", structure.blocks, block),
        ("wcsr", "WCSR, windows of s rows", structure.windows, height),
    ):
        style = look(name)
        fills = {size: 100 * sweep[size].fill_ratio for size in sweep}
        axes.plot(
            list(fills), list(fills.values()), color=style.color, marker=style.marker, label=label
        )
        axes.plot(chosen, fills[chosen], "o", color=style.color, ms=13, fillstyle="none")
    sizes = list(structure.blocks)
    for threshold, text in ((SUITABLE_FILL, "BCSR suitable"), (PREFERRED_FILL, "BCSR preferred")):
        axes.axhline(100 * threshold, color=MUTED, lw=1, ls="--", zorder=0)
        axes.text(sizes[-1] * 1.12, 100 * threshold + 1.5, text, ha="right", fontsize=8, color=INK)
    axes.set_xscale("log", base=2)
    axes.set_xlim(sizes[0] / 1.2, sizes[-1] * 1.2)
    axes.set_ylim(0, 105)
    axes.set_xlabel("block size or window height s (circled: chosen)")
    axes.set_ylabel("fill ratio [%]")
    axes.set_title("Share of stored values that are non-zero\ndashed: the article's rule", **_TITLE)
    axes.legend(
        fontsize=8.5, frameon=False, loc="lower center", bbox_to_anchor=(0.5, -0.40), ncols=2
    )
    _plain(axes)
    axes.set_xticks(sizes, [str(size) for size in sizes])


def _bytes(axes: Axes, structure: Structure, block: int, height: int) -> None:
    """Draw the bytes of the matrix in each format, on a logarithmic scale."""
    sizes = structure.bytes(block, height)
    names = list(sizes)
    colors = [look(name.split()[0].lower()).color for name in names]
    places = range(len(names))
    axes.barh(places, list(sizes.values()), color=colors, height=0.62)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(min(sizes.values()) / 4, max(sizes.values()) * 12)
    for place, size in zip(places, sizes.values(), strict=True):
        text = f"{_three_digits(size / sizes['CSR'])} × CSR"
        axes.text(size * 1.15, place, text, va="center", fontsize=8.5, color=INK)
    axes.set_xlabel("bytes, values as bfloat16")
    axes.set_title("The whole matrix in each format\n(log scale)", **_TITLE)
    _plain(axes)
    axes.set_yticks(places, [f"{name}\n{readable_bytes(sizes[name])}" for name in names])
    axes.xaxis.set_major_formatter(lambda value, _: readable_bytes(int(value)))


def readable_bytes(size: int) -> str:
    """Return a number of bytes with three digits and a decimal unit."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{_three_digits(value)} {unit}"
        value /= 1000
    return f"{_three_digits(value)} TB"


def _three_digits(value: float) -> str:
    """Return at least three significant digits, without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
