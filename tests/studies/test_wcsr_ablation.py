"""What the study of WCSR counts, without a GPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from asyncsparse_lab.formats import WCSR
from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm.edge_cases import one_dense_row
from asyncsparse_lab.spmm.instrument import ROW
from asyncsparse_lab.spmm.product import Product
from asyncsparse_lab.spmm.variants import VARIANTS
from asyncsparse_lab.studies import cta_account, wcsr_ablation


def test_shares_of_a_launch_are_one() -> None:
    rows = np.zeros((2, 1), dtype=ROW)
    rows["end_clock"], rows["end_ns"] = 1000, 600
    for name, cycles in (("gather", 500), ("wait", 100), ("multiply", 200), ("epilogue", 50)):
        rows[name] = cycles
    found = wcsr_ablation.shares(rows)
    assert found["share_gather"] == pytest.approx(0.5)
    assert found["share_rest"] == pytest.approx(0.15)
    assert sum(value for name, value in found.items() if name != "span_us") == pytest.approx(1.0)
    assert cta_account.mean_account([found, found])["share_gather"] == pytest.approx(0.5)


def test_records_tell_windows_and_tasks(make_record: Callable[..., Record]) -> None:
    product = Product.random(one_dense_row(), 16, xp=np)
    split = VARIANTS["wcsr-paper"]
    made = [
        make_record(variant=v.name, params=v.params)
        for v in (split, VARIANTS["wcsr-paper-unsplit"])
    ]
    library = make_record(backend="cusparse", role="library")
    cut, whole, other = wcsr_ablation.with_windows([*made, library], product)
    columns = WCSR.count_columns(product.A, 64)
    assert cut.result["columns_max"] == columns.max() == 3000
    assert cut.result["split_windows"] == 1
    assert cut.result["tasks"] == len(columns) - 1 + -(-3008 // 512)
    assert whole.result["tasks"] == len(columns)
    assert cut.result["gathered_bytes"] == 2 * 16 * columns.sum()
    assert other == library
