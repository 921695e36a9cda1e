from __future__ import annotations

import pytest

from asyncsparse_lab.records.compare import compare, judge_pair


def timed(make_record, low, median, high, **keys):
    return make_record(
        median, q1_us=low, q3_us=high, samples_us=(low, median, high), sample_count=3, **keys
    )


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ((9.9, 10.0, 10.1), (7.9, 8.0, 8.1), "FAST"),
        ((7.9, 8.0, 8.1), (9.9, 10.0, 10.1), "SLOW"),
        ((9.9, 10.0, 10.1), (9.9, 10.05, 10.2), "SAME"),
        ((9.0, 10.0, 11.0), (9.5, 10.5, 11.5), "SAME"),
        ((9.0, 10.0, 11.0), (10.9, 12.0, 13.0), "UNCLEAR"),
        ((9.99, 10.0, 10.01), (10.09, 10.1, 10.11), "UNCLEAR"),
    ],
)
def test_verdicts(make_record, before, after, verdict):
    found = judge_pair(timed(make_record, *before), timed(make_record, *after))
    assert found.verdict == verdict
    assert found.change == pytest.approx(after[1] / before[1] - 1)


def test_only_what_both_hold_is_compared(make_record):
    before = [make_record(), make_record(case="b"), make_record(case="c")]
    after = [
        make_record(us=1.0, run="20270101T000000Z-0000"),
        make_record(case="d"),
        make_record(None, case="c", status="error", reason="broke"),
    ]
    (found,) = compare(before, after)
    assert (found.after.case, found.verdict) == ("a", "FAST")
