from __future__ import annotations

import pandas as pd
import pytest

from asyncsparse_lab.matrices import load_suite
from asyncsparse_lab.records.frame import frame_of, geometric_mean
from asyncsparse_lab.records.peers import (
    agreement,
    best_of_series,
    load_peers,
    may_compare,
    read_series,
    run_facts,
)

CODES = {"AccSpMM", "FlashSparse", "RoDe", "Voltrix-SpMM", "DTC-SpMM"}


@pytest.fixture(scope="module")
def peers() -> pd.DataFrame:
    return load_peers()


def test_five_codes_and_two_libraries_on_the_shared_matrices(peers):
    assert set(peers["peer"]) == CODES | {"cuBLAS", "cuSPARSE"}
    assert {series.name for series in read_series()} == set(peers["series"])
    sizes = {entry.name: (entry.rows, entry.cols, entry.nnz) for entry in load_suite("shared")}
    found = peers.drop_duplicates("matrix").set_index("matrix")[["rows", "cols", "nnz"]]
    assert {name: tuple(row) for name, row in found.iterrows()} == sizes
    assert set(peers["n"]) == {256, 512, 1024}
    assert {"gpu", "date", "driver", "cuda"} == set(run_facts())


def test_versions_and_types_are_named():
    for series in read_series():
        assert series.version
        assert series.types
        assert series.output in ("bfloat16", "float16", "float32")
    assert {series.name for series in read_series() if not series.is_library} == {
        *("AccSpMM", "FlashSparse fp16", "FlashSparse tf32", "RoDe", "Voltrix-SpMM", "DTC-SpMM")
    }


def test_a_product_holds_the_zeroing_of_c(peers):
    assert (peers["product_us"] >= 0.97 * peers["median_us"]).all()
    zeroed = peers.dropna(subset=["with_zeroing_us"])
    assert set(zeroed["peer"]) == {"AccSpMM", "FlashSparse", "RoDe", "DTC-SpMM"}
    assert (zeroed["product_us"] == zeroed["with_zeroing_us"]).all()


@pytest.mark.parametrize(
    ("series", "zeroing", "tflops"),
    [("FlashSparse fp16", True, 2.82), ("RoDe", True, 2.19), ("cuBLAS", True, 1.69),
     ("FlashSparse fp16", False, 2.90), ("RoDe", False, 2.57)],
)  # fmt: skip
def test_the_means_are_those_of_the_measuring_session(peers, series, zeroing, tflops):
    """At n = 1024, over the 75 matrices that every peer completed; its tables say these."""
    if not zeroing:
        peers = peers.assign(product_us=peers["median_us"])
    rows = best_of_series(peers[peers["n"] == 1024])
    complete = rows.groupby("matrix")["series"].nunique()
    rows = rows[rows["matrix"].isin(complete[complete >= len(read_series()) - 1].index)]
    rows = rows[rows["series"] == series]
    assert len(rows) == 75
    useful = 2.0 * rows["nnz"] * rows["n"] / rows["product_us"] / 1e6
    assert geometric_mean(useful) == pytest.approx(tflops, abs=0.006)


def live(make_record, peers, factors):
    """Records of the two libraries at so many times their recorded times."""
    records = []
    outputs = {series.live: series for series in read_series() if series.live}
    rows = best_of_series(peers[peers["matrix"].isin(["bcsstk13", "power", "cage10"])])
    for name, factor in factors.items():
        series = outputs[name]
        backend, variant = name.split()
        for row in rows[rows["series"] == series.name].itertuples():
            records.append(
                make_record(
                    us=row.product_us * factor,
                    case=f"{row.matrix}-{row.n}-{series.output}",
                    role="library",
                    backend=backend,
                    variant=variant,
                    matrix=row.matrix,
                    n=row.n,
                    dtype_out=series.output,
                )
            )
    return frame_of(records)


def test_libraries_that_agree_allow_the_comparison(make_record, peers):
    frame = live(make_record, peers, {"cublas dense": 1.03, "cusparse csr-alg2": 0.96})
    found = agreement(frame, peers)
    assert found["ratio"].to_list() == pytest.approx([0.96] * 3 + [1.03] * 3)
    assert found["agrees"].all()
    assert (found["matrices"] == 3).all()
    assert may_compare(found, 1024)


@pytest.mark.parametrize(
    "factors",
    [{"cublas dense": 1.06, "cusparse csr-alg2": 1.0}, {"cublas dense": 1.0}, {}],
    ids=["one differs", "one was not measured", "none was measured"],
)
def test_without_agreement_there_is_no_comparison(make_record, peers, factors):
    frame = live(make_record, peers, factors) if factors else frame_of([make_record()])
    assert not may_compare(agreement(frame, peers), 1024)


def test_another_output_type_is_no_agreement(make_record, peers):
    frame = live(make_record, peers, {"cublas dense": 1.0, "cusparse csr-alg2": 1.0})
    frame["dtype_out"] = "bfloat16"
    assert set(agreement(frame, peers)["series"]) == {"cuBLAS"}
