"""The core on which the host's clock runs."""

from __future__ import annotations

import os

import pytest

from asyncsparse_lab.studies import host_clock
from asyncsparse_lab.studies.host_clock import on_the_quickest_core

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux alone")


def test_one_core_inside_and_all_again_after(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = os.sched_getaffinity(0)
    quickest = max(cores)
    monkeypatch.setattr(
        host_clock,
        "_seconds_of_a_loop",
        lambda: 1.0 + (os.sched_getaffinity(0) != {quickest}),
    )
    with on_the_quickest_core():
        assert os.sched_getaffinity(0) == {quickest}
    assert os.sched_getaffinity(0) == cores


def test_cores_are_given_back_after_an_error() -> None:
    cores = os.sched_getaffinity(0)
    with pytest.raises(ZeroDivisionError), on_the_quickest_core():
        raise ZeroDivisionError
    assert os.sched_getaffinity(0) == cores
