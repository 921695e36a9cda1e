"""``asyncsparse kernels``: the table of kernels, what they compile to, their SASS; needs no GPU."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from asyncsparse_lab.errors import CompileError, InputError
from asyncsparse_lab.gpu import inspect
from asyncsparse_lab.gpu.compile import Artifact, KernelBuild, compile_kernel, compile_many
from asyncsparse_lab.lsmr.builds import kernel_builds as lsmr_builds
from asyncsparse_lab.spmm.builds import Build, all_builds
from asyncsparse_lab.spmm.variants import VARIANTS, Variant, find_variant

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="List, build and show the kernels; needs no GPU.",
)

AsJson = Annotated[bool, typer.Option("--json", help="For a program to read.")]


@app.command("list")
def list_kernels(as_json: AsJson = False) -> None:
    """List every variant with its constants and its launch geometry; then LSMR's kernels."""
    rows = [_describe(variant) for variant in VARIANTS.values()]
    solvers = [_describe_build(name, one) for name, one in _lsmr_builds(None)]
    if as_json:
        print(json.dumps([*rows, *solvers], indent=1))
        return
    _print_table(
        ("variant", "role", "source", "constants", "threads", "tile", "dynamic shared"),
        [
            (
                row["variant"],
                row["role"],
                row["source"],
                _constants(row["constants"]),
                row["threads"],
                f"64 x {row['tile_columns']}",
                f"{row['dynamic_shared']:,} B",
            )
            for row in rows
        ],
    )
    print()
    _print_table(
        ("LSMR backend", "entry", "source", "constants"),
        [
            (row["variant"], row["entry"], row["source"], _constants(row["constants"]))
            for row in solvers
        ],
    )


@app.command()
def build(
    names: Annotated[
        list[str] | None, typer.Argument(help="Variants; all of them by default.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Threads.  [default: one a core]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile every build that a study or the verification launches, into the cache.

    LSMR's kernels are built as ``lsmr-persistent`` and ``lsmr-document``.
    """
    solvers = _lsmr_builds(names)
    known = {name for name, _ in solvers}
    wanted = {find_variant(name).name for name in names or VARIANTS if name not in known}
    builds = [build for build in all_builds() if build.variant.name in wanted]
    start = time.perf_counter()
    compiled = _compile_with_progress(
        [*(kernel_build(build) for build in builds), *(one for _, one in solvers)], workers
    )
    seconds = time.perf_counter() - start
    results, solved = compiled[: len(builds)], compiled[len(builds) :]
    failed = [result for result in compiled if isinstance(result, CompileError)]
    if as_json:
        outcomes = [_outcome(*pair) for pair in zip(builds, results, strict=True)]
        outcomes += [
            _built(_describe_build(*solver), result)
            for solver, result in zip(solvers, solved, strict=True)
        ]
        print(json.dumps(outcomes, indent=1))
    else:
        _print_builds(builds, results, solvers, solved)
        built = len(compiled) - len(failed)
        print(f"{built} of {len(compiled)} kernels built in {seconds:.1f} s")
    for error in failed:
        print(f"asyncsparse: {error}", file=sys.stderr)
    if failed:
        raise typer.Exit(1)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A variant, or the path of a kernel of one's own.")],
    constant: Annotated[
        list[str] | None, typer.Option("--constant", "-c", help="Such as WGMMA_N=64; repeatable.")
    ] = None,
    dtype_out: Annotated[str, typer.Option(help="Type of C: bfloat16 or float32.")] = "bfloat16",
    sass: Annotated[bool, typer.Option("--sass", help="Print the listing alone.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a kernel compiles to: registers, shared memory, spills, SASS instructions."""
    variant = Variant(source=name) if name.endswith(".cu") else find_variant(name)
    variant = variant.with_constants(**parse_constants(constant or ()))
    artifact = compile_kernel(
        variant.path, variant.entry, variant.macros(dtype_out), variant.arch, gate=False
    )
    if sass:
        print(inspect.sass(artifact))
        return
    outcome = _outcome(Build(variant, dtype_out), artifact)
    outcome["sass_counts"] = inspect.sass_counts(artifact)
    if as_json:
        print(json.dumps(outcome, indent=1))
        return
    counts = outcome["sass_counts"]
    numbers = artifact.resources
    shared = variant.launch_geometry.shared_bytes
    for key, value in (
        ("variant", f"{variant.name} ({variant.role})"),
        ("source", outcome["source"]),
        ("constants", _constants(outcome["constants"])),
        ("compiler", f"{artifact.compiler}, {artifact.arch}"),
        ("kernel hash", artifact.kernel_hash),
        ("registers", f"{numbers.registers} a thread at launch"),
        ("shared memory", f"{shared:,} B dynamic + {numbers.static_shared:,} B static"),
        ("stack", f"{numbers.stack} B"),
        ("spills", f"{numbers.spill_stores} B stored, {numbers.spill_loads} B loaded"),
        ("instructions", f"{sum(counts.values()):,}"),
        ("SASS", "  ".join(f"{shown} {counts.get(shown, 0)}" for shown in inspect.SHOWN)),
        ("cubin", str(artifact.cubin)),
    ):
        Console(soft_wrap=True, highlight=False).print(f"{key:14}{value}", markup=False)


def parse_constants(pairs: Iterable[str]) -> dict[str, int]:
    """Read ``NAME=INTEGER`` pairs from the command line.

    Raises
    ------
    InputError
        One is not of that form.
    """
    constants: dict[str, int] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        try:
            constants[key] = int(value)
        except ValueError:
            raise InputError(f"--constant {pair}: write NAME=INTEGER, as in WGMMA_N=64") from None
    return constants


def kernel_build(build: Build) -> KernelBuild:
    """Return the compilation of a build of the table."""
    variant = build.variant
    return KernelBuild(variant.path, variant.entry, variant.macros(build.dtype_out), variant.arch)


def _lsmr_builds(names: Sequence[str] | None) -> list[tuple[str, KernelBuild]]:
    """Return LSMR's compilations with their names here; those of ``names``, or all."""
    return [
        (f"lsmr-{backend}", one)
        for backend, builds in lsmr_builds().items()
        for one in builds
        if not names or f"lsmr-{backend}" in names
    ]


def _compile_with_progress(
    builds: Sequence[KernelBuild], workers: int | None
) -> list[Artifact | CompileError]:
    # A bar for people; a log file gets the table alone.
    columns = (TextColumn("compiling"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("compiling", total=len(builds))
        return compile_many(builds, workers, on_done=lambda _build, _result: progress.advance(task))


def _describe(variant: Variant) -> dict[str, Any]:
    geometry = variant.launch_geometry
    return {
        "variant": variant.name,
        "role": variant.role,
        "format": variant.format,
        "source": variant.source,
        "entry": variant.entry,
        "arch": variant.arch,
        "constants": dict(variant.constants),
        "threads": geometry.threads,
        "tile_columns": geometry.tile_columns,
        "dynamic_shared": geometry.shared_bytes,
    }


def _describe_build(name: str, build: KernelBuild) -> dict[str, Any]:
    return {
        "variant": name,
        "source": str(build.source),
        "entry": build.entry,
        "arch": build.arch,
        "constants": dict(build.constants),
    }


def _outcome(build: Build, result: Artifact | CompileError) -> dict[str, Any]:
    return _built({**_describe(build.variant), "dtype_out": build.dtype_out}, result)


def _built(outcome: dict[str, Any], result: Artifact | CompileError) -> dict[str, Any]:
    if isinstance(result, CompileError):
        return {**outcome, "error": str(result)}
    return {
        **outcome,
        "compiler": result.compiler,
        "kernel_hash": result.kernel_hash,
        "cubin": str(result.cubin),
        "resources": asdict(result.resources),
    }


def _print_builds(
    builds: Sequence[Build],
    results: Sequence[Artifact | CompileError],
    solvers: Sequence[tuple[str, KernelBuild]],
    solved: Sequence[Artifact | CompileError],
) -> None:
    heads = [
        (build.variant.name, _constants(build.variant.constants), build.dtype_out)
        for build in builds
    ]
    heads += [(name, f"{one.entry} {_constants(one.constants)}", "") for name, one in solvers]
    dynamic = [build.variant.launch_geometry.shared_bytes for build in builds]
    dynamic += [0] * len(solvers)  # LSMR's depends on the matrix
    rows: list[tuple[object, ...]] = []
    for head, more, result in zip(heads, dynamic, [*results, *solved], strict=True):
        if isinstance(result, CompileError):
            rows.append((*head, "failed", "", "", ""))
            continue
        numbers = result.resources
        shared = more + numbers.static_shared
        spills = numbers.spill_stores + numbers.spill_loads
        short = result.kernel_hash[:12]
        rows.append((*head, numbers.registers, f"{shared:,} B", spills, short))
    _print_table(
        ("variant", "constants", "C", "registers", "shared memory", "spills", "kernel hash"), rows
    )


def _constants(constants: Mapping[str, int]) -> str:
    return " ".join(f"{key}={value}" for key, value in constants.items())


def _print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=200)  # a log keeps long lines
    table = Table(box=None, pad_edge=False)
    for column in header:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(str, row))
    console.print(table)
