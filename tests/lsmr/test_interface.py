"""Arguments, shapes, the result, and what is refused before any work."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

import asyncsparse_lab.lsmr as lsmr_module
from asyncsparse_lab.errors import DeviceError, InputError, UnsupportedError
from asyncsparse_lab.gpu.device import missing_gpu
from asyncsparse_lab.lsmr import LsmrResult, Progress, StopCode, lsmr

if TYPE_CHECKING:
    from asyncsparse_lab.lsmr.interface import Backend
    from tests.lsmr.conftest import Solve


def tall(seed: int = 0, m: int = 30, n: int = 12) -> sparse.csr_array:
    rng = np.random.default_rng(seed)
    A = sparse.random_array((m, n), density=0.3, rng=rng, data_sampler=rng.standard_normal)
    return sparse.csr_array(A + sparse.eye_array(m, n))


A = tall()
B = np.random.default_rng(1).standard_normal(30)


def direct(matrix: Any, b: Any) -> Any:
    return np.linalg.lstsq(matrix.toarray(), b, rcond=None)[0]


def test_the_signature_is_scipys_and_new_arguments_are_keywords() -> None:
    parameters = inspect.signature(lsmr_module).parameters
    names = ["A", "b", "damp", "atol", "btol", "conlim", "maxiter", "show", "x0"]
    assert list(parameters)[:9] == names
    for name in ("backend", "precondition", "callback"):
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY


def test_the_package_can_be_called() -> None:
    assert lsmr_module(A, B, backend="host").istop == lsmr(A, B, backend="host").istop


def test_the_result_unpacks_like_scipys(solve: Solve) -> None:
    result = solve(A, B, atol=1e-12, btol=1e-12)
    x, istop, itn, normr, normar, norma, conda, normx = result
    assert len(result) == 8
    assert result[1] == result.istop == istop
    assert result[3:5] == (normr, normar)
    np.testing.assert_allclose(x, direct(A, B), rtol=1e-9)
    assert itn > 0
    assert normx == pytest.approx(np.linalg.norm(x))
    assert norma > 0
    assert conda >= 1


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dia", "bsr"])
def test_every_sparse_format_gives_the_same(form: str, solve: Solve) -> None:
    x = solve(A.asformat(form), B, atol=1e-12, btol=1e-12).x
    np.testing.assert_allclose(x, direct(A, B), rtol=1e-9)


def test_vectors_columns_and_blocks_have_their_shapes(solve: Solve) -> None:
    block = np.random.default_rng(2).standard_normal((30, 3))
    options = {"atol": 1e-12, "btol": 1e-12}
    assert solve(A, B, **options).x.shape == (12,)
    assert solve(A, B[:, None], **options).x.shape == (12,)
    result = solve(A, block, **options)
    assert result.x.shape == (12, 3)
    assert result.itn.shape == result.normr.shape == result.confirmed.shape == (3,)
    np.testing.assert_allclose(result.x, direct(A, block), rtol=1e-9)
    assert result.converged


def test_a_block_has_the_iterates_of_its_columns(solve: Solve) -> None:
    block = np.random.default_rng(2).standard_normal((30, 3))
    together = solve(A, block)
    for j in range(3):
        alone = solve(A, block[:, j])
        np.testing.assert_array_equal(together.x[:, j], alone.x)
        assert (together.itn[j], together.istop[j]) == (alone.itn, alone.istop)


def test_a_sparse_right_hand_side_is_taken(solve: Solve) -> None:
    b = np.zeros(30)
    b[[3, 17]] = 1.0, -2.0
    dense, sparse_b = solve(A, b), solve(A, sparse.csc_array(b[:, None]))
    np.testing.assert_array_equal(dense.x, sparse_b.x)


def test_inputs_are_never_changed(solve: Solve) -> None:
    matrix, b, x0 = A.copy(), B.copy(), np.ones(12)
    solve(matrix, b, x0=x0)
    np.testing.assert_array_equal(b, B)
    np.testing.assert_array_equal(x0, np.ones(12))
    np.testing.assert_array_equal(matrix.data, A.data)


def test_none_means_the_default(solve: Solve) -> None:
    given = solve(A, B)
    default = solve(A, B, damp=None, atol=None, btol=None, conlim=None, maxiter=None)
    np.testing.assert_array_equal(given.x, default.x)
    assert given.itn == default.itn


def test_single_precision_stays_single_and_integers_become_double(solve: Solve) -> None:
    single = solve(A.astype(np.float32), B.astype(np.float32))
    assert single.x.dtype == np.float32
    np.testing.assert_allclose(single.x, direct(A, B), rtol=2e-4, atol=2e-5)
    integers = solve(sparse.csr_array(np.array([[2, 0], [0, 3], [0, 0]])), np.array([2, 3, 1]))
    assert integers.x.dtype == np.float64
    np.testing.assert_allclose(integers.x, [1, 1], rtol=1e-6)


@pytest.mark.parametrize("size", [1e-40, 1e-30, 1.0, 1e30, 5e37])
def test_single_precision_of_any_size_is_solved(size: float, solve: Solve) -> None:
    b = (B * size).astype(np.float32)
    result = solve(A.astype(np.float32), b)
    assert result.istop == StopCode.LEAST_SQUARES
    expected = direct(A, b.astype(float))
    np.testing.assert_allclose(
        result.x.astype(float), expected, rtol=3e-4, atol=3e-5 * abs(expected).max()
    )
    assert result.normr == pytest.approx(result.true_normr, rel=1e-5)


@pytest.mark.parametrize("size", [2.0**-100, 2.0**100])
@pytest.mark.parametrize("damp", [0.0, 0.5])
def test_a_matrix_of_any_size_is_solved(size: float, damp: float, solve: Solve) -> None:
    matrix, b = (A * size).astype(np.float32), B.astype(np.float32)
    start = np.full(A.shape[1], 0.5 / size, dtype=np.float32)
    result = solve(matrix, b, damp=damp * size, x0=start)
    of_size_one = solve(A.astype(np.float32), b, damp=damp, x0=start * np.float32(size))
    assert result.istop == of_size_one.istop == StopCode.LEAST_SQUARES
    np.testing.assert_allclose(result.x * size, of_size_one.x, rtol=1e-3, atol=1e-5)
    assert result.normr == pytest.approx(of_size_one.normr, rel=1e-5)
    assert result.norma == pytest.approx(of_size_one.norma * size, rel=1e-2)
    assert result.conda == pytest.approx(of_size_one.conda, rel=1e-2)
    assert result.normx == pytest.approx(of_size_one.normx / size, rel=1e-4)


def test_a_small_matrix_is_not_taken_for_an_ill_conditioned_one(solve: Solve) -> None:
    result = solve(A * 1e-12, B)
    assert result.istop == StopCode.LEAST_SQUARES
    np.testing.assert_allclose(result.x * 1e-12, direct(A, B), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_double_precision_of_any_size_is_solved(size: float, solve: Solve) -> None:
    result = solve(A, B * size, atol=1e-12, btol=1e-12)
    np.testing.assert_allclose(result.x / size, direct(A, B), rtol=1e-9)


def test_show_prints_a_summary(solve: Solve, capsys: pytest.CaptureFixture[str]) -> None:
    result = solve(A, B, show=True)
    printed = capsys.readouterr().out
    assert StopCode(result.istop).text in printed
    assert f"iterations {result.itn}" in printed


def test_a_callback_sees_every_iteration() -> None:
    seen: list[Progress] = []
    result = lsmr(A, B, backend="host", callback=seen.append)
    assert [progress.itn for progress in seen] == list(range(1, result.itn + 1))
    assert seen[-1].normr == result.normr
    assert seen[-1].normar == result.normar


def test_operators_without_a_type_take_that_of_b(solve_any: Solve) -> None:
    class Untyped:
        shape = A.shape

        def matvec(self, x: Any) -> Any:
            return A @ x

        def rmatvec(self, y: Any) -> Any:
            return A.T @ y

    result = solve_any(Untyped(), B, atol=1e-12, btol=1e-12)
    np.testing.assert_allclose(result.x, direct(A, B), rtol=1e-9)


def test_auto_says_why() -> None:
    result = lsmr(A.toarray(), B)
    assert result.backend in {"scipy", "host"}
    assert "dense" in result.reason
    assert lsmr(A.toarray(), B, callback=lambda progress: None).backend == "host"
    assert lsmr(A, B, backend="host").reason == "asked for"


ILL_SHAPED = "has the shape"


@pytest.mark.parametrize(
    ("matrix", "b", "options", "message"),
    [
        (np.ones(3), np.ones(3), {}, "A has the shape"),
        (np.ones((2, 2, 2)), np.ones(2), {}, "A has the shape"),
        (np.ones((0, 2)), np.ones(0), {}, "at least one row"),
        (A, np.ones(29), {}, ILL_SHAPED),
        (A, np.ones((1, 30)), {}, ILL_SHAPED),
        (A, np.ones((30, 0)), {}, ILL_SHAPED),
        (A, np.ones((30, 1, 1)), {}, ILL_SHAPED),
        (A, B, {"x0": np.ones(11)}, "x0 has the shape"),
        (A, B, {"x0": np.ones((12, 2))}, "x0 has 2 columns"),
        (A, np.where(np.arange(30) == 3, np.nan, B), {}, "b has entries that are not finite"),
        (A, B, {"x0": np.full(12, np.inf)}, "x0 has entries that are not finite"),
        (A * np.inf, B, {}, "A has entries that are not finite"),
        (A, B, {"atol": -1e-6}, "atol=-1e-06"),
        (A, B, {"btol": -1.0}, "btol=-1"),
        (A, B, {"conlim": float("nan")}, "conlim=nan"),
        (A, B, {"damp": -1.0}, "damp=-1"),
        (A, B, {"damp": "much"}, "damp='much'"),
        (A, B, {"maxiter": -1}, "maxiter=-1"),
        (A, B, {"maxiter": 2.5}, "maxiter=2.5"),
        (A, np.array(["a"] * 30), {}, "b has the type"),
        (A, B.astype(np.longdouble), {}, "float64 or complex128 at most"),
        (A, B, {"backend": "gpu"}, "backend='gpu'"),
        (A, B, {"precondition": "rows"}, "precondition='rows'"),
        (A, B, {"precondition": np.ones(3)}, "precondition has the shape"),
        (A, B, {"precondition": -np.ones(12)}, "not positive"),
        (A, B, {"precondition": "columns", "damp": 1.0}, "change what is penalised"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    matrix: Any, b: Any, options: dict[str, Any], message: str
) -> None:
    with (
        np.errstate(invalid="ignore"),
        pytest.raises(InputError, match=message.replace("(", r"\(")) as caught,
    ):
        lsmr(matrix, b, **options)
    assert "\n" not in str(caught.value)


def test_a_backend_that_cannot_says_so() -> None:
    with pytest.raises(UnsupportedError, match="not sparse"):
        lsmr(A.toarray(), B, backend="persistent")
    with pytest.raises(UnsupportedError, match="complex"):
        lsmr(A.astype(complex), B, backend="persistent")
    with pytest.raises(UnsupportedError, match="no callback"):
        lsmr(A, B, backend="scipy", callback=lambda progress: None)
    operator = LinearOperator(A.shape, matvec=A.__matmul__, rmatvec=A.T.__matmul__)
    with pytest.raises(UnsupportedError, match="operator"):
        lsmr(operator, B, backend="document")


def test_only_confirmed_solutions_count_as_converged() -> None:
    good = lsmr(A, B, backend="host")
    assert good.converged
    assert "do not confirm" not in good.summary()
    stopped = lsmr(A, B, backend="host", maxiter=1)
    assert stopped.istop == StopCode.ITERATION_LIMIT
    assert not stopped.converged


def test_a_claim_that_the_true_norms_contradict_is_not_converged() -> None:
    """An adjoint that does not belong to A deceives the recurrence."""
    wrong = LinearOperator(A.shape, matvec=A.__matmul__, rmatvec=lambda y: (A.T @ y)[::-1])
    result = lsmr(wrong, B, backend="host", maxiter=1000)
    assert isinstance(result, LsmrResult)
    assert not result.converged


@pytest.mark.skipif(missing_gpu() is None, reason="there is a GPU")
@pytest.mark.parametrize("backend", ["persistent", "document"])
def test_a_backend_that_needs_a_gpu_says_so(backend: Backend) -> None:
    with pytest.raises(DeviceError, match=f"backend='{backend}': .*(driver|GPU)"):
        lsmr(A.astype(np.float32), B.astype(np.float32), backend=backend)
