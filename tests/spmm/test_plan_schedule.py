from __future__ import annotations

import heapq

import numpy as np
import pytest

from asyncsparse_lab.spmm.plan_schedule import GRAIN, makespan


def longest_first(durations, slots):
    """List scheduling, task by task."""
    loads = [0.0] * slots
    for duration in sorted(durations, reverse=True):
        heapq.heappush(loads, heapq.heappop(loads) + duration)
    return max(loads)


RNG = np.random.default_rng(0)
CASES = {
    "one wave and a tenth": np.ones(145),
    "three waves, less one": np.ones(395),
    "fewer than slots": RNG.uniform(1, 2, 20),
    "a heavy tail": RNG.pareto(1.5, 5000) + 0.1,
    "one dense row": np.r_[100.0, np.ones(20_000)],
    "many small ones": RNG.uniform(0, 1, 40_000),
    "long and short": np.r_[RNG.uniform(10, 20, 300), RNG.uniform(0, 1, 40_000)],
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_list_scheduling_to_within_a_short_task(name):
    durations, slots = CASES[name], 132
    exact = longest_first(durations, slots)
    short = GRAIN * durations.sum() / slots
    assert makespan(durations, slots) == pytest.approx(exact, rel=0.02, abs=short)


def test_repeats_are_tasks_of_their_own():
    durations = RNG.uniform(1, 5, 100)
    assert makespan(durations, 16, repeats=3) == makespan(np.tile(durations, 3), 16)


def test_it_is_never_less_than_its_bounds():
    for durations in CASES.values():
        found = makespan(durations, 132)
        assert found >= durations.max()
        assert found >= durations.sum() / 132


def test_nothing_takes_no_time():
    assert makespan(np.zeros(0), 132) == 0
    assert makespan(np.zeros(5), 132) == 0
