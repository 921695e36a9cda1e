"""What kernels move for a product, by the planner's count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from asyncsparse_lab.formats import WCSR
from asyncsparse_lab.spmm import plan_works as works
from asyncsparse_lab.spmm.plan_models import MODELS
from asyncsparse_lab.spmm.plan_rates import OTHER_TILES, Coefficients
from asyncsparse_lab.spmm.plan_structure import structure_of

from .planning import RATES, problem, sparse


def test_windows_gather_what_the_format_stores():
    A = sparse()
    for height in (64, 128, 256):
        work, device_bytes = works.windows_work(
            problem(A), height, 128, 0, 2, ring_bytes=10**6, stage_columns=64
        )
        columns = WCSR.predict(A, height, 16, value_bytes=2)
        rows = -(-A.shape[0] // height)
        c_bytes = rows * height * 128 * 2
        b_bytes = columns.stored * (2 * height + 2 * 128 + 4)
        assert work.moved_us.sum() == pytest.approx((b_bytes + c_bytes) / RATES.gather_bytes_per_us)
        assert work.repeats == 4
        assert np.sum(work.stages) == columns.stored / 64
        assert not np.any(work.merges)
        assert device_bytes == columns.bytes


def test_what_l2_does_not_keep_is_read_again():
    A = csr_array(np.ones((256, 6400)))
    n, b_bytes = 8192, 2 * 6400 * 8192
    loads = 4 * b_bytes

    def reread(l2_bytes, tile_columns, matrix=A):
        given = works.Problem(structure_of(matrix), n, 2, replace(RATES, l2_bytes=l2_bytes))
        work, _ = works.blocks_work(given, tile_columns, overlapping=True)
        least, _ = works.blocks_work(given, tile_columns)
        return (work.hbm_us - least.hbm_us) * RATES.hbm_bytes_per_us

    wanted = b_bytes / 16 * 10 / 4  # of 16 tiles, those of 10 SMs with 4 tasks each
    assert reread(2 * wanted, 512) == pytest.approx(0)
    assert reread(wanted, 512) == pytest.approx((loads - b_bytes) / 2)
    assert reread(wanted, 256) == pytest.approx(0), "tiles half as wide want half as much"
    assert reread(1, 512) == pytest.approx(loads - b_bytes, rel=1e-6), "all of it"
    many = csr_array(np.ones((640, 6400)))
    assert reread(1, 512, many) == pytest.approx(0), "as many tasks as SMs"


def test_another_tile_of_a_kernel_has_its_coefficients():
    fitted = replace(RATES, kernels={"bcsr-overlap": Coefficients(7.0, 0.5)})
    assert fitted.of("bcsr-overlap-narrow") == fitted.of("bcsr-overlap") == Coefficients(7.0, 0.5)
    assert fitted.of("bcsr-paired") == Coefficients(RATES.empty_us)
    assert set(OTHER_TILES) | set(OTHER_TILES.values()) <= set(MODELS)


def test_a_gather_needs_bytes_in_flight():
    assert RATES.gather_rate(10**7) == RATES.gather_bytes_per_us
    assert RATES.gather_rate(10**5) == pytest.approx(10 * 10**5 / 2.0)
    few, _ = works.windows_work(
        problem(sparse()), 64, 128, 0, 2, ring_bytes=10**5, stage_columns=64
    )
    many, _ = works.windows_work(
        problem(sparse()), 64, 128, 0, 4, ring_bytes=10**5, stage_columns=64
    )
    assert few.moved_us.sum() == pytest.approx(2 * many.moved_us.sum())
