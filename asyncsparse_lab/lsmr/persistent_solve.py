"""A solve by the persistent kernel: one launch for a group of right-hand sides."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from asyncsparse_lab.errors import DeviceError, InputError
from asyncsparse_lab.lsmr.arguments import HISTORY_FIELDS, OUTCOME_FIELDS
from asyncsparse_lab.lsmr.audit import TrueNorms
from asyncsparse_lab.lsmr.geometry import GROUPS
from asyncsparse_lab.lsmr.host import ColumnOutcome, largest, power_of_two
from asyncsparse_lab.lsmr.persistent import Group, PersistentMatrix, host_array, lay_out
from asyncsparse_lab.lsmr.problem import Problem
from asyncsparse_lab.lsmr.result import LsmrResult, Progress, StopCode

MAX_OBSERVED = 1 << 20
_FAILURES = {
    -2: "b or x0 has entries that are not finite, or too large to square: scale them",
    -3: "the products A v overflow: scale A",
}
_TIMED_OUT = -4


class Units:
    """What the kernel's numbers are worth, for it solves with A / magnitude and b / size.

    The iteration sees A D, and y of x = D y.  With column scaling D grows by the magnitude, so
    that A D and y stay; without, y is x.
    """

    def __init__(self, size: float, magnitude: float, scaled: bool) -> None:
        self.of_r, self.of_x = size, size / magnitude
        self.of_a = 1.0 if scaled else magnitude
        self.of_y, self.of_gradient = size / self.of_a, size * self.of_a


def solve(problem: Problem, reason: str) -> LsmrResult:
    """Solve on the device; b and x stay where the caller has them."""
    from asyncsparse_lab.lsmr.interface import assemble

    matrix = problem.matrix
    if problem.kind != "prepared":
        scales = problem.scales
        matrix = lay_out(matrix, problem.dtype, scales)
    outcomes: list[ColumnOutcome] = []
    norms: list[TrueNorms] = []
    launches = column = 0
    while column < len(problem.columns):
        left = len(problem.columns) - column
        rhs = next(size for size in GROUPS[matrix.dtype.itemsize] if size <= left)
        found, true = _solve_group(problem, matrix, matrix.group(rhs), column)
        outcomes += found
        norms += true
        column += rhs
        launches += 1
    return assemble(
        problem,
        outcomes,
        norms,
        backend="persistent",
        reason=reason,
        launches=launches,
        host_syncs=launches,
        device_bytes=matrix.nbytes,
    )


def _solve_group(
    problem: Problem, matrix: PersistentMatrix, group: Group, first: int
) -> tuple[list[ColumnOutcome], list[TrueNorms]]:
    import cupy

    rhs, arguments, tolerances = group.rhs, group.arguments, problem.tolerances
    b = _interleave(problem.columns[first : first + rhs], matrix.dtype)
    start = None
    if problem.starts is not None:
        start = _interleave(problem.starts[first : first + rhs], matrix.dtype)
    size = _safe_size(b, start)
    if size != 1:
        b = b / size
        start = None if start is None else start / size
    magnitude = matrix.magnitude
    if start is not None and magnitude != 1:
        start = start * magnitude
    x = cupy.empty((matrix.shape[1], rhs), dtype=matrix.dtype)
    arguments.b, arguments.x = b.data.ptr, x.data.ptr
    arguments.start = None if start is None else start.data.ptr
    arguments.damp = problem.damp / magnitude
    arguments.atol, arguments.btol = tolerances.atol, tolerances.btol
    arguments.conlim, arguments.maxiter = tolerances.conlim, min(tolerances.maxiter, 2**31 - 1)
    history = None
    if problem.observer is not None:
        if tolerances.maxiter > MAX_OBSERVED:
            raise InputError(
                f"maxiter={tolerances.maxiter} with a callback: give at most {MAX_OBSERVED}"
            )
        history = host_array((tolerances.maxiter + 1, rhs, HISTORY_FIELDS))
    arguments.history = None if history is None else history.ctypes.data

    stream = cupy.cuda.get_current_stream()
    group.start(stream)
    units = Units(size, magnitude, matrix.scaled)
    if history is not None and problem.observer is not None:
        _observe(history, problem.observer, stream, first, units)
    stream.synchronize()

    outcomes, norms = [], []
    for r in range(rhs):
        values = dict(zip(OUTCOME_FIELDS, group.outcomes[r].tolist(), strict=True))
        code = int(values["code"])
        if code == _TIMED_OUT:
            raise DeviceError(
                "a block of the persistent kernel waited too long for the others: is the GPU "
                "shared by processes? use backend='host'"
            )
        if code < 0:
            raise InputError(_FAILURES[code])
        solution = x[:, r] if rhs > 1 else x.reshape(-1)
        if units.of_x != 1:
            solution = solution * units.of_x
        outcomes.append(
            ColumnOutcome(
                solution if problem.xp is not np else cupy.asnumpy(solution),
                StopCode(code),
                int(values["itn"]),
                values["normr"] * units.of_r,
                values["normar"] * units.of_gradient,
                values["norma"] * units.of_a,
                values["conda"],
                values["normx"] * units.of_y,
            )
        )
        norms.append(
            TrueNorms(
                values["true_normr"] * units.of_r,
                values["true_normar"] * size * magnitude,
                values["true_normar_scaled"] * units.of_gradient,
                values["normb"] * units.of_r,
            )
        )
    return outcomes, norms


def _interleave(columns: Any, dtype: np.dtype[Any]) -> Any:
    """Return the columns side by side on the device, element i of all of them together."""
    import cupy

    if len(columns) == 1:
        only = columns[0]
        if isinstance(only, cupy.ndarray) and only.dtype == dtype and only.flags.c_contiguous:
            return only
        return cupy.ascontiguousarray(cupy.asarray(columns[0], dtype=dtype))
    return cupy.stack([cupy.asarray(column, dtype=dtype) for column in columns], axis=1)


def _safe_size(b: Any, start: Any | None) -> float:
    """Return 1, or the power of two that FP64 data must be divided by to be squared safely.

    FP32 data need none: their squares are added in FP64.
    """
    if b.dtype == np.float32:
        return 1.0
    top = largest(b) or (0.0 if start is None else largest(start))
    return 1.0 if top == 0 or 1e-100 < top < 1e100 else power_of_two(top)


def _observe(
    history: Any, observer: Callable[[Progress], None], stream: Any, first: int, units: Units
) -> None:
    """Report iterations while the kernel writes them."""
    import cupy

    finished = cupy.cuda.Event(disable_timing=True)
    finished.record(stream)
    reported = [0] * history.shape[1]
    while True:
        done = bool(finished.done)
        for r, count in enumerate(reported):
            while count < history.shape[0] and history[count, r, 0] == count + 1:
                _, normr, normar, norma, conda, normx = (float(v) for v in history[count, r, :6])
                count += 1
                observer(
                    Progress(
                        first + r,
                        count,
                        normr * units.of_r,
                        normar * units.of_gradient,
                        norma * units.of_a,
                        conda,
                        normx * units.of_y,
                    )
                )
            reported[r] = count
        if done:
            return
        time.sleep(1e-4)
