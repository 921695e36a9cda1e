"""CSR on the host: the mirror of the struct, and how rows are shared out."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from asyncsparse_lab.gpu.compile import compile_kernel
from asyncsparse_lab.resources import resource_path
from asyncsparse_lab.spmm.builds import all_builds
from asyncsparse_lab.spmm.csr import (
    ENTRIES,
    UNALIGNED_ENTRY,
    WARPS_PER_SM,
    CsrArguments,
    CsrPlan,
    RowTasks,
    choose_tile,
)
from asyncsparse_lab.spmm.edge_cases import EDGE_CASES, one_dense_row, random_matrix
from asyncsparse_lab.spmm.variants import VARIANTS

PLACES = 132 * 20


def compute(A: csr_array, tasks: RowTasks, B: Any) -> Any:
    """Do what the kernel does with the tasks; rows that no task writes stay NaN."""
    C = np.full((A.shape[0], B.shape[1]), np.nan)
    partials = np.full((tasks.slots, B.shape[1]), np.nan)
    pieces_of: dict[int, tuple[int, int]] = {}
    if tasks.tasks is None:
        m, step = A.shape[0], tasks.rows_per_task
        for row in range(0, m, step):
            C[row : row + step] = A[row : row + step] @ B
        assert tasks.count == -(-m // step)
        return C
    for row, rows, begin, end, piece, pieces, slot, _ in tasks.table(A.indptr):
        if pieces == 0:
            assert (begin, end) == (A.indptr[row], A.indptr[row + rows])
            C[row : row + rows] = A[row : row + rows] @ B
        else:
            assert rows == 1
            partials[slot + piece] = A.data[begin:end] @ B[A.indices[begin:end]]
            pieces_of[row] = slot, pieces
    for row, (slot, pieces) in pieces_of.items():
        C[row] = partials[slot : slot + pieces].sum(axis=0)
    return C


@pytest.mark.parametrize("rows_per_task", [0, 1, 3])
@pytest.mark.parametrize("piece_length", [0, 64, 1000])
@pytest.mark.parametrize(
    "case", [case for case in EDGE_CASES if case.scope == "small"], ids=lambda case: case.name
)
def test_every_row_is_computed_once(case: Any, rows_per_task: int, piece_length: int) -> None:
    A = case.make().astype(np.float64)
    tasks = RowTasks.of(A.indptr, 4, PLACES, rows_per_task, piece_length)
    B = np.random.default_rng(0).standard_normal((A.shape[1], 3))
    np.testing.assert_allclose(compute(A, tasks, B), A @ B, atol=1e-9)


def test_a_long_row_is_cut_and_its_pieces_come_first() -> None:
    A = one_dense_row().astype(np.float64)
    tasks = RowTasks.of(A.indptr, 1, PLACES)
    assert tasks.slots == -(-3000 // tasks.piece_length)
    is_piece = tasks.tasks[:, 1] == 0
    assert is_piece[: tasks.slots].all()
    assert not is_piece[tasks.slots :].any()
    assert (tasks.tasks[is_piece, 0] == 137).all()
    ordinary = tasks.tasks[~is_piece]
    assert (np.diff(ordinary[:, 0]) > 0).all(), "neighbours stay neighbours"
    B = np.random.default_rng(0).standard_normal((A.shape[1], 3))
    np.testing.assert_allclose(compute(A, tasks, B), A @ B, atol=1e-9)


def test_pieces_grow_with_the_matrix_and_short_rows_share_a_task() -> None:
    small = RowTasks.of(random_matrix(400, 400, 0.01).indptr, 1, PLACES)
    assert (small.rows_per_task, small.piece_length) == (1, 32)
    rows = random_array((40_000, 900), density=0.005, rng=1, format="csr")
    many = RowTasks.of(rows.indptr, 4, PLACES)
    assert many.tasks is None
    assert many.rows_per_task == 20  # about 90 of 273 non-zeros that a place has
    assert many.piece_length == 128
    assert many.count == 2000


@pytest.mark.parametrize(
    ("n", "columns"), [(1, 64), (64, 64), (100, 128), (128, 128), (192, 256), (256, 256),
                       (320, 128), (512, 256), (1000, 256), (1024, 256)]
)  # fmt: skip
def test_a_tile_wastes_few_lanes(n: int, columns: int) -> None:
    assert choose_tile(n) == columns


def test_rows_that_are_not_whole_chunks_have_a_kernel_of_their_own() -> None:
    plan = CsrPlan.of(1000, 143, aligned=False)
    assert (plan.entry, plan.column_tiles) == (UNALIGNED_ENTRY, 1)
    assert plan.groups(128) == 4
    assert CsrPlan.of(1000, 64, aligned=True).groups(128) == 16


def test_columns_go_first_only_where_b_stays_in_l2() -> None:
    assert CsrPlan.of(5_000, 1024, aligned=True).columns_first
    assert not CsrPlan.of(100_000, 1024, aligned=True).columns_first
    assert CsrPlan.of(100_000, 1024, aligned=True, order=2).columns_first
    assert not CsrPlan.of(5_000, 1024, aligned=True, order=1).columns_first


def test_the_argument_struct_mirrors_the_header() -> None:
    header = (resource_path("kernels") / "include" / "csr_arguments.cuh").read_text()
    body = header[header.index("struct CsrArguments {") :].partition("};")[0]
    names = re.findall(r"(\w+);", re.sub(r"//.*", "", body))
    assert names == [field[0] for field in CsrArguments._fields_]
    size = re.search(r"sizeof\(CsrArguments\) == (\d+)", header)
    assert size is not None
    assert ctypes.sizeof(CsrArguments) == int(size[1])


def test_every_kernel_that_can_be_chosen_is_in_the_source() -> None:
    source = VARIANTS["csr-vector"].path.read_text()
    assert set(re.findall(r"CSR_KERNEL\((csr\w+)", source)) == {*ENTRIES.values(), UNALIGNED_ENTRY}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("unroll", [4, 8])
def test_it_compiles_for_ampere_too_and_leaves_room_for_its_warps(arch: str, unroll: int) -> None:
    kernel = VARIANTS["csr-vector"].with_constants(UNROLL=unroll)
    macros = kernel.macros("float16", "float16")
    artifact = compile_kernel(kernel.path, kernel.entry, macros, arch)  # spills are refused
    assert artifact.resources.registers <= (65536 // (32 * WARPS_PER_SM) if unroll == 8 else 64)


def test_it_is_built_for_both_input_types() -> None:
    builds = [build for build in all_builds() if build.variant.name == "csr-vector"]
    assert {(b.dtype_in, b.dtype_out) for b in builds} == {
        ("bfloat16", "bfloat16"), ("bfloat16", "float32"),
        ("float16", "float16"), ("float16", "float32"),
    }  # fmt: skip
