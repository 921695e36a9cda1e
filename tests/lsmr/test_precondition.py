"""Column scaling: the same solution in fewer iterations, tests that hold for A D."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import sparse

from asyncsparse_lab.lsmr import lsmr
from asyncsparse_lab.lsmr.persistent import magnitude_of
from asyncsparse_lab.lsmr.persistent_solve import Units
from asyncsparse_lab.lsmr.problem import column_scales

if TYPE_CHECKING:
    from tests.lsmr.conftest import Solve

RNG = np.random.default_rng(5)
SPREAD = np.logspace(-3, 3, 25)
A = sparse.csr_array(
    (RNG.standard_normal((80, 25)) * (RNG.random((80, 25)) < 0.4) + np.eye(80, 25)) * SPREAD
)
B = RNG.standard_normal(80)


def test_scales_make_columns_of_norm_one() -> None:
    matrix = A.toarray()
    matrix[:, 3] = 0
    for form in (matrix, sparse.csc_array(matrix), sparse.coo_array(matrix)):
        scales = column_scales(form)
        norms = np.linalg.norm(matrix * scales, axis=0)
        np.testing.assert_allclose(np.delete(norms, 3), 1.0)
        assert scales[3] == 1.0


def test_the_scales_of_extreme_columns_are_finite() -> None:
    np.testing.assert_allclose(column_scales(np.array([[1e200, 1e-200]])), [1e-200, 1e200])


@pytest.mark.parametrize("precondition", ["columns", "array"])
def test_the_solution_stays_and_the_iterations_fall(precondition: str, solve: Solve) -> None:
    expected = np.linalg.lstsq(A.toarray(), B, rcond=None)[0]
    options = {"atol": 1e-12, "btol": 1e-12, "conlim": 0, "maxiter": 5000}
    plain = solve(A, B, **options)
    scales = "columns" if precondition == "columns" else 1 / SPREAD
    scaled = solve(A, B, precondition=scales, **options)
    np.testing.assert_allclose(scaled.x, expected, rtol=1e-8)
    assert scaled.itn < plain.itn / 3
    assert scaled.converged


def test_the_tests_norms_are_those_of_the_scaled_problem(solve: Solve) -> None:
    scales = column_scales(A)
    result = solve(A, B, precondition="columns", atol=1e-3, btol=1e-3)
    gradient = A.T @ (B - A @ result.x)
    assert result.normar == pytest.approx(np.linalg.norm(scales * gradient), rel=1e-6)
    assert result.true_normar_scaled == pytest.approx(result.normar, rel=1e-6)
    assert result.true_normar == pytest.approx(np.linalg.norm(gradient), rel=1e-9)
    assert result.normx == pytest.approx(np.linalg.norm(result.x / scales), rel=1e-9)


def test_a_start_is_taken_over(solve: Solve) -> None:
    expected = np.linalg.lstsq(A.toarray(), B, rcond=None)[0]
    result = solve(A, B, precondition="columns", x0=expected, atol=1e-8, btol=1e-8)
    assert result.itn <= 3
    np.testing.assert_allclose(result.x, expected, rtol=1e-6)


def test_an_operator_takes_given_scales() -> None:
    operator = sparse.linalg.aslinearoperator(A)
    expected = np.linalg.lstsq(A.toarray(), B, rcond=None)[0]
    result = lsmr(operator, B, precondition=1 / SPREAD, atol=1e-12, btol=1e-12, backend="host")
    np.testing.assert_allclose(result.x, expected, rtol=1e-8)


@pytest.mark.parametrize("precondition", [None, "columns"])
def test_units_lead_from_the_kernels_problem_back_to_the_callers(precondition: str | None) -> None:
    magnitude, size = 2.0**-70, 4.0
    rng = np.random.default_rng(5)
    matrix, b = sparse.csr_array(rng.standard_normal((30, 12)) * np.arange(1, 13)), np.ones(30)
    inside = lsmr(matrix, b / size, backend="host", precondition=precondition)
    wanted = lsmr(matrix * magnitude, b, backend="host", precondition=precondition)
    units = Units(size, magnitude, precondition is not None)
    np.testing.assert_allclose(inside.x * units.of_x, wanted.x, rtol=1e-9)
    assert inside.normr * units.of_r == pytest.approx(wanted.normr)
    assert inside.normar * units.of_gradient == pytest.approx(wanted.normar, rel=1e-6)
    assert inside.norma * units.of_a == pytest.approx(wanted.norma)
    assert inside.normx * units.of_y == pytest.approx(wanted.normx)


def test_only_a_matrix_of_extreme_size_is_divided() -> None:
    values = np.array([1.0, -3.0], dtype=np.float32)
    for exponent, divided in ((0, False), (30, False), (-30, False), (90, True), (-90, True)):
        found = magnitude_of(values * np.float32(2.0) ** exponent, np.dtype(np.float32))
        assert found == (2.0 ** (exponent + 1) if divided else 1.0)
    assert magnitude_of(values.astype(float) * 2.0**90, np.dtype(np.float64)) == 1.0
    assert magnitude_of(values[:0], np.dtype(np.float32)) == 1.0
