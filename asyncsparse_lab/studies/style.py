"""How pictures look: one colour and marker a contender, hollow marks for the documents' values.

Needs the plotting libraries; measuring code does not import this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import matplotlib as mpl

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOCUMENT_COLOUR: Final = "#222222"
STALE_COLOUR: Final = "#b00020"

# A place in seaborn's colourblind palette, or a grey, and a marker.  The documents' kernels and
# ours have colours, libraries are greys: what is compared with is always the quiet part.
_LOOKS: Final[dict[str, tuple[int | str, str]]] = {
    "bcsr-opt0": (7, "v"),
    "bcsr-opt1": (9, "<"),
    "bcsr-opt2": (0, ">"),
    "bcsr-opt3": (2, "o"),
    "bcsr-multicast": (4, "s"),
    "bcsr-persistent": (6, "D"),
    "bcsr-persistent-swizzle": (5, "d"),
    "bcsr-overlap": (5, "P"),
    "bcsr-overlap-narrow": (0, "p"),
    "bcsr-paired": (3, "X"),
    "wcsr-paper": (1, "o"),
    "wcsr-paper-unsplit": (9, "s"),
    "wcsr-pipelined": (1, "P"),
    "wcsr-swapped": (8, "X"),
    "csr-vector": (4, "^"),
    "auto": ("#000000", "*"),
    "persistent": (3, "P"),
    "document": (0, "o"),
    "host": (9, "s"),
    # formats
    "csr": (7, "^"),
    "bcsr": (2, "o"),
    "wcsr": (1, "s"),
    "dense": ("#404040", "_"),
    # libraries
    "cublas": ("#404040", "s"),
    "cusparse": ("#707070", "o"),
    "torch": ("#8c6d8c", "D"),
    "cupy": ("#7d8c6d", "^"),
    "scipy": ("#a0a0a0", "v"),
}
_LIBRARY_MARKERS: Final = ("o", "v", "^", "<", ">", "s", "D", "h")


class Look(NamedTuple):
    """How one contender is drawn."""

    color: Any
    marker: str


def contender_name(backend: str, variant: str) -> str:
    """Return the label of a contender: the variant, with its library where it is one."""
    return variant if backend == "asyncsparse" else f"{backend} {variant}"


def look(name: str) -> Look:
    """Return the fixed colour and marker of a contender, by the name in :func:`contender_name`.

    A library's algorithms share the library's colour and differ by marker.  A name that is not
    known (one's own kernel) is drawn in the palette's red with a pentagon.
    """
    import seaborn as sns

    palette = sns.color_palette("colorblind")
    family, _, algorithm = name.partition(" ")
    color, marker = _LOOKS.get(name) or _LOOKS.get(family) or (3, "p")
    if algorithm and name not in _LOOKS:
        marker = _LIBRARY_MARKERS[sum(algorithm.encode()) % len(_LIBRARY_MARKERS)]
    return Look(palette[color] if isinstance(color, int) else color, marker)


@contextmanager
def theme() -> Iterator[None]:
    """Draw within the workbench's look; nothing of it stays behind."""
    import seaborn as sns

    settings = {
        **sns.axes_style("whitegrid"),
        **sns.plotting_context("paper", font_scale=1.05),
        "figure.dpi": 100,
        "figure.constrained_layout.use": True,
        "axes.titlesize": "medium",
        "axes.titlelocation": "left",
        "legend.frameon": True,
        "legend.framealpha": 0.9,
    }
    with mpl.rc_context(settings):
        yield


def freeze_layout(figure: Figure) -> None:
    """Lay a figure out now, once, and not again at each of the passes that saving it makes."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def document_mark(
    axes: Axes,
    x: Any,
    y: Any,
    kind: str = "stated",
    *,
    label: str | None = None,
    marker: str = "o",
    size: float = 9.0,
) -> None:
    """Draw a value of the documents as a hollow mark.

    Only what is stated is drawn in full; what we derived from it, or what comes from elsewhere,
    is lighter, and its label says so.

    Raises
    ------
    InputError
        The kind is none of stated, derived, elsewhere.
    """
    from asyncsparse_lab.claims import check_kind

    check_kind(kind)
    stated = kind == "stated"
    axes.plot(
        x,
        y,
        linestyle="none",
        marker=marker,
        markersize=size,
        markerfacecolor="none",
        markeredgecolor=DOCUMENT_COLOUR,
        markeredgewidth=1.6 if stated else 1.0,
        alpha=1.0 if stated else 0.45,
        label=label if label is None or stated else f"{label} ({kind})",
        zorder=5,
        clip_on=False,
    )


def provenance(figure: Figure, frame: pd.DataFrame) -> None:
    """Write below a figure what it shows: GPU, date, cold or warm, how many matrices.

    Parameters
    ----------
    frame : DataFrame
        The rows that were drawn, with the columns of :func:`asyncsparse_lab.load_records`.
    """
    footnote(figure, provenance_line(frame))


def provenance_line(frame: pd.DataFrame) -> str:
    """Return the line that :func:`provenance` writes."""
    parts = [_join(frame["gpu_name"]) or "unknown machine"]
    days = sorted({str(utc)[:10] for utc in frame["utc"].dropna()})
    if days:
        parts.append(days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}")
    states = sorted(set(frame["l2"].dropna()))
    if states:
        parts.append(f"{' and '.join(states)} L2")
    count = frame["matrix"].nunique()
    if count:
        parts.append(f"{count} {'matrix' if count == 1 else 'matrices'}")
    return "Measured on " + ", ".join(parts) if states else ", ".join(parts)


def stamp_stale(figure: Figure, contenders: Sequence[str]) -> None:
    """Stamp a figure whose named series were measured with a kernel that has changed since."""
    if contenders:
        text = "measured with an earlier kernel: " + ", ".join(sorted(set(contenders)))
        footnote(figure, text, color=STALE_COLOUR, weight="bold")


def footnote(figure: Figure, text: str, color: str = "#606060", **style: Any) -> None:
    """Add a line below all that is there; saved with a tight box, it is in the picture."""
    below = sum(1 for item in figure.texts if item.get_gid() == "footnote")
    height = figure.get_figheight()
    figure.text(
        0.01,
        -(0.16 * (below + 1)) / height,
        text,
        fontsize=7,
        ha="left",
        va="bottom",
        gid="footnote",
        color=color,
        **style,
    )


def _join(column: pd.Series[str]) -> str:
    return " and ".join(sorted(set(column.dropna())))
