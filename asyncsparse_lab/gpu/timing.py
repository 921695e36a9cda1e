r"""Times of work on the GPU, under one protocol for all contenders.

A *cold* sample is ``flush L2, delay, event, run, event``; a *warm* one is ``delay, run, event,
run, event``, so that it finds in L2 what its own previous run left there.  The delay is a kernel
of one thread that keeps the stream busy until the host has enqueued the rest: no launch latency
is in the time.  Its length follows the host: where the host took longer than the delay, the
sample is thrown away and taken again behind a longer one.

Compared contenders are interleaved, A B A B, so that a drift of the clock touches all alike.  A
time that physics does not allow is an error, see :func:`check_floor`.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, Protocol

import numpy as np

from asyncsparse_lab.errors import DeviceError, InputError

L2State = Literal["cold", "warm"]

MIN_SAMPLES: Final = 10
MAX_SAMPLES: Final = 32
CAP_SECONDS: Final = 15.0  # a contender, whatever was asked for
WARM_UP_SECONDS: Final = 0.02
WARM_UP_ROUNDS: Final = 2
FLUSH_BYTES: Final = 256 << 20  # several times the 50 to 60 MB of L2 on Hopper

_FIRST_DELAY_NS: Final = 50_000
_LONGEST_DELAY_NS: Final = 50_000_000
_ATTEMPTS: Final = 12  # doubles the delay to the longest; who still needs more is waiting
_CLOCK_NS: Final = 100_000


class DelayArguments(ctypes.Structure):
    """Argument of ``kernels/delay.cu``."""

    _fields_ = (("nanoseconds", ctypes.c_uint64), ("elapsed", ctypes.c_void_p))


@dataclass(frozen=True, slots=True)
class Timing:
    """Samples of one contender, in microseconds, and the SM clock around them."""

    median_us: float
    q1_us: float
    q3_us: float
    samples_us: tuple[float, ...]
    clock_before_mhz: float
    clock_after_mhz: float

    @classmethod
    def from_samples(cls, samples_us: Sequence[float], before: float, after: float) -> Timing:
        """Round the samples to 10 ns and take the quartiles of what was rounded."""
        rounded = tuple(round(float(sample), 2) for sample in samples_us)
        q1, median, q3 = (round(float(q), 3) for q in np.quantile(rounded, (0.25, 0.5, 0.75)))
        return cls(median, q1, q3, rounded, round(before, 1), round(after, 1))

    def record_fields(self) -> dict[str, Any]:
        """Return what a record holds of the samples, by its keys."""
        return {
            "median_us": self.median_us,
            "q1_us": self.q1_us,
            "q3_us": self.q3_us,
            "sample_count": len(self.samples_us),
            "samples_us": self.samples_us,
        }


class Timer(Protocol):
    """What takes one sample; the tests have one without a GPU."""

    def sample(self, run: Callable[[], None], l2: L2State, delay_ns: int) -> tuple[float, int]:
        """Return the time in microseconds, and the delay for the next sample of this run."""

    def clock_mhz(self) -> float:
        """Return the SM clock at this moment."""


def time_interleaved(
    runs: Sequence[Callable[[], None]],
    l2: L2State = "cold",
    seconds: float = 0.05,
    *,
    timer: Timer | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Timing]:
    """Time several contenders, interleaved sample by sample.

    Parameters
    ----------
    runs : sequence of callable
        Each enqueues its work on the current CuPy stream and does not wait for it.
    l2 : {"cold", "warm"}
        Whether L2 is flushed before each sample, or holds what the same run left.
    seconds : float
        Wall time to spend on each contender; it takes 10 to 32 samples, fewer where 10 would
        take more than 15 s.
    timer, clock : optional
        Replaced in tests.

    Returns
    -------
    list of Timing
        In the order of ``runs``.

    Raises
    ------
    InputError
        ``l2`` or ``seconds`` is not one of the allowed values.
    DeviceError
        A run waits for the GPU on the host, so that events cannot time it.
    """
    if l2 not in ("cold", "warm"):
        raise InputError(f"l2={l2!r} is not one of cold, warm")
    if not seconds > 0:
        raise InputError(f"seconds={seconds}: give each contender some time")
    if not runs:
        return []
    timer = device_timer() if timer is None else timer
    delays = [_FIRST_DELAY_NS] * len(runs)
    costs = [math.inf] * len(runs)

    rounds, begin = 0, clock()
    while rounds < WARM_UP_ROUNDS or clock() - begin < WARM_UP_SECONDS:
        for index, run in enumerate(runs):
            started = clock()
            _, delays[index] = timer.sample(run, l2, delays[index])
            costs[index] = min(costs[index], clock() - started)
        rounds += 1

    counts = [sample_count(cost, seconds) for cost in costs]
    samples: list[list[float]] = [[] for _ in runs]
    before = timer.clock_mhz()
    for number in range(max(counts)):
        for index, run in enumerate(runs):
            if number < counts[index]:
                elapsed, delays[index] = timer.sample(run, l2, delays[index])
                samples[index].append(elapsed)
    after = timer.clock_mhz()
    return [Timing.from_samples(taken, before, after) for taken in samples]


def sample_count(cost_seconds: float, seconds: float) -> int:
    """Return how many samples of the given wall time each are taken."""
    cost = max(cost_seconds, 1e-6)
    wanted = min(max(int(seconds / cost), MIN_SAMPLES), MAX_SAMPLES)
    return max(1, min(wanted, int(CAP_SECONDS / cost)))


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What this GPU was measured to do at best; from the records of study ``ceilings``."""

    hbm_bytes_per_s: float
    mma_flops_per_s: float


def check_floor(
    elapsed_us: float,
    l2: L2State,
    ceilings: Ceilings,
    *,
    compulsory_bytes: float,
    flops: float,
    slack: float = 0.1,
) -> None:
    """Refuse a time that the hardware does not allow.

    No run can be faster than its useful operations at the measured MMA rate, and no cold run
    faster than the bytes that it must read at the measured rate of HBM.

    Parameters
    ----------
    elapsed_us : float
        The median.
    compulsory_bytes, flops : float
        What every kernel has to read and to compute, at least.
    slack : float
        Part by which a time may be below a floor: the ceilings were measured too.

    Raises
    ------
    DeviceError
        The time is below a floor: the flush did not work, or the work was not done.
    """
    floors = {"MMA": 1e6 * flops / ceilings.mma_flops_per_s}
    if l2 == "cold":
        floors["HBM"] = 1e6 * compulsory_bytes / ceilings.hbm_bytes_per_s
    for name, floor_us in floors.items():
        if elapsed_us < (1.0 - slack) * floor_us:
            raise DeviceError(
                f"{elapsed_us:.2f} us ({l2}) is below the {name} floor of {floor_us:.2f} us: "
                f"check the flush and the result"
            )


def empty_kernel_us(seconds: float = 0.05) -> float:
    """Return what a kernel that does nothing takes in this way of timing, in microseconds."""
    from asyncsparse_lab.gpu.compile import compile_kernel
    from asyncsparse_lab.gpu.device import require_gpu
    from asyncsparse_lab.gpu.launch import load

    arch = require_gpu((8, 0)).arch
    kernel = load(compile_kernel("probe_empty.cu", "probe_empty", {}, arch=arch))
    run = kernel.prepare(1, 32, 0, _EmptyArguments())
    return time_interleaved([run], "warm", seconds)[0].median_us


class _EmptyArguments(ctypes.Structure):
    _fields_ = (("unused", ctypes.c_void_p),)


@cache
def device_timer() -> DeviceTimer:
    """Return the timer of the current GPU; its kernel and its buffer are made once."""
    return DeviceTimer()


class DeviceTimer:
    """Takes samples with CUDA events on the current CuPy stream.

    Raises
    ------
    DeviceError
        There is no GPU.
    """

    def __init__(self) -> None:
        import cupy

        from asyncsparse_lab.gpu.compile import compile_kernel
        from asyncsparse_lab.gpu.device import require_gpu
        from asyncsparse_lab.gpu.launch import load

        arch = require_gpu((8, 0)).arch
        self._cupy: Any = cupy
        self._arguments = DelayArguments()  # read anew at each launch
        kernel = load(compile_kernel("delay.cu", "delay", {}, arch=arch))
        self._delay = kernel.prepare(1, 1, 0, self._arguments)
        self._flush = cupy.empty(FLUSH_BYTES, dtype=cupy.uint8)
        self._elapsed = cupy.zeros(2, dtype=cupy.uint64)
        self._start, self._end = cupy.cuda.Event(), cupy.cuda.Event()

    def sample(self, run: Callable[[], None], l2: L2State, delay_ns: int) -> tuple[float, int]:
        """Return the time of one run in microseconds, and the delay for its next sample."""
        for _ in range(_ATTEMPTS):
            elapsed_us, host_ns = self._take(run, l2, delay_ns)
            # The delay began after `host_ns` did, so one that is longer hid all of it.
            if host_ns < delay_ns:
                return elapsed_us, max(_FIRST_DELAY_NS, min(delay_ns, 3 * host_ns))
            delay_ns = min(2 * host_ns, _LONGEST_DELAY_NS)
        raise DeviceError(
            f"a run kept the host for {host_ns / 1e6:.1f} ms: it waits for the GPU, "
            f"so events cannot time it"
        )

    def sample_waiting(self, run: Callable[[], None], delay_ns: int) -> float:
        """Return the cold time of a run that may wait for the GPU on the host, in microseconds.

        The delay hides what the host does before the run's first launch, if it is long enough for
        that; nobody can check whether it was, since the host waits within the run.  What the GPU
        waits for the host after that launch is in the time: between a run's launches, and from
        the end of its last kernel to the end of the call.
        """
        return self._take(run, "cold", delay_ns)[0]

    def _take(self, run: Callable[[], None], l2: L2State, delay_ns: int) -> tuple[float, int]:
        """Return a run's microseconds, and the host's nanoseconds from before the delay."""
        stream = self._cupy.cuda.get_current_stream()
        if l2 == "cold":
            self._flush.data.memset_async(0, FLUSH_BYTES, stream)
        self._arguments.nanoseconds = delay_ns
        begin = time.perf_counter_ns()
        self._delay()
        if l2 == "warm":
            run()
        self._start.record(stream)
        run()
        self._end.record(stream)
        host_ns = time.perf_counter_ns() - begin
        self._end.synchronize()
        elapsed_ms = self._cupy.cuda.get_elapsed_time(self._start, self._end)
        return 1e3 * elapsed_ms, host_ns

    def clock_mhz(self) -> float:
        """Return the SM clock: cycles by nanoseconds of a kernel of 0.1 ms."""
        self._arguments.nanoseconds = _CLOCK_NS
        self._arguments.elapsed = self._elapsed.data.ptr
        self._delay()
        self._arguments.elapsed = None
        cycles, nanoseconds = self._elapsed.get().tolist()
        return 1e3 * float(cycles) / float(nanoseconds)
