"""Measure contenders on one product: prove each right, time them together, prove them again.

Every contender leaves one record for each L2 state, a failure too.  A time is recorded only if C
was right before and after the timed loop, each time written over NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from asyncsparse_lab.errors import DeviceError, MemoryLimitError, UnsupportedError
from asyncsparse_lab.gpu.timing import (
    Ceilings,
    L2State,
    Timer,
    Timing,
    check_floor,
    device_timer,
    time_interleaved,
)
from asyncsparse_lab.records.record import Record
from asyncsparse_lab.spmm.contender import Contender, Prepared
from asyncsparse_lab.spmm.oracle import Reference, reference, sample_rows
from asyncsparse_lab.spmm.product import Product, poison

L2_STATES: Final[tuple[L2State, ...]] = ("cold", "warm")

_PROBE_DELAY_NS: Final = 200_000


@dataclass(slots=True)
class _Entry:
    """A contender on its way: prepared, or failed with a status and a reason."""

    contender: Contender
    prepared: Prepared | None = None
    status: str = "passed"
    reason: str | None = None
    rel_err: float | None = None

    def fail(self, status: str, reason: str) -> None:
        self.status, self.reason = status, reason


def measure_product(
    contenders: Sequence[Contender],
    product: Product,
    *,
    study: str,
    case: str,
    matrix: str | None,
    truth: Reference | None = None,
    l2_states: Sequence[L2State] = L2_STATES,
    seconds: float = 0.05,
    ceilings: Ceilings | None = None,
    timer: Timer | None = None,
) -> list[Record]:
    """Measure all contenders of one case.

    Parameters
    ----------
    contenders : sequence of Contender
        Ours and the libraries'; timed interleaved, in this order.
    product : Product
        With a fresh seed.
    study, case, matrix : str
        For the records; the matrix by its file stem or generator call.
    truth : Reference, optional
        FP64 product, shared between the output types of one case; computed if not given.
    l2_states : sequence of {"cold", "warm"}
        Each is one record a contender.
    seconds : float
        Wall time for each contender and L2 state.
    ceilings : Ceilings, optional
        Measured rates; a time below what they allow becomes a record with status "error".
    timer : optional
        Replaced in tests.

    Returns
    -------
    list of Record
        By contender, then L2 state; ``run`` is left to the runner.

    Raises
    ------
    DeviceError
        A contender left the GPU unusable: nothing after it can be measured by this process.
    """
    if truth is None:
        truth = reference(product.A, product.B, sample_rows(product.A, product.n))
    bound = truth.err_bound(product.dtype_out)
    timer = device_timer() if timer is None else timer
    entries = [_Entry(contender) for contender in contenders]
    for entry in entries:
        _guarded(entry, product.xp, partial(_prepare, entry, product, timer))
        _check(entry, product.xp, truth, bound, "before")

    ready = [entry for entry in entries if entry.prepared and entry.status == "passed"]
    runs = [entry.prepared.run for entry in ready if entry.prepared]
    times: dict[L2State, dict[int, Timing]] = {}
    for l2 in l2_states:
        timings = time_interleaved(runs, l2, seconds, timer=timer)
        times[l2] = {id(entry): timing for entry, timing in zip(ready, timings, strict=True)}
    for entry in ready:
        _check(entry, product.xp, truth, bound, "after")

    return [
        _record(entry, product, study, case, matrix, l2, times[l2].get(id(entry)), bound, ceilings)
        for entry in entries
        for l2 in l2_states
    ]


def _prepare(entry: _Entry, product: Product, timer: Timer) -> None:
    """Prepare a contender and take one sample, so that who cannot be timed fails alone."""
    entry.prepared = entry.contender.prepare(product)
    entry.prepared.run()  # modules are loaded and caches filled by the first run
    timer.sample(entry.prepared.run, "warm", _PROBE_DELAY_NS)


def _check(entry: _Entry, xp: Any, truth: Reference, bound: float, when: str) -> None:
    """Run over NaN and compare every element with the truth."""
    if entry.prepared is None or entry.status != "passed":
        return
    prepared = entry.prepared

    def compare() -> None:
        poison(prepared.output)
        prepared.run()
        error = truth.relative_error(prepared.output)
        entry.rel_err = max(error, entry.rel_err or 0.0)
        if not error <= bound:
            entry.fail("wrong", f"rel_err {error:.3g} exceeds {bound:.3g} {when} the timed loop")

    _guarded(entry, xp, compare)


def _guarded(entry: _Entry, xp: Any, action: Callable[[], None]) -> None:
    """Turn what a contender may raise into its status; a programming error passes through."""
    try:
        action()
        return
    except UnsupportedError as error:
        entry.fail("unsupported", str(error))
    except (MemoryLimitError, MemoryError) as error:
        entry.fail("oom", _one_line(error))
    except (RuntimeError, ValueError, OSError) as error:
        entry.fail("error", _one_line(error))
    entry.prepared = None
    if hasattr(xp, "cuda"):
        try:
            xp.cuda.get_current_stream().synchronize()
        except RuntimeError as error:
            raise DeviceError(
                f"{entry.contender.backend} {entry.contender.variant} left the GPU unusable "
                f"({entry.reason}): run the remaining cases in a new process"
            ) from error
        xp.get_default_memory_pool().free_all_blocks()


def _one_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else 'no message'}"


def record_identity(
    contender: Contender, product: Product, study: str, case: str, matrix: str | None
) -> dict[str, Any]:
    """Return what a record says of who computed which product, by its keys."""
    return {
        "study": study,
        "case": case,
        "op": "spmm",
        "role": contender.role,
        "backend": contender.backend,
        "variant": contender.variant,
        "matrix": matrix,
        "m": product.m,
        "k": product.k,
        "n": product.n,
        "nnz": int(product.A.nnz),
        "dtype_in": product.dtype_in,
        "dtype_out": product.dtype_out,
        "layout": product.layout,
    }


def _record(
    entry: _Entry,
    product: Product,
    study: str,
    case: str,
    matrix: str | None,
    l2: L2State,
    timing: Timing | None,
    bound: float,
    ceilings: Ceilings | None,
) -> Record:
    contender, prepared = entry.contender, entry.prepared
    status, reason = entry.status, entry.reason
    if status == "passed" and timing and ceilings:
        try:
            check_floor(
                timing.median_us,
                l2,
                ceilings,
                compulsory_bytes=product.compulsory_bytes,
                flops=product.useful_flops,
            )
        except DeviceError as error:
            status, reason = "error", str(error)
    values: dict[str, Any] = {
        "params": contender.params | (prepared.params if prepared else {}),
        "rel_err": entry.rel_err,
        "err_bound": None if entry.rel_err is None else bound,
    }
    if prepared:
        values |= {
            "preprocess_us": round(prepared.preprocess_us, 2),
            "kernel_hash": prepared.kernel_hash,
            "host_hash": prepared.host_hash,
            "compiler": prepared.compiler,
        }
    if status == "passed" and timing:
        values |= timing.record_fields() | {
            "result": {
                "useful_tflops": product.useful_flops / timing.median_us / 1e6,
                "clock_before_mhz": timing.clock_before_mhz,
                "clock_after_mhz": timing.clock_after_mhz,
            },
        }
    return Record(
        **record_identity(contender, product, study, case, matrix),
        l2=l2,
        clock="events",
        status=status,
        reason=reason,
        **values,
    )
