"""The study of conversions, drawn from made-up records."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from asyncsparse_lab.claims import claims_frame
from asyncsparse_lab.records import Record
from asyncsparse_lab.records.frame import frame_of, load_records
from asyncsparse_lab.studies import conversion, conversion_figures
from asyncsparse_lab.studies.base import Case, Missing, Table
from asyncsparse_lab.studies.conversion import Conversion

from .conftest import timed

CASES = [Case(name, name, 512) for name in ("power", "luxembourg_osm", "memplus")]
NNZ = {"power": 10_000, "luxembourg_osm": 4_000_000, "memplus": 50_000}
PRODUCT_US = {"power": 10.0, "luxembourg_osm": 200.0, "memplus": 60.0}
CSR_US = {"power": 16.0, "luxembourg_osm": 700.0, "memplus": 20.0}
FIXED_US = {("gpu", "events"): 20.0, ("gpu", "wall"): 40.0, ("host", "wall"): 4000.0}
"""What a conversion of few entries takes."""
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


def converted(case: Case, one: Conversion) -> Record:
    us = FIXED_US[one.where, one.clock] + NNZ[case.name] / 1e5
    result = {"stored": 10, "bytes": 1000, "fill_ratio": 0.1, "one_entry_us": 36.2}
    if (one.where, one.clock) == ("gpu", "wall"):
        result["five_products_us"] = 5 * PRODUCT_US[case.name] - 10
    return Record(
        study="conversion", case=case.name, run="20260101T000000Z-0000", op="convert", role="ours",
        backend="asyncsparse", variant=one.variant, matrix=case.matrix, m=5000, k=5000,
        nnz=NNZ[case.name], dtype_in="bfloat16", clock=one.clock, params=one.params,
        l2="cold" if one.clock == "events" else None,
        **(timed(us) | {"result": result}),
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
    assert ours.loc["BCSR 64, GPU", "median"] == pytest.approx(20.5 / 60.0)
    assert ours.loc["BCSR 64, GPU, host's clock", "median"] == pytest.approx(40.5 / 60.0)
    assert ours.loc["WCSR 256, host", "most"] == pytest.approx(4000.1 / 10.0)
    sizes = ("BCSR 64", "WCSR 64", "WCSR 128", "WCSR 256")
    ways = ("GPU", "GPU, host's clock", "host")
    in_order = [f"{size}, {way}" for way in ways for size in sizes]
    assert ours.index[ours["kind"] == "ours"].tolist() == in_order
    peers = ours[ours["kind"] == "peer"]
    assert "cuSPARSE CSR_ALG2" not in peers.index
    assert peers["median"].gt(0).all()
    assert len(peers) >= 5
    assert set(peers["matrices"]) <= {1, 2, 3}, "of ours alone"
    table = items["formats"].data
    assert len(table) == 4
    assert (table["matrices"] == 3).all()
    # By the host's clock 40.1 us of 10, 80 us of 200, 40.5 us of 60; on the stream 20 us less.
    assert table["GPU on the stream, us (median)"].to_numpy() == pytest.approx(20.5)
    assert table["GPU by the host's clock, us (median)"].to_numpy() == pytest.approx(40.5)
    assert table["products on the stream (most)"].to_numpy() == pytest.approx(2.01)
    assert table["products on the stream (median)"].to_numpy() == pytest.approx(20.5 / 60)
    assert table["products by the host's clock (most)"].to_numpy() == pytest.approx(4.01)
    assert (table["share within 5 products on the stream, %"] == 100.0).all()
    assert (table["share within 5 products by the host's clock, %"] == 100.0).all()
    assert (table[conversion_figures.PRODUCTS_BY_THE_HOST] == 290.0).all()
    assert table[conversion_figures.BOTH_BY_THE_HOST].to_numpy() == pytest.approx(200 / 3)
    assert (table["GPU by the host's clock, one entry, us"] == 36.2).all()
    speedups = [4000.1 / 40.1, 4040 / 80, 4000.5 / 40.5]
    assert table["host / GPU (geometric mean)"].to_numpy() == pytest.approx(
        np.prod(speedups) ** (1 / 3)
    )
    assert set(items["scaling"].data["name"]) == {
        f"{size}, {way}" for size in sizes[:2] for way in ways
    }


def test_shares_are_counted_by_each_clock(frame: Any) -> None:
    # In 8.05 us products 20.1, 20.5 and 60 us are 2.5, 2.5, 7.5; 40.1, 40.5 and 80 us 4.98, 5.03,
    # 9.9.  At 36.2 / 0.9 = 40.2 us is the floor.
    slow = frame.assign(median_us=frame["median_us"].where(frame["op"] == "convert", 8.05))
    table = conversion_figures.formats(conversion_figures.conversions(slow, [], "")).data
    on_the_stream = table["share within 5 products on the stream, %"].to_numpy()
    assert on_the_stream == pytest.approx(200 / 3)
    by_the_host = table["share within 5 products by the host's clock, %"].to_numpy()
    assert by_the_host == pytest.approx(100 / 3)
    # In 3 us products only 40.1 us is at the floor, and none within five.
    slow = frame.assign(median_us=frame["median_us"].where(frame["op"] == "convert", 3.0))
    table = conversion_figures.formats(conversion_figures.conversions(slow, [], "")).data
    assert (table["share within 5 products by the host's clock, %"] == 0.0).all()
    assert table[conversion_figures.ONE_ENTRY_SHARE].to_numpy() == pytest.approx(100 / 3)


def test_formats_compare_the_same_matrices_by_all_clocks(frame: Any) -> None:
    lacks = (frame["matrix"] == "luxembourg_osm") & (frame["clock"] == "events")
    some = frame[~(lacks & (frame["op"] == "convert"))]
    table = conversion_figures.formats(conversion_figures.conversions(some, [], "")).data
    assert (table["matrices"] == 2).all()
    assert table["GPU by the host's clock, us (median)"].to_numpy() == pytest.approx(40.3)


def test_old_records_without_the_stream_are_drawn(
    frame: Any, draw_in_theme: Callable[..., dict[str, Any]]
) -> None:
    old = frame[(frame["op"] != "convert") | (frame["clock"] == "wall")]
    items = draw_in_theme(conversion, old, claims_frame("conversion"))
    assert items["slowest"] == Missing("asyncsparse measure conversion")
    ours = items["cost"].data
    assert (ours["kind"] == "ours").sum() == 8
    assert not ours["code"].str.endswith("GPU").any(), "that would be on the stream"
    table = items["formats"].data
    assert table["products on the stream (most)"].isna().all()
    assert table["products by the host's clock (most)"].to_numpy() == pytest.approx(4.01)
    same = draw_in_theme(conversion, frame, claims_frame("conversion"))["break_even"].data
    assert items["break_even"].data.equals(same), "the host's clock alone"


def test_the_slowest_are_those_on_the_stream_with_most_products(
    frame: Any, draw_in_theme: Callable[..., dict[str, Any]]
) -> None:
    # By the host's clock and on the host others are slowest.
    is_one = (frame["matrix"] == "memplus") & (frame["params.window"] == 128)
    is_one &= frame["clock"] == "events"
    worse = frame.assign(
        median_us=frame["median_us"].mask(is_one & (frame["op"] == "convert"), 180.0)
    )
    items = draw_in_theme(conversion, worse, claims_frame("conversion"))
    table = items["slowest"].data
    assert len(table) == 12, "three matrices in four formats"
    first = table.iloc[0]
    assert (first["matrix"], first["format"], first["block or height"]) == ("memplus", "WCSR", 128)
    assert first["products"] == pytest.approx(3.0)
    assert first["GPU on the stream, us"] == 180.0
    assert first["GPU by the host's clock, us"] == pytest.approx(40.5)
    assert first["product, us"] == 60.0
    assert (first["non-zeros"], first["stored bytes"]) == (50_000, 1000)
    assert table["products"].is_monotonic_decreasing
    assert table["matrix"].tolist()[1:5] == ["power"] * 4
    rows = conversion_figures.conversions(worse, [], "")
    again = rows.assign(case=rows["case"] + "-b", matrix=rows["matrix"] + "-b")
    many = pd.concat([rows, again], ignore_index=True)
    shown = conversion_figures.slowest(many)
    assert not isinstance(shown, Missing)
    assert len(shown.data) == conversion_figures.SLOWEST


def test_the_floor_is_one_entry_and_the_bytes_at_the_rate_of_hbm(
    frame: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ceilings = SimpleNamespace(hbm_bytes_per_s=1e9)
    monkeypatch.setattr(conversion_figures, "ceilings_for", lambda _: ceilings)
    quick = (frame["op"] == "convert") & (frame["matrix"] == "power")
    frame.loc[quick, "result.one_entry_us"] = 7.0
    few = conversion_figures.conversions(frame, ["luxembourg_osm"], "")
    assert few["floor_us"].to_numpy() == pytest.approx((6 * 4e6 + 4 * 5001 + 1000) / 1e3)
    ceilings.hbm_bytes_per_s = 1e15
    assert set(conversion_figures.conversions(frame, ["memplus"], "")["floor_us"]) == {7.0}
    ceilings.hbm_bytes_per_s = 1e9
    rows = conversion_figures.conversions(frame, ["memplus"], "")
    row = rows[rows["clock"] == "events"].iloc[0]
    moved = 6 * 50_000 + 4 * (row["m"] + 1) + 1000
    assert row["floor_us"] == pytest.approx(moved / 1e3)
    shown = conversion_figures.slowest(rows)
    assert isinstance(shown, Table)
    assert shown.data["floor on the stream, us"].iloc[0] == pytest.approx(row["floor_us"])
    share = conversion_figures.formats(rows).data[conversion_figures.FLOOR_SHARE]
    assert share.iloc[0] == pytest.approx(100 * row["floor_us"] / row["median_us"])
    ceilings.hbm_bytes_per_s = 1e15
    quick = frame.assign(**{"result.one_entry_us": frame["result.one_entry_us"].mask(
        (frame["matrix"] == "power") & (frame["clock"] == "events"), 7.0)})  # fmt: skip
    rows = conversion_figures.conversions(quick, [], "")
    assert set(rows.loc[rows["clock"] == "events", "floor_us"]) == {7.0}, "the least of all"
    monkeypatch.setattr(conversion_figures, "ceilings_for", lambda _: None)
    assert conversion_figures.conversions(frame, [], "")["floor_us"].isna().all()


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
    assert len(rows) == 12
    assert rows.groupby(["where", "clock"]).size().to_dict() == dict.fromkeys(FIXED_US, 4)


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


def test_no_recorded_conversion_is_quicker_than_its_floor() -> None:
    rows = conversion_figures.conversions(load_records(conversion.STUDY), [], "")
    on_the_stream = rows[rows["clock"] == "events"]
    assert len(on_the_stream)
    assert (on_the_stream["floor_us"] <= on_the_stream["median_us"]).all()
