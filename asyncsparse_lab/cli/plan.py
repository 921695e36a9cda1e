"""``asyncsparse plan``: which format and kernel, what every candidate would take, and why."""

from __future__ import annotations

import json
import time
from math import ceil, isinf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.spmm.plan_rates import DEFAULT_GPU

if TYPE_CHECKING:
    from asyncsparse_lab.spmm.plan_rates import Rates
    from asyncsparse_lab.spmm.plan_structure import Structure
    from asyncsparse_lab.spmm.planner import Candidate

_FILE_WIDTH = 110  # of tables that go into a file or a pipe


def plan(
    matrix: Annotated[
        str | None, typer.Argument(help="Name, generator call, group/name or file.")
    ] = None,
    n: Annotated[int, typer.Option("-n", "--n", help="Columns of B.")] = 1024,
    dtype_in: Annotated[str, typer.Option(help="bfloat16 or float16.")] = "bfloat16",
    dtype_out: Annotated[
        str | None, typer.Option(help="That of --dtype-in, which is the default, or float32.")
    ] = None,
    layout: Annotated[str, typer.Option(help="row-major or column-major.")] = "row-major",
    products: Annotated[
        int | None,
        typer.Option(help="How many are to come: with many, another order of A's rows may pay."),
    ] = None,
    gpu: Annotated[str, typer.Option(help="Whose measured rates are used.")] = DEFAULT_GPU,
    every: Annotated[
        bool, typer.Option("--all", help="Show every configuration, not the best of a kernel.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For a program to read.")] = False,
    fit: Annotated[
        bool, typer.Option("--fit", help="Fit the cost model to the records of --gpu instead.")
    ] = False,
    records: Annotated[str, typer.Option(help="With --fit: recorded or local.")] = "recorded",
    out: Annotated[
        Path | None, typer.Option(help="With --fit: file, by default data/rates/GPU.toml.")
    ] = None,
) -> None:
    """Predict what every kernel would take for A B, cold, and name the fastest; needs no GPU."""
    if fit:
        _fit(gpu, records, out)
        return
    if matrix is None:
        raise InputError("name a matrix to plan for, or say --fit")
    from asyncsparse_lab.matrices import load_matrix
    from asyncsparse_lab.spmm.plan_rates import load_rates
    from asyncsparse_lab.spmm.plan_structure import structure_of
    from asyncsparse_lab.spmm.planner import candidates

    A = load_matrix(matrix)
    if A.dtype.kind == "c":
        raise InputError(f"{matrix} is complex: the kernels multiply real numbers, write its parts")
    rates = load_rates(gpu)
    begin = time.perf_counter()
    structure = structure_of(A)
    found = candidates(
        structure,
        n,
        dtype_in=dtype_in,
        dtype_out=dtype_out or dtype_in,
        layout=layout,
        rates=rates,
        products=products,
    )
    seconds = time.perf_counter() - begin
    if as_json:
        print(json.dumps(_facts(matrix, n, structure, found, seconds), indent=1))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    console.print(_headline(matrix, structure), markup=False, soft_wrap=True)
    console.print(_configurations(found) if every else _table(best_of_each(found)))
    reasons = _reasons(found, structure, rates, seconds, products or 1)
    console.print(reasons, markup=False, soft_wrap=True)


def best_of_each(found: list[Candidate]) -> list[Candidate]:
    """Return the fastest configuration of each kernel, and of each order of A's rows."""
    best: dict[str, Candidate] = {}
    for one in found:
        best.setdefault(one.label, one)
    return list(best.values())


def _headline(matrix: str, structure: Structure) -> str:
    columns = {height: int(counts.sum()) for height, counts in structure.columns.items()}
    taller = ", ".join(f"{count:,} in windows of {height}" for height, count in columns.items())
    return (
        f"{matrix}: {structure.m:,} x {structure.k:,}, {structure.nnz:,} non-zeros "
        f"({structure.density:.3%}); {structure.blocks:,} blocks of 64 x 64 "
        f"({structure.block_fill:.1%} full); gathered columns: {taller}"
    )


def _table(found: list[Candidate]) -> Table:
    from asyncsparse_lab.spmm.cost import FIXED, HBM, IMBALANCE, STEPS

    shown = Table(box=None, pad_edge=False)
    shown.add_column("kernel", no_wrap=True, min_width=max(len(one.label) for one in found))
    shown.add_column("us", justify="right", no_wrap=True)
    shown.add_column("bound by", no_wrap=True, min_width=max(len(one.bound_by) for one in found))
    for name in ("launch", "busy", "HBM", "steps", "uneven", "MB"):
        shown.add_column(name, justify="right", no_wrap=True)
    named = (FIXED, HBM, STEPS, IMBALANCE)
    for one in found:
        busy = sum(us for part, us in one.parts.items() if part not in named)
        parts = (one.parts[FIXED], busy, *(one.parts[part] for part in named[1:]))
        cells = [f"{value:.1f}" for value in (*parts, one.device_bytes / 1e6)]
        shown.add_row(one.label, f"{one.predicted_us:.1f}", one.bound_by, *cells)
    return shown


def _configurations(found: list[Candidate]) -> Table:
    from asyncsparse_lab.spmm.planner import configuration

    shown = Table(box=None, pad_edge=False)
    shown.add_column("us", justify="right", no_wrap=True)
    for name in ("bound by", "kernel"):
        shown.add_column(name, no_wrap=True)
    shown.add_column("configuration", overflow="fold")
    for one in found:
        configured = configuration(one.contender)
        shown.add_row(f"{one.predicted_us:.1f}", one.bound_by, one.label, configured)
    return shown


def _reasons(
    found: list[Candidate], structure: Structure, rates: Rates, seconds: float, products: int
) -> str:
    from asyncsparse_lab.formats.selection import choose_by_fill

    each = best_of_each(found)
    best, *others = each
    ahead = ""
    if others:
        times, least = (one.predicted_us + one.ordering_us / products for one in (others[0], best))
        ahead = f", {times / least:.2f}x {others[0].label}"
    ordered = "".join(_order_line(one, found) for one in each if one.order)
    rule = choose_by_fill(structure.block_fill)
    return (
        f"\n{best.label}{ahead}; bound by {best.bound_by}. The article's rule: "
        f"{rule.reasons[0]}.\n{ordered}"
        f"Times are predicted for a cold L2 of {rates.gpu}. busy: L2 or arithmetic, averaged "
        "over the GPU; uneven: what the last thread block takes longer; "
        f"MB: A's format.\nPlanned in {1e3 * seconds:.0f} ms."
    )


def _order_line(one: Candidate, found: list[Candidate]) -> str:
    """Return when another order of A's rows has paid, in words."""
    paid = one.paid_after(found)
    pays = "never pays" if isinf(paid) else f"has paid after {ceil(paid):,} products"
    return f"{one.label}: ordering takes {one.ordering_us / 1e3:.1f} ms and {pays}.\n"


def _facts(
    matrix: str, n: int, structure: Structure, found: list[Candidate], seconds: float
) -> dict[str, Any]:
    return {
        "matrix": matrix,
        "m": structure.m,
        "k": structure.k,
        "n": n,
        "nnz": structure.nnz,
        "planning_ms": 1e3 * seconds,
        "candidates": [
            {
                "kernel": one.name,
                "params": one.contender.params,
                "predicted_us": one.predicted_us,
                "bound_by": one.bound_by,
                "parts": dict(one.parts),
                "device_bytes": one.device_bytes,
                **_order_facts(one, found),
            }
            for one in found
        ],
    }


def _order_facts(one: Candidate, found: list[Candidate]) -> dict[str, Any]:
    if not one.order:
        return {}
    paid = one.paid_after(found)
    return {
        "order": one.order,
        "ordering_us": one.ordering_us,
        "paid_after": None if isinf(paid) else paid,
    }


def _fit(gpu: str, records: str, out: Path | None) -> None:
    from asyncsparse_lab.resources import checkout_root
    from asyncsparse_lab.spmm.plan_rates import rates_path, rates_text
    from asyncsparse_lab.studies.planner_fit import fitted_rates

    if records not in ("recorded", "local"):
        raise InputError(f"--records {records}: give recorded or local")
    if out is None and checkout_root() is None:
        raise InputError("this is no checkout, whose rates could be written: name --out FILE")
    path = out or rates_path(gpu)
    rates = fitted_rates(gpu, records, report=print)  # type: ignore[arg-type]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(rates_text(rates), encoding="utf-8")
    print(f"{len(rates.kernels)} kernels fitted: {path}")
