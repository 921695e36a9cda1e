"""A plan: one sparse A, made ready for many products."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from asyncsparse_lab.errors import InputError, UnsupportedError
from asyncsparse_lab.formats.arrays import Array, array_module
from asyncsparse_lab.spmm.choice import Choice, choose
from asyncsparse_lab.spmm.elementwise import combine, round_dense, widen
from asyncsparse_lab.spmm.launches import Launches, Run, Streams
from asyncsparse_lab.spmm.new_values import NewValues, new_values
from asyncsparse_lab.spmm.operands import (
    Dense,
    dense,
    is_current,
    is_recording,
    on_stream,
    rounded,
    signature,
    stream_pointer,
)
from asyncsparse_lab.spmm.plan_checks import Call, Rules, check_scalar
from asyncsparse_lab.spmm.plan_matrix import PlanMatrix
from asyncsparse_lab.spmm.plan_models import kernel_name
from asyncsparse_lab.spmm.product import Product, require_memory
from asyncsparse_lab.spmm.sparse_operands import Sparse

if TYPE_CHECKING:
    from pandas import DataFrame

    from asyncsparse_lab.spmm.contender import Contender
    from asyncsparse_lab.spmm.plan_structure import Structure

_TABLE_ROWS = 12  # of explain(), in a notebook
_CALLS = 32  # pairs of matrices that need not be checked again


class Plan:
    r"""C = alpha A B + beta C, for one A and any number of B.

    Made by :func:`asyncsparse_lab.plan`.  The kernel is chosen once for each layout of B and type
    of C, for the n of the plan, or of the first B if it has none; A is converted when a kernel
    first needs it.  Calls with matrices at the same addresses reuse the launch arguments.

    A plan belongs to one GPU and to one thread at a time.  What a stream still computes with stays
    valid when the plan is dropped; a CUDA graph that holds a product needs the plan alive.

    Attributes
    ----------
    shape : (int, int)
        m, k of A.
    nnz : int
        Stored values of A.
    n : int or None
        What it was planned for.
    compute : {"bfloat16", "float16"}
    """

    def __init__(
        self, A: Sparse, n: int | None, rules: Rules, kernel: Contender | None = None
    ) -> None:
        self.n = n
        self._rules = rules
        self._kernel = kernel
        self._A = PlanMatrix(A, rules.compute)
        self._choices: dict[tuple[str, str], Choice] = {}
        self._turned: set[str] = set()  # types of C that nothing writes column-major
        self._last: dict[tuple[str, str], Product] = {}
        self._calls: dict[Any, Call] = {}
        self._launches = Launches()
        self._streams = Streams()
        self._device: int | None = None
        # Runs before the plan's arrays go back to CuPy's pool.
        weakref.finalize(self, self._streams.settle).atexit = False
        if n is not None and self.nnz:
            self._choice(rules.layout, rules.out_dtype or rules.compute, n)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of A."""
        return self._rules.shape

    @property
    def nnz(self) -> int:
        """Stored values of A."""
        return self._A.nnz

    @property
    def compute(self) -> str:
        """Type that A and B are multiplied in."""
        return self._rules.compute

    def __matmul__(self, B: Any) -> Any:
        """Return A B as a matrix of B's library."""
        return self(B)

    def __call__(
        self,
        B: Any,
        out: Any = None,
        *,
        alpha: float = 1.0,
        beta: float = 0.0,
        stream: Any = None,
    ) -> Any:
        """Return C = alpha A B + beta out.

        Parameters
        ----------
        B : array, k x n
            Of NumPy, CuPy, torch or with ``__dlpack__``; row-major or column-major.  NumPy and
            CPU tensors are multiplied on the CPU: the reference.
        out : array, m x n, optional
            Where C goes; with ``beta`` it is read too.
        alpha, beta : float
            Other than 1 and 0, the product goes to a float32 workspace, and a second kernel
            combines and rounds once.
        stream : optional
            Of CuPy or torch, or a handle; by default the current one of B's library.

        Returns
        -------
        array, m x n
            ``out``, or a new matrix of B's library and layout.

        Raises
        ------
        InputError, MemoryLimitError, UnsupportedError, DeviceError
            Before anything is launched.
        """
        alpha, beta = check_scalar("alpha", alpha), check_scalar("beta", beta)
        if beta and out is None:
            raise InputError(f"beta={beta} scales out: pass the matrix that is added to")
        call = self._looked_at(B, out)
        given = call.B
        if given.device is None:
            if stream is not None:
                raise InputError(f"stream is {stream!r}, but B is on the CPU: leave it out")
            target = call.out or dense(given.new(call.shape, call.dtype_out, call.layout), "out")
            self._multiply_on_cpu(given, target, alpha, beta)
            return target.owner if out is None else out
        pointer = stream_pointer(stream, given.library, given.device)
        if is_current(pointer, given.device) and stream is None:
            return self._on_gpu(call, out, alpha, beta, pointer)
        with on_stream(pointer, given.device, given.library, stream):
            return self._on_gpu(call, out, alpha, beta, pointer)

    def _looked_at(self, B: Any, out: Any) -> Call:
        """Check the matrices, unless the same were checked before."""
        first, second = signature(B), None if out is None else signature(out)
        key = None if first is None or (second is None and out is not None) else (first, second)
        call = self._calls.get(key) if key else None
        if call is None:
            given, target = dense(B, "B"), None if out is None else dense(out, "out")
            layout, dtype_out = self._rules.check(given, target)
            call = Call(given, target, layout, dtype_out, (self.shape[0], given.shape[1]))
            if given.device is not None:
                self._check_device(given.device)
            if key:
                if len(self._calls) >= _CALLS:
                    self._calls.clear()
                self._calls[key] = call.without_owners()
        return call

    def _on_gpu(self, call: Call, out: Any, alpha: float, beta: float, stream: int) -> Any:
        target = call.out
        if target is None:
            out = call.B.new(call.shape, call.dtype_out, call.layout)
            target = dense(out, "out")
        self._multiply(call.B, target, call.layout, alpha, beta, stream)
        self._streams.note(stream)
        return out

    def explain(self) -> DataFrame:
        """Return every candidate with its predicted time, what bounds it and which is used.

        The parts of a time add up to it; all in microseconds, from a cold L2.  Of reordered rows
        there is what ordering takes, and after how many products it has paid.

        Raises
        ------
        InputError
            The plan has no n yet.
        """
        key, n = self._explained
        choice = self._choice(*key, n)
        return (choice if choice.candidates else choice.among(self._planned(*key, n))).table()

    def update_values(self, new: Any, *, stream: Any = None) -> None:
        """Take new values of A in the same places; nothing is planned again.

        The first time, the places of the non-zeros in the formats in use are found; after that it
        is a scatter on the GPU, before which all products of this plan that were enqueued end, and
        after which those to come begin.  A that came as blocks is not copied: new blocks take the
        place of the old ones, and what is written into them later needs no update.

        Parameters
        ----------
        new : array or sparse matrix
            The values in the order in which A stores them (as CSR), or a matrix with exactly A's
            pattern; of A's library or another.
        stream : optional
            Where the new values are written; by default the current one of their library.

        Raises
        ------
        InputError
            Another number of values, another pattern, or a type that would be rounded without
            having been asked for.
        """
        found = new_values(new, self._A.operand)
        if found.dtype != self.compute and not self._rules.rounds:
            raise InputError(
                f"the new values are {found.dtype} and the plan's {self.compute}: pass that type"
            )
        if self._device is None:
            self._take(found, lambda array: array if isinstance(array, np.ndarray) else array.get())
            return
        import cupy

        pointer = stream_pointer(stream, found.library, self._device)
        with on_stream(pointer, self._device, found.library, stream):
            self._streams.note(pointer)
            self._streams.settle()
            self._take(found, cupy.asarray)
            self._streams.note(pointer)
            self._streams.settle()

    def _take(self, new: NewValues, move: Callable[[Array], Array]) -> None:
        if new.blocks is not None:
            self._A.replace_blocks(new.blocks)
            self._launches.clear()
            return
        values = round_dense(move(new.array), new.held, self.compute)
        own = values.copy() if values.dtype == new.array.dtype else values
        used = [(self._choices[key].contender, last) for key, last in self._last.items()]
        if not self._A.update(own, used):
            self._launches.clear()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Plan holds a GPU's memory: pickle A, and make a plan of it there")

    def __repr__(self) -> str:
        m, k = self.shape
        n = "n open" if self.n is None else f"n = {self.n}"
        return f"Plan({m} x {k}, {self.nnz} stored values, {n}, {self.compute}: {self._outcome})"

    def _repr_html_(self) -> str:
        if self.n is None and not self._choices:
            return f"<p>{escape(repr(self))}</p>"
        table = self.explain().head(_TABLE_ROWS)
        return (
            f"<p>{escape(repr(self))}</p>{table.to_html(index=False, float_format='{:.3g}'.format)}"
        )

    @property
    def kernel(self) -> str | None:
        """Name of the kernel in use; None before it is chosen."""
        if self.n is None and not self._choices:
            return None if self._kernel is None else kernel_name(self._kernel)
        key, n = self._explained
        return kernel_name(self._choice(*key, n).contender)

    @property
    def _outcome(self) -> str:
        name = self.kernel
        if name is None:
            return "chosen with the first B"
        key, n = self._explained
        used = self._choice(*key, n).used
        if used is None:
            return f"{name}, as asked for"
        return f"{used.label}, predicted {used.predicted_us:.1f} us"

    @property
    def _explained(self) -> tuple[tuple[str, str], int]:
        """Layout and type of C, and n, of the choice that is shown."""
        if self.n is not None:
            return (self._rules.layout, self._rules.out_dtype or self.compute), self.n
        for key, last in self._last.items():
            return key, last.n
        raise InputError("this plan has no n yet: pass n to plan(), or multiply on a GPU")

    @cached_property
    def _structure(self) -> Structure:
        return self._A.structure()

    def _choice(self, layout: str, dtype_out: str, n: int) -> Choice:
        key = layout, dtype_out
        if key not in self._choices:
            self._choices[key] = self._new_choice(layout, dtype_out, self.n or n)
        return self._choices[key]

    def _new_choice(self, layout: str, dtype_out: str, n: int) -> Choice:
        if self._kernel is not None:
            return Choice([], [self._kernel])
        try:
            return self._planned(layout, dtype_out, n, self._device is not None)
        except UnsupportedError:
            if layout == "row-major":
                raise
        self._turned.add(dtype_out)
        return self._choice("row-major", dtype_out, n)

    def _planned(self, layout: str, dtype_out: str, n: int, here: bool = False) -> Choice:
        rules = self._rules
        return choose(self._structure, n, self.compute, dtype_out, layout, here, rules.products)

    def _check_device(self, device: int) -> None:
        if self._device is None:
            self._device = device
        if self._device != device:
            raise InputError(
                f"B is on GPU {device} and this plan on GPU {self._device}: make a plan for each"
            )

    def _multiply_on_cpu(self, B: Dense, out: Dense, alpha: float, beta: float) -> None:
        if 0 in out.shape:
            return
        wide = widen(round_dense(B.array(), B.dtype, self.compute), self.compute)
        combine(self._A.matrix @ wide, out.array(), out.dtype, alpha, beta)

    def _multiply(
        self, B: Dense, out: Dense, layout: str, alpha: float, beta: float, stream: int
    ) -> None:
        """Enqueue the product on the current stream, whose handle is given."""
        if 0 in out.shape:
            return
        if not self.nnz:
            array = out.array()
            zero = array_module(array).zeros((1, 1), dtype=np.float32)
            combine(zero, array, out.dtype, alpha, beta)
            return
        if B.dtype != self.compute:
            B = rounded(B, self.compute)
        if alpha == 1 and beta == 0:
            self._enqueue(B, out, layout, stream)
            return
        library = "numpy" if out.device is None else "cupy"
        shape = self.shape[0], B.shape[1]
        workspace = replace(out, library=library).new(shape, "float32", layout)
        self._enqueue(B, dense(workspace, "workspace"), layout, stream)
        combine(workspace, out.array(), out.dtype, alpha, beta)

    def _enqueue(self, B: Dense, out: Dense, layout: str, stream: int) -> None:
        key = (B.pointer, B.shape, B.strides, out.pointer, out.strides, out.dtype, layout)
        run = self._launches.find(key, stream)
        if run is None and B.device is not None and is_recording():
            run = self._launches.find_on_any_stream(key)
            if run is None:
                raise InputError(
                    "a CUDA graph is recorded, but this plan was not called with these matrices "
                    "before: call it once with them, then record"
                )
        run = run or self._launches.keep(key, stream, self._prepare(B, out, layout))
        run()

    def _prepare(self, B: Dense, out: Dense, layout: str) -> Run:
        choice = self._choice(layout, out.dtype, B.shape[1])
        if layout == "column-major" and out.dtype in self._turned:
            return self._prepare_turned(choice, B.array(), out)
        return self._prepare_in_place(choice, B.array(), out.array(), out.dtype, layout)

    def _prepare_turned(self, choice: Choice, B: Array, out: Dense) -> Run:
        """Multiply in row-major workspaces: no kernel takes this product column-major."""
        target, xp = out.array(), array_module(B)
        require_memory(B.nbytes + target.nbytes, "row-major copies of B and C", xp)
        rows, result = xp.empty(B.shape, B.dtype), xp.empty(target.shape, target.dtype)
        multiply = self._prepare_in_place(choice, rows, result, out.dtype, "row-major")

        def run() -> None:
            rows[...] = B
            multiply()
            target[...] = result

        return run

    def _prepare_in_place(
        self, choice: Choice, B: Array, out: Array, dtype_out: str, layout: str
    ) -> Run:
        product = self._A.product(B, dtype_out, layout, out, self._device or 0)
        prepared = choice.prepare(product)
        self._last[layout, dtype_out] = product
        if prepared.output is out:
            return prepared.run

        def run() -> None:
            prepared.run()
            out[...] = prepared.output

        return run
