"""The study of conversions, drawn from made-up records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from asyncsparse_lab.claims import claims_frame
from asyncsparse_lab.records import Record
from asyncsparse_lab.records.frame import frame_of
from asyncsparse_lab.spmm.product import Product
from asyncsparse_lab.studies import conversion, conversion_figures
from asyncsparse_lab.studies.base import Case

from .conftest import timed

CASES = [Case(name, name, 512) for name in ("power", "luxembourg_osm", "memplus")]
NNZ = {"power": 10_000, "luxembourg_osm": 4_000_000, "memplus": 50_000}
PRODUCT_US = {"power": 10.0, "luxembourg_osm": 200.0, "memplus": 60.0}
CSR_US = {"power": 16.0, "luxembourg_osm": 700.0, "memplus": 20.0}
KERNELS = {("bcsr", 64): ("bcsr-overlap", {}), **{
    ("wcsr", height): ("wcsr-pipelined", {"window": height}) for height in conversion.HEIGHTS
}}  # fmt: skip


def spmm(case: Case, backend: str, variant: str, us: float, params: dict[str, Any]) -> Record:
    return Record(
        study="conversion", case=case.name, run="20260101T000000Z-0000", op="spmm",
        role="ours" if backend == "asyncsparse" else "library", backend=backend, variant=variant,
        matrix=case.matrix, m=5000, k=5000, n=512, nnz=NNZ[case.name], dtype_in="bfloat16",
        dtype_out="bfloat16", layout="row-major", l2="cold", clock="events", params=params,
        **timed(us),
    )  # fmt: skip


def converted(case: Case, one: conversion.Conversion) -> Record:
    us = (40.0 if one.where == "gpu" else 4000.0) + NNZ[case.name] / 1e5
    return Record(
        study="conversion", case=case.name, run="20260101T000000Z-0000", op="convert", role="ours",
        backend="asyncsparse", variant=one.variant, matrix=case.matrix, m=5000, k=5000,
        nnz=NNZ[case.name], dtype_in="bfloat16", clock="wall", params=one.params,
        **(timed(us) | {"result": {"stored": 10, "bytes": 1000, "fill_ratio": 0.1,
                                   "one_entry_us": 36.2}}),
    )  # fmt: skip


@pytest.fixture
def frame() -> Any:
    records = []
    for case in CASES:
        records += [converted(case, one) for one in conversion.conversions()]
        own = PRODUCT_US[case.name]
        for name, params in KERNELS.values():
            records.append(spmm(case, "asyncsparse", name, own, params))
        records.append(spmm(case, "asyncsparse", "csr-vector", CSR_US[case.name], {}))
        records.append(spmm(case, "cusparse", "csr-alg2", 2 * CSR_US[case.name], {}))
    return frame_of(records, gpu="nvidia-h200", gpu_name="NVIDIA H200 (made up)")


def test_pictures_and_tables(frame: Any, draw_in_theme: Callable[..., dict[str, Any]]) -> None:
    items = draw_in_theme(conversion, frame, claims_frame("conversion"))
    ours = items["cost"].data.set_index("code")
    assert ours.loc["BCSR 64, GPU", "median"] == pytest.approx(40.5 / 60.0)
    assert ours.loc["WCSR 256, host", "most"] == pytest.approx(4000.1 / 10.0)
    assert (ours["kind"] == "ours").sum() == 8
    peers = ours[ours["kind"] == "peer"]
    assert "cuSPARSE CSR_ALG2" not in peers.index
    assert peers["median"].gt(0).all()
    assert len(peers) >= 5
    assert set(peers["matrices"]) <= {1, 2, 3}, "of ours alone"
    table = items["formats"].data
    assert len(table) == 4
    # 40.1 us of 10, 80 us of 200, 40.5 us of 60
    assert table["products, GPU (most)"].to_numpy() == pytest.approx(4.01)
    assert (table["share within 5 products, %"] == 100.0).all()
    assert (table["GPU, one entry, us"] == 36.2).all()
    # 40.1 and 40.5 us are within 36.2 / 0.9 and above; in 3 us products none is within five.
    slow = frame.assign(median_us=frame["median_us"].where(frame["op"] == "convert", 3.0))
    table = conversion_figures.formats(conversion_figures.conversions(slow, [], "")).data
    assert (table["share within 5 products, %"] == 0.0).all()
    assert table["share there, or at that floor, %"].to_numpy() == pytest.approx(100 / 3)
    assert set(items["scaling"].data["name"]) == {
        "BCSR 64, GPU", "BCSR 64, host", "WCSR 64, GPU", "WCSR 64, host"
    }  # fmt: skip


def test_a_conversion_has_paid_after_what_it_took_over_what_it_saves(
    frame: Any, draw_in_theme: Callable[..., dict[str, Any]]
) -> None:
    items = draw_in_theme(conversion, frame, claims_frame("conversion"))
    table = items["break_even"].data.set_index("matrix")
    assert list(table.index) == ["power", "memplus", "luxembourg_osm"]
    assert table.loc["power", "products until paid, GPU"] == np.ceil(40.1 / 6)
    assert table.loc["power", "products until paid, host"] == np.ceil(4000.1 / 6)
    assert table.loc["luxembourg_osm", "products until paid, GPU"] == 1
    assert (table["best on CSR"] == "csr-vector").all()
    assert table.loc["memplus", "format"] is None or table["format"].isna()["memplus"]
    assert np.isnan(table.loc["memplus", "products until paid, GPU"])


def test_only_the_wanted_matrices(frame: Any) -> None:
    rows = conversion_figures.conversions(frame, ["luxembourg_osm"], "")
    assert set(rows["matrix"]) == {"luxembourg_osm"}
    assert len(rows) == 8


def test_cases_leave_small_matrices_out_and_are_named_once() -> None:
    cases = conversion.cases()
    names = [case.name for case in cases]
    assert len(set(names)) == len(names)
    assert set(conversion.GENERATED) <= set(names)
    assert "karate" not in names


def test_each_height_has_a_kernel_that_reads_it() -> None:
    windows = [v for v in conversion.kernels() if v.name == conversion.WINDOWS_KERNEL]
    assert [v.params["window"] for v in windows] == list(conversion.HEIGHTS)
    builds = conversion.kernel_builds()
    assert len(builds[conversion.WINDOWS_KERNEL]) == len(conversion.HEIGHTS)
    assert {build.source for build in builds["wcsr"]} == {"convert.cu"}


@dataclass
class Arrays:
    values: Any
    window_row_ptr: Any


def test_arrays_are_compared_bit_for_bit() -> None:
    first = Arrays(np.arange(4, dtype=np.uint16), np.array([0, 4]))
    other = Arrays(np.arange(4, dtype=np.uint16), np.array([0, 5]))
    fields = ("values", "window_row_ptr")
    assert conversion.different(first, first, fields) == []
    assert conversion.different(first, other, fields) == ["window_row_ptr"]
    short = Arrays(np.arange(3, dtype=np.uint16), np.array([0, 4]))
    assert conversion.different(first, short, fields) == ["values"]
    wide = Arrays(np.arange(4, dtype=np.int32), np.array([0, 4]))
    assert conversion.different(first, wide, fields) == ["values"]


@pytest.mark.parametrize("where", ["host", "gpu"])
def test_a_record_says_what_was_converted_where(where: str) -> None:
    A = csr_array(np.eye(130, dtype=np.float32))
    product = Product.random(A, 8, xp=np)
    one = conversion.Conversion("wcsr", 128, where)
    record = conversion._record(CASES[0], product, one, [3.0, 1.0, 2.0], "passed", None, [0.5])
    assert record.op == "convert"
    assert record.median_us == 2.0
    assert record.params == {"window": 128, "where": where}
    assert record.result["stored"] == 128 + 16
    assert record.result["one_entry_us"] == 0.5
    assert (record.kernel_hash is not None) == (where == "gpu")
    failed = conversion._record(CASES[0], product, one, [1.0], "wrong", "differ", [])
    assert failed.median_us is None
