"""The persistent kernel on a GPU: what only a device can show.

The problems of ``tests/lsmr`` run on this backend too, under the same marker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from asyncsparse_lab.errors import DeviceError, InputError
from asyncsparse_lab.lsmr import StopCode, lsmr
from asyncsparse_lab.lsmr.document import Context, SolverOptions, SparseMatrix
from asyncsparse_lab.lsmr.document_solver import Solver
from asyncsparse_lab.lsmr.geometry import Geometry
from asyncsparse_lab.lsmr.persistent import prepare
from asyncsparse_lab.matrices import load_matrix
from asyncsparse_lab.matrices.generators.least_squares import right_hand_side

pytestmark = pytest.mark.gpu

TOLERANCES = {"atol": 1e-6, "btol": 1e-6, "conlim": 1e8, "maxiter": 5000}


@pytest.fixture(scope="module")
def tall() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    A = sparse.random_array((900, 400), density=0.02, rng=rng, data_sampler=rng.standard_normal)
    return sparse.csr_array(A + sparse.eye_array(900, 400)), rng.standard_normal(900)


def geometries() -> Iterator[Geometry]:
    for blocks, threads in ((1, 64), (7, 96), (33, 288), (132, 160), (132, 544)):
        yield Geometry(blocks, threads, staged=True)
        yield Geometry(blocks, threads, staged=False)
    yield Geometry(64, 288, staged=True, copies=4)
    yield Geometry(64, 288, staged=True, poll_relaxed=True)
    yield Geometry(33, 256, staged=True, together=2)
    yield Geometry(132, 640, staged=False, together=2)
    yield Geometry(33, 256, staged=True, together=2, batched=1)
    yield Geometry(33, 288, staged=True, batched=2)
    yield Geometry(16, 640, staged=True, batched=2, cluster=True)
    yield Geometry(4, 96, staged=True, together=2, cluster=True)
    yield Geometry(7, 96, staged=False, ring_steps=16)
    yield Geometry(132, 384, staged=False, ring_steps=32)
    yield Geometry(132, 256, staged=False, ring_steps=64)


@pytest.mark.parametrize("geometry", list(geometries()), ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_geometry_solves(geometry: Geometry, dtype: Any, tall: tuple[Any, Any]) -> None:
    import cupy

    A, b = tall
    host = lsmr(A.astype(dtype), b.astype(dtype), backend="host")
    result = lsmr(prepare(A, dtype, geometry=geometry), cupy.asarray(b.astype(dtype)))
    assert result.istop == host.istop == StopCode.LEAST_SQUARES
    assert result.itn == pytest.approx(host.itn, rel=0.03, abs=1)
    assert result.true_normr == pytest.approx(host.true_normr, rel=1e-6)
    assert result.converged
    np.testing.assert_allclose(cupy.asnumpy(result.x), host.x, rtol=0, atol=2e-4)


@pytest.mark.parametrize(
    ("name", "ratio", "iterations"),
    [("8kv-stand-in", 0.3540266, 127), ("11kv-stand-in", 0.2360898, 163)],
)
def test_the_stand_ins(name: str, ratio: float, iterations: int) -> None:
    import cupy

    A = load_matrix(name)
    b, exact = right_hand_side(A, ratio)
    result = lsmr(prepare(A, np.float32), cupy.asarray(b, dtype=cupy.float32), **TOLERANCES)
    assert result.istop == StopCode.LEAST_SQUARES
    assert result.itn == pytest.approx(iterations, rel=0.03)
    assert result.true_normr / np.linalg.norm(b) == pytest.approx(ratio, abs=5e-8)
    error = np.linalg.norm(cupy.asnumpy(result.x) - exact) / np.linalg.norm(exact)
    assert error < 1e-3
    assert (result.launches, result.host_syncs) == (1, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("blocks", "units"), [(8, 6), (20, 3), (60, 2)])
def test_warps_that_share_units_agree_bit_for_bit(blocks: int, units: int, dtype: Any) -> None:
    import cupy

    A = load_matrix("feeder(buses=33333)")
    b = cupy.asarray(A @ np.linspace(-1, 1, A.shape[1]) + np.sin(np.arange(A.shape[0])), dtype)
    geometry = Geometry(blocks, 128, staged=False, ring_steps=16, units=units)
    prepared = prepare(A, dtype, geometry=geometry)
    alone = lsmr(prepare(A, dtype, geometry=replace(geometry, units=1)), b)
    shared = lsmr(prepared, b)
    assert (shared.istop, shared.itn) == (alone.istop, pytest.approx(alone.itn, abs=1))
    assert shared.true_normr == pytest.approx(alone.true_normr, rel=1e-6)
    for _ in range(20):
        again = lsmr(prepared, b)
        assert again[1:] == shared[1:]
        assert bool((again.x == shared.x).all())


def test_ten_thousand_solves_are_equal_bit_for_bit(tall: tuple[Any, Any]) -> None:
    import cupy

    A, b = tall
    device_b = cupy.asarray(b, dtype=cupy.float32)
    for geometry, count in (
        (Geometry(132, 160, staged=True), 5000),
        (Geometry(33, 288, staged=False), 5000),
    ):
        prepared = prepare(A, np.float32, geometry=geometry)
        first = lsmr(prepared, device_b)
        for _ in range(count):
            again = lsmr(prepared, device_b)
            assert again[1:] == first[1:]
        assert bool((again.x == first.x).all())


def test_solves_beside_another_kernel(tall: tuple[Any, Any]) -> None:
    import cupy

    A, b = tall
    prepared = prepare(A, np.float32)
    device_b = cupy.asarray(b, dtype=cupy.float32)
    alone = lsmr(prepared, device_b)
    other = cupy.cuda.Stream(non_blocking=True)
    square = cupy.random.default_rng(0).random((4096, 4096), dtype=cupy.float32)
    product = square @ square
    mine = cupy.cuda.Stream(non_blocking=True)
    for _ in range(50):
        with other:
            cupy.matmul(square, square, out=product)
        with mine:
            beside = lsmr(prepared, device_b)
        assert bool((beside.x == alone.x).all())
    other.synchronize()


def test_long_rows_and_columns_are_split() -> None:
    n = 6000
    A = sparse.lil_array((n + 500, n))
    A.setdiag(np.linspace(1, 3, n))
    A[3, :] = 1 / n
    A[:, 5] = np.linspace(0, 1e-2, n + 500)[:, None]
    A = sparse.csr_array(A)
    b = np.random.default_rng(1).standard_normal(n + 500)
    host = lsmr(A, b, backend="host", damp=0.1)
    result = lsmr(A, b, backend="persistent", damp=0.1)
    assert (result.istop, result.itn) == (host.istop, pytest.approx(host.itn, abs=1))
    np.testing.assert_allclose(result.x, host.x, atol=1e-6 * abs(host.x).max())


@pytest.mark.parametrize("size", [1e-200, 1e-9, 1e-4, 1e4, 1e200])
@pytest.mark.parametrize("geometry", [None, Geometry(132, 384, staged=False, ring_steps=32)])
def test_the_condition_does_not_depend_on_the_size_of_a(
    size: float, geometry: Geometry | None, tall: tuple[Any, Any]
) -> None:
    """The first rhobar is 1 whatever A is: it is no singular value's estimate."""
    import cupy

    A, b = tall
    host = lsmr(A, b, backend="host")
    result = lsmr(prepare(A * size, np.float64, geometry=geometry), cupy.asarray(b))
    assert result.istop == host.istop == StopCode.LEAST_SQUARES
    assert result.itn == host.itn
    assert result.conda == pytest.approx(host.conda, rel=1e-3)
    np.testing.assert_allclose(size * cupy.asnumpy(result.x), host.x, rtol=0, atol=1e-5)


@pytest.mark.parametrize("precondition", [None, "columns"])
def test_all_norms_are_those_of_a_of_any_size(precondition: Any, tall: tuple[Any, Any]) -> None:
    A, b = (tall[0] * 2.0**-90).astype(np.float32), tall[1].astype(np.float32)
    seen: list[Any] = []
    host, result = (
        lsmr(A, b, backend=backend, precondition=precondition, callback=callback)
        for backend, callback in (("host", None), ("persistent", seen.append))
    )
    names = ("normr", "norma", "conda", "normx", "true_normr")
    for name in names:
        assert getattr(result, name) == pytest.approx(getattr(host, name), rel=1e-2), name
    assert result.converged
    assert (seen[-1].normar, seen[-1].normx) == (result.normar, pytest.approx(result.normx))
    gradient = np.linalg.norm(A.astype(float).T @ (b - A.astype(float) @ result.x.astype(float)))
    assert result.true_normar == pytest.approx(gradient, rel=1e-3)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_several_right_hand_sides_on_the_device(
    count: int, dtype: Any, tall: tuple[Any, Any]
) -> None:
    import cupy

    A, _ = tall
    block = np.random.default_rng(2).standard_normal((900, count)).astype(dtype)
    block[:, -1] *= 1e-3
    prepared = prepare(A, dtype)
    together = lsmr(prepared, cupy.asarray(block))
    assert together.x.shape == ((400, count) if count > 1 else (400,))
    host = lsmr(A.astype(dtype), block, backend="host")
    np.testing.assert_allclose(
        cupy.asnumpy(together.x), host.x, rtol=0, atol=2e-4 * abs(host.x).max()
    )
    assert np.abs(np.asarray(together.itn) - host.itn).max() <= 2


def test_a_callback_follows_the_kernel(tall: tuple[Any, Any]) -> None:
    seen: list[Any] = []
    result = lsmr(*tall, backend="persistent", callback=seen.append)
    assert [progress.itn for progress in seen] == list(range(1, result.itn + 1))
    assert seen[-1].normr == result.normr
    assert seen[-1].normar == result.normar


def test_a_wait_that_is_too_long_is_an_error(tall: tuple[Any, Any]) -> None:
    import cupy

    A, b = tall
    device_b = cupy.asarray(b, dtype=cupy.float32)
    prepared = prepare(A, np.float32, geometry=Geometry(132, 160, staged=True))
    expected = lsmr(prepared, device_b)
    arguments = prepared.group(1).arguments
    limit, arguments.spin_limit = arguments.spin_limit, 1
    with pytest.raises(DeviceError, match="waited too long"):
        lsmr(prepared, device_b)
    arguments.spin_limit = limit
    assert bool((lsmr(prepared, device_b).x == expected.x).all())


def test_auto_takes_the_persistent_kernel(tall: tuple[Any, Any]) -> None:
    result = lsmr(*tall)
    assert (result.backend, result.reason) == ("persistent", "real sparse A and a GPU")


def test_device_data_stay_on_the_device(tall: tuple[Any, Any]) -> None:
    import cupy
    from cupyx.scipy.sparse import coo_matrix, csc_matrix, csr_matrix

    A, b = tall
    expected = lsmr(A, b, backend="host").x
    for form in (csr_matrix, csc_matrix, coo_matrix):
        result = lsmr(form(sparse.coo_matrix(A)), cupy.asarray(b))
        assert isinstance(result.x, cupy.ndarray)
        np.testing.assert_allclose(cupy.asnumpy(result.x), expected, atol=1e-5)
    dense = lsmr(cupy.asarray(A.toarray()), cupy.asarray(b))
    assert dense.backend == "host"
    np.testing.assert_allclose(cupy.asnumpy(dense.x), expected, atol=1e-5)


def test_what_is_not_finite_is_refused_on_the_device(tall: tuple[Any, Any]) -> None:
    import cupy

    A, b = tall
    bad = cupy.asarray(b)
    bad[17] = np.nan
    with pytest.raises(InputError, match="not finite"):
        lsmr(prepare(A, np.float64), bad)


# The document's design.


@pytest.mark.parametrize("formats", ["dual", "single"])
@pytest.mark.parametrize("given", ["from_csc", "from_csr", "from_coo"])
def test_the_document_solves_with_either_format(
    formats: Any, given: str, tall: tuple[Any, Any]
) -> None:
    import cupy

    A, b = (array.astype(np.float32) for array in tall)
    matrix = getattr(SparseMatrix, given)(Context(), A, formats)
    assert matrix.formats == formats
    x = cupy.empty(A.shape[1], dtype=cupy.float32)
    (report,) = Solver(matrix.context).solve(matrix, cupy.asarray(b), x)
    host = lsmr(A, b, backend="host", maxiter=5000)
    assert report.stop_code == host.istop == StopCode.LEAST_SQUARES
    assert report.iterations == pytest.approx(host.itn, rel=0.03, abs=1)
    assert report.host_syncs == 2 * report.iterations + 3
    np.testing.assert_allclose(cupy.asnumpy(x), host.x, rtol=0, atol=2e-4)


@pytest.mark.parametrize("options", [{}, {"fused": False}, {"float4": True}])
def test_the_updates_of_the_document_agree(options: dict[str, bool], tall: tuple[Any, Any]) -> None:
    import cupy

    A, b = (array.astype(np.float32) for array in tall)
    matrix = SparseMatrix.from_csr(Context(), A)
    solver = Solver(matrix.context)
    memory = cupy.empty(A.shape[1] + 1, dtype=cupy.float32)
    host = lsmr(A, b, backend="host", maxiter=5000)
    for x in (memory[:-1], memory[1:]):  # aligned to 16 bytes, and not
        solver.solve(matrix, b, x, SolverOptions(**options))
        np.testing.assert_allclose(cupy.asnumpy(x), host.x, rtol=0, atol=2e-4)


def test_the_deterministic_algorithm_gives_the_same_bits(tall: tuple[Any, Any]) -> None:
    import cupy

    A, b = (array.astype(np.float32) for array in tall)
    matrix = SparseMatrix.from_csr(Context(), A, "dual")
    solver = Solver(matrix.context)
    x = cupy.empty(A.shape[1], dtype=cupy.float32)
    found = set()
    for _ in range(20):
        solver.solve(matrix, b, x, SolverOptions(deterministic=True))
        found.add(cupy.asnumpy(x).tobytes())
    assert len(found) == 1


def test_sparse_host_and_many_right_hand_sides_of_the_document(tall: tuple[Any, Any]) -> None:
    import cupy

    A = tall[0].astype(np.float32)
    block = np.random.default_rng(3).standard_normal((A.shape[0], 3)).astype(np.float32)
    block[np.abs(block) < 1] = 0
    matrix = SparseMatrix.from_csr(Context(), A)
    solver = Solver(matrix.context)
    many = cupy.empty((A.shape[1], 3), dtype=cupy.float32)
    solver.solve(matrix, block, many)
    one = cupy.empty(A.shape[1], dtype=cupy.float32)
    solver.solve(matrix, sparse.csc_array(block[:, 1:2]), one)
    np.testing.assert_allclose(cupy.asnumpy(one), cupy.asnumpy(many)[:, 1], rtol=0, atol=1e-4)
    host = lsmr(A, block, backend="host", maxiter=5000)
    np.testing.assert_allclose(cupy.asnumpy(many), host.x, rtol=0, atol=5e-4)


def test_dense_matrices_start_and_damping_of_the_document(tall: tuple[Any, Any]) -> None:
    A, b = (array.astype(np.float32) for array in tall)
    start = np.ones(A.shape[1], dtype=np.float32)
    for matrix in (A, A.toarray()):
        found = lsmr(matrix, b, 0.5, x0=start, backend="document")
        host = lsmr(matrix, b, 0.5, x0=start, backend="host")
        assert (found.istop, found.backend) == (host.istop, "document")
        assert found.true_normr == pytest.approx(host.true_normr, rel=1e-5)
        np.testing.assert_allclose(found.x, host.x, rtol=0, atol=5e-4)
