"""The document's solver behind :func:`asyncsparse_lab.lsmr.lsmr`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from asyncsparse_lab.lsmr.audit import true_norms
from asyncsparse_lab.lsmr.document import (
    Context,
    DenseMatrix,
    DeviceMatrix,
    SolverOptions,
    SparseMatrix,
)
from asyncsparse_lab.lsmr.document_solver import Solver
from asyncsparse_lab.lsmr.host import ColumnOutcome
from asyncsparse_lab.lsmr.problem import Observer, Problem
from asyncsparse_lab.lsmr.result import LsmrResult


def solve(problem: Problem, reason: str) -> LsmrResult:
    """Solve for one right-hand side after the other; x is where b is."""
    import cupy

    from asyncsparse_lab.lsmr.interface import assemble

    matrix = _matrix(problem)
    context, tolerances = matrix.context, problem.tolerances
    options = SolverOptions(
        tolerances.atol, tolerances.btol, tolerances.maxiter, problem.damp, tolerances.conlim
    )
    solver = Solver(context)
    starts = problem.starts or [None] * len(problem.columns)
    on_device, outcomes = [], []
    launches = syncs = 0
    for column, (b, x0) in enumerate(zip(problem.columns, starts, strict=True)):
        x = cupy.empty(problem.shape[1], dtype=np.float32)
        (found,) = solver.solve(matrix, b, x, options, x0=x0, observer=_observer(problem, column))
        launches, syncs = launches + found.launches, syncs + found.host_syncs
        on_device.append(x)
        outcomes.append(
            ColumnOutcome(
                x if problem.xp is not np else cupy.asnumpy(x),
                found.stop_code,
                found.iterations,
                found.normr,
                found.normar,
                found.norma,
                found.conda,
                found.normx,
            )
        )
    there = replace(
        problem,
        matrix=matrix.to_array(),
        kind="dense" if isinstance(matrix, DenseMatrix) else "sparse",
        columns=[cupy.asarray(b) for b in problem.columns],
        starts=problem.starts and [cupy.asarray(x0) for x0 in problem.starts],
        xp=cupy,
    )
    return assemble(
        problem,
        outcomes,
        true_norms(there, on_device),
        backend="document",
        reason=reason,
        launches=launches,
        host_syncs=syncs,
        device_bytes=matrix.nbytes + context.nbytes,
    )


def _observer(problem: Problem, column: int) -> Observer | None:
    if problem.observer is None:
        return None
    observer = problem.observer
    return lambda progress: observer(replace(progress, column=column))


def _matrix(problem: Problem) -> DeviceMatrix:
    if problem.kind == "prepared":
        matrix: DeviceMatrix = problem.matrix
        return matrix
    context = Context()
    if problem.kind == "dense":
        return DenseMatrix(context, problem.matrix)
    build = {"csc": SparseMatrix.from_csc, "coo": SparseMatrix.from_coo}.get(
        problem.matrix.format, SparseMatrix.from_csr
    )
    return build(context, problem.matrix)
