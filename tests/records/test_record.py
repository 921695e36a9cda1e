from __future__ import annotations

import json
import math

import numpy as np
import pytest

from asyncsparse_lab.errors import RecordError
from asyncsparse_lab.records import Record


def test_a_record_survives_its_line(make_record):
    record = make_record(params={"stages": 3, "sizes": (1, 2)}, result={"bound_by": "l2"})
    line = record.to_json()
    assert "\n" not in line
    assert Record.from_json(line) == record
    assert list(json.loads(line))[:4] == ["schema", "run", "study", "case"]


def test_numpy_values_become_json_values(make_record):
    record = make_record(
        m=np.int64(7), params={"a": np.float32(0.5), "b": np.arange(2)}, result={"cond": np.inf}
    )
    values = json.loads(record.to_json())
    assert values["m"] == 7
    assert values["params"] == {"a": 0.5, "b": [0, 1]}
    assert values["result"]["cond"] is None


def test_samples_are_rounded_to_ten_nanoseconds(make_record):
    assert make_record(samples_us=np.array([1.23456, 2.0])).samples_us == (1.23, 2.0)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"status": "fine"}, "status='fine' is not one of"),
        ({"op": "gemm"}, "op='gemm'"),
        ({"role": "rival"}, "role='rival'"),
        ({"backend": "mkl"}, "backend='mkl'"),
        ({"l2": "tepid"}, "l2='tepid'"),
        ({"clock": "sun"}, "clock='sun'"),
        ({"schema": 2}, "schema 2"),
        ({"status": "oom", "reason": "no room"}, "a time beside status 'oom'"),
        ({"q1_us": 3.0}, "not ordered"),
        ({"q3_us": None}, "without q1_us, q3_us"),
        ({"samples_us": [1.0] * 33}, "keep 32"),
        ({"rel_err": 0.2, "err_bound": 0.1}, "above 0.1"),
        ({"rel_err": math.nan, "err_bound": 0.1}, "above 0.1"),
        ({"params": {"a": object()}}, "cannot hold object"),
    ],
)
def test_what_a_record_refuses(make_record, keys, message):
    with pytest.raises(RecordError, match=message):
        make_record(**keys)


def test_a_failure_needs_a_reason_and_no_time(make_record):
    with pytest.raises(RecordError, match="without a reason"):
        make_record(us=None, status="oom")
    assert make_record(us=None, status="oom", reason="needs 200 GB").median_us is None


@pytest.mark.parametrize("line", ["", "[]", '{"schema": 1}', "{", '{"colour": 1}'])
def test_a_line_that_is_no_record(line):
    with pytest.raises(RecordError):
        Record.from_json(line)


def test_identity_is_what_was_measured_not_what_came_out(make_record):
    record = make_record(params={"b": 1, "a": 2})
    same = make_record(us=9.0, run="20270101T000000Z-0000", params={"a": 2, "b": 1})
    assert same.identity() == record.identity()
    for changed in ({"n": 9}, {"l2": "warm"}, {"params": {"a": 3, "b": 1}}, {"variant": "x"}):
        assert make_record(**({"params": {"a": 2, "b": 1}} | changed)).identity() != (
            record.identity()
        )
