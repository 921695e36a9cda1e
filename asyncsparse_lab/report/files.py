"""What a study leaves in a folder: pictures, tables, and a manifest that ties them to records."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.studies.base import Drawing, Table

if TYPE_CHECKING:
    import pandas as pd

MANIFEST: Final = "manifest.json"
PNG_DPI: Final = 160
DIGITS: Final = 6
"""Significant digits of a table's floats: enough to see a change, too few to see a library's."""


@dataclass(frozen=True, slots=True)
class Saved:
    """An entry of a manifest.

    Attributes
    ----------
    name : str
        Stem of the files.
    kind : {"figure", "table"}
    caption : str
    parameters : mapping
        What the notebook passed to ``draw``.
    table_sha256 : str
        Hash of the CSV file behind it.
    stale : list of str
        Contenders measured with an earlier kernel.
    """

    name: str
    kind: str
    caption: str
    parameters: Mapping[str, Any]
    table_sha256: str
    stale: list[str]


def table_text(data: pd.DataFrame) -> str:
    """Return a table as CSV whose bytes depend on its values alone.

    Floats are rounded to 6 significant digits; an index that is not a plain count becomes
    columns.
    """
    import pandas as pd

    if not isinstance(data.index, pd.RangeIndex):
        data = data.reset_index()
    data = data.assign(**{name: data[name].map(_rounded) for name in _objects(data)})
    text = data.to_csv(index=False, float_format=f"%.{DIGITS}g", lineterminator="\n")
    assert isinstance(text, str)
    return text


def _objects(data: pd.DataFrame) -> list[Any]:
    return [name for name in data.columns if data[name].dtype == object]


def _rounded(value: Any) -> Any:
    return f"{value:.{DIGITS}g}" if isinstance(value, float) and value == value else value


def picture(drawing: Drawing, kind: str) -> bytes:
    """Return a figure as the bytes of a ``png`` or ``svg`` file, the same on every run."""
    from matplotlib import rc_context

    metadata = {"png": {"Software": None}, "svg": {"Date": None, "Creator": "asyncsparse-lab"}}
    stream = io.BytesIO()
    with rc_context({"svg.hashsalt": "asyncsparse-lab"}):  # else ids are drawn at random
        drawing.figure.savefig(
            stream, format=kind, dpi=PNG_DPI, bbox_inches="tight", metadata=metadata[kind]
        )
    return stream.getvalue()


def save(
    folder: Path,
    name: str,
    item: Drawing | Table,
    parameters: Mapping[str, Any],
    stale: list[str],
) -> Saved:
    """Write a figure (PNG, SVG, CSV) or a table (CSV, LaTeX) into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    csv = table_text(item.data)
    files = {"csv": csv.encode()}
    if isinstance(item, Drawing):
        files |= {kind: picture(item, kind) for kind in ("png", "svg")}
    else:
        files["tex"] = latex(item, label=f"tab:{name}").encode()
    for suffix, content in files.items():
        temporary = folder / f"{name}.{suffix}.part"
        temporary.write_bytes(content)
        temporary.replace(folder / f"{name}.{suffix}")
    return Saved(
        name=name,
        kind="figure" if isinstance(item, Drawing) else "table",
        caption=item.caption,
        parameters=dict(parameters),
        table_sha256=hashlib.sha256(csv.encode()).hexdigest(),
        stale=stale,
    )


def latex(table: Table, label: str) -> str:
    """Return a table in LaTeX with booktabs' rules, special characters escaped."""
    text = table.data.to_latex(
        index=False,
        escape=True,
        na_rep="--",
        float_format=lambda value: f"{value:.4g}",
        caption=_escape_latex(table.caption),
        label=label,
    )
    assert isinstance(text, str)
    return text


def _escape_latex(text: str) -> str:
    for sign in "&%$#_{}":
        text = text.replace(sign, "\\" + sign)
    return text


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write a study's manifest, keys sorted."""
    text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
    temporary = folder / f"{MANIFEST}.part"
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(folder / MANIFEST)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return a study's manifest.

    Raises
    ------
    InputError
        The folder has none.
    """
    path = folder / MANIFEST
    if not path.exists():
        raise InputError(f"{folder.name} has no {MANIFEST}: run asyncsparse reproduce first")
    loaded = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def table_hashes(folder: Path) -> dict[str, str]:
    """Return name -> hash of the table behind each figure and table of a study's folder."""
    return {item["name"]: item["table_sha256"] for item in read_manifest(folder)["items"]}
