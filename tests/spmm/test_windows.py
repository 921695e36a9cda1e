"""The pipelined WCSR kernel's host side: structs, pieces and slots, geometry, the sum's tree."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import numpy as np
import pytest

from asyncsparse_lab.errors import InputError, UnsupportedError
from asyncsparse_lab.formats import WCSR
from asyncsparse_lab.formats.layouts import K16, core_matrices
from asyncsparse_lab.gpu.compile import compile_kernel
from asyncsparse_lab.gpu.inspect import find_disassembler, sass_counts
from asyncsparse_lab.spmm.builds import all_builds, pipelined_builds
from asyncsparse_lab.spmm.edge_cases import empty_rows, one_dense_row, random_matrix
from asyncsparse_lab.spmm.geometry import SM_SHARED_BYTES, STATIC_BYTES
from asyncsparse_lab.spmm.run import FAMILIES, Ours
from asyncsparse_lab.spmm.variants import OUTPUT_TYPES, VARIANTS
from asyncsparse_lab.spmm.windows import TASK, WindowArguments, WindowPieces, choose_limit

from .test_wcsr import struct_of

PIPELINED = VARIANTS["wcsr-pipelined"]


def test_the_structs_mirror_the_header() -> None:
    names, size = struct_of("window_arguments.cuh", "WindowArguments")
    assert names == [field[0] for field in WindowArguments._fields_]
    assert ctypes.sizeof(WindowArguments) == size
    names, size = struct_of("window_arguments.cuh", "WindowTask")
    assert tuple(names) == TASK.names
    assert TASK.itemsize == size


@pytest.mark.parametrize("height", [64, 128, 256])
@pytest.mark.parametrize("limit", [0, 64, 512])
@pytest.mark.parametrize("deterministic", [False, True])
def test_pieces_add_up_to_the_product(height: int, limit: int, deterministic: bool) -> None:
    A = one_dense_row().astype(np.float64)
    windows = WCSR.from_csr(A, height, K16)
    pieces = WindowPieces.of(windows.window_row_ptr, limit, deterministic)
    B = np.random.default_rng(0).standard_normal((A.shape[1], 5))
    C = np.full((-(-A.shape[0] // height) * height, 5), np.nan)
    slots: dict[int, Any] = {}
    for task in pieces.tasks:
        columns = slice(task["first_column"], task["first_column"] + task["columns"])
        index = windows.window_col_idx[columns]
        part = windows.values[columns].T @ np.where(index[:, None] >= 0, B[index], 0)
        rows = slice(height * task["window"], height * (task["window"] + 1))
        if task["pieces"] == 1:
            assert task["slot"] == -1
            C[rows] = part
            continue
        slot = int(task["slot"]) + (int(task["piece"]) if deterministic else 0)
        assert 0 <= slot < pieces.slots
        assert not (deterministic and slot in slots), "two pieces write to one slot"
        slots[slot] = part if deterministic else slots.get(slot, 0) + part
        if deterministic:
            own = range(int(task["slot"]), int(task["slot"]) + int(task["pieces"]))
            C[rows] = sum(slots.get(other, 0) for other in own)
        else:
            C[rows] = slots[slot]
    assert len(slots) == pieces.slots
    np.testing.assert_allclose(C[: A.shape[0]], A @ B, atol=1e-9)
    assert (np.diff(pieces.tasks["columns"]) <= 0).all(), "the longest tasks start first"
    assert pieces.count == len(pieces.tasks)
    expected = -(-int(np.diff(windows.window_row_ptr).max()) // limit) if limit else 1
    assert pieces.most_pieces == expected


def test_empty_windows_keep_a_task() -> None:
    windows = WCSR.from_csr(empty_rows(), 64, K16)
    pieces = WindowPieces.of(windows.window_row_ptr, 64, deterministic=True)
    assert set(pieces.tasks["window"]) == set(range(len(windows.window_row_ptr) - 1))
    assert (pieces.tasks["columns"] == 0).any()


def merge(order: tuple[int, ...], values: list[float]) -> tuple[float, int]:
    """Follow ``merge_in_order`` of window_partials.cuh: the sum, and how many pieces hold it."""
    pieces = len(values)
    slots, arrivals, totals = dict[int, float](), dict[int, int](), []
    for piece in order:
        begin, total = piece, values[piece]
        span = 1
        while span < pieces:
            right = begin | span
            if right < pieces:
                arrivals[right] = arrivals.get(right, 0) + 1
                if arrivals[right] < 2:
                    slots[begin] = total
                    break
                arrivals[right] = 0
                total = total + slots.pop(begin ^ span)
                begin &= ~span
            span *= 2
        else:
            totals.append(total)
    assert not any(arrivals.values()), "the next launch needs zeros"
    assert not slots, "a sum that nobody took"
    return totals[0], len(totals)


@pytest.mark.parametrize("pieces", [2, 3, 5, 6])
def test_the_sum_of_pieces_does_not_depend_on_their_order(pieces: int) -> None:
    values = np.random.default_rng(pieces).standard_normal(pieces).tolist()
    found = {merge(order, values) for order in itertools.permutations(range(pieces))}
    assert len(found) == 1, "a sum that depends on the order of arrival"
    total, holders = found.pop()
    assert holders == 1
    assert total == pytest.approx(sum(values))


def test_windows_are_cut_where_one_would_be_waited_for() -> None:
    even = np.arange(0, 100 * 640 + 1, 640)
    assert choose_limit(even, column_tiles=8, places=264) == 0
    skewed = np.append(even, even[-1] + 64_000)
    limit = choose_limit(skewed, column_tiles=8, places=264)
    fair = int(skewed[-1]) * 8 // 264
    assert limit % 16 == 0
    assert fair <= limit < fair + 16
    assert choose_limit(np.array([0, 320]), column_tiles=1, places=264) == 0, "pieces of no length"
    assert choose_limit(np.array([0]), column_tiles=1, places=264) == 0


@pytest.mark.parametrize("height", [64, 128, 256])
def test_a_stage_of_a_tall_window_is_contiguous(height: int) -> None:
    windows = WCSR.from_csr(random_matrix(2 * height, 300, 0.2, seed=5), height, K16)
    values = np.arange(windows.values.size).astype(np.uint16).reshape(windows.values.shape)
    laid = core_matrices(values).reshape(-1)
    step = 2
    for i, c in ((0, 0), (9, 7), (height - 1, 15), (height // 2, 8)):
        group = step * height * 16 + i // 64 * 1024  # what consumer i / 64 reads of the step
        offset = group + c // 8 * 512 + i % 64 // 8 * 64 + i % 8 * 8 + c % 8
        assert laid[offset] == values[16 * step + c, i]


def test_as_many_blocks_fit_on_an_sm_as_a_build_says() -> None:
    for variant in pipelined_builds():
        geometry = variant.launch_geometry
        block = geometry.shared_bytes + STATIC_BYTES + 1024
        assert block * variant.constants["MINIMUM_CTAS"] <= SM_SHARED_BYTES
        consumers = 2 * variant.params["window"] * variant.params["column_groups"]
        assert geometry.threads == consumers + 32 * variant.params["producers"]
    assert pipelined_builds()[0] == PIPELINED
    assert len(pipelined_builds()) <= 10


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"HEIGHT": 192}, "HEIGHT = 192: use one of 64, 128, 256"),
        ({"WGMMA_N": 32}, "WGMMA_N = 32: use one of 64, 128, 256"),
        ({"WGMMA_N": 64, "PRODUCERS": 8}, "PRODUCERS = 8: use one of 2, 4"),
        ({"PRODUCERS": 4}, "leave 80 registers a thread, and WGMMA_N = 128 needs 90"),
        ({"STAGES": 4}, "STAGES = 4 of 24576 bytes do not fit 3 times on an SM: use at most 3"),
        ({"COLUMN_GROUPS": 4}, "COLUMN_GROUPS = 4: use one of 1, 2"),
        ({"WGMMA_N": 256, "COLUMN_GROUPS": 2}, "COLUMN_GROUPS = 2: use one of 1"),
        (
            {"HEIGHT": 256, "MINIMUM_CTAS": 1, "PRODUCERS": 4, "STAGES": 2},
            "cannot hold 256 x 128 of C: use at",
        ),
    ],
)
def test_what_cannot_run_is_refused_before_it_is_compiled(
    constants: dict[str, int], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        PIPELINED.with_constants(**constants)


def test_no_instruments() -> None:
    probe = PIPELINED.with_constants(INSTRUMENT=1)
    product = type("Product", (), {"require": lambda *_: None})()
    with pytest.raises(UnsupportedError, match="no instruments"):
        FAMILIES["pipelined"].launch(probe, None, product, None)  # type: ignore[arg-type]


def test_records_say_how_tall_the_windows_are() -> None:
    tall = PIPELINED.with_constants(HEIGHT=128, MINIMUM_CTAS=2)
    assert Ours(tall).params["window"] == 128
    assert VARIANTS["wcsr-paper"].params["window"] == 64
    assert Ours(PIPELINED).params["max_cols_per_task"] == -1


def test_verification_covers_every_tile_whole_and_in_pieces() -> None:
    built = [
        b for b in all_builds() if b.variant.name == PIPELINED.name and b.dtype_in == "bfloat16"
    ]
    for variant in pipelined_builds():
        same = [b for b in built if b.variant.constants == variant.constants]
        limits = {(b.dtype_out, b.variant.options["max_cols_per_task"]) for b in same}
        assert limits == {(dtype, limit) for dtype in OUTPUT_TYPES for limit in (-1, 64)}
        assert {b.variant.options["deterministic"] for b in same} == {0, 1}


@pytest.mark.skipif(find_disassembler() is None, reason="no disassembler")
def test_the_kernel_gathers_asynchronously_and_spills_nothing() -> None:
    artifact = compile_kernel(PIPELINED.path, PIPELINED.entry, PIPELINED.macros("bfloat16"))
    counts = sass_counts(artifact)
    assert counts["LDGSTS"] > 0, "rows of B by cp.async"
    assert counts["ARRIVES"] > 0, "copies arrive by themselves"
    assert counts["UBLKCP"] > 0, "A by bulk copies"
    assert counts["HGMMA"] > 0
    assert counts["STSM"] > 0, "C through shared memory"
    assert artifact.resources.spill_stores == 0
