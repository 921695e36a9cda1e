"""Parameters of notebooks: named and typed in their parameters cell, refused when they do not fit.

Papermill itself passes a misspelt parameter on with a line in its log.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from asyncsparse_lab.errors import InputError


def split_assignment(text: str) -> tuple[str, str]:
    """Return name and value of ``name=value``.

    Raises
    ------
    InputError
        There is no equals sign or no name.
    """
    name, sign, value = text.partition("=")
    if not sign or not name.isidentifier():
        raise InputError(f"parameter {text!r}: write -p name=value")
    return name, value


def parameters_of(notebook: Path) -> Mapping[str, Mapping[str, str]]:
    """Return what papermill finds in a notebook's parameters cell, by name."""
    import papermill

    found: Mapping[str, Mapping[str, str]] = papermill.inspect_notebook(str(notebook))
    return found


def typed_values(notebook: Path, given: Sequence[str]) -> dict[str, Any]:
    """Return parameters as the notebook's cell declares their types.

    Parameters
    ----------
    given : sequence of str
        ``name=value`` each.

    Raises
    ------
    InputError
        A name is not in the notebook's parameters cell, or a value is not of its type.
    """
    declared = parameters_of(notebook)
    values = {}
    for name, text in map(split_assignment, given):
        if name == "out":
            raise InputError(f"-p out={text!r}: where pictures go is said by --out")
        if name not in declared:
            raise InputError(
                f"{notebook.stem} has no parameter {name!r}; there are {', '.join(declared)}"
            )
        values[name] = _convert(notebook.stem, name, text, declared[name])
    return values


def _convert(notebook: str, name: str, text: str, declared: Mapping[str, str]) -> Any:
    default = _literal(declared["default"])
    wanted = type(default)
    value = _literal(text)
    if isinstance(default, str) or declared["inferred_type_name"] == "str":
        return value if isinstance(value, str) else text  # quotes may stay, as in the cell
    if wanted is float and type(value) is int:
        value = float(value)
    if wanted is tuple and isinstance(value, list):
        value = tuple(value)
    same_items = (
        not isinstance(default, list | tuple)
        or not default
        or all(type(item) is type(default[0]) for item in value if isinstance(value, list | tuple))
    )
    if type(value) is not wanted or not same_items:
        raise InputError(
            f"{notebook}: {name}={text!r} is not a {declared['inferred_type_name']}"
            f" like {declared['default']}"
        )
    return value


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
