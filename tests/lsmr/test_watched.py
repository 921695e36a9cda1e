"""What compute-sanitizer watches of LSMR, and how a fault shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncsparse_lab.errors import DeviceError
from asyncsparse_lab.lsmr import lsmr, watched
from asyncsparse_lab.lsmr.geometry import check_geometry
from asyncsparse_lab.lsmr.plan import build_plan
from asyncsparse_lab.matrices import load_matrix

H200_SHARED = 227 * 1024


def test_every_way_of_the_kernel_is_solved() -> None:
    A = load_matrix(watched._MATRIX)
    solves = watched.persistent_solves()
    for solve in solves:
        check_geometry(solve.geometry)
        plan = build_plan(A, np.dtype(f"f{solve.itemsize}"), None)
        assert solve.geometry.bounds(plan)[0].size > solve.geometry.blocks
        assert solve.geometry.shared_bytes(plan, solve.rhs) <= H200_SHARED
    assert {solve.rhs for solve in solves} == {1, 2, 4}
    assert {solve.itemsize for solve in solves} == {4, 8}
    ways = {
        (one.geometry.staged, one.geometry.cluster, one.geometry.streamed, one.geometry.units > 1)
        for one in solves
    }
    assert ways == {
        (True, False, False, False),
        (False, False, False, False),
        (True, True, False, False),
        (False, False, True, False),
        (False, False, True, True),
    }


def host(options: Any, A: Any, b: Any) -> Any:
    return lsmr(A, b, backend="host", **watched._unending()).x


@pytest.mark.parametrize("name", watched.WATCHED)
def test_what_is_solved_is_held_to_the_host(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "_persistent", host)
    monkeypatch.setattr(watched, "_document", host)
    right = list(watched.faults(name))
    assert len(right) == (10 if name == watched.PERSISTENT else 4)
    assert [fault for _, fault in right] == [""] * len(right)
    assert len({label for label, _ in right}) == len(right)


@pytest.mark.parametrize("wrong", [1.01, np.nan])
def test_a_wrong_solution_is_a_fault(wrong: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "_document", lambda *given: wrong * host(*given))
    assert all("x differs" in fault for _, fault in watched.faults(watched.DOCUMENT))


def test_a_kernel_that_fails_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any) -> Any:
        raise DeviceError("a barrier timed out")

    monkeypatch.setattr(watched, "_document", fails)
    assert {fault for _, fault in watched.faults(watched.DOCUMENT)} == {"a barrier timed out"}
