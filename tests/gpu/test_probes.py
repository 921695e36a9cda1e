"""Instrumented builds on the GPU: they compute the product, and their accounts are whole."""

from __future__ import annotations

import pytest

from asyncsparse_lab.formats import BCSR
from asyncsparse_lab.matrices import load_matrix
from asyncsparse_lab.spmm.builds import cluster_sweep, instrumented, unfenced
from asyncsparse_lab.spmm.instrument import read_rows
from asyncsparse_lab.spmm.oracle import Reference, reference
from asyncsparse_lab.spmm.product import Product
from asyncsparse_lab.spmm.variants import Variant
from asyncsparse_lab.studies.cta_account import PARTS, account
from asyncsparse_lab.studies.cta_times import prepared_probe, sample_builds
from asyncsparse_lab.studies.spmm_cases import Measured

pytestmark = pytest.mark.gpu

N = 2048
RINGS = [variant for variant in instrumented() if variant.format == "bcsr"]
TWINS = [twin for twin in map(unfenced, cluster_sweep()) if twin is not None]


@pytest.fixture(scope="module")
def measured() -> Measured:
    product = Product.random(load_matrix("mycielskian13"), N).with_output("bfloat16")
    truth: Reference = reference(product.A, product.B)
    return Measured([], product, truth)


def named(variant: Variant) -> str:
    return f"{variant.name}-{'-'.join(str(value) for value in variant.constants.values())}"


@pytest.mark.parametrize("variant", RINGS, ids=named)
def test_an_account_leaves_out_no_tile_no_block_and_no_time(
    variant: Variant, measured: Measured
) -> None:
    from asyncsparse_lab.gpu.device import device_facts

    probe = prepared_probe(variant, measured)
    assert probe.is_right
    [(times, rows)] = sample_builds([[probe.prepared, probe.prepared]], rounds=3)
    sm_count = device_facts().sm_count
    column_tiles = N // (2 * variant.constants["WGMMA_N"])
    blocks = BCSR.predict(measured.product.A, (64, 64)).stored
    for took_us, launch in zip(times[1], rows, strict=True):
        consumers = launch[:, 1:]
        assert (consumers["tiles"].sum(axis=0) == column_tiles * -(-6143 // 64)).all()
        assert (consumers["blocks"].sum(axis=0) == column_tiles * blocks).all()
        found = account(launch, sm_count, variant.constants.get("CLUSTER", 1))
        assert sum(found[f"spent_{name}"] for name in PARTS) == pytest.approx(found["span_us"])
        assert 0.7 * took_us < found["span_us"] < took_us
        assert min(found[f"last_{name}"] for name in PARTS if name != "tail") > -0.05
        assert 0.5 < found["ghz"] < 2.5
        assert ("remote_us" in found) == (variant.constants["INSTRUMENT"] == 2)


@pytest.mark.parametrize("variant", TWINS, ids=named)
def test_without_the_fence_the_product_is_still_right(variant: Variant, measured: Measured) -> None:
    probe = prepared_probe(variant, measured)
    for _ in range(200):
        probe.prepared.run()
    bound = measured.truth.err_bound("bfloat16")
    assert measured.truth.relative_error(probe.prepared.output) <= bound


def test_wcsr_keeps_its_own_rows(measured: Measured) -> None:
    variant = next(variant for variant in instrumented() if variant.format == "wcsr")
    probe = prepared_probe(variant, measured)
    rows = read_rows(probe.prepared.measurements)
    assert probe.is_right
    assert (rows["end_clock"] > rows["begin_clock"]).all()
    assert rows["gather"].sum() > 0
