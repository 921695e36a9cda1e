"""What users of other LSMR codes reported, with the right behaviour.

Each test names the report: project and number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.lsmr import StopCode, lsmr
from asyncsparse_lab.lsmr.problems import paige_saunders

if TYPE_CHECKING:
    from tests.lsmr.conftest import Solve


def test_zero_b_with_a_start_gives_zero_of_the_right_shape(solve: Solve) -> None:
    """scipy 17012, 17043: the start came back, with its norms."""
    result = solve(np.ones((10, 1)), np.zeros(10), x0=np.ones(1))
    np.testing.assert_array_equal(result.x, np.zeros(1))
    assert result.istop == StopCode.STARTS_SOLVED
    assert (result.itn, result.normr, result.normar, result.normx) == (0, 0, 0, 0)
    assert result.converged


def test_no_iterations_allowed_is_said_truthfully(solve: Solve) -> None:
    """scipy 23748, 24120: crashed with show; SciPy answers 0, although nothing was solved."""
    result = solve(np.array([[1.0, 0], [1, 1], [0, 1]]), np.ones(3), maxiter=0, show=True)
    assert result.istop == StopCode.ITERATION_LIMIT
    assert result.itn == 0
    np.testing.assert_array_equal(result.x, np.zeros(2))
    assert result.normr == pytest.approx(np.sqrt(3))
    assert not result.converged


def test_a_warm_start_reaches_the_same_norms(solve: Solve) -> None:
    """scipy 8163, 12139, 12805: other iterates, the same quality."""
    problem = paige_saunders(40, 30, 3, 2)
    cold = solve(problem.matrix, problem.b, atol=1e-10, btol=1e-10, maxiter=500)
    first = solve(problem.matrix, problem.b, atol=1e-10, btol=1e-10, maxiter=1)
    warm = solve(problem.matrix, problem.b, atol=1e-10, btol=1e-10, maxiter=500, x0=first.x)
    assert warm.true_normr == pytest.approx(cold.true_normr, rel=1e-9)
    assert warm.normx == pytest.approx(cold.normx, rel=1e-6)
    assert abs(warm.itn + 1 - cold.itn) <= 2


def test_the_start_is_not_overwritten(solve: Solve) -> None:
    """scipy 15020."""
    x0 = np.ones(2)
    result = solve(np.array([[2.0, 0], [0, 3], [1, 1]]), np.array([1.0, 2, 3]), x0=x0)
    np.testing.assert_array_equal(x0, np.ones(2))
    assert not np.shares_memory(result.x, x0)


def test_damping_penalises_the_distance_to_the_start(solve: Solve) -> None:
    """scipy 14028, 14837: documented here, as the objective says."""
    rng = np.random.default_rng(0)
    A, b, x0 = rng.standard_normal((8, 3)), rng.standard_normal(8), np.array([5.0, -3, 2])
    result = solve(A, b, damp=2.0, x0=x0, atol=1e-13, btol=1e-13)
    stacked = np.vstack([A, 2 * np.eye(3)])
    expected = np.linalg.lstsq(stacked, np.concatenate([b, 2 * x0]), rcond=None)[0]
    np.testing.assert_allclose(result.x, expected, rtol=1e-8)
    moved = stacked @ result.x - np.concatenate([b, 2 * x0])
    assert result.normr == pytest.approx(np.linalg.norm(moved), rel=1e-8)
    assert result.true_normr == pytest.approx(result.normr, rel=1e-8)


@pytest.mark.parametrize(
    ("complex_matrix", "complex_b"), [(True, True), (True, False), (False, True)]
)
@pytest.mark.parametrize("form", ["dense", "sparse", "operator"])
def test_complex_data_give_a_complex_solution(
    form: str, complex_matrix: bool, complex_b: bool, solve_any: Solve
) -> None:
    """scipy 10285; cupy 7681, 9272: TypeError, or the imaginary part lost."""
    rng = np.random.default_rng(3)
    dense: Any = rng.standard_normal((9, 4))
    b: Any = rng.standard_normal(9)
    if complex_matrix:
        dense = dense + 1j * rng.standard_normal((9, 4))
    if complex_b:
        b = b + 1j * rng.standard_normal(9)
    A: Any = dense
    if form == "sparse":
        A = sparse.csr_array(dense)
    if form == "operator":
        A = LinearOperator(
            dense.shape,
            matvec=dense.__matmul__,
            rmatvec=dense.conj().T.__matmul__,
            dtype=dense.dtype,
        )
    result = solve_any(A, b, atol=1e-13, btol=1e-13, maxiter=100)
    expected = np.linalg.lstsq(dense, b.astype(complex), rcond=None)[0]
    assert result.x.dtype == np.complex128
    np.testing.assert_allclose(result.x, expected, rtol=1e-8)


def test_a_scalar_b_is_a_vector_of_one(solve: Solve) -> None:
    """scipy 5081."""
    np.testing.assert_allclose(solve(np.array([[1.0, 2.0]]), 3.0).x, [0.6, 1.2])


def test_integers_are_solved(solve: Solve) -> None:
    """scipy 2466, 2467; CuPy's norm refuses them."""
    result = solve(np.array([[1, -1]]), [4])
    np.testing.assert_allclose(result.x, [2, -2])


def test_exact_solutions_divide_by_nothing(solve: Solve) -> None:
    """scipy 2900, 4142; scikit-learn 2986."""
    result = solve(np.array([[1.0, 4.0]]), np.array([1.0]))
    assert result.istop == StopCode.CONSISTENT
    np.testing.assert_allclose(result.x, [1 / 17, 4 / 17])
    exact = solve(np.eye(3), np.array([3.0, 0, 0]), atol=0, btol=0)
    assert exact.istop == StopCode.CONSISTENT
    assert exact.itn == 1


def test_a_limit_reached_is_not_success(solve: Solve) -> None:
    """scipy 7219: a rank-deficient system, left with a large residual."""
    rng = np.random.default_rng(7)
    left, right = rng.standard_normal((107, 80)), rng.standard_normal((80, 107))
    A = left * np.logspace(0, -5, 80) @ right
    result = solve(A, A @ np.ones(107), maxiter=20, atol=1e-12, btol=1e-12)
    assert result.istop == StopCode.ITERATION_LIMIT
    assert not result.converged
    assert "limit" in result.summary()


def test_variances_are_not_offered() -> None:
    """scipy 22232; pylops 639, 751: lsqr's calc_var underestimates."""
    with pytest.raises(TypeError, match="calc_var"):
        lsmr(np.eye(2), np.ones(2), calc_var=True)  # type: ignore[call-arg]


def test_tolerance_and_iteration_limit_are_both_obeyed(solve: Solve) -> None:
    """scipy 15598: a caller had no say in either."""
    problem = paige_saunders(60, 50, 2, 2)
    loose = solve(problem.matrix, problem.b, atol=1e-2, btol=1e-2)
    tight = solve(problem.matrix, problem.b, atol=1e-10, btol=1e-10)
    assert loose.itn < tight.itn
    assert loose.true_normar > tight.true_normar
    assert solve(problem.matrix, problem.b, atol=1e-10, btol=1e-10, maxiter=3).itn == 3


def test_zero_b_gives_zeros(solve: Solve) -> None:
    """IterativeSolvers.jl 202: NaN."""
    result = solve(np.array([[1.0, 2], [3, 4], [5, 6]]), np.zeros(3))
    np.testing.assert_array_equal(result.x, np.zeros(2))
    assert result.istop == StopCode.STARTS_SOLVED


def test_b_orthogonal_to_the_range_is_solved_by_zero(solve: Solve) -> None:
    """lineax 193, 202: reported as a condition number over the limit."""
    result = solve(np.array([[1.0, 0], [0, 1], [0, 0]]), np.array([0.0, 0, 2]))
    np.testing.assert_array_equal(result.x, np.zeros(2))
    assert result.istop == StopCode.STARTS_SOLVED
    assert result.normr == 2


def test_the_identity_is_an_exact_breakdown(solve: Solve) -> None:
    """KrylovKit 133: NaN after 100 iterations."""
    result = solve(np.eye(2), np.array([1.0, 0.0]))
    np.testing.assert_array_equal(result.x, [1, 0])
    assert (result.istop, result.itn) == (StopCode.CONSISTENT, 1)


@pytest.mark.parametrize(("residual", "code"), [(0.0, 1), (1.0, 2)])
def test_consistent_and_inconsistent_are_told_apart(
    residual: float, code: int, solve: Solve
) -> None:
    """Krylov.jl 470: labelled the wrong way round."""
    A = np.array([[1.0, 1], [1, 2], [1, 3], [1, 4]])
    b = A @ [2.0, -1.0] + residual * np.array([1.0, -1, -1, 1])
    result = solve(A, b, atol=1e-10, btol=1e-10)
    assert result.istop == code
    np.testing.assert_allclose(result.x, [2, -1], rtol=1e-7)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_products_that_are_not_finite_are_an_error(value: float, solve_any: Solve) -> None:
    """within 345: reported as a zero gradient."""
    operator = LinearOperator(
        (3, 2), matvec=lambda x: np.full(3, value), rmatvec=lambda y: np.ones(2), dtype=float
    )
    with pytest.raises(InputError, match="the product A v is not finite"):
        solve_any(operator, np.ones(3))


def test_overflow_of_the_norm_of_b_is_no_zero_gradient(solve: Solve) -> None:
    """within 303."""
    result = solve(np.eye(3), np.full(3, 1e200))
    assert result.istop == StopCode.CONSISTENT
    np.testing.assert_allclose(result.x, np.full(3, 1e200))
