"""Standard least-squares problems: stop codes, iterations, true norms, convergence, scaling.

Each problem is solved in FP32 and FP64, with its columns scaled and not, at two tolerances; SciPy
in FP64 and, where the problem is small, a dense least-squares solution stand beside.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.records import Record
from asyncsparse_lab.studies.base import Case, Drawing, Table
from asyncsparse_lab.studies.lsmr_common import (
    LeastSquares,
    compile_ahead,
    lsmr_record,
    norms_of,
    params,
    quality,
    to_host,
    wall_samples,
)
from asyncsparse_lab.studies.lsmr_common import kernel_builds as kernel_builds

if TYPE_CHECKING:
    import pandas as pd

STUDY: Final = "lsmr-problems"
PUBLISHED: Final = ("well1033", "well1850", "illc1033", "illc1850")
RECTANGULAR: Final = (
    "abb313",
    "lp_e226_transposed",
    "Franz6_id1959_aug",
    "netlib_25fv47",
    "lsc_gradient_Bt",
    "iJO1366_stoichiometry",
)
PAIGE_SAUNDERS: Final = tuple(
    (40, 40, 4, power, damp) for power in (1, 2, 3) for damp in (0.0, 1e-3)
)
TOLERANCES: Final = (1e-6, 1e-10)
MAXITER: Final = 10_000
CURVE_POINTS: Final = 60
DENSE_LIMIT: Final = 4_000_000  # entries of A that a dense solution may have


@dataclass(frozen=True, slots=True)
class Way:
    """One solver with its precision, tolerance and scaling."""

    contender: tuple[str, str, str]
    dtype: str
    tolerance: float
    scaled: bool = False


def ways() -> list[Way]:
    """Return who solves each problem; tolerances below FP32's rounding are for FP64 alone."""
    ours = ("ours", "asyncsparse", "persistent")
    found = [Way(ours, "float32", 1e-6, scaled) for scaled in (False, True)]
    found += [Way(ours, "float64", tol, scaled) for tol in TOLERANCES for scaled in (False, True)]
    found.append(Way(("paper", "asyncsparse", "document"), "float32", 1e-6))
    found += [Way(("library", "scipy", "lsmr"), "float64", tol) for tol in TOLERANCES]
    return found


def cases() -> list[Case]:
    """Return a case for each problem."""
    named = [Case(name, name, seconds=2.5) for name in (*PUBLISHED, *RECTANGULAR)]
    named += [
        Case(paige_saunders_name(*call), params={"call": call}, seconds=0.7)
        for call in PAIGE_SAUNDERS
    ]
    return named


def paige_saunders_name(m: int, n: int, duplicates: int, power: int, damp: float) -> str:
    """Return the name of a problem of Paige and Saunders, as records have it."""
    return f"paige_saunders(m={m}, n={n}, duplicates={duplicates}, power={power}, damp={damp:g})"


def problem_of(case: Case) -> tuple[LeastSquares, float]:
    """Return a case's problem, and its damping.

    Published right-hand sides are used where there are any; else b is A times a normal vector
    plus noise of a tenth of its size.
    """
    if "call" in case.params:
        from asyncsparse_lab.lsmr.problems import paige_saunders

        known = paige_saunders(*case.params["call"])
        return LeastSquares(case.name, known.matrix, known.b, known.x), known.damp
    assert case.matrix is not None
    return _named_problem(case.matrix), 0.0


@lru_cache(maxsize=1)
def _named_problem(name: str) -> LeastSquares:
    from asyncsparse_lab.matrices import load_matrix, load_right_hand_side

    A = load_matrix(name)
    b = load_right_hand_side(name)
    if b is None:
        rng = np.random.default_rng(0)
        b = A @ rng.standard_normal(A.shape[1])
        noise = rng.standard_normal(A.shape[0])
        b = b + 0.1 * np.linalg.norm(b) / np.linalg.norm(noise) * noise
    x = None
    if A.shape[0] * A.shape[1] <= DENSE_LIMIT:
        x = np.linalg.lstsq(A.toarray(), b, rcond=None)[0]
    return LeastSquares(name, A, b, x)


def measure(case: Case) -> list[Record]:
    """Solve one problem in all ways; a matrix that is not here is a record that says so."""
    try:
        problem, damp = problem_of(case)
    except InputError as error:
        return [_absent(case, str(error))]
    compile_ahead()
    # Scaling the columns would change what the damping penalises.
    return [_solve(case, problem, damp, way) for way in ways() if not (damp and way.scaled)]


def _absent(case: Case, reason: str) -> Record:
    return Record(
        study=STUDY,
        case=case.name,
        op="lsmr",
        role="ours",
        backend="asyncsparse",
        variant="persistent",
        matrix=case.matrix,
        n=1,
        status="unsupported",
        reason=reason,
    )


def _solve(case: Case, problem: LeastSquares, damp: float, way: Way) -> Record:
    options: dict[str, Any] = {
        "damp": damp,
        "atol": way.tolerance,
        "btol": way.tolerance,
        "conlim": 1e12,
        "maxiter": MAXITER,
    }
    curve: list[tuple[int, float]] = []
    extra: dict[str, Any] = {}
    if way.contender[1] == "scipy":
        from scipy.sparse.linalg import lsmr as scipy_lsmr

        results: list[Any] = []
        samples = wall_samples(
            lambda: results.append(scipy_lsmr(problem.A, problem.b, **options)), 1, 0
        )
        result = results[-1]
        x = result[0]
    else:
        result, samples = _ours(problem, way, options, curve)
        x = to_host(result.x)
        extra["confirmed"] = bool(result.confirmed)
        extra["true_normar_scaled"] = float(result.true_normar_scaled)
    found = quality(problem, x)
    if problem.x is not None:
        # Of several least-squares solutions, LSMR finds the shortest, as the dense one is.
        least = quality(replace(problem, x=None), problem.x)
        found["excess_residual"] = found["true_normr"] - least["true_normr"]
    return lsmr_record(
        STUDY,
        case.name,
        problem,
        way.contender,
        samples,
        dtype=way.dtype,
        params=params(**options, precondition="columns" if way.scaled else None),
        result={
            **norms_of(result),
            **found,
            **extra,
            "curve_iterations": [itn for itn, _ in curve],
            "curve_normar": [normar for _, normar in curve],
        },
    )


def _ours(
    problem: LeastSquares, way: Way, options: dict[str, Any], curve: list[tuple[int, float]]
) -> tuple[Any, list[float]]:
    """Solve three times for the time and once to see the convergence; the document's, once."""
    import cupy
    from cupyx.scipy.sparse import csr_matrix

    from asyncsparse_lab.lsmr import lsmr
    from asyncsparse_lab.lsmr.persistent import prepare

    A = csr_matrix(problem.A.astype(way.dtype))
    b = cupy.asarray(problem.b.astype(way.dtype))
    if way.contender[2] == "document":
        from asyncsparse_lab.lsmr.document import Context, SparseMatrix

        matrix: Any = SparseMatrix.from_csr(Context(), A)
        results = [lsmr(matrix, b, **options)]
        return results[0], wall_samples(lambda: lsmr(matrix, b, **options), 1, 0)
    matrix = prepare(A, precondition="columns" if way.scaled else None)
    results = []
    samples = wall_samples(lambda: results.append(lsmr(matrix, b, **options)), 3, 1)
    seen: list[tuple[int, float]] = []
    lsmr(matrix, b, **options, callback=lambda state: seen.append((state.itn, state.normar)))
    curve += thin(seen, CURVE_POINTS)
    return results[-1], samples


def thin(points: list[tuple[int, float]], count: int) -> list[tuple[int, float]]:
    """Return at most ``count`` points, evenly spread, with the first and the last."""
    if len(points) <= count:
        return points
    chosen = np.unique(np.linspace(0, len(points) - 1, count).round().astype(int))
    return [points[index] for index in chosen]


def draw(
    frame: pd.DataFrame,
    claims: pd.DataFrame,
    *,
    problems: tuple[str, ...] = (),
    backends: tuple[str, ...] = (),
    tolerance: float = 0.0,
    gpu: str = "",
) -> dict[str, Drawing | Table]:
    """Draw the convergence; tabulate what was reached, with and without column scaling.

    Parameters
    ----------
    problems : tuple of str
        Only these; all if empty.
    backends : tuple of str
        Only these solvers: ``persistent``, ``document``, ``lsmr`` (SciPy's); all if empty.
    tolerance : float
        Only solves with this one; all if 0.
    gpu : str
        Folder of the GPU's records; the only one there is if empty.
    """
    from asyncsparse_lab.studies import lsmr_problem_figures
    from asyncsparse_lab.studies.spmm_common import rows_of_one_gpu

    rows = rows_of_one_gpu(frame, gpu)
    rows = rows[rows["case"].isin(problems)] if problems else rows
    rows = rows[rows["variant"].isin(backends)] if backends else rows
    rows = rows[rows["params.atol"] == tolerance] if tolerance else rows
    return lsmr_problem_figures.draw_problems(rows)
