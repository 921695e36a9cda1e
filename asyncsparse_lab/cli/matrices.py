"""``asyncsparse matrices``: what matrices there are, what they are like, fetch and make them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

from asyncsparse_lab.errors import InputError

if TYPE_CHECKING:
    from asyncsparse_lab.matrices.transfer import Progress as Report

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="List, describe, fetch and make matrices."
)

AsJson = Annotated[bool, typer.Option("--json", help="For a program to read.")]


@app.command("list")
def list_matrices(
    suite: Annotated[str | None, typer.Argument(help="A suite: list its matrices.")] = None,
    search: Annotated[
        str | None, typer.Option(help="Part of a name: search the SuiteSparse catalogue.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List generators, suites and files; or the matrices of a suite; or search the catalogue."""
    if search is not None:
        from asyncsparse_lab.matrices.catalogue import search_catalogue

        _show(
            [asdict(entry) | {"name": entry.full_name} for entry in search_catalogue(search)],
            ("name", "rows", "cols", "nnz", "field", "kind"),
            as_json,
        )
    elif suite is not None:
        _list_suite(suite, as_json)
    else:
        _list_all(as_json)


def _list_suite(name: str, as_json: bool) -> None:
    from asyncsparse_lab.matrices import load_suite

    rows = [
        {
            "name": entry.label,
            "source": entry.source,
            "rows": entry.rows,
            "cols": entry.cols,
            "nnz": entry.nnz,
            "density": entry.density,
            "stand_in_for": entry.stand_in_for,
            "available": entry.is_available(),
        }
        for entry in load_suite(name)
    ]
    _show(rows, ("name", "rows", "cols", "nnz", "density", "available"), as_json)


def _list_all(as_json: bool) -> None:
    from asyncsparse_lab.matrices import (
        GENERATORS,
        SHORT_FORMS,
        available_names,
        load_suite,
        matrix_folder,
        suite_names,
    )

    suites = [load_suite(name) for name in suite_names()]
    folder = matrix_folder()
    if as_json:
        _print_json(
            {
                "generators": {
                    name: {
                        "summary": generator.summary,
                        "parameters": [asdict(parameter) for parameter in generator.parameters],
                    }
                    for name, generator in GENERATORS.items()
                },
                "short_forms": [example for _, example, _ in SHORT_FORMS],
                "suites": {
                    suite.name: {"title": suite.title, "count": len(suite)} for suite in suites
                },
                "files": available_names(),
            }
        )
        return
    console = Console()
    table = Table("generator", "parameters and their defaults", "what", box=None, pad_edge=False)
    for generator in GENERATORS.values():
        table.add_row(
            generator.name,
            ", ".join(f"{one.name}={one.default!r}" for one in generator.parameters),
            generator.summary,
        )
    console.print(table)
    console.print("\nshort forms: " + ", ".join(example for _, example, _ in SHORT_FORMS) + "\n")
    table = Table("suite", "matrices", "here", "what", box=None, pad_edge=False)
    for suite in suites:
        table.add_row(suite.name, str(len(suite)), str(len(suite.available())), suite.title)
    console.print(table)
    where = f"in {folder}" if folder else "(ASYNCSPARSE_MATRICES names no folder)"
    console.print(f"\n{len(available_names())} files {where} and fetched", soft_wrap=True)


@app.command()
def info(
    name: Annotated[str, typer.Argument(help="Name, generator call, group/name or file.")],
    as_json: AsJson = False,
) -> None:
    """Print the facts of a matrix: size, symmetry, rows, fill, bytes, and what the rule picks."""
    from asyncsparse_lab.matrices import load_matrix_with_facts
    from asyncsparse_lab.matrices.facts import describe, fact_rows

    facts = describe(load_matrix_with_facts(name))
    if as_json:
        _print_json({"matrix": name, "symmetry": facts.symmetry, **asdict(facts)})
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    for row in fact_rows(facts):
        table.add_row(*row)
    console = Console()
    console.print(name, style="bold", markup=False, highlight=False)
    console.print(table)


@app.command()
def fetch(
    names: Annotated[list[str] | None, typer.Argument(help="SuiteSparse group/name ...")] = None,
    suite: Annotated[str | None, typer.Option(help="All matrices of a suite.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how many bytes it would be.")
    ] = False,
    statistics: Annotated[
        Path | None, typer.Option(help="Build the catalogue from this ssstats.csv first.")
    ] = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Download the catalogue afresh first.")
    ] = False,
) -> None:
    """Fetch matrices of the SuiteSparse collection; what was broken off is gone on with."""
    from asyncsparse_lab.matrices.catalogue import (
        find_in_catalogue,
        refresh_catalogue,
        seed_catalogue,
    )
    from asyncsparse_lab.matrices.suitesparse import cached_path, fetch_all, missing_bytes

    console = Console()
    if statistics is not None:
        console.print(f"{seed_catalogue(statistics)} matrices in the catalogue")
    elif refresh:
        console.print(f"{refresh_catalogue()} matrices in the catalogue")
    wanted = [*(names or []), *_suite_sources(suite)]
    if not wanted:
        if statistics is None and not refresh:
            raise InputError("nothing to fetch: name a matrix (group/name) or a --suite")
        return
    if dry_run:
        entries = [find_in_catalogue(name) for name in wanted]
        missing = [entry for entry in entries if not cached_path(entry).is_file()]
        console.print(f"{len(missing)} matrices, {missing_bytes(missing):,} bytes to fetch")
        return
    with _progress() as report:
        paths = fetch_all(
            wanted,
            announce=lambda count, total: console.print(f"{count} matrices, {total:,} bytes"),
            progress=report,
        )
    for path in paths:
        print(path)


def _suite_sources(suite: str | None) -> list[str]:
    if suite is None:
        return []
    from asyncsparse_lab.matrices import load_suite

    sources = [entry.source for entry in load_suite(suite) if entry.group]
    if not sources:
        raise InputError(f"suite {suite!r} names no groups of the collection: nothing to fetch")
    return sources


@contextmanager
def _progress() -> Iterator[Report | None]:
    """Show a bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("fetching"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None)
        yield lambda there, total: bar.update(task, completed=there, total=total)


@app.command()
def make(
    call: Annotated[str, typer.Argument(help="e.g. 'stencil2d(nx=64, ny=64)' or mycielskian12")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File: .mtx or .mtx.gz")],
) -> None:
    """Make a generated matrix and write it as a Matrix Market file."""
    from asyncsparse_lab.matrices import find_call, write_matrix_market

    found = find_call(call)
    if found is None:
        raise InputError(f"{call!r} is no generator: see 'asyncsparse matrices list'")
    matrix = found.build()
    write_matrix_market(out, matrix, note=f"{found}, made by asyncsparse-lab")
    print(f"{out}: {matrix.shape[0]} x {matrix.shape[1]}, {matrix.nnz} non-zeros")


def _show(rows: Sequence[dict[str, Any]], columns: Iterable[str], as_json: bool) -> None:
    if as_json:
        _print_json(rows)
        return
    names = tuple(columns)
    table = Table(*names, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(_cell(row[name]) for name in names))
    Console().print(table)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3%}"
    if isinstance(value, int):
        return f"{value:,}"
    return "" if value is None else str(value)


def _print_json(data: object) -> None:
    print(json.dumps(data, indent=1))
