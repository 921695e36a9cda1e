"""The controls that say which matrix: on this machine, made, fetched, or a file of one's own."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

import ipywidgets as widgets

from asyncsparse_lab.matrices import GENERATORS, available_names, suite_names
from asyncsparse_lab.matrices.generators import Generator, Parameter

Choose = Callable[[str], None]

_WIDE = {"description_width": "initial"}


def chooser(choose: Choose) -> widgets.Tab:
    """Return the tabs; each calls ``choose`` with a name for ``load_matrix``."""
    tabs = {
        "On this machine": _local(choose),
        "Generator": _generator(choose),
        "A file of your own": _file(choose),
    }
    return widgets.Tab(
        children=list(tabs.values()), titles=list(tabs), layout=widgets.Layout(width="auto")
    )


def local_names() -> list[str]:
    """Return what needs no network: the matrices on disk, and the generated suite ``smoke``."""
    from asyncsparse_lab.matrices import load_suite

    generated = load_suite("smoke").entries if "smoke" in suite_names() else ()
    return [*available_names(), *(entry.name for entry in generated)]


def parameter_control(parameter: Parameter) -> Any:
    """Return the widget for a generator's parameter; the generator itself checks the range."""
    common = {
        "value": parameter.default,
        "description": parameter.name,
        "tooltip": parameter.summary,
        "style": _WIDE,
        "layout": widgets.Layout(width="200px"),
    }
    if parameter.choices:
        return widgets.Dropdown(options=list(parameter.choices), **common)
    kinds = {int: widgets.IntText, float: widgets.FloatText, str: widgets.Text}
    return kinds[type(parameter.default)](**common)


def _local(choose: Choose) -> Any:
    names = local_names()
    pick = widgets.Combobox(
        options=names,
        placeholder=f"type a part of one of {len(names)} names",
        ensure_option=True,
        continuous_update=False,
        layout=widgets.Layout(width="420px"),
    )
    pick.add_class("asyncsparse-local")

    def picked(change: dict[str, Any]) -> None:
        if change["new"]:
            choose(change["new"])

    pick.observe(picked, "value")
    return pick


def _generator(choose: Choose) -> Any:
    pick = widgets.Dropdown(options=list(GENERATORS), layout=widgets.Layout(width="220px"))
    summary = widgets.HTML()
    controls = widgets.HBox(layout=widgets.Layout(flex_flow="row wrap"))
    make = widgets.Button(description="Make it", button_style="primary")

    def picked(_: Any) -> None:
        generator: Generator = GENERATORS[pick.value]
        summary.value = escape(generator.summary)
        controls.children = [parameter_control(parameter) for parameter in generator.parameters]

    def made(_: Any) -> None:
        values = ", ".join(f"{box.description}={box.value!r}" for box in controls.children)
        choose(f"{pick.value}({values})")

    pick.observe(picked, "value")
    make.on_click(made)
    picked(None)
    return widgets.VBox([widgets.HBox([pick, summary]), controls, make])


def _file(choose: Choose) -> Any:
    path = widgets.Text(
        placeholder="path of a Matrix Market file, .mtx or .mtx.gz",
        continuous_update=False,
        layout=widgets.Layout(width="480px"),
    )
    path.add_class("asyncsparse-file")
    button = widgets.Button(description="Open", button_style="primary")

    def opened(_: Any) -> None:
        if path.value.strip():
            choose(path.value.strip())

    button.on_click(opened)
    return widgets.HBox([path, button])
