"""The scalars: rotations, tests and their order."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncsparse_lab.lsmr.recurrence import Tolerances, plane_rotation, stop_code
from asyncsparse_lab.lsmr.result import StopCode

finite = st.floats(-1e150, 1e150, allow_subnormal=False)


@given(finite, finite)
def test_a_rotation_maps_its_pair_to_the_first_axis(a: float, b: float) -> None:
    c, s, r = plane_rotation(a, b)
    size = math.hypot(a, b)
    assert c * a + s * b == pytest.approx(r, rel=1e-14, abs=1e-14 * size)
    assert abs(s * a - c * b) <= 1e-14 * size
    assert abs(r) == pytest.approx(size, rel=1e-14)
    assert c * c + s * s == pytest.approx(1.0 if size else 0.0, rel=1e-14)


def test_rotations_of_extreme_pairs_stay_finite() -> None:
    c, s, r = plane_rotation(1e300, -1e300)
    assert math.isfinite(r)
    assert (abs(c), abs(s)) == pytest.approx((math.sqrt(0.5), math.sqrt(0.5)))


TOLERANCES = Tolerances(atol=1e-6, btol=1e-6, conlim=1e8, maxiter=10)


@pytest.mark.parametrize(
    ("expected", "itn", "normr", "normar", "conda"),
    [
        (None, 3, 0.1, 0.1, 1e3),
        (StopCode.CONSISTENT, 10, 1e-7, 0.0, 1e20),
        (StopCode.LEAST_SQUARES, 10, 0.5, 1e-8, 1e20),
        (StopCode.CONDITION_LIMIT, 10, 0.5, 0.5, 1e8),
        (StopCode.ITERATION_LIMIT, 10, 0.5, 0.5, 1e7),
    ],
)
def test_the_strongest_test_gives_the_code(
    expected: StopCode | None, itn: int, normr: float, normar: float, conda: float
) -> None:
    assert stop_code(itn, 1.0, normr, normar, 1.0, conda, 1.0, TOLERANCES) is expected


@pytest.mark.parametrize(
    ("expected", "normr", "normar", "conda"),
    [
        (StopCode.CONSISTENT_AT_ROUNDING, 1e-17, 1.0, 1.0),
        (StopCode.LEAST_SQUARES_AT_ROUNDING, 1.0, 1e-17, 1.0),
        (StopCode.CONDITION_AT_ROUNDING, 1.0, 1.0, 1e16),
        (None, 1e-15, 1.0, 1e15),
    ],
)
def test_zero_tolerances_leave_the_tests_at_rounding(
    expected: StopCode | None, normr: float, normar: float, conda: float
) -> None:
    none = Tolerances(atol=0.0, btol=0.0, conlim=0.0, maxiter=10)
    assert stop_code(1, 1.0, normr, normar, 1.0, conda, 1.0, none) is expected


def test_every_code_has_its_own_text() -> None:
    assert len({code.text for code in StopCode}) == len(StopCode) == 8
