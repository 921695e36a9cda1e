"""The page: controls, facts and pictures of one matrix at a time."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from asyncsparse_lab.errors import AsyncSparseError, InputError
from asyncsparse_lab.explore.binning import Window, bin_counts
from asyncsparse_lab.explore.canvas import png, stack
from asyncsparse_lab.explore.chooser import chooser
from asyncsparse_lab.explore.format_pictures import facts_picture, formats_picture
from asyncsparse_lab.explore.structure import Structure
from asyncsparse_lab.explore.view_pictures import density_picture, lengths_picture, shows_blocks
from asyncsparse_lab.matrices import load_matrix_with_facts
from asyncsparse_lab.matrices.facts import SIZES, MatrixFacts, fact_rows


def show(matrix: str, block: int = 64, window: int = 64) -> Explorer:
    """Return the page for a matrix; as the last line of a cell it is displayed.

    With a live kernel the page follows its controls; elsewhere (papermill, nbviewer, GitHub) the
    same pictures are shown as one still image.

    Parameters
    ----------
    matrix : str
        A name or path for :func:`asyncsparse_lab.load_matrix`.  What cannot be loaded is said
        in one line on the page.
    block : int
        Block size of BCSR, one of 8, 16, 32, 64, 128.
    window : int
        Window height of WCSR, one of the same.

    Raises
    ------
    InputError
        `block` or `window` is none of these.
    """
    for name, size in (("block", block), ("window", window)):
        if size not in SIZES:
            raise InputError(f"{name}={size!r} is none of {', '.join(map(str, SIZES))}")
    return Explorer(matrix, block, window)


class Explorer:
    """The page's state and widgets.

    Attributes
    ----------
    name : str or None
        The matrix that is shown, None until one could be loaded.
    window : Window
        The part of it that is in view.
    widget : ipywidgets.VBox
        All of the page.
    """

    def __init__(self, matrix: str, block: int, height: int) -> None:
        self.name: str | None = None
        self._drawing = True
        self._status = widgets.HTML()
        self._status.add_class("asyncsparse-status")
        self._facts = widgets.HTML()
        self._density = _picture("asyncsparse-density", "Non-zeros per position")
        self._lengths = _picture("asyncsparse-lengths", "Row and column lengths")
        self._formats = _picture("asyncsparse-formats", "Fill, columns per window and bytes")
        self._rows = _range("rows")
        self._columns = _range("columns")
        self._block = _sizes("BCSR block", block)
        self._height = _sizes("WCSR window", height)
        for control in (self._rows, self._columns):
            control.observe(self._range_moved, "value")
        self._block.observe(self._block_moved, "value")
        self._height.observe(lambda _: self._draw_formats(), "value")
        self._body = widgets.VBox(
            [
                widgets.HBox(
                    [
                        _column([self._density, self._zoom_controls()], "620px"),
                        _column([self._lengths], "440px"),
                    ]
                ),
                widgets.HBox([self._block, self._height]),
                self._formats,
                self._facts,
            ]
        )
        self.widget = widgets.VBox([chooser(self.open, self._say), self._status, self._body])
        self.widget.add_class("asyncsparse-explorer")
        self.open(matrix)

    def open(self, name: str) -> None:
        """Load a matrix and show all of it; if that fails, say why and keep what is shown."""
        self._say(f"loading {name} …")
        try:
            loaded = load_matrix_with_facts(name)
            m, k = loaded.matrix.shape
            if m == 0 or k == 0:
                raise InputError(f"{name} is {m} × {k}: choose a matrix with rows and columns")
            self._show(name, Structure.of(loaded))
        except (AsyncSparseError, OSError, MemoryError) as error:
            self._say(" ".join(str(error).split()) or type(error).__name__, failed=True)
        else:
            self._say("")

    def still(self) -> bytes:
        """Return all pictures as one PNG."""
        facts = png(facts_picture(fact_table(self._structure.facts)))
        return stack([[self._density.value, self._lengths.value], [self._formats.value], [facts]])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        bundle: dict[str, Any] = dict(self.widget._repr_mimebundle_())
        bundle["text/plain"] = self._message if self.name is None else f"explorer of {self.name}"
        if self.name is not None:
            bundle["image/png"] = b64encode(self.still()).decode()
        return bundle

    def _show(self, name: str, structure: Structure) -> None:
        # A file's folder does not fit into a title.
        self.name = Path(name).name if name.endswith((".mtx", ".mtx.gz")) else name
        self._structure, self._matrix = structure, structure.matrix
        self._facts.value = _as_html(fact_table(structure.facts))
        self._view(Window.whole(self._matrix.shape))
        self._draw_formats()
        self._body.layout.display = None

    def _say(self, message: str, failed: bool = False) -> None:
        """Put one line under the chooser; a failure says what is still shown, if anything."""
        self._message = message
        if failed and self.name is None:
            self._body.layout.display = "none"
        elif failed:
            message += f" (still showing {self.name})"
        colour = "#b00020" if failed else "inherit"
        self._status.value = f'<span style="color:{colour}">{escape(message)}</span>'

    def _zoom_controls(self) -> Any:
        moves: dict[str, Callable[[], Window]] = {
            "Zoom in": lambda: self.window.zoomed(0.5, self._matrix.shape),
            "Zoom out": lambda: self.window.zoomed(2.0, self._matrix.shape),
            "←": lambda: self.window.moved(0, -0.5, self._matrix.shape),
            "→": lambda: self.window.moved(0, 0.5, self._matrix.shape),
            "↑": lambda: self.window.moved(-0.5, 0, self._matrix.shape),
            "↓": lambda: self.window.moved(0.5, 0, self._matrix.shape),
            "Whole matrix": lambda: Window.whole(self._matrix.shape),
        }
        buttons = []
        for label, move in moves.items():
            button = widgets.Button(description=label, layout=widgets.Layout(width="auto"))
            button.on_click(lambda _, move=move: self._view(move()))
            buttons.append(button)
        return widgets.VBox([widgets.HBox(buttons), self._rows, self._columns])

    def _view(self, window: Window) -> None:
        """Bring a part of the matrix into view, and the sliders to it."""
        with self._quietly():
            for slider, bounds, extent in (
                (self._rows, window.rows, self._matrix.shape[0]),
                (self._columns, window.columns, self._matrix.shape[1]),
            ):
                slider.max = extent
                slider.value = bounds
        self.window = window
        self._draw_window()

    def _range_moved(self, _: Any) -> None:
        if self._drawing:
            # A factor of one keeps the window and gives a range of nothing a few positions.
            window = Window(tuple(self._rows.value), tuple(self._columns.value))
            self.window = window.zoomed(1.0, self._matrix.shape)
            self._draw_window()

    def _block_moved(self, change: dict[str, Any]) -> None:
        if any(shows_blocks(self.window, change[which]) for which in ("old", "new")):
            self._draw_density()
        self._draw_formats()

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """Set sliders without drawing for each of them."""
        self._drawing = False
        try:
            yield
        finally:
            self._drawing = True

    def _draw_window(self) -> None:
        self._counted = bin_counts(self._matrix, self.window)
        lengths = png(lengths_picture(self._counted))
        self._draw_density()
        self._lengths.value = lengths  # drawn before, so that both pictures change together

    def _draw_density(self) -> None:
        assert self.name is not None
        self._density.value = png(density_picture(self._counted, self.name, self._block.value))

    def _draw_formats(self) -> None:
        block, height = self._block.value, self._height.value
        self._formats.value = png(formats_picture(self._structure, block, height))


def fact_table(facts: MatrixFacts) -> dict[str, str]:
    """Return the facts in words, without the rule: that follows the chosen block size."""
    rows = dict(fact_rows(facts))
    del rows["the rule picks"]
    return rows


def _as_html(rows: dict[str, str]) -> str:
    lines = "".join(
        f"<tr><th style='text-align:left;padding-right:1.5em'>{escape(title)}</th>"
        f"<td style='text-align:left;white-space:pre-wrap'>{escape(text)}</td></tr>"
        for title, text in rows.items()
    )
    return f"<table style='font-size:12px;line-height:1.5'>{lines}</table>"


def _picture(name: str, alternative: str) -> Any:
    image = widgets.Image(format="png", layout=widgets.Layout(max_width="100%"))
    image.alt = alternative
    image.add_class(name)
    return image


def _range(name: str) -> Any:
    return widgets.IntRangeSlider(
        description=name, min=0, max=1, value=(0, 1), layout=widgets.Layout(width="95%")
    )


def _sizes(name: str, value: int) -> Any:
    return widgets.SelectionSlider(
        description=name,
        options=list(SIZES),
        value=value,
        style={"description_width": "initial"},
        layout=widgets.Layout(width="360px"),
    )


def _column(children: list[Any], width: str) -> Any:
    """Return a column of at most that width; beside another one it shrinks with its pictures."""
    return widgets.VBox(children, layout=widgets.Layout(flex=f"0 1 {width}", min_width="0"))
