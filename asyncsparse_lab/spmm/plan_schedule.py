r"""How long a set of tasks takes on a GPU's slots: list scheduling, longest task first.

Thread blocks that take tasks from a counter, or are handed to SMs as these become free, are list
scheduling on ``S`` equal slots (Graham 1966).  Tasks shorter than :data:`GRAIN` of the average
load per slot are treated as a fluid that fills the slots from below: with loads ``L_s`` of the
longer tasks,

    makespan = max(max_s L_s, sum_i d_i / S),

which is wrong by less than one such task.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

GRAIN: Final = 0.01
"""Share of the average load below which single tasks no longer matter."""


def makespan(durations: npt.NDArray[Any], slots: int, repeats: int = 1) -> float:
    """Return when the last slot is done.

    Parameters
    ----------
    durations : float array
        Of the tasks, any unit, in any order.
    slots : int
        Tasks that run at a time.
    repeats : int
        How often each task occurs (the tiles along N of one window).
    """
    if not len(durations) or slots < 1:
        return 0.0
    average = float(durations.sum()) * repeats / slots
    long = -np.sort(-durations[durations > GRAIN * average])
    loads = _schedule(np.repeat(long, repeats), slots)
    return max(float(loads.max()), average)


def _schedule(durations: FloatArray, slots: int) -> FloatArray:
    """Return the loads of the slots after list scheduling of descending durations.

    Each round serves, emptiest first, the slots that come before the emptiest one's turn again.
    """
    loads = np.zeros(slots)
    first = min(slots, len(durations))
    loads[:first] = durations[:first]
    place = first
    while place < len(durations):
        loads.sort()
        served = int(np.searchsorted(loads, loads[0] + durations[place]))
        served = min(max(served, 1), len(durations) - place)
        loads[:served] += durations[place : place + served]
        place += served
    return loads
