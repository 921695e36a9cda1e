"""The loop of the document's solver, on the host; see :mod:`asyncsparse_lab.lsmr.document`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.lsmr import updates
from asyncsparse_lab.lsmr.document import Context, DeviceMatrix, SolverOptions
from asyncsparse_lab.lsmr.problem import Observer, array_module, is_sparse
from asyncsparse_lab.lsmr.recurrence import Recurrence, Tolerances, stop_code
from asyncsparse_lab.lsmr.result import Progress, StopCode

Call = Callable[[], None]
_NORMS = 3  # of u, v and x: a float each, on the device and on the host
_DEVICE_TO_HOST = 2


@dataclass(frozen=True, slots=True)
class SolveReport:
    """What a solve reached for one right-hand side; x is in the caller's array.

    Attributes
    ----------
    stop_code : StopCode
        Why it stopped.
    iterations : int
        Iterations done.
    normr, normar, norma, conda, normx : float
        The recurrence's estimates, as in :class:`asyncsparse_lab.lsmr.LsmrResult`.
    launches, host_syncs : int
        Library calls and kernels enqueued, and times that the host waited.
    """

    stop_code: StopCode
    iterations: int
    normr: float
    normar: float
    norma: float
    conda: float
    normx: float
    launches: int
    host_syncs: int


class Iteration:
    """The vectors of a solve and its calls, with everything bound but x.

    Attributes
    ----------
    context : Context
        Where it runs.
    u, v, h, hbar : ndarray
        Vectors of LSMR on the device.
    norms : ndarray
        Norms of u, v and x on the host, as :meth:`fetch` last found them.
    """

    def __init__(self, matrix: DeviceMatrix, options: SolverOptions) -> None:
        import cupy

        from asyncsparse_lab.lsmr.persistent import host_array
        from asyncsparse_lab.lsmr.vendor import Scalar

        context = matrix.context
        m, n = matrix.shape
        self.context, self._options = context, options
        self.u = context.buffer("u", m, np.float32)
        self.v, self.h, self.hbar = (
            context.buffer(name, n, np.float32) for name in ("v", "h", "hbar")
        )
        self._device_norms = context.buffer("norms", _NORMS, np.float32)
        self._page_locked = host_array((_NORMS,))
        self.norms = self._page_locked.view(np.float32)[:_NORMS]

        self.forward_factor, self.minus_alpha = Scalar(1.0), Scalar(0.0)
        self.adjoint_factor, self.minus_beta = Scalar(1.0), Scalar(0.0)
        self.inverse_alpha, self.inverse_beta = Scalar(1.0), Scalar(1.0)
        forward = (self.forward_factor, self.v, self.minus_alpha, self.u)
        adjoint = (self.adjoint_factor, self.u, self.minus_beta, self.v)
        deterministic = options.deterministic
        self.forward: Call = matrix.product(False, *forward, deterministic=deterministic)
        self.adjoint: Call = matrix.product(True, *adjoint, deterministic=deterministic)
        self.scale_u: Call = context.blas.scale(self.u, self.inverse_beta)
        self.scale_v: Call = context.blas.scale(self.v, self.inverse_alpha)
        slot = self._device_norms.data.ptr
        self.norm_u: Call = context.norms.norm(self.u, slot)
        self.norm_v: Call = context.norms.norm(self.v, slot + 4)
        self._copy_norms: Call = partial(
            cupy.cuda.runtime.memcpyAsync,
            self._page_locked.ctypes.data,
            slot,
            4 * _NORMS,
            _DEVICE_TO_HOST,
            context.stream.ptr,
        )
        self._wait: Call = partial(cupy.cuda.runtime.streamSynchronize, context.stream.ptr)
        self.arguments = updates.UpdateArguments(
            hbar=self.hbar.data.ptr, h=self.h.data.ptr, v=self.v.data.ptr, size=n
        )
        self.updates: list[Call] = []
        self.norm_x: Call = self.norm_v
        self.width = 1

    def bind(self, x: Any) -> None:
        """Take the caller's array for x."""
        context, options, arguments = self.context, self._options, self.arguments
        if arguments.x == x.data.ptr:
            return
        arguments.x = x.data.ptr
        self.norm_x = context.norms.norm(x, self._device_norms.data.ptr + 8)
        addresses = (arguments.hbar, arguments.h, arguments.x, arguments.v)
        self.width = updates.choose_width(*addresses) if options.float4 else 1
        entries = updates.FUSED if options.fused else updates.UNFUSED
        self.updates = updates.prepare_updates(
            entries, arguments, self.width, context.facts.arch, context.stream
        )

    def load(self, b: Any) -> None:
        """Copy b into u on the device: a sparse b by a memset and a scatter."""
        context = self.context
        if is_sparse(b):
            coo = b.tocoo()
            coo.sum_duplicates()
            self.u.data.memset_async(0, self.u.nbytes, context.stream)
            index = coo.coords[0] if hasattr(coo, "coords") else coo.row
            pair = (_on_device(index, np.int32), _on_device(coo.data, np.float32))
            updates.scatter(self.u, *pair, context.facts.arch, context.stream)
            context.synchronize()  # the pair must live until then
        elif array_module(b) is np:
            self.u.set(np.ascontiguousarray(b), stream=context.stream)
            context.synchronize()
        else:
            self.u[...] = b

    def fetch(self) -> None:
        """Bring the norms to the host and wait for them."""
        self._copy_norms()
        self._wait()

    def parts(self) -> dict[str, list[Call]]:
        """Return what an iteration enqueues, by purpose; for measuring, in no useful order."""
        return {
            "products": [self.forward, self.adjoint],
            "norms": [self.norm_u, self.norm_v, self.norm_x],
            "vector updates": [self.scale_u, self.scale_v, *self.updates],
            "copies": [self._copy_norms, self._copy_norms],
        }

    def whole(self) -> list[Call]:
        """Return what an iteration enqueues, in order and without waiting."""
        return [
            self.scale_u, self.adjoint, self.norm_v, self._copy_norms, self.scale_v, self.forward,
            self.norm_u, *self.updates, self.norm_x, self._copy_norms,
        ]  # fmt: skip


class Solver:
    """Solves least-squares problems on a context; its workspaces are reused.

    Not for use by two threads at a time.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self._iterations: dict[tuple[int, SolverOptions], tuple[DeviceMatrix, Iteration]] = {}

    def solve(
        self,
        A: DeviceMatrix,
        b: Any,
        x: Any,
        options: SolverOptions | None = None,
        *,
        x0: Any | None = None,
        observer: Observer | None = None,
    ) -> list[SolveReport]:
        """Solve for every column of b, one after the other, and write x.

        Parameters
        ----------
        A : SparseMatrix or DenseMatrix
            Of this context.
        b : ndarray or sparse matrix
            Of shape (m,) or (m, k) and type float32, on the device or on the host; sparse ones of
            one column.  Never changed.
        x : cupy.ndarray
            Takes the solution: shape (n,) or (n, k), float32.
        x0 : ndarray, optional
            First iterate, shaped as x; zero by default.
        observer : callable, optional
            Receives a :class:`Progress` an iteration.

        Raises
        ------
        InputError
            Shapes or types do not fit, or a product overflows.
        """
        options = SolverOptions() if options is None else options
        columns = check_operands(A, b, x)
        if A.context is not self.context:
            raise InputError("A belongs to another Context: build it with this solver's")
        iteration = self.iteration(A, options)
        reports = []
        with self.context.stream:
            for column in range(columns):
                place = x if x.ndim == 1 else x[:, column]
                into = place
                if not place.flags.c_contiguous:
                    into = self.context.buffer("x", A.shape[1], np.float32)
                start = x0 if x0 is None or x0.ndim == 1 else x0[:, column]
                right = b if is_sparse(b) or b.ndim == 1 else b[:, column]
                reports.append(
                    run_iterations(iteration, right, into, start, options, column, observer)
                )
                if into is not place:
                    place[...] = into
        self.context.synchronize()
        return reports

    def iteration(self, A: DeviceMatrix, options: SolverOptions) -> Iteration:
        """Return the calls of an iteration on A, bound once."""
        variant = SolverOptions(
            fused=options.fused, float4=options.float4, deterministic=options.deterministic
        )
        key = (id(A), variant)
        if key not in self._iterations:
            self._iterations[key] = (A, Iteration(A, options))
        return self._iterations[key][1]


def check_operands(A: DeviceMatrix, b: Any, x: Any) -> int:
    """Return how many right-hand sides there are.

    Raises
    ------
    InputError
        Shapes or types do not fit.
    """
    m, n = A.shape
    for name, array, length in (("b", b, m), ("x", x, n)):
        if array.ndim > 2 or array.shape[0] != length:
            raise InputError(
                f"{name} has the shape {array.shape}: give ({length},) or ({length}, k)"
            )
        if array.dtype != np.float32:
            raise InputError(f"{name} has the type {array.dtype}: the document's design is FP32")
    columns = 1 if b.ndim == 1 else int(b.shape[1])
    if columns != (1 if x.ndim == 1 else int(x.shape[1])):
        raise InputError(f"b has the shape {b.shape} and x {x.shape}: give as many columns")
    if is_sparse(b) and columns != 1:
        raise InputError(f"b is sparse with {columns} columns: give one, or a dense b")
    return columns


def run_iterations(
    it: Iteration,
    b: Any,
    x: Any,
    x0: Any | None,
    options: SolverOptions,
    column: int,
    observer: Observer | None,
) -> SolveReport:
    """Solve for one right-hand side; the parameters are those of :meth:`Solver.solve`."""
    tolerances = Tolerances(options.atol, options.btol, options.conlim, options.max_iterations)
    it.bind(x)
    it.load(b)
    it.norm_u()
    it.fetch()
    launches, syncs = 1, 1
    normb = beta = _finite(float(it.norms[0]), "b")
    if x0 is None or (normb == 0 and options.damp == 0):
        x.fill(0)
    else:
        x[...] = _on_device(x0, np.float32)
        it.v[...] = x
        it.forward_factor.set(-1.0)
        it.minus_alpha.set(1.0)
        it.forward()
        it.forward_factor.set(1.0)
        it.norm_u()
        it.fetch()
        launches, syncs = launches + 2, syncs + 1
        beta = _finite(float(it.norms[0]), "A x0")
    it.v.fill(0)
    alpha = 0.0
    if beta > 0:
        it.inverse_beta.set(1.0 / beta)
        it.scale_u()
        it.minus_beta.set(0.0)
        it.adjoint()
        it.norm_v()
        it.fetch()
        launches, syncs = launches + 3, syncs + 1
        alpha = _finite(float(it.norms[1]), "A'b")
    if alpha > 0:
        it.inverse_alpha.set(1.0 / alpha)
        it.scale_v()
        launches += 1
    state = Recurrence(alpha, beta, options.damp)
    it.h[...] = it.v
    it.hbar.fill(0)
    code: StopCode | None = None
    if alpha * beta == 0:
        code = StopCode.STARTS_SOLVED
    elif options.max_iterations == 0:
        code = StopCode.ITERATION_LIMIT
    if code is None:
        it.minus_alpha.set(-alpha)
        it.forward()
        it.norm_u()
    it.norm_x()
    it.fetch()
    launches, syncs = launches + 3, syncs + 1
    normx = float(it.norms[2])
    while code is None:
        beta = _finite(float(it.norms[0]), "A v")
        if beta > 0:
            it.inverse_beta.set(1.0 / beta)
            it.scale_u()
            it.minus_beta.set(-beta)
            it.adjoint()
            it.norm_v()
            it.fetch()
            alpha = _finite(float(it.norms[1]), "A'u")
            if alpha > 0:
                it.inverse_alpha.set(1.0 / alpha)
                it.scale_v()
        # The next product runs while the host computes the scalars.
        it.minus_alpha.set(-alpha)
        it.forward()
        it.norm_u()
        arguments = it.arguments
        arguments.hbar_factor, arguments.step, arguments.h_factor = state.advance(beta, alpha)
        for update in it.updates:
            update()
        it.norm_x()
        it.fetch()
        launches, syncs = launches + 7 + len(it.updates), syncs + 2
        normx = float(it.norms[2])
        estimates = (state.normr, state.normar, state.norma, state.conda, normx)
        code = stop_code(state.itn, normb, *estimates, tolerances)
        if observer is not None:
            observer(Progress(column, state.itn, *estimates))
    return SolveReport(
        code, state.itn, state.normr, state.normar, state.norma, state.conda, normx, launches, syncs
    )


def _finite(value: float, name: str) -> float:
    if not math.isfinite(value):
        raise InputError(f"the norm of {name} is not finite in FP32: scale A or b")
    return value


def _on_device(array: Any, dtype: Any) -> Any:
    import cupy

    return cupy.asarray(array, dtype=dtype)
