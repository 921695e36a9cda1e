from __future__ import annotations

import math

import pandas as pd
import pytest

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.records.frame import (
    frame_of,
    geometric_mean,
    load_records,
    ratios,
    select,
)


def test_params_results_and_provenance_become_columns(checkout, make_record):
    record = make_record(study="formats", params={"stages": 3}, result={"useful_tflops": 1.5})
    checkout.record("nvidia-h200", [record], utc="2026-01-01", gpu={"name": "NVIDIA H200"})
    (row,) = load_records("formats").to_dict("records")
    assert row["params.stages"] == 3
    assert row["result.useful_tflops"] == 1.5
    assert (row["gpu"], row["gpu_name"], row["utc"]) == ("nvidia-h200", "NVIDIA H200", "2026-01-01")
    assert row["density"] == 4 / 16


def test_no_records_give_a_frame_with_columns(checkout):
    frame = load_records("formats")
    assert frame.empty
    assert {"case", "median_us", "gpu_name", "density"} <= set(frame.columns)


def test_an_unknown_study_is_refused():
    with pytest.raises(InputError, match="no study 'nothing'"):
        load_records("nothing")


def test_ratios_stay_within_a_case_and_a_run(make_record):
    rows = [
        make_record(us=4.0, variant="slow"),
        make_record(us=3.0, variant="slow", params={"stages": 5}),  # the best of both counts
        make_record(us=1.0, variant="fast"),
        make_record(us=9.0, variant="slow", l2="warm"),
        make_record(us=9.0, variant="slow", case="b"),
        make_record(us=1.0, variant="fast", case="b", run="20270101T000000Z-0000"),
        make_record(None, variant="fast", n=9, status="wrong", reason="rel_err 1"),
        make_record(us=9.0, variant="slow", n=9),
    ]
    table = ratios(frame_of(rows), "variant == 'fast'", "variant == 'slow'")
    assert table["ratio"].tolist() == [3.0]


def test_a_bad_condition_is_one_line(make_record):
    frame = frame_of([make_record()])
    for condition in ("nosuch == 1", "variant ==", "`params.x` > 1"):
        with pytest.raises(InputError, match="condition"):
            select(frame, condition)


def test_geometric_mean():
    assert geometric_mean(pd.Series([1.0, 4.0])) == pytest.approx(2.0)
    assert math.isnan(geometric_mean(pd.Series([], dtype="float64")))
