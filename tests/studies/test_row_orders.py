"""Rows in another order: which matrices are measured, and what the tables say of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from asyncsparse_lab.claims import claims_frame
from asyncsparse_lab.matrices import load_matrix
from asyncsparse_lab.records import Record
from asyncsparse_lab.records.frame import frame_of
from asyncsparse_lab.spmm.product import Product
from asyncsparse_lab.spmm.run import Ours
from asyncsparse_lab.spmm.variants import Variant
from asyncsparse_lab.studies import row_orders
from asyncsparse_lab.studies.reordering import WINS, N

from .conftest import timed

US = {0: 40.0, 1: 20.0, 2: 50.0}
"""Order to a time that is made up."""


def record(case: str, variant: Variant) -> Record:
    contender = Ours(variant)
    order = int(variant.params.get("row_order", 0))
    us = US[order] + int(variant.params.get("window", 100)) / 64
    return Record(
        study="row-orders", case=case, op="spmm", role=contender.role, run="r",
        backend=contender.backend, variant=contender.variant, matrix=case, m=1000, k=1000, n=N,
        nnz=10_000, l2="cold", clock="events", preprocess_us=1000.0 * order, **timed(us),
        params=contender.params, result={"predicted_us": 2 * us},
    )  # fmt: skip


def test_matrices_are_those_whose_floors_fall() -> None:
    floors = row_orders.floors().set_index("matrix")
    cases = row_orders.cases()
    assert len(cases) >= 5
    for case in cases:
        times = floors.loc[case.matrix, ["similarity, times", "cuthill-mckee, times"]]
        assert times.max() > WINS


def test_the_tables_tell_gains_and_when_ordering_has_paid() -> None:
    case = row_orders.cases()[0]
    kernels = row_orders.kernels((1000, 1000))
    assert {kernel.options.get("row_order") for kernel in kernels[1:]} == {0, 1, 2}
    frame = frame_of([record(case.name, kernel) for kernel in kernels])
    items = row_orders.draw(frame, claims_frame("row-orders"))
    gains = items["gains"].data.set_index("order")
    # The best tile of each has 64 rows: 41, 21 and 51 us.
    assert gains.loc["similarity", "measured, times"] == pytest.approx(41 / 21)
    assert gains.loc["similarity", "predicted, times"] == pytest.approx(41 / 21)
    assert gains.loc["similarity", "paid after products"] == pytest.approx(1000 / 20)
    assert gains.isna().loc["cuthill-mckee", "paid after products"]
    assert gains.loc["similarity", "floor, times"] > 0
    summary = items["gained"].data.set_index("order")
    assert list(summary["wins on"]) == [1, 0]
    times = ("median_us", "q1_us", "q3_us", "sample_count", "samples_us")
    nothing: dict[str, Any] = dict.fromkeys(times)
    records = [record(case.name, kernel) for kernel in kernels]
    wrong = [
        replace(one, status="wrong", reason="made up", **nothing)
        if one.params.get("row_order") == 1
        else one
        for one in records
    ]
    left = row_orders.gains_table(frame_of(wrong), row_orders.floors())
    assert set(left["order"]) == {"cuthill-mckee"}


def test_every_kernel_and_order_is_predicted() -> None:
    product = Product.random(load_matrix("mycielskian9"), 128, dtype_out="bfloat16", xp=np)
    predicted = row_orders.predictions(product)
    for kernel in row_orders.kernels(product.A.shape):
        assert predicted[kernel.name, kernel.options.get("row_order", 0)] > 0
