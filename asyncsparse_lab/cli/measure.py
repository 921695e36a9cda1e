"""``asyncsparse measure``: run studies on this machine."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from asyncsparse_lab.errors import DeviceError
from asyncsparse_lab.records import local_folder
from asyncsparse_lab.studies import STUDIES, find_study, load_study
from asyncsparse_lab.studies.base import Study
from asyncsparse_lab.studies.provenance import device_folder
from asyncsparse_lab.studies.runner import (
    Outcome,
    parse_duration,
    parse_shard,
    plan_study,
    run_study,
)


def measure(
    studies: Annotated[list[str], typer.Argument(help="Studies by name, or 'all'.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the records.  [default: data/local/<gpu>]")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Begin no case that would end later: 540s, 9m, 1h.")
    ] = None,
    only: Annotated[str | None, typer.Option(help="A part of case names, or a pattern.")] = None,
    suite: Annotated[
        str | None, typer.Option(help="Matrices of this suite, for a study that takes one.")
    ] = None,
    shard: Annotated[
        str, typer.Option(help="i/k: the i-th of k shares of the cases, a machine each.")
    ] = "1/1",
    again: Annotated[bool, typer.Option("--again", help="Measure also what is there.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the cases left and the minutes they take.")
    ] = False,
    commit: Annotated[
        str | None, typer.Option(help="The commit of a tree without .git; add +dirty if it is.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Recorded with the run.")] = 0,
) -> None:
    """Run studies on this machine; resumes where it stopped."""
    end = None if budget is None else monotonic() + parse_duration(budget)
    entries = [find_study(name) for name in (STUDIES if studies == ["all"] else studies)]
    failed = 0
    for entry in entries:
        module = load_study(entry.name)
        folder = out if out is not None else local_folder() / _folder_name(entry, dry_run)
        plan = plan_study(
            entry, module, folder, suite=suite, only=only, shard=parse_shard(shard), again=again
        )
        if dry_run:
            for case in plan.cases:
                print(f"{entry.name}  {case.name}  {case.seconds:.0f} s")
        print(
            f"{entry.name}: {len(plan.cases)} cases left, {plan.done} done, "
            f"about {plan.minutes:.1f} minutes",
            flush=True,
        )
        if dry_run:
            continue
        outcome: Outcome = run_study(
            entry,
            module,
            folder,
            plan,
            budget=None if end is None else end - monotonic(),
            seed=seed,
            commit=commit,
            tell=lambda line: print(line, flush=True),
        )
        failed += outcome.failed
        print(f"{entry.name}: {outcome.measured} measured, {failed} failed, {outcome.left} left")
    if failed:
        raise typer.Exit(1)


def _folder_name(study: Study, dry_run: bool) -> str:
    try:
        return device_folder(study)
    except DeviceError:
        if dry_run:  # what there is to measure is worth knowing before there is a GPU
            return "no-gpu"
        raise
