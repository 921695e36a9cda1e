"""``asyncsparse solve``: least squares with LSMR, the convergence shown as it runs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from asyncsparse_lab.errors import InputError

if TYPE_CHECKING:
    from asyncsparse_lab.lsmr import LsmrResult, Progress

_FIRST = 10  # iterations that are all shown; after them every tenth, and from 1000 every hundredth


def solve(
    matrix: Annotated[str, typer.Argument(help="Name, generator call, group/name or file.")],
    rhs: Annotated[
        Path | None,
        typer.Argument(
            help="Right-hand side: .npy or Matrix Market.  "
            "[default: the published or the study's one, else A 1]"
        ),
    ] = None,
    damp: Annotated[float, typer.Option(help="Damping.")] = 0.0,
    atol: Annotated[float, typer.Option(help="Relative error of A that is accepted.")] = 1e-6,
    btol: Annotated[float, typer.Option(help="Relative error of b that is accepted.")] = 1e-6,
    conlim: Annotated[float, typer.Option(help="Limit of the condition number.")] = 1e8,
    maxiter: Annotated[
        int | None, typer.Option(help="Iteration limit.  [default: 5 min(m, n)]")
    ] = None,
    backend: Annotated[
        str, typer.Option(help="auto, persistent, document, host or scipy.")
    ] = "auto",
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    scale_columns: Annotated[
        bool, typer.Option("--scale-columns", help="Scale the columns of A to norm 1.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write x here, as .npy.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was reached alone.")] = False,
) -> None:
    """Solve min |b - A x|; exit code 1 if what was reached is no solution."""
    from asyncsparse_lab.lsmr import lsmr
    from asyncsparse_lab.matrices import load_matrix

    if dtype not in ("float64", "float32"):
        raise InputError(f"--dtype {dtype}: give float64 or float32")
    if out is not None and not out.parent.is_dir():
        raise InputError(f"--out {out}: there is no folder {out.parent}: make it first")
    A: Any = load_matrix(matrix)
    b, source = right_hand_side_of(matrix, A, rhs)
    if A.dtype.kind != "c":
        A, b = A.astype(dtype), b.astype(dtype if b.dtype.kind != "c" else b.dtype)
    console = Console(highlight=False)
    if not as_json:
        console.print(
            f"{matrix}: {A.shape[0]:,} x {A.shape[1]:,}, {A.nnz:,} non-zeros; b: {source}",
            markup=False,
        )
    quiet = as_json or backend == "scipy"  # SciPy's solver tells nothing while it runs
    begin = time.perf_counter()
    result = lsmr(
        A,
        b,
        damp,
        atol,
        btol,
        conlim,
        maxiter,
        backend=backend,  # type: ignore[arg-type]
        precondition="columns" if scale_columns else None,
        callback=None if quiet else _Printer(),
    )
    seconds = time.perf_counter() - begin
    if out is not None:
        _write(out, result.x)
    facts = reached(result, A, b, seconds)
    if as_json:
        print(json.dumps(facts, indent=1))
    else:
        table = Table(show_header=False, box=None, pad_edge=False)
        for name, value in facts.items():
            table.add_row(name, f"{value:.8g}" if isinstance(value, float) else str(value))
        console.print()
        console.print(table)
    if not result.converged:
        raise typer.Exit(1)


def right_hand_side_of(name: str, A: Any, path: Path | None) -> tuple[Any, str]:
    """Return b and where it comes from.

    Raises
    ------
    InputError
        The file is not there or does not hold one vector of A's rows.
    """
    import numpy as np

    from asyncsparse_lab.matrices import load_right_hand_side, read_matrix_market
    from asyncsparse_lab.studies.lsmr_common import RESIDUALS, stand_in

    if path is None:
        published = load_right_hand_side(name)
        if published is not None:
            return published, "published with the matrix"
        if name in RESIDUALS:
            source = f"made so that the least |r| / |b| is {RESIDUALS[name]}, as the document's is"
            return stand_in(name).b, source
        return A @ np.ones(A.shape[1]), "A times a vector of ones"
    if not path.is_file():
        raise InputError(f"no right-hand side {path}: give a .npy or a Matrix Market file")
    if path.suffix == ".npy":
        try:
            b = np.load(path, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise InputError(f"{path} is no array of numbers: {error}") from None
    else:
        b = read_matrix_market(path).matrix.toarray()
    if b.size != A.shape[0]:
        raise InputError(f"{path} has the shape {b.shape}: A has {A.shape[0]} rows")
    return b.ravel(), str(path)


def reached(result: LsmrResult, A: Any, b: Any, seconds: float) -> dict[str, Any]:
    """Return what a solve reached, for people and programs."""
    import numpy as np

    (code,) = result.codes()
    size = float(np.linalg.norm(b))
    return {
        "stop code": int(code),
        "meaning": code.text,
        "converged": result.converged,
        "iterations": int(result.itn),
        "|r|": float(result.normr),
        "|r| recomputed": float(result.true_normr),
        "|r| / |b| recomputed": float(result.true_normr) / size if size else 0.0,
        "|A'r|": float(result.normar),
        "|A'r| recomputed": float(result.true_normar),
        "norm of A": float(result.norma),
        "condition, at least": float(result.conda),
        "|x|": float(result.normx),
        "backend": result.backend,
        "chosen because": result.reason,
        "seconds": round(seconds, 4),
    }


class _Printer:
    """Prints a line for the first iterations, then for fewer and fewer."""

    def __call__(self, progress: Progress) -> None:
        itn = progress.itn
        if itn == 1:
            print("   itn            |r|          |A'r|      norm A      cond A           |x|")
        if itn <= _FIRST or itn % (10 if itn < 1000 else 100) == 0:
            print(
                f"{itn:6d} {progress.normr:14.7e} {progress.normar:14.7e} {progress.norma:11.3e} "
                f"{progress.conda:11.3e} {progress.normx:13.6e}",
                flush=True,
            )


def _write(path: Path, x: Any) -> None:
    import numpy as np

    temporary = path.with_name(f".{path.name}.part")
    with temporary.open("wb") as stream:
        np.save(stream, x)
    temporary.replace(path)
