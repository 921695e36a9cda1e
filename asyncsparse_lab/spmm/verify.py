"""Every kernel against the FP64 reference, on the edge cases; and ten thousand launches alike.

Each product runs twice on a C full of NaN: every element is held to the reference, and the
second result to the first, bit for bit.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from typing import Any, Final

from scipy.sparse import csr_array

from asyncsparse_lab.errors import (
    AsyncSparseError,
    CompileError,
    DeviceError,
    InputError,
    MemoryLimitError,
    UnsupportedError,
)
from asyncsparse_lab.formats.arrays import array_module
from asyncsparse_lab.spmm.contender import Contender, Prepared
from asyncsparse_lab.spmm.conversions import Conversions, Makers
from asyncsparse_lab.spmm.edge_cases import EdgeCase, make_b, random_blocks
from asyncsparse_lab.spmm.oracle import Reference, as_float64, reference, sample_rows
from asyncsparse_lab.spmm.product import BFLOAT16_NAN, Product, poison
from asyncsparse_lab.spmm.variants import Variant

LAUNCH_LIMIT_SECONDS: Final = 300.0
_SYNC_EVERY: Final = 256  # launches: keeps the driver's queue from filling up


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """How one build did on one case.

    Attributes
    ----------
    case : str
        Name of the edge case.
    rel_err, err_bound : float
        The largest relative error, and what it is held to.
    elements : int
        Elements of C that were compared with the reference.
    fault : str or None
        What was wrong, in one line; None if nothing was.
    params : dict
        What the kernel chose on this case.
    kernel_hash, host_hash, compiler : str or None
        Of the build.
    """

    case: str
    rel_err: float
    err_bound: float
    elements: int
    fault: str | None
    params: dict[str, Any]
    kernel_hash: str | None
    host_hash: str | None
    compiler: str | None

    @property
    def share(self) -> float:
        """The error as a share of its bound; 0 for an exact result."""
        if self.rel_err == 0:
            return 0.0
        return self.rel_err / self.err_bound if self.err_bound else float("inf")


@dataclass(frozen=True, slots=True)
class LaunchOutcome:
    """How many of many launches gave another C than the first.

    Attributes
    ----------
    launches : int
    different_words : int
        32-bit words of C that differed, over all launches.
    first_different : int or None
        The first launch that differed.
    seconds : float
        Wall time of the launches.
    kernel_hash, compiler : str or None
        Of the build, with the delays in it.
    """

    launches: int
    different_words: int
    first_different: int | None
    seconds: float
    kernel_hash: str | None
    compiler: str | None


def verify_build(
    variant: Variant,
    dtype_out: str,
    cases: Iterable[EdgeCase],
    dtype_in: str = "bfloat16",
    layout: str = "row-major",
    makers: Makers | None = None,
) -> list[CaseOutcome]:
    """Run one build of a variant on every case; needs a GPU.

    Parameters
    ----------
    makers : mapping, optional
        What converts A, by the name of the format, in place of the kernel's family.

    Raises
    ------
    DeviceError
        The GPU reported an error: nothing after it can be trusted.
    """
    import cupy

    from asyncsparse_lab.spmm.run import Ours

    contender = Ours(variant)
    return [
        verify_case(contender, dtype_out, case, cupy, dtype_in, layout, makers) for case in cases
    ]


def verify_case(
    contender: Contender,
    dtype_out: str,
    case: EdgeCase,
    xp: Any,
    dtype_in: str = "bfloat16",
    layout: str = "row-major",
    makers: Makers | None = None,
) -> CaseOutcome:
    """Run a contender on one case, and compare every element of the rows that the truth covers.

    Parameters
    ----------
    xp : module
        NumPy or CuPy: where the product lives.
    dtype_in, layout : str
        As of a :class:`~asyncsparse_lab.spmm.product.Product`.
    makers : mapping, optional
        As of :class:`~asyncsparse_lab.spmm.conversions.Conversions`.

    Raises
    ------
    DeviceError
        The run itself failed.
    """
    A, B, truth = _inputs(case, xp, dtype_in, layout)
    product = Product(A, case.n, dtype_in, dtype_out, layout, B, conversions=Conversions(makers))
    bound = truth.err_bound(dtype_out)
    try:
        prepared = contender.prepare(product)
        first = _run_poisoned(prepared)
        deviation = truth.worst(first)
        unwritten = _not_finite(first)
        second = _run_poisoned(prepared)
        repeats = bool((_bits(second) == _bits(first)).all())
        if not prepared.params.get("deterministic", True):  # sums in any order, each to be right
            repeats = True
            deviation = max(deviation, truth.worst(second), key=lambda found: found.rel_err)
    except (CompileError, InputError, MemoryLimitError, UnsupportedError) as error:
        refusal = f"{type(error).__name__}: {error}"
        return CaseOutcome(case.name, float("inf"), bound, 0, refusal, {}, None, None, None)
    except RuntimeError as error:  # CuPy's errors of the runtime and the driver, and ours
        name = f"{contender.variant} {dtype_in} to {dtype_out}, {layout}, on {case.name}"
        raise DeviceError(f"{name}: {type(error).__name__}: {error}") from error
    fault = None
    if deviation.rel_err > bound:
        fault = (
            f"C[{deviation.row}, {deviation.column}] is {deviation.value:.9g}, not "
            f"{deviation.expected:.9g} (rel_err {deviation.rel_err:.3g} > {bound:.3g})"
        )
    elif unwritten:
        fault = f"{unwritten} elements outside the sampled rows are not finite"
    elif not repeats:
        fault = "the second run gave other bits than the first"
    return CaseOutcome(
        case=case.name,
        rel_err=deviation.rel_err,
        err_bound=bound,
        elements=int(truth.values.size),
        fault=fault,
        params=dict(prepared.params),
        kernel_hash=prepared.kernel_hash,
        host_hash=prepared.host_hash,
        compiler=prepared.compiler,
    )


@cache
def _inputs(
    case: EdgeCase, xp: Any, dtype_in: str, layout: str
) -> tuple[csr_array, Any, Reference]:
    A = case.make()
    B = make_b(xp, A, case, dtype_in=dtype_in, layout=layout)
    return A, B, reference(A, B, sample_rows(A, case.n))


def _run_poisoned(prepared: Prepared) -> Any:
    poison(prepared.output)
    prepared.run()
    return prepared.output.copy()


def _bits(C: Any) -> Any:
    return C.view("uint16" if C.dtype.itemsize == 2 else "uint32")


def _not_finite(C: Any) -> int:
    """Count what is NaN or Inf in C, a slab of rows at a time."""
    xp = array_module(C)
    step = max(1, (1 << 26) // C.shape[1])
    return sum(
        int((~xp.isfinite(as_float64(C[start : start + step]))).sum())
        for start in range(0, C.shape[0], step)
    )


class CompareArguments(ctypes.Structure):
    """Argument of ``kernels/compare_launch.cu``."""

    _fields_ = (
        ("first", ctypes.c_uint64),
        ("current", ctypes.c_uint64),
        ("words", ctypes.c_int64),
        ("found", ctypes.c_uint64),
        ("launch", ctypes.c_uint64),
        ("poison", ctypes.c_uint32),
    )


def compare_launches(variant: Variant, launches: int) -> LaunchOutcome:
    """Launch a kernel many times with delays in it; compare every C with the first on the GPU.

    The product has 40 block rows and 1000 columns, so most kernels fill the GPU and end in
    partial tiles.  This does not return if the kernel hangs: see :func:`launch_in_child`.
    """
    from asyncsparse_lab.gpu.compile import compile_kernel
    from asyncsparse_lab.gpu.device import require_gpu
    from asyncsparse_lab.gpu.launch import load
    from asyncsparse_lab.spmm.run import Ours

    arch = require_gpu().arch
    import cupy

    compare = load(compile_kernel("compare_launch.cu", "compare_launch", {}, arch=arch))
    case = EdgeCase("launches", lambda: random_blocks(2500, 1300, 0.3), 1000)
    A = case.make()
    product = Product(A, case.n, "bfloat16", "bfloat16", "row-major", make_b(cupy, A, case))
    prepared = Ours(variant.with_constants(DEBUG_DELAYS=1)).prepare(product)
    first = _run_poisoned(prepared)
    poison(prepared.output)
    assert prepared.output.flags.c_contiguous, "C is compared as plain memory"
    found = cupy.array([0, 2**64 - 1], dtype=cupy.uint64)
    arguments = CompareArguments(
        first=first.data.ptr,
        current=prepared.output.data.ptr,
        words=first.nbytes // 4,
        found=found.data.ptr,
        launch=0,
        poison=BFLOAT16_NAN * 0x10001,
    )
    check = compare.prepare(264, 512, 0, arguments)
    cupy.cuda.Device().synchronize()
    start = time.perf_counter()
    for launch in range(1, launches):
        prepared.run()
        arguments.launch = launch
        check()
        if launch % _SYNC_EVERY == 0:
            cupy.cuda.Device().synchronize()
    different, first_different = (int(value) for value in found.get())
    return LaunchOutcome(
        launches=launches,
        different_words=different,
        first_different=first_different if different else None,
        seconds=time.perf_counter() - start,
        kernel_hash=prepared.kernel_hash,
        compiler=prepared.compiler,
    )


def launch_in_child(
    variant: Variant, launches: int, limit_seconds: float = LAUNCH_LIMIT_SECONDS
) -> LaunchOutcome:
    """Run :func:`compare_launches` in a process of its own, which is killed when it hangs.

    Raises
    ------
    DeviceError
        The child did not answer in time, or died, or failed.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(sender, variant, launches), daemon=True)
    child.start()
    sender.close()
    try:
        if not receiver.poll(limit_seconds):
            raise DeviceError(
                f"{variant.name}: no answer after {limit_seconds:.0f} s of {launches} launches: "
                "the kernel hangs"
            )
        answer = receiver.recv()
    except EOFError:
        child.join()
        raise DeviceError(
            f"{variant.name}: the process of the launches died (exit code {child.exitcode})"
        ) from None
    finally:
        child.kill()
        child.join()
        receiver.close()
    if isinstance(answer, str):
        raise DeviceError(f"{variant.name}: {answer}")
    assert isinstance(answer, LaunchOutcome)
    return answer


def _child(sender: Connection, variant: Variant, launches: int) -> None:
    try:
        sender.send(compare_launches(variant, launches))
    except (AsyncSparseError, RuntimeError) as error:
        sender.send(f"{type(error).__name__}: {error}")
