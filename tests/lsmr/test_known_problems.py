"""Problems that SciPy, CuPy and Krylov.jl test their solvers on, and published answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.lsmr import StopCode, lsmr
from asyncsparse_lab.lsmr.problems import paige_saunders
from asyncsparse_lab.matrices import load_matrix
from asyncsparse_lab.matrices.generators.least_squares import right_hand_side

if TYPE_CHECKING:
    from tests.lsmr.conftest import Solve


@pytest.mark.parametrize("x", [np.zeros(10), np.ones(10), np.arange(10.0, 0, -1)])
def test_the_identity(x: Any, solve: Solve) -> None:
    result = solve(np.eye(10), x)
    np.testing.assert_allclose(result.x, x, rtol=1e-12)
    assert result.istop == (StopCode.CONSISTENT if x.any() else StopCode.STARTS_SOLVED)


@pytest.mark.parametrize("seed", range(30))
def test_random_right_hand_sides_of_the_identity(seed: int, solve: Solve) -> None:
    b = np.random.default_rng(seed).standard_normal(10)
    assert solve(np.eye(10), b).istop == StopCode.CONSISTENT


def test_a_lower_bidiagonal_matrix(solve: Solve) -> None:
    steps = np.arange(1.0, 11)
    A = sparse.diags_array([steps, steps], offsets=[0, -1], shape=(20, 10)).tocsr()
    x = np.arange(10.0, 0, -1)
    result = solve(A, A @ x, atol=1e-10, btol=1e-10)
    np.testing.assert_allclose(result.x, x, atol=1e-5)
    assert result.istop == StopCode.CONSISTENT


@pytest.mark.parametrize("start", [None, "complex"])
def test_a_complex_diagonally_dominant_matrix(start: str | None, solve_any: Solve) -> None:
    A = 4 * np.eye(10) + 1j * np.ones((10, 10))
    x = np.arange(10.0, 0, -1) * (1 + 0.5j)
    x0 = None if start is None else np.full(10, 2 - 1j)
    result = solve_any(A, A @ x, x0=x0, atol=1e-12, btol=1e-12)
    np.testing.assert_allclose(result.x, x, rtol=1e-9)


def low_rank_updates(n: int = 35) -> Any:
    rng = np.random.default_rng(n)
    G = np.eye(n)
    for _ in range(5):
        G += np.outer(rng.standard_normal(n), rng.standard_normal(n))
    return G, rng.standard_normal(n)


def test_norms_are_those_of_the_solution(solve: Solve) -> None:
    G, b = low_rank_updates()
    result = solve(G, b, atol=1e-9, btol=1e-9, maxiter=300)
    residual = b - G @ result.x
    assert result.normr == pytest.approx(np.linalg.norm(residual), abs=1e-6)
    assert result.normar == pytest.approx(np.linalg.norm(G.T @ residual), abs=1e-6)
    assert result.normx == pytest.approx(np.linalg.norm(result.x), rel=1e-12)
    assert result.true_normr == pytest.approx(np.linalg.norm(residual), rel=1e-6)


def test_a_zero_start_changes_nothing(solve: Solve) -> None:
    G, b = low_rank_updates()
    np.testing.assert_array_equal(solve(G, b).x, solve(G, b, x0=np.zeros(35)).x)


@pytest.mark.parametrize("damp", [0.1, 1.5])
def test_damping_solves_the_stacked_system(damp: float, solve: Solve) -> None:
    G, b = low_rank_updates()
    result = solve(G, b, damp=damp, atol=1e-12, btol=1e-12, maxiter=300)
    stacked, wide = np.vstack([G, damp * np.eye(35)]), np.concatenate([b, np.zeros(35)])
    expected = np.linalg.lstsq(stacked, wide, rcond=None)[0]
    np.testing.assert_allclose(result.x, expected, rtol=1e-6, atol=1e-9)
    assert result.normr == pytest.approx(np.linalg.norm(stacked @ result.x - wide), rel=1e-6)
    assert result.true_normr == pytest.approx(result.normr, rel=1e-6)


@pytest.mark.parametrize(
    ("b", "istop", "itn", "x"),
    [
        ((0.0, 0.0, 0.0), 0, 0, (0.0, 0.0)),
        ((1.0, 0.0, -1.0), 1, 1, (1.0, -1.0)),
        ((1.0, 0.01, -1.0), 2, 2, (1.00333333, -0.99666667)),
    ],
)
def test_three_equations(
    b: tuple[float, ...], istop: int, itn: int, x: tuple[float, ...], solve: Solve
) -> None:
    result = solve(np.array([[1.0, 0], [1, 1], [0, 1]]), np.array(b))
    assert (result.istop, result.itn) == (istop, itn)
    np.testing.assert_allclose(result.x, x, rtol=1e-8)
    if istop == 2:
        assert result.normr == pytest.approx(0.00577350, rel=1e-5)


@pytest.mark.parametrize("damp", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("form", ["coo", "csr", "csc", "dense"])
@pytest.mark.parametrize("shape", [(30, 20), (40, 30), (50, 20)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_random_tall_systems(
    damp: float, form: str, shape: tuple[int, int], dtype: Any, solve: Solve
) -> None:
    rng = np.random.default_rng(shape[0])
    dense = rng.standard_normal(shape) * (rng.random(shape) < 0.5)
    A: Any = dense.astype(dtype) if form == "dense" else sparse.coo_array(dense.astype(dtype))
    if form != "dense":
        A = A.asformat(form)
    b, x0 = rng.standard_normal(shape[0]).astype(dtype), np.ones(shape[1], dtype)
    tolerance = 1e-6 if dtype is np.float32 else 1e-12
    stacked = np.vstack([dense, damp * np.eye(shape[1])])
    for start in (None, x0):
        result = solve(A, b, damp=damp, x0=start, atol=tolerance, btol=tolerance)
        target = np.zeros(shape[1]) if start is None else damp * start.astype(float)
        expected = np.linalg.lstsq(stacked, np.concatenate([b, target]), rcond=None)[0]
        error = np.linalg.norm(result.x - expected) / np.linalg.norm(expected)
        assert error < (2e-4 if dtype is np.float32 else 1e-9)
        assert result.converged


def test_operators_agree_with_their_matrices(solve_any: Solve) -> None:
    problem = paige_saunders(40, 30, 2, 1)
    matrix = solve_any(problem.matrix, problem.b)
    operator = solve_any(aslinearoperator(problem.matrix), problem.b)
    np.testing.assert_allclose(operator.x, matrix.x, rtol=1e-12)


@pytest.mark.parametrize("power", [1, 2, 3, 4])
@pytest.mark.parametrize("damp", [0.0, 1e-3])
@pytest.mark.parametrize(("m", "n"), [(40, 40), (60, 40)])
def test_paige_and_saunders(power: int, damp: float, m: int, n: int, solve: Solve) -> None:
    problem = paige_saunders(m, n, 4, power, damp)
    result = solve(
        problem.matrix, problem.b, damp=damp, atol=1e-12, btol=1e-12, conlim=0, maxiter=400
    )
    assert result.true_normar / np.linalg.norm(problem.b) <= 1e-9
    error = np.linalg.norm(result.x - problem.x) / np.linalg.norm(problem.x)
    assert error < 1e-12 * 10.0 ** (2 * power)
    assert result.istop == (1 if m == n and not damp else 2)
    assert result.converged


@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize("damp", [0.0, 1e-3])
def test_paige_and_saunders_with_phases(power: int, damp: float, solve_any: Solve) -> None:
    problem = paige_saunders(40, 40, 4, power, damp, complex_phases=True)
    result = solve_any(
        problem.matrix, problem.b, damp=damp, atol=1e-12, btol=1e-12, conlim=0, maxiter=400
    )
    error = np.linalg.norm(result.x - problem.x) / np.linalg.norm(problem.x)
    assert error < 1e-12 * 10.0 ** (2 * power)


def test_the_generator_refuses_wide_shapes() -> None:
    with pytest.raises(InputError, match="m=3 is below n=4"):
        paige_saunders(3, 4)


def test_the_prescribed_residual_is_reached(solve: Solve) -> None:
    matrix = load_matrix("feeder(buses=60)")
    b, x = right_hand_side(matrix, 0.3540266)
    result = solve(matrix, b, atol=1e-9, btol=1e-9)
    assert result.istop == StopCode.LEAST_SQUARES
    assert result.true_normr / np.linalg.norm(b) == pytest.approx(0.3540266, abs=1e-9)
    np.testing.assert_allclose(result.x, x, rtol=1e-4, atol=1e-5)


def test_scipy_and_host_stop_together() -> None:
    problem = paige_saunders(300, 120, 1, 2)
    for dtype in (np.float32, np.float64):
        data = problem.matrix.astype(dtype), problem.b.astype(dtype)
        host, scipy = (lsmr(*data, backend=name) for name in ("host", "scipy"))
        assert host.istop == scipy.istop
        assert host.itn == pytest.approx(scipy.itn, rel=0.03, abs=1)
        assert host.true_normr == pytest.approx(scipy.true_normr, rel=1e-5)
