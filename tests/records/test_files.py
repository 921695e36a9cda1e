from __future__ import annotations

import json

import pytest

from asyncsparse_lab.errors import InputError, RecordError
from asyncsparse_lab.records import (
    append_case,
    append_run,
    merge,
    newest,
    read_records,
    read_runs,
    record_folders,
)

OLD, NEW = "20260101T000000Z-aaaa", "20260202T000000Z-0000"


def test_cases_are_appended_and_read_back(tmp_path, make_record):
    path = tmp_path / "gpu" / "toy.jsonl"
    first, second = make_record(), make_record(case="b")
    append_case(path, [first])
    append_case(path, [second])
    assert read_records(path) == [first, second]
    assert read_records(tmp_path / "none.jsonl") == []


def test_append_takes_one_case(tmp_path, make_record):
    for records in ([], [make_record(), make_record(case="b")]):
        with pytest.raises(RecordError, match="exactly one case"):
            append_case(tmp_path / "toy.jsonl", records)


@pytest.mark.parametrize("kept", [1, 30, 200])
def test_a_cut_write_loses_its_case_and_no_other(tmp_path, make_record, kept):
    path = tmp_path / "toy.jsonl"
    whole, half = make_record(), [make_record(case="b", n=n) for n in (1, 2)]
    append_case(path, [whole])
    append_case(path, half)
    text = path.read_text()
    last_line = text.rstrip("\n").rindex("\n") + 1
    path.write_text(text[: last_line + kept])
    assert read_records(path) == [whole]
    append_case(path, half)
    assert read_records(path) == [whole, *half]


def test_a_line_that_is_no_record_is_named(tmp_path, make_record):
    path = tmp_path / "toy.jsonl"
    append_case(path, [make_record()])
    path.write_text(path.read_text() + "nonsense\n")
    with pytest.raises(RecordError, match=r"toy\.jsonl:2"):
        read_records(path)


def test_the_newest_run_of_a_case_counts_whole(make_record):
    old = [make_record(run=OLD, variant=name) for name in ("x", "dropped")]
    other = make_record(run=OLD, case="b")
    new = make_record(run=NEW, variant="x")
    assert newest([new, *old, other]) == [new, other]


def test_within_a_run_the_last_line_counts(make_record):
    first, last = make_record(us=1.0), make_record(us=2.0)
    assert newest([first, last]) == [last]


def test_merge_removes_older_lines_and_their_runs(tmp_path, make_record):
    home, away = tmp_path / "home", tmp_path / "away"
    for folder, run, cases in ((home, OLD, "ab"), (away, NEW, "bc")):
        append_run(folder, {"run": run, "utc": run})
        for case in cases:
            append_case(folder / "toy.jsonl", [make_record(run=run, case=case)])
    append_run(home, {"run": "20250101T000000Z-0000"})
    assert merge(away, home) == {"toy": (2, 3)}
    merged = {record.case: record.run for record in read_records(home / "toy.jsonl")}
    assert merged == {"a": OLD, "b": NEW, "c": NEW}
    assert sorted(read_runs(home)) == [OLD, NEW]
    assert merge(away, home) == {"toy": (2, 3)}  # again changes nothing


def test_an_older_merge_takes_nothing(tmp_path, make_record):
    home, away = tmp_path / "home", tmp_path / "away"
    append_case(home / "toy.jsonl", [make_record(run=NEW)])
    append_case(away / "toy.jsonl", [make_record(run=OLD)])
    assert merge(away, home) == {"toy": (0, 1)}
    assert [record.run for record in read_records(home / "toy.jsonl")] == [NEW]


def test_merging_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="no records"):
        merge(tmp_path, tmp_path / "home")


def test_a_folder_is_not_merged_into_itself(tmp_path, make_record):
    for case in "ba":
        append_case(tmp_path / "toy.jsonl", [make_record(case=case)])
    held = (tmp_path / "toy.jsonl").read_bytes()
    with pytest.raises(InputError, match="merged into"):
        merge(tmp_path, tmp_path / "." / "")
    assert (tmp_path / "toy.jsonl").read_bytes() == held


def test_the_last_line_of_a_run_counts(tmp_path):
    append_run(tmp_path, {"run": OLD, "after": None})
    append_run(tmp_path, {"run": OLD, "after": {"sm_clock_mhz": 1980}})
    assert read_runs(tmp_path)[OLD]["after"] == {"sm_clock_mhz": 1980}
    (tmp_path / "runs.jsonl").write_text(json.dumps([1]) + "\n")
    with pytest.raises(RecordError, match=r"runs\.jsonl:1"):
        read_runs(tmp_path)


def test_an_unknown_source_is_refused():
    with pytest.raises(InputError, match="choose 'recorded' or 'local'"):
        record_folders("remote")
