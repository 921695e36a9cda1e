"""The document's solver without a GPU: its loop on NumPy, its choices, its checks."""

from __future__ import annotations

import ctypes
import re
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from scipy import sparse

from asyncsparse_lab.errors import InputError, UnsupportedError
from asyncsparse_lab.gpu.compile import CompileError, compile_many
from asyncsparse_lab.lsmr import StopCode, lsmr
from asyncsparse_lab.lsmr.document import (
    DeviceMatrix,
    SolverOptions,
    SparseMatrix,
    check_csr,
    choose_formats,
    csr_bytes,
)
from asyncsparse_lab.lsmr.document_solver import (
    Iteration,
    Solver,
    check_operands,
    run_iterations,
)
from asyncsparse_lab.lsmr.updates import (
    ScatterArguments,
    UpdateArguments,
    choose_width,
    update_builds,
)
from asyncsparse_lab.resources import resource_path


class Scalar:
    def __init__(self) -> None:
        self.value = np.float32(1)

    def set(self, value: float) -> None:
        self.value = np.float32(value)


class NumpyIteration:
    """The calls of an iteration with NumPy in the place of the device."""

    def __init__(self, A: Any) -> None:
        m, n = A.shape
        self.A, self.At = A.astype(np.float32).tocsr(), A.T.astype(np.float32).tocsr()
        self.u = np.empty(m, np.float32)
        self.v, self.h, self.hbar, self.x = (np.empty(n, np.float32) for _ in range(4))
        self.norms = np.zeros(3, np.float32)
        self.there = np.zeros(3, np.float32)
        self.forward_factor, self.minus_alpha, self.minus_beta = Scalar(), Scalar(), Scalar()
        self.inverse_alpha, self.inverse_beta = Scalar(), Scalar()
        self.arguments = SimpleNamespace(hbar_factor=0.0, step=0.0, h_factor=0.0)
        self.updates = [self.update_hbar_and_x, self.update_h]
        self.waits = 0

    def bind(self, x: Any) -> None:
        self.x = x

    def load(self, b: Any) -> None:
        self.u[:] = b

    def forward(self) -> None:
        self.u[:] = self.forward_factor.value * (self.A @ self.v) + self.minus_alpha.value * self.u

    def adjoint(self) -> None:
        self.v[:] = self.At @ self.u + self.minus_beta.value * self.v

    def scale_u(self) -> None:
        self.u *= self.inverse_beta.value

    def scale_v(self) -> None:
        self.v *= self.inverse_alpha.value

    def norm_u(self) -> None:
        self.there[0] = np.linalg.norm(self.u)

    def norm_v(self) -> None:
        self.there[1] = np.linalg.norm(self.v)

    def norm_x(self) -> None:
        self.there[2] = np.linalg.norm(self.x)

    def update_hbar_and_x(self) -> None:
        self.hbar[:] = self.h - np.float32(self.arguments.hbar_factor) * self.hbar
        self.x += np.float32(self.arguments.step) * self.hbar

    def update_h(self) -> None:
        self.h[:] = self.v - np.float32(self.arguments.h_factor) * self.h

    def fetch(self) -> None:
        self.norms[:] = self.there
        self.waits += 1


def run(A: Any, b: Any, **options: Any) -> tuple[Any, Any, NumpyIteration]:
    iteration = NumpyIteration(A)
    x = np.empty(A.shape[1], np.float32)
    report = run_iterations(
        cast(Iteration, iteration), b, x, None, SolverOptions(**options), 0, None
    )
    return report, x, iteration


@pytest.fixture
def tall() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    A = sparse.random_array((300, 120), density=0.05, rng=rng, data_sampler=rng.standard_normal)
    A = sparse.csr_array(A + sparse.eye_array(300, 120))
    return A.astype(np.float32), rng.standard_normal(300).astype(np.float32)


@pytest.mark.parametrize("damp", [0.0, 0.7])
def test_the_loop_takes_the_iterations_of_the_host_backend(
    tall: tuple[Any, Any], damp: float
) -> None:
    A, b = tall
    report, x, iteration = run(A, b, damp=damp)
    host = lsmr(A, b, damp=damp, maxiter=5000, backend="host")
    assert report.stop_code == host.istop == StopCode.LEAST_SQUARES
    assert abs(report.iterations - host.itn) <= 1
    np.testing.assert_allclose(x, host.x, atol=2e-4 * np.abs(host.x).max())
    assert report.normr == pytest.approx(host.normr, rel=1e-5)
    assert report.host_syncs == iteration.waits == 2 * report.iterations + 3


def test_the_loop_ends_at_once_where_there_is_nothing_to_do(tall: tuple[Any, Any]) -> None:
    A, b = tall
    report, x, _ = run(A, 0 * b)
    assert (report.stop_code, report.iterations) == (StopCode.STARTS_SOLVED, 0)
    assert not x.any()
    report, x, _ = run(A, b, max_iterations=0)
    assert (report.stop_code, report.iterations) == (StopCode.ITERATION_LIMIT, 0)
    report, _, _ = run(A, b, max_iterations=3)
    assert (report.stop_code, report.iterations) == (StopCode.ITERATION_LIMIT, 3)


def test_an_exact_solution_is_consistent() -> None:
    A = sparse.csr_array(np.diag(np.full(4, 2.0)))
    report, x, _ = run(A, np.full(4, 6, np.float32))
    assert (report.stop_code, report.iterations) == (StopCode.CONSISTENT, 1)
    np.testing.assert_allclose(x, 3)


def test_norms_that_overflow_are_refused(tall: tuple[Any, Any]) -> None:
    A, b = tall
    bad = b.copy()
    bad[0] = np.inf
    with pytest.raises(InputError, match="norm of b is not finite"):
        run(A, bad)
    with pytest.raises(InputError, match="norm of A'b is not finite"), np.errstate(over="ignore"):
        run(A * np.float32(1e38), b)


@pytest.mark.parametrize(
    ("formats", "needed", "free", "expected"),
    [
        ("auto", 70, 100, "dual"),
        ("auto", 90, 100, "single"),
        ("single", 1, 100, "single"),
        ("dual", 100, 1, "dual"),
    ],
)
def test_memory_chooses_the_formats(formats: Any, needed: int, free: int, expected: str) -> None:
    assert choose_formats(formats, needed, free) == expected


def test_formats_and_bytes() -> None:
    with pytest.raises(InputError, match="formats='both'"):
        choose_formats(cast(Any, "both"), 1, 1)
    assert csr_bytes((5, 3), 7, by_rows=True) == 56 + 24
    assert csr_bytes((5, 3), 7, by_rows=False) == 56 + 16


@pytest.mark.parametrize(
    ("transposed", "held", "shape", "flips"),
    [
        (False, ("rows", "columns"), (5, 3), False),
        (True, ("rows", "columns"), (3, 5), False),
        (False, (None, "columns"), (3, 5), True),
        (True, ("rows", None), (5, 3), True),
    ],
)
def test_a_single_format_serves_both_products(
    transposed: bool, held: Any, shape: Any, flips: bool
) -> None:
    A = SparseMatrix(cast(Any, None), (5, 3), *held)
    assert A.formats == ("single" if None in held else "dual")
    arrays, stored, is_transposed = A._stored(transposed)
    assert (stored, is_transposed) == (shape, flips)
    assert arrays == ("rows" if stored == (5, 3) else "columns")


def test_determinism_needs_both_formats() -> None:
    A = SparseMatrix(cast(Any, None), (5, 3), "rows", None)
    with pytest.raises(InputError, match="formats='dual'"):
        A.product(True, None, None, None, None, deterministic=True)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.eye(3), "give a sparse matrix"),
        (sparse.csr_array(np.eye(3) * 1j), "FP32"),
        (sparse.csr_array((0, 3)), "at least one row"),
    ],
)
def test_what_is_no_matrix_of_reals_is_refused(matrix: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_csr(matrix)


@pytest.mark.parametrize(
    ("b", "x", "message"),
    [
        (np.zeros(4, "f4"), np.zeros(3, "f4"), "b has the shape"),
        (np.zeros(5, "f4"), np.zeros(4, "f4"), "x has the shape"),
        (np.zeros(5), np.zeros(3, "f4"), "b has the type float64"),
        (np.zeros((5, 2), "f4"), np.zeros(3, "f4"), "as many columns"),
        (sparse.csr_array((5, 2), dtype="f4"), np.zeros((3, 2), "f4"), "sparse with 2 columns"),
    ],
)
def test_operands_that_do_not_fit_are_refused(b: Any, x: Any, message: str) -> None:
    A = DeviceMatrix(cast(Any, None), (5, 3), "dual")
    with pytest.raises(InputError, match=message):
        check_operands(A, b, x)


def test_a_matrix_of_another_context_is_refused() -> None:
    A = DeviceMatrix(cast(Any, "one"), (5, 3), "dual")
    with pytest.raises(InputError, match="another Context"):
        Solver(cast(Any, "two")).solve(A, np.zeros(5, "f4"), np.zeros(3, "f4"))


def test_what_the_document_cannot_do_is_said(tall: tuple[Any, Any]) -> None:
    A, b = tall
    with pytest.raises(UnsupportedError, match="FP32"):
        lsmr(A.astype(float), b.astype(float), backend="document")
    with pytest.raises(UnsupportedError, match="no preconditioner"):
        lsmr(A, b, backend="document", precondition="columns")
    with pytest.raises(UnsupportedError, match="operator"):
        lsmr(sparse.linalg.aslinearoperator(A), b, backend="document")


@pytest.mark.parametrize(("addresses", "width"), [((256, 512), 4), ((256, 516), 1)])
def test_alignment_chooses_the_width(addresses: tuple[int, ...], width: int) -> None:
    assert choose_width(*addresses) == width


def test_the_updates_compile_and_their_mirrors_fit() -> None:
    for artifact in compile_many(update_builds()):
        assert not isinstance(artifact, CompileError), artifact
        assert artifact.resources.stack == artifact.resources.spill_stores == 0
    for struct, name, source in (
        (UpdateArguments, "LsmrUpdateArguments", "lsmr_update.cu"),
        (ScatterArguments, "ScatterArguments", "lsmr_scatter.cu"),
    ):
        text = (resource_path("kernels") / source).read_text()
        body = re.search(rf"struct {name} \{{(.*?)\n\}};", text, re.DOTALL)
        assert body is not None
        assert [field[0] for field in struct._fields_] == re.findall(r"(\w+);", body[1])
    assert ctypes.sizeof(UpdateArguments) == 56
    assert ctypes.sizeof(ScatterArguments) == 32
