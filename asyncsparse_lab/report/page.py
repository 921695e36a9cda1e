"""The report: all figures and tables, their provenance and the claims' state, in one file."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from importlib.resources import files as package_files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import asyncsparse_lab
from asyncsparse_lab.claims import KINDS, STATES, judge_all
from asyncsparse_lab.records.files import Source, read_runs, record_folders
from asyncsparse_lab.records.stale import compiler_here
from asyncsparse_lab.report import files
from asyncsparse_lab.studies import STUDIES
from asyncsparse_lab.studies.base import Table

if TYPE_CHECKING:
    import pandas as pd

CLAIMS: Final = "claims"
"""Folder of the claims' table, beside the studies'."""
KIND_TITLES: Final = {
    "stated": "Stated in the documents",
    "derived": "Derived from what they state",
    "elsewhere": "From elsewhere (abstract, a reader's notes)",
}


def write_report(folder: Path, records: Source) -> Path:
    """Write ``report.html`` and the claims' table from the studies' folders in ``folder``.

    Returns
    -------
    Path
        The page.
    """
    import jinja2

    claims = judge_all(records)
    _save_claims(folder, claims)
    template = package_files("asyncsparse_lab.report").joinpath("template.html").read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    compiler = compiler_here()
    text = environment.from_string(template).render(
        version=asyncsparse_lab.__version__,
        records=records,
        kernels=(
            "No compiler here: whether kernels have changed since was not checked."
            if compiler is None
            else f"Kernels compiled again with {compiler}; figures of earlier ones are stamped."
        ),
        studies=[
            _study(folder / name, records)
            for name in STUDIES
            if (folder / name / files.MANIFEST).exists()
        ],
        states={
            state: int(((claims["state"] == state) & (claims["kind"] == "stated")).sum())
            for state in STATES
        },
        kinds=KIND_TITLES,
        claims={kind: _rows(claims[claims["kind"] == kind]) for kind in KINDS},
    )
    page = folder / "report.html"
    temporary = page.with_suffix(".part")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(page)
    return page


def _save_claims(folder: Path, claims: pd.DataFrame) -> None:
    names = ["document", "section", "statement", "relation", "value", "unit", "kind"]
    table = Table(
        claims[[*names, "measured", "state"]],
        "The documents' claims, and how the records stand to them",
    )
    saved = files.save(folder / CLAIMS, "state", table, {}, [])
    entry = {"name": saved.name, "kind": saved.kind, "table_sha256": saved.table_sha256}
    files.write_manifest(folder / CLAIMS, {"study": CLAIMS, "items": [entry]})


def _study(folder: Path, records: Source) -> dict[str, Any]:
    manifest = files.read_manifest(folder)
    study = STUDIES[folder.name]
    runs = [
        _run(run)
        for place in record_folders(records)
        for name, run in read_runs(place).items()
        if name in manifest["runs"]
    ]
    return {
        "name": study.name,
        "title": study.title,
        "notebook": study.notebook,
        "entries": [_entry(folder, item) for item in manifest["items"]],
        "runs": runs,
    }


def _entry(folder: Path, item: Mapping[str, Any]) -> dict[str, Any]:
    if item["kind"] == "figure":
        image = base64.b64encode((folder / f"{item['name']}.png").read_bytes()).decode()
        return {**item, "image": image}
    import pandas as pd

    data = pd.read_csv(folder / f"{item['name']}.csv")
    with pd.option_context("display.max_colwidth", None):  # sentences, whole
        html = data.to_html(index=False, border=0, na_rep="", float_format=lambda x: f"{x:.4g}")
    return {**item, "image": "", "table": html, "rows": len(data)}


def _run(run: Mapping[str, Any]) -> dict[str, str]:
    gpu = run.get("gpu") or {}
    commit = str(run.get("commit") or "unknown")[:12]
    return {
        "run": run["run"],
        "utc": run.get("utc") or "",
        "machine": gpu.get("name") or run.get("processor") or run.get("system") or "",
        "driver": ", ".join(str(gpu[key]) for key in ("driver", "cuda_driver") if gpu.get(key)),
        "commit": f"{commit} (changed)" if run.get("clean") is False else commit,
        "command": run.get("command") or "",
        "states": " / ".join(_state(run.get(when) or {}) for when in ("before", "after")),
        "packages": ", ".join(f"{k} {v}" for k, v in (run.get("packages") or {}).items()),
    }


def _state(state: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in state.items() if value not in (None, []))


def _rows(claims: pd.DataFrame) -> list[dict[str, Any]]:
    rows = []
    for name, row in claims.iterrows():
        relation = "" if row["relation"] == "equal" else f"{row['relation']} "
        value = row["value"]  # with the document's digits, but no ".0" behind a large number
        value = _number(value) if isinstance(value, float) and value >= 1000 else value
        shown = f"{relation}{value} {row['unit']}"
        rows.append({**row, "id": name, "measured": _measured(row), "shown": shown})
    return rows


def _measured(claim: pd.Series[Any]) -> str:
    if math.isnan(claim["measured"]):
        return ""
    if math.isnan(claim["number"]):  # words, which hold or do not
        return "holds" if claim["measured"] == 1 else "does not hold"
    return f"{_number(claim['measured'])} {claim['unit']}"


def _number(value: float) -> str:
    """Write four digits, or all before the point."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
