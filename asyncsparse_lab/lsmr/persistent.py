r"""LSMR in one persistent kernel: no host in the loop, two barriers an iteration.

``kernels/lsmr_persistent.cu`` has the algorithm.  What an iteration costs on an H200, predicted
before it was measured (SM clock 1.98 GHz, a load that hits L2 0.14 us):

* *Floor*, 1.5 us: twice the chain of dependent steps that nothing can hide: gather from L2
  (0.15 us), publish behind a fence (0.3 us), the flag's flight and its poll (0.3 us).
* *Prediction*, 3 to 5 us for n = 6,177 and n = 23,394: besides the floor the reduction in the
  block, the poll's own reduction, barriers of the block, and waiting for the slowest block.
  Row pointers, columns, values, h, hbar and x come from shared memory; the FP64 recurrence runs
  on a warp of its own in the shadow of the products.
* From a million columns on the bytes rule: 8 B a non-zero and direction (FP32), plus the
  vectors, over the memory's rate.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncsparse_lab.errors import DeviceError, InputError
from asyncsparse_lab.lsmr.arguments import (
    HISTORY_FIELDS,
    OUTCOME_FIELDS,
    MatrixArguments,
    SolveArguments,
)
from asyncsparse_lab.lsmr.audit import TrueNorms
from asyncsparse_lab.lsmr.host import ColumnOutcome, largest, power_of_two
from asyncsparse_lab.lsmr.layout import LANE_STEPS, SlicedMatrix
from asyncsparse_lab.lsmr.plan import Geometry, Plan, build_plan, check_geometry, choose_geometry
from asyncsparse_lab.lsmr.problem import Problem, check_matrix, check_scales
from asyncsparse_lab.lsmr.result import LsmrResult, Progress, StopCode

SPIN_LIMIT = 1 << 24  # polls; some ten seconds
MAX_OBSERVED = 1 << 20
GROUPS = {4: (4, 2, 1), 8: (2, 1)}  # by the bytes of an element: registers allow no more
_FAILURES = {
    -2: "b or x0 has entries that are not finite, or too large to square: scale them",
    -3: "the products A v overflow: scale A",
}
_TIMED_OUT = -4


@dataclass(slots=True)
class _Group:
    """Buffers and the prepared launch for a number of right-hand sides solved together."""

    rhs: int
    geometry: Geometry
    arguments: SolveArguments
    launch: Callable[[], None]
    outcomes: Any  # host array that the kernel writes
    slots: tuple[Any, Any]
    buffers: list[Any]

    @property
    def nbytes(self) -> int:
        return int(sum(buffer.nbytes for buffer in self.buffers))


class PersistentMatrix:
    """A matrix laid out on the device, with the buffers of its solves; reusable.

    Made by :func:`prepare`; :func:`asyncsparse_lab.lsmr.lsmr` takes it in place of A.  Not for
    use by two threads at a time.

    Attributes
    ----------
    shape : (int, int)
        m and n.
    dtype : numpy.dtype
        float32 or float64.
    scaled : bool
        Whether its columns are scaled.
    plan : Plan
        The layout.
    """

    backend = "persistent"

    def __init__(self, plan: Plan, geometry: Geometry | None = None) -> None:
        from asyncsparse_lab.gpu.device import device_facts

        self.facts = device_facts()
        if self.facts.capability < (8, 0):
            raise DeviceError(
                f"{self.facts.name} has compute capability {self.facts.capability}: the "
                "persistent kernel needs 8.0; use backend='host'"
            )
        if geometry is not None:
            check_geometry(geometry)
        self.plan = plan
        self.shape, self.dtype = plan.shape, plan.dtype
        self.scaled = plan.scales is not None
        self._geometry = geometry
        self._groups: dict[int, _Group] = {}

    @property
    def nbytes(self) -> int:
        """Device memory of the layout and all buffers, in bytes."""
        return self.plan.nbytes + sum(group.nbytes for group in self._groups.values())

    def geometry(self, rhs: int = 1) -> Geometry:
        """Return the geometry of a solve with ``rhs`` right-hand sides."""
        if self._geometry is not None:
            return self._geometry
        limit = self.facts.shared_bytes_per_block - 4096
        return choose_geometry(self.plan, self.facts.sm_count, limit, rhs)

    def group(self, rhs: int) -> _Group:
        """Return the buffers and the launch for ``rhs`` right-hand sides, made once."""
        if rhs not in self._groups:
            self._groups[rhs] = self._make_group(rhs)
        return self._groups[rhs]

    def _make_group(self, rhs: int) -> _Group:
        import cupy

        from asyncsparse_lab.gpu.compile import compile_kernel
        from asyncsparse_lab.gpu.launch import load

        geometry = self.geometry(rhs)
        kernel = load(
            compile_kernel(
                "lsmr_persistent.cu",
                "lsmr_persistent",
                geometry.constants(self.dtype, rhs),
                arch=self.facts.arch,
            )
        )
        plan, (m, n) = self.plan, self.shape
        bounds = plan.bounds(geometry.blocks)
        shared = plan.shared_bytes(bounds, rhs) if geometry.staged else 0
        arguments = SolveArguments()
        buffers: list[Any] = list(bounds)

        def allocate(count: int, dtype: Any) -> Any:
            buffers.append(cupy.empty(max(count, 1), dtype=dtype))
            return buffers[-1]

        arguments.forward = matrix_arguments(plan.forward, bounds[0], _device_pointer)
        arguments.adjoint = matrix_arguments(plan.adjoint, bounds[1], _device_pointer)
        arguments.row_order = plan.row_order.data.ptr
        arguments.column_order = plan.column_order.data.ptr
        arguments.scales = None if plan.scales is None else plan.scales.data.ptr
        length_u = (m + plan.adjoint.pieces) * rhs
        length_v = (n + plan.forward.pieces) * rhs
        arguments.u = allocate(length_u, self.dtype).data.ptr
        arguments.v = allocate(length_v, self.dtype).data.ptr
        arguments.state = allocate(0 if geometry.staged else 3 * n * rhs, self.dtype).data.ptr
        arguments.wide_x = allocate(length_v, np.float64).data.ptr
        arguments.wide_r = allocate(length_u, np.float64).data.ptr
        slots = allocate(3 * geometry.copies * rhs * geometry.blocks, np.float64)
        slots_x = allocate(3 * rhs * geometry.blocks, np.float64)
        arguments.slots, arguments.slots_x = slots.data.ptr, slots_x.data.ptr
        outcomes = _host_array((rhs, len(OUTCOME_FIELDS)))
        arguments.outcomes = outcomes.ctypes.data
        arguments.spin_limit = SPIN_LIMIT
        launch = kernel.prepare(
            geometry.blocks, geometry.threads, shared, arguments, cooperative=True
        )
        return _Group(rhs, geometry, arguments, launch, outcomes, (slots, slots_x), buffers)


def prepare(
    matrix: Any,
    dtype: Any = None,
    *,
    precondition: Any | None = None,
    geometry: Geometry | None = None,
    lane_steps: int = LANE_STEPS,
) -> PersistentMatrix:
    """Lay out a real sparse matrix on the GPU, once for many solves.

    Parameters
    ----------
    matrix : sparse array
        A of SciPy or CuPy.
    dtype : dtype, optional
        float32 or float64; by default that of A.
    precondition : "columns", ndarray or None
        Column scaling, as in :func:`asyncsparse_lab.lsmr.lsmr`.
    geometry : Geometry, optional
        Grid and block; chosen by default.
    lane_steps : int
        How many entries of a row a lane takes before the row gets more lanes.

    Raises
    ------
    InputError
        A that is not real and finite, or a geometry that the kernel cannot have.
    DeviceError
        No GPU of compute capability 8.0 or later.
    """
    import cupy

    matrix, kind, shape, found = check_matrix(matrix)
    if kind != "sparse" or found is None or found.kind == "c":
        raise InputError(f"A is {kind} of type {found}: prepare takes a real sparse matrix")
    dtype = np.dtype(dtype) if dtype is not None else np.result_type(found, np.float32)
    if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise InputError(f"dtype={dtype}: give float32 or float64")
    scales = check_scales(matrix, kind, shape[1], precondition)
    return _prepare(matrix, dtype, scales, geometry, lane_steps, cupy)


def _prepare(
    matrix: Any,
    dtype: np.dtype[Any],
    scales: Any | None,
    geometry: Geometry | None,
    lane_steps: int,
    cupy: Any,
) -> PersistentMatrix:
    if isinstance(matrix.data, np.ndarray):
        from cupyx.scipy.sparse import csr_matrix

        matrix = csr_matrix(matrix.tocsr())
    scales = None if scales is None else cupy.asarray(scales)
    return PersistentMatrix(build_plan(matrix, dtype, scales, lane_steps), geometry)


def matrix_arguments(
    matrix: SlicedMatrix, bounds: Any, pointer: Callable[[Any], int]
) -> MatrixArguments:
    """Fill ``LsmrMatrix``; ``pointer`` gives an array's address."""
    return MatrixArguments(
        slices=pointer(matrix.slices),
        block_slices=pointer(bounds),
        columns=pointer(matrix.columns),
        values=pointer(matrix.values),
        true_values=pointer(matrix.true_values),
        rows=matrix.rows,
        first_piece=matrix.gathered,
        piece_begin=matrix.row_slices,
        piece_end=matrix.row_slices + matrix.pieces,
    )


def _device_pointer(array: Any) -> int:
    return int(array.data.ptr)


def _host_array(shape: tuple[int, ...]) -> Any:
    """Return a float64 array of zeros in page-locked memory, which kernels can write."""
    import cupy

    count = int(np.prod(shape))
    memory = cupy.cuda.alloc_pinned_memory(count * 8)
    array = np.frombuffer(memory, dtype=np.float64, count=count).reshape(shape)
    array[...] = 0
    return array


def solve(problem: Problem, reason: str) -> LsmrResult:
    """Solve on the device; b and x stay where the caller has them."""
    import cupy

    from asyncsparse_lab.lsmr.interface import assemble

    matrix = problem.matrix
    if problem.kind != "prepared":
        scales = problem.scales
        matrix = _prepare(matrix, problem.dtype, scales, None, LANE_STEPS, cupy)
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
    problem: Problem, matrix: PersistentMatrix, group: _Group, first: int
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
    x = cupy.empty((matrix.shape[1], rhs), dtype=matrix.dtype)
    arguments.b, arguments.x = b.data.ptr, x.data.ptr
    arguments.start = None if start is None else start.data.ptr
    arguments.damp, arguments.atol, arguments.btol = problem.damp, tolerances.atol, tolerances.btol
    arguments.conlim, arguments.maxiter = tolerances.conlim, min(tolerances.maxiter, 2**31 - 1)
    history = None
    if problem.observer is not None:
        if tolerances.maxiter > MAX_OBSERVED:
            raise InputError(
                f"maxiter={tolerances.maxiter} with a callback: give at most {MAX_OBSERVED}"
            )
        history = _host_array((tolerances.maxiter + 1, rhs, HISTORY_FIELDS))
    arguments.history = None if history is None else history.ctypes.data

    stream = cupy.cuda.get_current_stream()
    for slots in group.slots:
        slots.data.memset_async(0xFF, slots.nbytes, stream)
    group.launch()
    if history is not None and problem.observer is not None:
        _observe(history, problem.observer, stream, first, size)
    stream.synchronize()

    outcomes, norms = [], []
    for r in range(rhs):
        values = dict(zip(OUTCOME_FIELDS, (float(v) for v in group.outcomes[r]), strict=True))
        code = int(values["code"])
        if code == _TIMED_OUT:
            raise DeviceError(
                "a block of the persistent kernel waited too long for the others: is the GPU "
                "shared by processes? use backend='host'"
            )
        if code < 0:
            raise InputError(_FAILURES[code])
        solution = x[:, r] if rhs > 1 else x.reshape(-1)
        if size != 1:
            solution = solution * size
        outcomes.append(
            ColumnOutcome(
                solution if problem.xp is not np else cupy.asnumpy(solution),
                StopCode(code),
                int(values["itn"]),
                values["normr"] * size,
                values["normar"] * size,
                values["norma"],
                values["conda"],
                values["normx"] * size,
            )
        )
        norms.append(
            TrueNorms(
                values["true_normr"] * size,
                values["true_normar"] * size,
                values["true_normar_scaled"] * size,
                values["normb"] * size,
            )
        )
    return outcomes, norms


def _interleave(columns: Any, dtype: np.dtype[Any]) -> Any:
    """Return the columns side by side on the device, element i of all of them together."""
    import cupy

    if len(columns) == 1:
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
    history: Any, observer: Callable[[Progress], None], stream: Any, first: int, size: float
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
                        first + r, count, normr * size, normar * size, norma, conda, normx * size
                    )
                )
            reported[r] = count
        if done:
            return
        time.sleep(1e-4)
