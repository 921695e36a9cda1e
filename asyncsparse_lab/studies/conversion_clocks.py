"""How long a conversion takes: by the host's clock, and on the stream.

By the host's clock it is all that a caller waits for, from the call until the device is idle, with
allocations and launches; L2 holds what the call before left there.  On the stream it is what the
GPU is busy for, or waits for the host within the call, between two events, with L2 flushed: the
clock by which products are timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from asyncsparse_lab.studies.host_clock import on_the_quickest_core

LONG_US: Final = 2e4
"""A conversion that takes longer is not repeated."""
DELAY_NS: Final = 100_000
"""Of the kernel before a conversion on the stream: the host gets to the first launch meanwhile."""


def timed(
    convert: Callable[[], Any], repeats: int, clock: str, moments: int = 1
) -> tuple[Any, list[float]]:
    """Return the last result and the times in microseconds.

    Other guests of the host disturb it for milliseconds on end, so the repeats are taken at several
    moments, at each on the core that is quickest then; the first call of each does not count.  One
    that takes longer than :data:`LONG_US` is not repeated, and counts.
    """
    sample = _on_the_stream if clock == "events" else _by_the_host
    made: Any = None
    samples: list[float] = []

    def run() -> None:
        nonlocal made
        made = convert()

    for _ in range(moments):
        with on_the_quickest_core():
            for attempt in range(repeats + 1):
                made = None  # its memory is free for the next
                elapsed_us = sample(run)
                if elapsed_us > LONG_US:
                    return made, [*samples, elapsed_us]
                if attempt:
                    samples.append(elapsed_us)
    return made, samples


def _by_the_host(run: Callable[[], None]) -> float:
    import cupy

    cupy.cuda.Device().synchronize()
    start = time.perf_counter()
    run()
    cupy.cuda.Device().synchronize()
    return 1e6 * (time.perf_counter() - start)


def _on_the_stream(run: Callable[[], None]) -> float:
    from asyncsparse_lab.gpu.timing import device_timer

    return device_timer().sample_waiting(run, DELAY_NS)
