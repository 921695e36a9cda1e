"""The ring kernels on the GPU: other tiles, uneven rows, C in the caller's memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from asyncsparse_lab.spmm.builds import Build
from asyncsparse_lab.spmm.edge_cases import EDGE_CASES, random_blocks
from asyncsparse_lab.spmm.oracle import reference
from asyncsparse_lab.spmm.product import Product, poison
from asyncsparse_lab.spmm.run import Ours
from asyncsparse_lab.spmm.variants import VARIANTS, Variant
from asyncsparse_lab.spmm.verify import compare_launches, verify_build

pytestmark = pytest.mark.gpu

OVERLAP, PAIRED = VARIANTS["bcsr-overlap"], VARIANTS["bcsr-paired"]
ORDINARY = [case for case in EDGE_CASES if case.scope != "named"]
SHAPES = (
    OVERLAP.with_constants(WGMMA_N=128, STAGES=5),
    OVERLAP.with_constants(WGMMA_N=64, STAGES=3),
    PAIRED.with_constants(WGMMA_N=128, STAGES=6),
    PAIRED.with_constants(WGMMA_N=64, STAGES=3),
)


def name_of(variant: Variant) -> str:
    base = VARIANTS[variant.name].constants
    changed = [f"{key}{value}" for key, value in variant.constants.items() if base[key] != value]
    return "-".join([variant.name, *changed])


@pytest.mark.parametrize("variant", SHAPES, ids=name_of)
@pytest.mark.parametrize(
    "kind",
    [
        ("bfloat16", "bfloat16", "row-major"),
        ("float32", "bfloat16", "column-major"),
        ("float16", "float16", "column-major"),
    ],
    ids="-".join,
)
def test_other_tiles_pass_the_edge_cases(variant: Variant, kind: tuple[str, str, str]) -> None:
    build = Build(variant, *kind)
    outcomes = verify_build(variant, build.dtype_out, ORDINARY, build.dtype_in, build.layout)
    assert {outcome.case: outcome.fault for outcome in outcomes if outcome.fault} == {}


@pytest.mark.parametrize("variant", [*SHAPES, OVERLAP, PAIRED], ids=name_of)
def test_launches_with_delays_repeat_bit_for_bit(variant: Variant) -> None:
    assert compare_launches(variant, 200).different_words == 0


@pytest.mark.parametrize("variant", [OVERLAP, PAIRED], ids=name_of)
@pytest.mark.parametrize("layout", ["row-major", "column-major"])
@pytest.mark.parametrize("density", [0.0, 0.02, 0.3])
def test_all_tiles_are_drawn_once_launch_after_launch(
    variant: Variant, layout: str, density: float
) -> None:
    """More tiles than thread blocks: numbers come from the counter, which each launch resets."""
    A = random_blocks(64 * 150, 64 * 20, density)
    product = Product.random(A, 4096, dtype_out="bfloat16", layout=layout)
    truth = reference(product.A, product.B)
    prepared = Ours(variant).prepare(product)
    for _ in range(20):
        poison(prepared.output)
        prepared.run()
        assert truth.relative_error(prepared.output) <= truth.err_bound("bfloat16")


@pytest.mark.parametrize("variant", [OVERLAP, PAIRED], ids=name_of)
@pytest.mark.parametrize("layout", ["row-major", "column-major"])
@pytest.mark.parametrize("first", [0, 3, 8])
def test_c_goes_where_the_caller_wants(variant: Variant, layout: str, first: int) -> None:
    import cupy

    case = next(case for case in EDGE_CASES if case.name == "ragged-n200")
    product = Product.random(case.make(), 200, dtype_out="bfloat16", layout=layout)
    truth = reference(product.A, product.B)
    m, n = product.m, 200
    shape = (m, n + 24) if layout == "row-major" else (n, m + 31)
    memory = cupy.empty(shape, dtype=cupy.uint16)
    poison(memory)
    out = memory[:, first : first + (n if layout == "row-major" else m)]
    if layout == "column-major":
        out = out.T
    Ours(variant).prepare(replace(product, out=out)).run()
    assert truth.relative_error(out) <= truth.err_bound("bfloat16")
    untouched = memory.get().astype(np.int64)
    untouched[:, first : first + (n if layout == "row-major" else m)] = 0x7FC0
    assert (untouched == 0x7FC0).all(), "written beyond C"
