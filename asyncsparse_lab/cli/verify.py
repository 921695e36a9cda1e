"""``asyncsparse verify``: every kernel against the FP64 reference."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.lsmr.watched import WATCHED


def verify(
    variant: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this variant; may be given again. With --sanitize also lsmr-persistent and "
            "lsmr-document."
        ),
    ] = None,
    launches: Annotated[
        bool,
        typer.Option(
            "--launches", help="Only the hang test: 10,000 launches each, with random delays."
        ),
    ] = False,
    sanitize: Annotated[
        bool, typer.Option("--sanitize", help="Only compute-sanitizer, on the small cases.")
    ] = False,
    small: Annotated[
        bool, typer.Option("--small", help="Only what the sanitizer looks at; no record.")
    ] = False,
    jobs: Annotated[
        int, typer.Option(help="Of the hang test and the sanitizer, processes at once.", min=1)
    ] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="Print the records.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the records.  [default: data/local/<gpu>]")
    ] = None,
    commit: Annotated[
        str | None, typer.Option(help="The commit of a tree without .git; add +dirty if it is.")
    ] = None,
) -> None:
    """Run the edge cases on every build of every variant; exit code 1 if anything is wrong.

    compute-sanitizer looks at LSMR's kernels too.
    """
    from asyncsparse_lab.gpu.device import require_gpu
    from asyncsparse_lab.records import local_folder, newest, read_records
    from asyncsparse_lab.studies import find_study
    from asyncsparse_lab.studies import verify as study
    from asyncsparse_lab.studies.runner import Plan, run_study

    names = [study.find_name(name) for name in variant] if variant else study.names()
    solvers = [name for name in variant or () if name in WATCHED]
    if solvers and not (sanitize or small):
        raise InputError(f"{solvers[0]} is looked at by --sanitize and --small only")
    facts = require_gpu()
    if small:
        raise typer.Exit(_verify_small(names))
    kinds = {"launches"} if launches else set()
    kinds |= {"sanitize"} if sanitize else set()
    kinds = kinds or {"oracle", "edge-cases"}
    chosen = tuple(
        case
        for case in study.cases()
        if case.params["kind"] in kinds and case.params.get("variant", names[0]) in names
    )
    study.begin(chosen, jobs)
    folder = out if out is not None else local_folder() / facts.slug
    try:
        outcome = run_study(
            find_study(study.STUDY),
            study,
            folder,
            Plan(chosen, done=0),
            commit=commit,
            tell=lambda line: typer.echo(line, err=as_json),
        )
    finally:
        study.cancel()
    asked = {case.name for case in chosen}
    records = [
        record
        for record in newest(read_records(folder / f"{study.STUDY}.jsonl"))
        if record.case in asked
    ]
    wrong = [record for record in records if record.status != "passed"]
    if as_json:
        print(json.dumps([asdict(record) for record in records]))
    else:
        for record in wrong:
            print(f"{record.variant} {record.dtype_out or ''} {record.status}: {record.reason}")
        print(f"{len(records) - len(wrong)} of {len(records)} passed, in {folder}")
    if wrong or outcome.failed or outcome.left:
        raise typer.Exit(1)


def _verify_small(names: list[str]) -> int:
    """Run the small cases in this process and print a line each; what the sanitizer watches."""
    import cupy

    from asyncsparse_lab.spmm.edge_cases import EDGE_CASES
    from asyncsparse_lab.spmm.handed_on import ON_THE_GPU
    from asyncsparse_lab.spmm.verify import verify_build
    from asyncsparse_lab.studies.verify import find_subject, small_builds
    from asyncsparse_lab.studies.verify_solver import print_faults

    # Every array its own allocation: inside CuPy's pool, memcheck could not see the bounds.
    cupy.cuda.set_allocator(None)
    suite = [case for case in EDGE_CASES if case.scope == "small"]
    exit_code = 0
    for name in names:
        if name in WATCHED:
            exit_code |= print_faults(name)
            continue
        for variant, dtype_out, dtype_in, layout in small_builds(find_subject(name)):
            tile = " ".join(f"{key}={value}" for key, value in variant.params.items())
            label = f"{name} {tile} {dtype_in} to {dtype_out}, {layout}"
            # The kernels of the conversion are looked at too.
            for outcome in verify_build(variant, dtype_out, suite, dtype_in, layout, ON_THE_GPU):
                print(f"{label}, {outcome.case}: {outcome.fault or 'right'}", flush=True)
                exit_code |= outcome.fault is not None
    return exit_code
