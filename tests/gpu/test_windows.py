"""The pipelined WCSR kernel on the GPU: every tile, windows whole and cut, rows in two orders."""

from __future__ import annotations

from dataclasses import replace

import pytest

from asyncsparse_lab.spmm.builds import pipelined_builds
from asyncsparse_lab.spmm.edge_cases import EDGE_CASES, random_matrix
from asyncsparse_lab.spmm.orders import AS_STORED, SIMILARITY
from asyncsparse_lab.spmm.product import Product, poison
from asyncsparse_lab.spmm.run import Ours
from asyncsparse_lab.spmm.variants import OUTPUT_TYPES, VARIANTS, Variant
from asyncsparse_lab.spmm.verify import compare_launches, verify_build
from asyncsparse_lab.spmm.windows import WindowPieces

pytestmark = pytest.mark.gpu

ORDINARY = [case for case in EDGE_CASES if case.scope != "named"]
PIPELINED = VARIANTS["wcsr-pipelined"]
TWO_PIECES = {64: 288, 128: 448, 256: 528}
"""Height of a window to columns at which the launch test's longest ones are cut in two."""


def name_of(variant: Variant) -> str:
    names = ("HEIGHT", "WGMMA_N", "COLUMN_GROUPS", "MINIMUM_CTAS")
    return "x".join(str(variant.constants[name]) for name in names)


@pytest.mark.parametrize("variant", pipelined_builds(), ids=name_of)
@pytest.mark.parametrize("dtype_out", OUTPUT_TYPES)
@pytest.mark.parametrize("row_order", [AS_STORED, SIMILARITY])
def test_every_tile_passes_the_edge_cases(variant: Variant, dtype_out: str, row_order: int) -> None:
    whole = variant.with_options(row_order=row_order)
    pieces = whole.with_options(max_cols_per_task=64)
    faults = {}
    for kernel in (whole, pieces, pieces.with_options(deterministic=0)):
        for outcome in verify_build(kernel, dtype_out, ORDINARY):
            if outcome.fault:
                faults[outcome.case, str(kernel.options)] = outcome.fault
    assert faults == {}


@pytest.mark.parametrize("dtype_out", ["float16", "float32"])
def test_float16_passes_the_edge_cases(dtype_out: str) -> None:
    pieces = PIPELINED.with_options(max_cols_per_task=64)
    outcomes = [
        outcome
        for kernel in (PIPELINED, pieces)
        for outcome in verify_build(kernel, dtype_out, ORDINARY, dtype_in="float16")
    ]
    assert {outcome.case: outcome.fault for outcome in outcomes if outcome.fault} == {}


@pytest.mark.parametrize("deterministic", [0, 1])
@pytest.mark.parametrize("variant", pipelined_builds(), ids=name_of)
def test_pieces_with_delays_meet_again_and_again(variant: Variant, deterministic: int) -> None:
    # Atomics on two pieces give a sum that no order changes.
    limit = 64 if deterministic else TWO_PIECES[variant.constants["HEIGHT"]]
    pieces = variant.with_options(max_cols_per_task=limit, deterministic=deterministic)
    assert compare_launches(pieces, 200).different_words == 0


def test_c_is_written_where_its_rows_are_not_aligned() -> None:
    import cupy

    from asyncsparse_lab.spmm.oracle import reference

    case = next(case for case in EDGE_CASES if case.name == "ragged-n200")
    product = Product.random(case.make(), 200, dtype_out="bfloat16")
    truth = reference(product.A, product.B)
    memory = cupy.empty((product.m, 207), dtype=cupy.uint16)
    for first in (0, 3, 7):
        poison(memory)
        out = memory[:, first : first + 200]
        Ours(PIPELINED).prepare(replace(product, out=out)).run()
        assert truth.relative_error(out) <= truth.err_bound("bfloat16")
        outside = cupy.concatenate([memory[:, :first], memory[:, first + 200 :]], axis=1)
        assert bool((outside == memory.dtype.type(0x7FC0)).all()), "written beyond C"


def test_tasks_come_with_the_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_on_the_host(*_: object) -> None:
        raise AssertionError("the conversion on the GPU has cut them already")

    monkeypatch.setattr(WindowPieces, "of", cut_on_the_host)
    kernel = PIPELINED.with_options(max_cols_per_task=64)
    prepared = Ours(kernel).prepare(Product.random(random_matrix(200, 500, 0.3, seed=7), 64))
    assert prepared.params["columns_per_task"] == 64
    prepared.run()
