"""``asyncsparse reproduce``: notebooks -> figures, tables and the report."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from asyncsparse_lab.errors import InputError, NotebookError
from asyncsparse_lab.records.files import Source
from asyncsparse_lab.records.stale import compiler_here
from asyncsparse_lab.report import files
from asyncsparse_lab.report.notebooks import Job, Result, choose, replace_folder, run_all
from asyncsparse_lab.report.page import CLAIMS, write_report
from asyncsparse_lab.report.parameters import typed_values
from asyncsparse_lab.report.performance import PAGE, performance_page
from asyncsparse_lab.resources import checkout_root


def reproduce(
    studies: Annotated[
        list[str] | None, typer.Argument(help="[default: all that were measured]")
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option("-p", "--parameter", help="name=value, as the notebook declares it."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="[default: figures, and build/figures for what -p or local data change]"),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Draw into build; say which figures and claims differ from theirs."
        ),
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Notebooks at a time.")] = os.cpu_count() or 1,
    timeout: Annotated[int, typer.Option(min=1, help="Seconds a cell may take.")] = 600,
) -> None:
    """Every figure, table and the report, from the records."""
    root = checkout_root() or Path.cwd()
    given = parameters or []
    records = _source(given)
    chosen, left_out = choose(studies or [], records)
    for line in left_out:
        print(line)
    target = out or (root / "build" if given else root) / "figures"
    staging = root / "build" / "drawn"
    shutil.rmtree(staging, ignore_errors=True)
    work = [
        Job(
            notebook=path,
            studies=tuple(names),
            parameters={**typed_values(path, given), "out": str(staging)},
            executed=root / "build" / "notebooks" / path.name,
            timeout=timeout,
        )
        for path, names in chosen.items()
    ]
    _compile_kernels(work, records)
    results = run_all(work, jobs, tell=_tell)
    failures = [result.failure for result in results if result.failure]
    drawn = [name for result in results if not result.failure for name in result.job.studies]
    if check:
        staging.mkdir(parents=True, exist_ok=True)
        print(f"report of what was drawn: {write_report(staging, records)}")
        differing = [
            line
            for name in (*drawn, CLAIMS)
            for line in _differences(staging / name, target / name)
        ]
        print("\n".join(differing) if differing else f"{len(drawn)} studies match their figures")
        failures += ["figures differ: run asyncsparse reproduce"] if differing else []
    else:
        for name in drawn:
            replace_folder(staging / name, target / name)
        target.mkdir(parents=True, exist_ok=True)
        print(f"report: {write_report(target, records)}")
    if not given and "bcsr-beyond" in drawn:
        failures += _performance(root, check)
    if failures:
        raise NotebookError("\n".join(failures))


def _performance(root: Path, check: bool) -> list[str]:
    """Write the page of floors, or say that the one there is not what the records give."""
    page = root / PAGE
    if not page.parent.is_dir():  # installed, not a checkout
        return []
    text = performance_page()
    if not check:
        page.write_text(text)
        print(f"performance: {page}")
        return []
    is_current = page.is_file() and page.read_text() == text
    return [] if is_current else [f"{PAGE} is not of these records: run asyncsparse reproduce"]


def _source(given: list[str]) -> Source:
    return "local" if "records=local" in given else "recorded"


def _compile_kernels(work: list[Job], records: Source) -> None:
    """Fill the cache of kernels once, so that no two notebooks compile the same one."""
    if compiler_here() is None:
        return
    from asyncsparse_lab.records.frame import load_records

    for job in work:
        for name in job.studies:
            load_records(name, records, judge_kernels=True)


def _tell(result: Result) -> None:
    state = "failed" if result.failure else "done"
    print(f"{result.job.notebook.stem}: {state}, {result.seconds:.1f} s", flush=True)


def _differences(drawn: Path, committed: Path) -> list[str]:
    """Return a line for each figure or table that is not what the committed one was drawn from."""
    now = files.table_hashes(drawn)
    try:
        then: dict[str, Any] = files.table_hashes(committed)
    except InputError:
        return [f"{committed.name}: never drawn"]
    lines = [f"{committed.name}/{name}: not drawn any more" for name in then.keys() - now.keys()]
    lines += [f"{committed.name}/{name}: new" for name in now.keys() - then.keys()]
    lines += [
        f"{committed.name}/{name}: its data changed"
        for name in now.keys() & then.keys()
        if now[name] != then[name]
    ]
    return sorted(lines)
