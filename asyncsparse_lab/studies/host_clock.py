"""A quiet place for what the host's clock times.

What takes a few microseconds of Python is half as fast again while another program, or another
guest of the machine, shares the core; which cores those are changes from second to second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_ROUNDS: Final = 3
_COUNT: Final = 2000  # of additions: a tenth of a millisecond


@contextmanager
def on_the_quickest_core() -> Iterator[None]:
    """Keep this thread on the core that is fastest at a loop now; where there is no choice, none.

    The cores that it may use are tried in turn, each a few times.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed, key=_seconds_on)})
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _seconds_on(core: int) -> float:
    os.sched_setaffinity(0, {core})
    return min(_seconds_of_a_loop() for _ in range(_ROUNDS))


def _seconds_of_a_loop() -> float:
    start = time.perf_counter()
    total = 0
    for i in range(_COUNT):
        total += i
    return time.perf_counter() - start
