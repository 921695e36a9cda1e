"""Geometry, staging and the kernel as the compiler sees it; no GPU."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from asyncsparse_lab.errors import CompileError, InputError
from asyncsparse_lab.gpu.compile import compile_kernel, compile_many
from asyncsparse_lab.lsmr.arguments import OUTCOME_FIELDS, MatrixArguments, SolveArguments
from asyncsparse_lab.lsmr.geometry import (
    GROUPS,
    SHARED,
    Geometry,
    check_geometry,
    choose_geometry,
    persistent_builds,
    predict_us,
)
from asyncsparse_lab.lsmr.plan import build_plan
from asyncsparse_lab.matrices import load_matrix
from asyncsparse_lab.resources import resource_path

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
H200_SM, H200_SHARED = 132, 232_448 - 4096


def test_the_stand_in_is_staged() -> None:
    plan = build_plan(load_matrix("8kv-stand-in"), FLOAT32, None)
    geometry = choose_geometry(plan, H200_SM, H200_SHARED, 1)
    assert geometry.staged
    assert geometry.blocks <= H200_SM
    shared = plan.shared_bytes(plan.bounds(geometry.blocks), 1)
    assert 0 < shared <= H200_SHARED
    assert plan.shared_bytes(plan.bounds(geometry.blocks), 4) > shared


def test_what_does_not_fit_is_not_staged() -> None:
    A = sparse.eye_array(2_000_000, format="csr")
    plan = build_plan(A, FLOAT64, None)
    geometry = choose_geometry(plan, 8, H200_SHARED, 1)
    assert not geometry.staged
    assert geometry.blocks == 8 * geometry.blocks_per_sm


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64])
def test_what_does_not_fit_streams_where_there_are_bulk_copies(dtype: np.dtype[Any]) -> None:
    plan = build_plan(sparse.eye_array(2_000_000, format="csr"), dtype, None)
    geometry = choose_geometry(plan, 8, H200_SHARED, 1, capability=(9, 0))
    check_geometry(geometry)
    assert geometry.streamed
    assert geometry.shared_bytes(plan, 1) < 196 * 1024  # which leaves 60 KB to the L1 cache
    assert geometry.parts == 8 * geometry.workers
    # Every slice belongs to one warp, in order.
    for bounds, matrix in zip(
        plan.bounds(geometry.parts, geometry.slice_cost), (plan.forward, plan.adjoint), strict=True
    ):
        assert bounds.size == geometry.parts + 1
        assert (bounds[0], bounds[-1]) == (0, matrix.row_slices)
        assert (np.diff(bounds) >= 0).all()
        steps = np.add.reduceat(matrix.slices[:, 2], bounds[:-1])
        assert steps.max() < 1.1 * steps.mean()
    assert not choose_geometry(plan, 8, H200_SHARED, 4, capability=(9, 0)).streamed
    assert not choose_geometry(plan, 8, H200_SHARED, 1).streamed


def test_warps_that_stream_share_the_end_of_a_phase() -> None:
    plan = build_plan(sparse.eye_array(2_000_000, format="csr"), FLOAT32, None)
    geometry = choose_geometry(plan, 8, H200_SHARED, 1, capability=(9, 0))
    assert geometry.units > 1
    own, fine = (plan.forward.block_steps(bounds) for bounds in (
        plan.bounds(geometry.parts, geometry.slice_cost)[0], geometry.bounds(plan)[0]
    ))  # fmt: skip
    units = fine.reshape(geometry.parts, geometry.units)
    np.testing.assert_array_equal(units.sum(axis=1), own)
    assert units[:, 1:].sum() == pytest.approx(SHARED * own.sum(), rel=0.02)
    assert fine.min() > geometry.ring_steps - geometry.chunk_steps  # fills a ring
    assert geometry.block_parts == geometry.workers * geometry.units
    with pytest.raises(InputError, match="units=30: one has"):
        replace(geometry, units=30).bounds(plan)
    small = choose_geometry(plan, 8, 99 * 1024, 1, capability=(12, 0))
    assert not small.streamed, "rings do not fit"
    few = choose_geometry(plan, 132, H200_SHARED, 1, capability=(9, 0))
    assert (few.streamed, few.units) == (True, 1)  # 21 steps a warp


def test_a_small_matrix_gets_a_small_grid() -> None:
    plan = build_plan(sparse.eye_array(40, format="csr"), FLOAT64, None)
    assert choose_geometry(plan, H200_SM, H200_SHARED, 1).blocks == 1


def test_the_matrix_is_not_changed() -> None:
    A = sparse.csr_array((np.ones(4), np.array([2, 0, 0, 1]), np.array([0, 3, 4])), shape=(2, 3))
    indices = A.indices.copy()
    build_plan(A, FLOAT64, None)
    np.testing.assert_array_equal(A.indices, indices)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threads": 100}, "threads=100"),
        ({"copies": 0}, "copies=0"),
        ({"blocks": 0}, "blocks=0"),
        ({"ring_steps": 32}, "ring_steps=32"),  # and staged
        ({"ring_steps": 24, "staged": False}, "ring_steps=24"),
        ({"ring_steps": 8, "staged": False}, "ring_steps=8"),
        ({"units": 2}, "units=2"),  # without a ring
        ({"units": 0}, "units=0"),
    ],
)
def test_impossible_geometries_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_geometry(replace(Geometry(8, 288, staged=True), **change))


def _fields(struct: str) -> list[str]:
    header = resource_path("kernels") / "include" / "lsmr_arguments.cuh"
    body = re.search(rf"struct {struct} \{{(.*?)\n\}};", header.read_text(), re.DOTALL)
    assert body is not None
    return re.findall(r"(\w+);", re.sub(r"//.*", "", body[1]))


def test_the_mirrors_have_the_fields_of_the_header() -> None:
    assert [field[0] for field in SolveArguments._fields_] == _fields("LsmrArguments")
    assert [field[0] for field in MatrixArguments._fields_] == _fields("LsmrMatrix")
    assert list(OUTCOME_FIELDS) == _fields("LsmrOutcome")
    assert ctypes.sizeof(MatrixArguments) == 64


@pytest.mark.parametrize(
    ("name", "blocks", "fastest_us"), [("8kv-stand-in", 16, 4.70), ("11kv-stand-in", 66, 6.95)]
)
def test_the_choice_is_the_fastest_that_was_measured(
    name: str, blocks: int, fastest_us: float
) -> None:
    plan = build_plan(load_matrix(name), FLOAT32, None)
    geometry = choose_geometry(plan, H200_SM, H200_SHARED, 1, capability=(9, 0))
    assert (geometry.staged, geometry.blocks, geometry.threads) == (True, blocks, 640)
    assert geometry.cluster == (blocks == 16)
    assert predict_us(plan, geometry) == pytest.approx(fastest_us, abs=0.15)
    assert not choose_geometry(plan, H200_SM, H200_SHARED, 1).cluster


@pytest.mark.parametrize(
    ("name", "geometry", "measured_us"),
    [
        ("8kv-stand-in", Geometry(33, 640, staged=True, batched=1), 6.01),
        ("8kv-stand-in", Geometry(99, 384, staged=True, batched=1), 6.81),
        ("11kv-stand-in", Geometry(16, 640, staged=True, batched=2, cluster=True), 8.57),
        ("11kv-stand-in", Geometry(64, 288, staged=True, batched=1), 8.55),
        ("11kv-stand-in", Geometry(99, 384, staged=True, batched=1), 7.45),
    ],
)
def test_the_model_is_near_what_was_measured(
    name: str, geometry: Geometry, measured_us: float
) -> None:
    plan = build_plan(load_matrix(name), FLOAT32, None)
    assert predict_us(plan, geometry) == pytest.approx(measured_us, abs=0.3)


def test_every_choice_is_among_the_builds() -> None:
    listed = [dict(build.constants) for build in persistent_builds()]
    for size in (40, 5_000, 2_000_000):
        for itemsize, groups in GROUPS.items():
            dtype = np.dtype(f"f{itemsize}")
            plan = build_plan(sparse.eye_array(size, format="csr"), dtype, None)
            for rhs in groups:
                for capability in ((8, 0), (9, 0)):
                    geometry = choose_geometry(
                        plan, H200_SM, H200_SHARED, rhs, capability=capability
                    )
                    assert dict(geometry.constants(dtype, rhs)) in listed


@pytest.mark.slow
def test_every_build_fits_its_block_and_uses_no_local_memory() -> None:
    builds = persistent_builds()
    for build, artifact in zip(builds, compile_many(builds), strict=True):
        assert not isinstance(artifact, CompileError), artifact
        numbers = artifact.resources
        assert (numbers.stack, numbers.spill_stores, numbers.spill_loads) == (0, 0, 0)
        # Registers are handed out to warps in units of 8 a thread.
        assert -(-numbers.registers // 8) * 8 * build.constants["THREADS"] <= 65_536


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_the_kernel_compiles_without_spills(arch: str) -> None:
    geometry = Geometry(132, 288, staged=True)
    constants = geometry.constants(FLOAT32, 1)
    artifact = compile_kernel("lsmr_persistent.cu", "lsmr_persistent", constants, arch)
    assert artifact.resources.spill_loads == artifact.resources.stack == 0
    assert artifact.resources.registers * geometry.threads <= 65_536
