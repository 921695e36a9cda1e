from __future__ import annotations

import numpy as np
import pytest

from asyncsparse_lab.spmm.builds import Build, all_builds, ring_sweep
from asyncsparse_lab.spmm.edge_cases import EDGE_CASES
from asyncsparse_lab.spmm.oracle import reference
from asyncsparse_lab.spmm.variants import OUTPUT_TYPES, VARIANTS
from asyncsparse_lab.spmm.verify import compare_launches, verify_build

pytestmark = pytest.mark.gpu

ORDINARY = [case for case in EDGE_CASES if case.scope != "named"]
SMALL = [case for case in EDGE_CASES if case.scope == "small"]


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("dtype_out", OUTPUT_TYPES)
def test_named_variants_pass_the_edge_cases(name: str, dtype_out: str) -> None:
    outcomes = verify_build(VARIANTS[name], dtype_out, ORDINARY)
    assert {outcome.case: outcome.fault for outcome in outcomes if outcome.fault} == {}


OTHERS = [build for build in all_builds() if build[2:] != ("bfloat16", "row-major")]


@pytest.mark.parametrize(
    "build", OTHERS, ids=lambda b: f"{b.variant.name}-{b.dtype_in}-{b.dtype_out}-{b.layout}"
)
def test_other_types_and_layouts_pass_the_edge_cases(build: Build) -> None:
    outcomes = verify_build(build.variant, build.dtype_out, ORDINARY, build.dtype_in, build.layout)
    assert {outcome.case: outcome.fault for outcome in outcomes if outcome.fault} == {}


def test_every_tile_and_depth_of_the_ring_passes_the_small_cases() -> None:
    faults = {}
    for variant in ring_sweep(VARIANTS["bcsr-opt3"]):
        for outcome in verify_build(variant, "bfloat16", SMALL):
            if outcome.fault:
                faults[outcome.case, str(dict(variant.constants))] = outcome.fault
    assert faults == {}


@pytest.mark.parametrize("name", VARIANTS)
def test_launches_with_delays_repeat_bit_for_bit(name: str) -> None:
    outcome = compare_launches(VARIANTS[name], 200)
    assert outcome.different_words == 0


@pytest.mark.parametrize("case", ORDINARY, ids=lambda case: case.name)
def test_the_reference_on_the_gpu_is_scipys(case) -> None:  # type: ignore[no-untyped-def]
    import cupy

    from asyncsparse_lab.formats import bfloat16_from_bits
    from asyncsparse_lab.spmm.edge_cases import make_b

    A = case.make()
    B = make_b(cupy, A, case)
    on_gpu = reference(A, B)
    on_cpu = reference(A, bfloat16_from_bits(cupy.asnumpy(B)))
    bound = (on_cpu.longest_row + 1) * 2.0**-52
    assert on_cpu.relative_error(cupy.asnumpy(on_gpu.values)) <= bound
    np.testing.assert_allclose(cupy.asnumpy(on_gpu.scale), on_cpu.scale, rtol=bound)
