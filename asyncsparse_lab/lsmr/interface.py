"""The solver's public face: check, choose a backend, solve, recompute the norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from asyncsparse_lab.errors import DeviceError, InputError, UnsupportedError
from asyncsparse_lab.lsmr.audit import TrueNorms, is_confirmed, true_norms
from asyncsparse_lab.lsmr.host import ColumnOutcome
from asyncsparse_lab.lsmr.problem import Problem, describe_problem
from asyncsparse_lab.lsmr.result import LsmrResult, Progress

Backend = Literal["auto", "persistent", "document", "host", "scipy"]
BACKENDS = ("auto", "persistent", "document", "host", "scipy")
ON_GPU = ("persistent", "document")


def lsmr(
    A: Any,
    b: Any,
    damp: float | None = 0.0,
    atol: float | None = 1e-6,
    btol: float | None = 1e-6,
    conlim: float | None = 1e8,
    maxiter: int | None = None,
    show: bool = False,
    x0: Any | None = None,
    *,
    backend: Backend = "auto",
    precondition: Any | None = None,
    callback: Callable[[Progress], None] | None = None,
) -> LsmrResult:
    r"""Solve a sparse least-squares problem by LSMR.

    .. math:: \min_x \; \|b - A x\|_2^2 + \mathrm{damp}^2 \, \|x - x_0\|_2^2

    The arguments have SciPy's names and order, and the result unpacks like SciPy's.

    Parameters
    ----------
    A : sparse array, ndarray, LinearOperator, or a prepared matrix
        Matrix of shape (m, n), real or complex; of CuPy too.
    b : ndarray or sparse array
        Right-hand side of shape (m,), (m, 1) or (m, k); never changed.  Data of FP32 are
        solved in FP32 with FP64 norms and scalars, integers in FP64.
    damp : float, optional
        Damping; with ``x0`` the distance to ``x0`` is what it penalises, as in SciPy.
    atol, btol : float, optional
        Relative errors of A and b; None means 1e-6.
    conlim : float, optional
        Stop once the estimated condition number passes this; 0 means never, None 1e8.
    maxiter : int, optional
        Iteration limit; None means 5 min(m, n).
    show : bool, optional
        Print the iterations (backends ``host`` and ``persistent``) and a summary.
    x0 : ndarray, optional
        First iterate of shape (n,), (n, 1) or (n, k); never changed.
    backend : {"auto", "persistent", "document", "host", "scipy"}
        What solves; ``auto`` picks and the result says why.
    precondition : "columns", ndarray or None
        Scale the columns of A to norm 1, or by the positive array given: the solver then
        works on A D and y with x = D y, and the tests hold for these.
    callback : callable, optional
        Called with a :class:`Progress` after every iteration.

    Returns
    -------
    LsmrResult
        x, stop code, iterations, the recurrence's norms and those recomputed in FP64.

    Raises
    ------
    InputError
        Bad input, in one line, before any work; or a product that is not finite.
    UnsupportedError
        A backend that was asked for cannot solve this kind of problem.
    DeviceError
        No suitable GPU for a backend that needs one.
    """
    if backend not in BACKENDS:
        raise InputError(f"backend={backend!r}: give one of {', '.join(BACKENDS)}")
    observer = _observer(callback, show)
    problem = describe_problem(
        A,
        b,
        damp=damp,
        atol=atol,
        btol=btol,
        conlim=conlim,
        maxiter=maxiter,
        x0=x0,
        precondition=precondition,
        observer=observer,
    )
    chosen, reason = choose_backend(problem, backend, observed=callback is not None)
    result = _SOLVERS[chosen](problem, chosen, reason)
    if show:
        print(result.summary())
    return result


def choose_backend(problem: Problem, backend: str, *, observed: bool) -> tuple[str, str]:
    """Return the backend and why it was chosen.

    Raises
    ------
    UnsupportedError
        The backend that was asked for cannot solve this problem.
    DeviceError
        It runs on the GPU, and there is none.
    """
    if backend != "auto":
        why_not = _obstacle(problem, backend, observed)
        if why_not is not None:
            raise UnsupportedError(f"backend={backend!r}: {why_not}; give backend='auto'")
        if backend in ON_GPU and problem.kind != "prepared":
            require_gpu(backend)
        return backend, "asked for"
    if problem.kind == "prepared":
        return problem.matrix.backend, "A was prepared for it"
    why_not = _obstacle(problem, "persistent", observed)
    if why_not is None:
        from asyncsparse_lab.gpu.device import missing_gpu

        why_not = missing_gpu()
        if why_not is None:
            return "persistent", "real sparse A and a GPU"
    no_scipy = _obstacle(problem, "scipy", observed)
    return ("scipy", why_not) if no_scipy is None else ("host", f"{why_not}; {no_scipy}")


def require_gpu(backend: str) -> None:
    """Raise DeviceError where a backend that runs on the GPU finds none."""
    from asyncsparse_lab.gpu.device import missing_gpu

    missing = missing_gpu()
    if missing is not None:
        raise DeviceError(f"backend={backend!r}: {missing}")


def _obstacle(problem: Problem, backend: str, observed: bool) -> str | None:
    """Return why a backend cannot solve a problem, or None."""
    if problem.kind == "prepared":
        owner = problem.matrix.backend
        return None if owner == backend else f"A was prepared for {owner}"
    if backend == "persistent":
        return _persistent_obstacle(problem)
    if backend == "document":
        return _document_obstacle(problem)
    return _scipy_obstacle(problem, observed) if backend == "scipy" else None


def _persistent_obstacle(problem: Problem) -> str | None:
    if problem.kind != "sparse":
        return f"A is {'dense' if problem.kind == 'dense' else 'an operator'}, not sparse"
    return "the data are complex" if problem.is_complex else None


def _document_obstacle(problem: Problem) -> str | None:
    if problem.kind == "operator":
        return "A is an operator, not a matrix"
    if problem.dtype != np.float32:
        return f"the data are {problem.dtype}, and the document's design is FP32"
    return None if problem.scales is None else "the document's design has no preconditioner"


def _scipy_obstacle(problem: Problem, observed: bool) -> str | None:
    if problem.xp is not np:
        return "the data are on the GPU"
    return "SciPy's solver has no callback" if observed else None


def _observer(
    callback: Callable[[Progress], None] | None, show: bool
) -> Callable[[Progress], None] | None:
    if not show:
        return callback

    def observe(progress: Progress) -> None:
        if progress.itn == 1:
            print("   itn          |r|        |A'r|      norm A      cond A")
        if progress.itn <= 10 or progress.itn % 10 == 0:
            print(
                f"{progress.itn:6d} {progress.normr:12.5e} {progress.normar:12.5e} "
                f"{progress.norma:11.3e} {progress.conda:11.3e}"
            )
        if callback is not None:
            callback(progress)

    return observe


def _solve_host(problem: Problem, backend: str, reason: str) -> LsmrResult:
    from asyncsparse_lab.lsmr import host

    return collect(problem, host.solve(problem), backend, reason)


def _solve_scipy(problem: Problem, backend: str, reason: str) -> LsmrResult:
    from asyncsparse_lab.lsmr import scipy_backend

    return collect(problem, scipy_backend.solve(problem), backend, reason)


def _solve_persistent(problem: Problem, backend: str, reason: str) -> LsmrResult:
    from asyncsparse_lab.lsmr import persistent_solve

    return persistent_solve.solve(problem, reason)


def _solve_document(problem: Problem, backend: str, reason: str) -> LsmrResult:
    from asyncsparse_lab.lsmr import document_backend

    return document_backend.solve(problem, reason)


_SOLVERS: dict[str, Callable[[Problem, str, str], LsmrResult]] = {
    "persistent": _solve_persistent,
    "document": _solve_document,
    "host": _solve_host,
    "scipy": _solve_scipy,
}


def collect(
    problem: Problem, outcomes: list[ColumnOutcome], backend: str, reason: str
) -> LsmrResult:
    """Recompute the norms of the outcomes on the host and put the result together."""
    norms = true_norms(problem, [outcome.x for outcome in outcomes])
    return assemble(problem, outcomes, norms, backend=backend, reason=reason)


def assemble(
    problem: Problem, outcomes: list[ColumnOutcome], norms: list[TrueNorms], **origin: Any
) -> LsmrResult:
    """Put the result together; ``origin`` are its fields from ``backend`` on."""
    columns = [
        _numbers(problem, outcome, true) for outcome, true in zip(outcomes, norms, strict=True)
    ]
    if problem.single:
        return LsmrResult(x=outcomes[0].x, **columns[0], **origin)
    x = problem.xp.stack([outcome.x for outcome in outcomes], axis=1)
    arrays: dict[str, Any] = {
        name: np.array([column[name] for column in columns]) for name in columns[0]
    }
    return LsmrResult(x=x, **arrays, **origin)


def _numbers(problem: Problem, outcome: ColumnOutcome, true: TrueNorms) -> dict[str, Any]:
    return {
        "istop": int(outcome.istop),
        "itn": outcome.itn,
        "normr": outcome.normr,
        "normar": outcome.normar,
        "norma": outcome.norma,
        "conda": outcome.conda,
        "normx": outcome.normx,
        "true_normr": true.normr,
        "true_normar": true.normar,
        "true_normar_scaled": true.normar_scaled,
        "confirmed": is_confirmed(outcome, true, problem.tolerances, problem.dtype),
    }
