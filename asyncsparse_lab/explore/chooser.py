"""The controls that say which matrix: on this machine, made, fetched, or a file of one's own."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

import ipywidgets as widgets

from asyncsparse_lab.errors import AsyncSparseError
from asyncsparse_lab.explore.canvas import readable_bytes
from asyncsparse_lab.matrices import GENERATORS, available_names, load_suite
from asyncsparse_lab.matrices.catalogue import CatalogueEntry
from asyncsparse_lab.matrices.generators import Generator, Parameter

Choose = Callable[[str], None]
Say = Callable[[str, bool], None]

#: What a search shows at most.
_MOST_FOUND = 50


def chooser(choose: Choose, say: Say) -> widgets.Tab:
    """Return the tabs.

    Parameters
    ----------
    choose : callable
        Called with a name for ``load_matrix``.
    say : callable
        Called with one line about the choosing itself, and whether it is a failure.
    """
    tabs = {
        "On this machine": _local(choose),
        "Generator": _generator(choose),
        "SuiteSparse": _collection(choose, say),
        "A file of your own": _file(choose),
    }
    return widgets.Tab(children=list(tabs.values()), titles=list(tabs))


def local_names() -> list[str]:
    """Return what needs no network: the matrices on disk, and the generated suite ``smoke``."""
    return [*available_names(), *(entry.name for entry in load_suite("smoke"))]


def parameter_control(parameter: Parameter) -> Any:
    """Return the widget for a generator's parameter; the generator itself checks the range."""
    common = {
        "value": parameter.default,
        "description": parameter.name,
        "tooltip": parameter.summary,
        "style": {"description_width": "initial"},
        "layout": widgets.Layout(width="220px"),
    }
    if parameter.choices:
        return widgets.Dropdown(options=list(parameter.choices), **common)
    kinds = {int: widgets.IntText, float: widgets.FloatText, str: widgets.Text}
    return kinds[type(parameter.default)](**common)


def entry_line(entry: CatalogueEntry) -> str:
    """Return a member of the collection as a line of a list."""
    return (
        f"{entry.full_name}: {entry.rows:,} × {entry.cols:,}, {entry.nnz:,} non-zeros, {entry.kind}"
    )


def _local(choose: Choose) -> Any:
    names = local_names()
    pick = widgets.Combobox(
        options=names,
        placeholder=f"type a part of one of {len(names)} names",
        ensure_option=True,
        continuous_update=False,
        layout=widgets.Layout(width="480px"),
    )
    pick.add_class("asyncsparse-local")
    pick.observe(lambda change: choose(change["new"]) if change["new"] else None, "value")
    return pick


def _generator(choose: Choose) -> Any:
    pick = widgets.Dropdown(options=list(GENERATORS), layout=widgets.Layout(width="220px"))
    summary = widgets.HTML()
    controls = widgets.HBox(layout=widgets.Layout(flex_flow="row wrap"))

    def picked(_: Any) -> None:
        generator: Generator = GENERATORS[pick.value]
        summary.value = escape(generator.summary)
        controls.children = [parameter_control(parameter) for parameter in generator.parameters]

    def made(_: Any) -> None:
        values = ", ".join(
            f"{control.description}={control.value!r}" for control in controls.children
        )
        choose(f"{pick.value}({values})")

    pick.observe(picked, "value")
    picked(None)
    return widgets.VBox([widgets.HBox([pick, summary]), controls, _button("Make it", made)])


def _collection(choose: Choose, say: Say) -> Any:
    text = widgets.Text(
        placeholder="a part of a name, or group/part", layout=widgets.Layout(width="320px")
    )
    text.add_class("asyncsparse-search")
    found = widgets.Select(options=[], rows=8, layout=widgets.Layout(width="95%"))

    def searched(_: Any) -> None:
        from asyncsparse_lab.matrices.catalogue import search_catalogue

        say("searching the catalogue …", False)
        try:
            entries = search_catalogue(text.value, limit=_MOST_FOUND)
        except AsyncSparseError as error:
            say(str(error), True)
            return
        found.options = [(entry_line(entry), entry) for entry in entries]
        most = f", the {_MOST_FOUND} smallest" if len(entries) == _MOST_FOUND else ""
        say(f"{len(entries)} found{most}", False)

    def fetched(_: Any) -> None:
        from asyncsparse_lab.matrices.suitesparse import fetch_entry, missing_bytes

        entry: CatalogueEntry | None = found.value
        if entry is None:
            say("search for a name first, then choose one of those found", True)
            return

        def progress(there: int, total: int | None) -> None:
            of = f" of {readable_bytes(total)}" if total else ""
            say(f"fetching {name}: {readable_bytes(there)}{of}", False)

        name = entry.full_name
        try:
            say(f"fetching {name}: {readable_bytes(missing_bytes([entry]))}", False)
            fetch_entry(entry, progress)
        except AsyncSparseError as error:
            say(str(error), True)
        else:
            choose(name)

    search = widgets.HBox([text, _button("Search", searched)])
    return widgets.VBox([search, found, _button("Fetch and show", fetched)])


def _file(choose: Choose) -> Any:
    path = widgets.Text(
        placeholder="path, from the notebook's folder, of a .mtx or .mtx.gz file",
        layout=widgets.Layout(width="480px"),
    )
    path.add_class("asyncsparse-file")

    def opened(_: Any) -> None:
        if name := path.value.strip():
            choose(name)

    return widgets.HBox([path, _button("Open", opened)])


def _button(label: str, act: Callable[[Any], None]) -> Any:
    button = widgets.Button(description=label, button_style="primary")
    button.on_click(act)
    return button
