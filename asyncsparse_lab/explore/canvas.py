"""What the explorer's pictures share: figures without pyplot, PNG bytes, histograms.

Fixed margins instead of a layout engine, and plain numbers instead of typeset powers of ten,
keep one picture below a fifth of a second, so that pictures follow a moving control.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray
from PIL import Image

DPI: Final = 100
INK: Final = "#222222"
MUTED: Final = "#9a9a9a"
TITLE: Final[dict[str, Any]] = {"loc": "left", "size": 9.5}

#: A largest count of more than so many medians is drawn on a logarithmic scale.
_SKEWED = 8


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of that many inches, 100 pixels each."""
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def png(figure: Figure) -> bytes:
    """Return the figure as PNG bytes."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", pil_kwargs={"compress_level": 3})
    return buffer.getvalue()


def stack(lines: Sequence[Sequence[bytes]]) -> bytes:
    """Put PNGs beside each other in lines, and the lines below each other, as one PNG."""
    images = [[Image.open(BytesIO(picture)) for picture in line] for line in lines]
    width = max(sum(image.width for image in line) for line in images)
    heights = [max(image.height for image in line) for line in images]
    page = Image.new("RGB", (width, sum(heights)), "white")
    top = 0
    for line, height in zip(images, heights, strict=True):
        left = 0
        for image in line:
            page.paste(image, (left, top))
            left += image.width
        top += height
    buffer = BytesIO()
    page.save(buffer, format="PNG")
    return buffer.getvalue()


def distribution(axes: Axes, lengths: NDArray[np.int64], color: Any, what: str) -> None:
    """Draw a histogram of counts: bins of equal width, or of equal ratio where skewed.

    Bin edges lie between integers, so that no bin is empty only because it can hold none.
    """
    some = lengths[lengths > 0]
    shortest, longest = (int(some.min()), int(some.max())) if some.size else (0, 0)
    if some.size and longest > _SKEWED * float(np.median(some)):
        edges: NDArray[Any] = np.unique(np.floor(np.geomspace(shortest, longest + 1, 41))) - 0.5
        axes.set_xscale("log")
        what += " (log scale, 0 left out)" if some.size < lengths.size else " (log scale)"
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
    axes.set_xlabel(what)
    plain(axes)


def moments(lengths: NDArray[np.int64]) -> str:
    """Return a line that says what a distribution is like."""
    empty = int(np.count_nonzero(lengths == 0))
    return (
        f"mean {lengths.mean():,.4g}, median {np.median(lengths):,.4g}, "
        f"largest {lengths.max():,}, {empty:,} empty"
    )


def plain(axes: Axes) -> None:
    """Set sizes, and remove what is slow to draw or frames nothing."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)
    axes.xaxis.label.set_fontsize(9.5)
    axes.yaxis.label.set_fontsize(9.5)
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "linear":
            axis.set_major_locator(MaxNLocator(6, integer=True))
        axis.set_major_formatter(FuncFormatter(_whole))
    axes.minorticks_off()


def three_digits(value: float) -> str:
    """Return at least three significant digits, without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def readable_bytes(size: float) -> str:
    """Return a number of bytes with three digits and a decimal unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{three_digits(size)} {unit}"
        size /= 1000
    return f"{three_digits(size)} TB"


def _whole(value: float, _: int | None = None) -> str:
    return f"{value:,.0f}" if value >= 1 or value == 0 else ""
