"""What compute-sanitizer watches of LSMR, and how a fault shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from asyncsparse_lab.errors import DeviceError
from asyncsparse_lab.lsmr import lsmr, watched
from asyncsparse_lab.lsmr.builds import kernel_builds
from asyncsparse_lab.lsmr.geometry import check_geometry
from asyncsparse_lab.lsmr.plan import build_plan

H200_SHARED = 227 * 1024


def test_no_other_build_is_for_racecheck() -> None:
    assert all("WATCHED" not in build.constants for build in kernel_builds()["persistent"])


def test_every_way_of_the_kernel_is_solved() -> None:
    A = watched.watched_matrix()
    solves = watched.persistent_solves()
    for solve in solves:
        check_geometry(solve.geometry)
        plan = build_plan(A, np.dtype(f"f{solve.itemsize}"), None)
        assert solve.geometry.bounds(plan)[0].size > solve.geometry.blocks
        assert solve.geometry.shared_bytes(plan, solve.rhs) <= H200_SHARED
        assert plan.forward.pieces, "a long row"
        assert plan.adjoint.pieces, "a long column"
    assert len({solve.label for solve in solves}) == len(solves)
    assert all(solve.build().constants["WATCHED"] == 1 for solve in solves)
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


def host(options: Any, A: Any, b: Any, **given: Any) -> Any:
    b = b.toarray().ravel() if sparse.issparse(b) else b
    return lsmr(A, b, backend="host", **given, **watched._unending()).x


def persistent(geometry: Any, given: Any, scaled: Any, A: Any, b: Any) -> Any:
    return host(geometry, A, b, **given, **scaled)


@pytest.mark.parametrize(("name", "count"), [(watched.PERSISTENT, 11), (watched.DOCUMENT, 6)])
def test_what_is_solved_is_held_to_the_host(
    name: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "_persistent", persistent)
    monkeypatch.setattr(watched, "_document", host)
    right = list(watched.faults(name))
    assert len(right) == count
    assert [fault for _, fault in right] == [""] * len(right)
    assert len({label for label, _ in right}) == len(right)


def test_a_solve_that_goes_wrong_the_second_time_is_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    solved: list[int] = []

    def drifts(*given: Any) -> Any:
        solved.append(1)
        return host(*given) * (1.01 if len(solved) % 2 == 0 else 1.0)

    monkeypatch.setattr(watched, "_document", drifts)
    assert all("solved again" in fault for _, fault in watched.faults(watched.DOCUMENT))


def test_right_hand_sides_are_independent(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_of_all(geometry: Any, given: Any, scaled: Any, A: Any, b: Any) -> Any:
        x = persistent(geometry, given, scaled, A, b)
        return x if x.ndim == 1 else np.repeat(x[:, :1], x.shape[1], axis=1)

    monkeypatch.setattr(watched, "_persistent", first_of_all)
    wrong = [label for label, fault in watched.faults(watched.PERSISTENT) if fault]
    assert len(wrong) == sum(solve.rhs > 1 for solve in watched.persistent_solves())


@pytest.mark.parametrize("wrong", [1.01, np.nan])
def test_a_wrong_solution_is_a_fault(wrong: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "_document", lambda *given: wrong * host(*given))
    assert all("x differs" in fault for _, fault in watched.faults(watched.DOCUMENT))


def test_a_kernel_that_fails_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any) -> Any:
        raise DeviceError("a barrier timed out")

    monkeypatch.setattr(watched, "_document", fails)
    assert {fault for _, fault in watched.faults(watched.DOCUMENT)} == {"a barrier timed out"}
