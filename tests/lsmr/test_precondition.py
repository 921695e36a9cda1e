"""Column scaling: the same solution in fewer iterations, tests that hold for A D."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import sparse

from asyncsparse_lab.lsmr import lsmr
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
