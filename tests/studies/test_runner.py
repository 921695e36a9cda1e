from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from asyncsparse_lab.errors import DeviceError, DownloadError, InputError, RecordError
from asyncsparse_lab.records import read_records, read_runs, read_study, study_paths
from asyncsparse_lab.studies import provenance, runner
from asyncsparse_lab.studies.base import Case, Study

TOY = Study(name="toy", title="Toy", module="toy", notebook=None, device="cpu")


@pytest.fixture
def toy(make_record):
    """A study module of three cases that notes what it measured; ``broken`` names cases to fail."""
    measured: list[str] = []
    broken: set[str] = set()

    def measure(case):
        if case.name in broken:
            raise ValueError(f"{case.name} is broken")
        measured.append(case.name)
        return [make_record(case=case.name, run=None, variant=name) for name in ("x", "y")]

    return SimpleNamespace(
        cases=lambda: [Case(name, seconds=60.0) for name in ("one", "two", "three")],
        measure=measure,
        measured=measured,
        broken=broken,
    )


def run(toy, folder, **options):
    lines: list[str] = []
    chosen = {key: options.pop(key) for key in ("only", "again") if key in options}
    plan = runner.plan_study(TOY, toy, folder, **chosen)
    return runner.run_study(TOY, toy, folder, plan, tell=lines.append, **options), lines


def test_a_study_is_measured_and_not_again(toy, tmp_path):
    outcome, lines = run(toy, tmp_path)
    assert (outcome.measured, outcome.failed, outcome.left) == (3, 0, 0)
    assert len(lines) == 3
    assert len(read_records(tmp_path / "toy.jsonl")) == 6
    plan = runner.plan_study(TOY, toy, tmp_path)
    assert (plan.cases, plan.done, plan.minutes) == ((), 3, 0.0)
    run(toy, tmp_path)
    assert toy.measured == ["one", "two", "three"]
    run(toy, tmp_path, again=True, only="two")
    assert toy.measured[3:] == ["two"]


def test_a_case_that_was_cut_off_is_measured_again(toy, tmp_path):
    run(toy, tmp_path)
    path = tmp_path / "toy.jsonl"
    path.write_text(path.read_text()[:-10])
    assert [case.name for case in runner.plan_study(TOY, toy, tmp_path).cases] == ["three"]
    run(toy, tmp_path)
    assert [record.case for record in read_records(path)] == [
        *("one", "one", "two", "two", "three", "three")
    ]


def test_a_stale_case_is_measured_again(toy, tmp_path, monkeypatch):
    run(toy, tmp_path)
    monkeypatch.setattr(
        runner, "stale_flags", lambda study, records: [r.case == "two" for r in records]
    )
    assert [case.name for case in runner.plan_study(TOY, toy, tmp_path).cases] == ["two"]


def test_a_budget_begins_no_case_that_would_end_later(toy, tmp_path):
    outcome, _ = run(toy, tmp_path, budget=90.0)
    assert outcome.measured == 3  # each ends at once, so the next fits again
    toy_run = toy.measured.copy()
    outcome, _ = run(toy, tmp_path / "other", budget=59.0)
    assert (outcome.measured, outcome.left) == (0, 3)
    assert toy.measured == toy_run


def test_plan_predicts_minutes_and_filters(toy, tmp_path):
    plan = runner.plan_study(TOY, toy, tmp_path)
    assert plan.minutes == pytest.approx(3.0)
    names = [case.name for case in runner.plan_study(TOY, toy, tmp_path, only="t").cases]
    assert names == ["two", "three"]
    names = [case.name for case in runner.plan_study(TOY, toy, tmp_path, only="t*o").cases]
    assert names == ["two"]
    with pytest.raises(InputError, match="matches no case"):
        runner.plan_study(TOY, toy, tmp_path, only="four")


def test_two_cases_of_one_name_are_refused(toy, tmp_path):
    toy.cases = lambda: [Case("one"), Case("one")]
    with pytest.raises(InputError, match="two cases are called 'one'"):
        runner.plan_study(TOY, toy, tmp_path)


def test_a_failing_case_is_told_and_the_next_is_measured(toy, tmp_path):
    toy.broken.add("two")
    outcome, lines = run(toy, tmp_path)
    assert (outcome.measured, outcome.failed, outcome.left) == (2, 1, 0)
    assert "two: failed: ValueError: two is broken" in lines
    assert [case.name for case in runner.plan_study(TOY, toy, tmp_path).cases] == ["two"]


def test_two_failures_in_a_row_end_the_run(toy, tmp_path):
    toy.broken |= {"one", "two"}
    outcome, lines = run(toy, tmp_path)
    assert (outcome.measured, outcome.failed, outcome.left) == (0, 2, 1)
    assert lines[-1] == "two cases failed in a row: stopping"


def test_matrices_that_cannot_be_had_do_not_end_the_run(toy, tmp_path):
    def measure(case):
        raise DownloadError(f"{case.name} is not there any more")

    toy.measure = measure
    outcome, lines = run(toy, tmp_path)
    assert (outcome.measured, outcome.failed, outcome.left) == (0, 3, 0)
    assert len(lines) == 3


def test_an_interrupted_run_keeps_what_it_measured(toy, tmp_path):
    measure = toy.measure

    def interrupt(case):
        if case.name == "two":
            raise KeyboardInterrupt
        return measure(case)

    toy.measure = interrupt
    with pytest.raises(KeyboardInterrupt):
        run(toy, tmp_path)
    assert {record.case for record in read_records(tmp_path / "toy.jsonl")} == {"one"}
    (about,) = read_runs(tmp_path).values()
    assert about["ended"] is not None


def test_records_of_another_case_are_refused(toy, tmp_path, make_record):
    toy.measure = lambda case: [make_record(case="elsewhere")]
    _, lines = run(toy, tmp_path, only="one")
    assert RecordError.__name__ in lines[0]
    assert not (tmp_path / "toy.jsonl").exists()


def test_provenance_names_no_user_host_or_path(toy, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["x", "measure", "toy", "--out", "/home/somebody/data"])
    run(toy, tmp_path, commit="abc+dirty", seed=5)
    (about,) = read_runs(tmp_path).values()
    assert (about["commit"], about["clean"], about["seed"]) == ("abc", False, 5)
    assert about["command"] == "asyncsparse measure toy --out data"
    assert {"numpy", "python"} <= about["packages"].keys()
    assert "somebody" not in json.dumps(about)
    assert {record.run for record in read_records(tmp_path / "toy.jsonl")} == {about["run"]}


def test_a_gpu_study_records_the_state_around_it(toy, tmp_path, monkeypatch):
    states = iter([{"empty_kernel_us": 2.0}, {"empty_kernel_us": 2.1}])
    monkeypatch.setattr(provenance, "gpu_facts", lambda: {"name": "NVIDIA H200"})
    monkeypatch.setattr(provenance, "gpu_state", lambda: next(states))
    study = Study(name="toy", title="Toy", module="toy", notebook=None, device="gpu")
    plan = runner.plan_study(study, toy, tmp_path)
    runner.run_study(study, toy, tmp_path, plan, tell=lambda line: None)
    (about,) = read_runs(tmp_path).values()
    assert about["gpu"] == {"name": "NVIDIA H200"}
    assert (about["before"]["empty_kernel_us"], about["after"]["empty_kernel_us"]) == (2.0, 2.1)


def test_a_faulted_gpu_is_not_asked_again(toy, tmp_path, monkeypatch):
    states = iter([{"empty_kernel_us": 2.0}])
    monkeypatch.setattr(provenance, "gpu_facts", lambda: {"name": "NVIDIA H200"})
    monkeypatch.setattr(provenance, "gpu_state", lambda: next(states))
    toy.broken |= {"one", "two", "three"}
    study = Study(name="toy", title="Toy", module="toy", notebook=None, device="gpu")
    plan = runner.plan_study(study, toy, tmp_path)
    outcome = runner.run_study(study, toy, tmp_path, plan, tell=lambda line: None)
    assert outcome.failed == 2
    (about,) = read_runs(tmp_path).values()
    assert about["after"] is None


def test_a_gpu_study_without_a_gpu_writes_nothing(toy, tmp_path, monkeypatch):
    def no_gpu():
        raise DeviceError("no NVIDIA driver")

    monkeypatch.setattr(provenance, "gpu_facts", no_gpu)
    study = Study(name="toy", title="Toy", module="toy", notebook=None, device="gpu")
    plan = runner.plan_study(study, toy, tmp_path)
    with pytest.raises(DeviceError):
        runner.run_study(study, toy, tmp_path, plan)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "seconds"), [("540s", 540), ("9m", 540), ("1.5h", 5400), ("30", 30)]
)
def test_durations(text, seconds):
    assert runner.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-3s", "3d", "1e3"])
def test_what_is_no_duration(text):
    with pytest.raises(InputError, match="not a duration"):
        runner.parse_duration(text)


def test_shards_share_the_cases_whatever_is_held(toy, tmp_path):
    names = [
        [case.name for case in runner.plan_study(TOY, toy, tmp_path, shard=shard).cases]
        for shard in ((1, 2), (2, 2), (3, 3))
    ]
    assert names == [["one", "three"], ["two"], ["three"]]
    run(toy, tmp_path, only="one")
    left = runner.plan_study(TOY, toy, tmp_path, shard=(1, 2))
    assert ([case.name for case in left.cases], left.done) == (["three"], 1)


def test_the_cases_of_one_matrix_stay_together(toy, tmp_path):
    toy.cases = lambda: [Case(f"{m}-{n}", matrix=m) for m in ("a", "b", "c") for n in (1, 2)]
    cases = runner.plan_study(TOY, toy, tmp_path, shard=(1, 2)).cases
    assert [case.name for case in cases] == ["a-1", "a-2", "c-1", "c-2"]


def test_what_a_shard_may_be():
    assert runner.parse_shard("2/4") == (2, 4)
    for text in ("0/4", "5/4", "2", "a/b", "1/0"):
        with pytest.raises(InputError, match="none of k shares"):
            runner.parse_shard(text)


def test_a_suite_goes_to_a_study_that_takes_one(toy, tmp_path):
    with pytest.raises(InputError, match="matrices of study toy are fixed"):
        runner.plan_study(TOY, toy, tmp_path, suite="smoke")
    toy.cases = lambda suite="none": [Case(suite)]
    assert runner.plan_study(TOY, toy, tmp_path, suite="smoke").cases == (Case("smoke"),)
    assert runner.plan_study(TOY, toy, tmp_path).cases == (Case("none"),)


def test_parts_of_a_study_go_to_files_of_their_own(toy, tmp_path):
    toy.cases = lambda: [Case("one", part="n256"), Case("two", part="n512"), Case("three")]
    run(toy, tmp_path)
    held = {path.name: len(read_records(path)) for path in study_paths(tmp_path, "toy")}
    assert held == {"toy.jsonl": 2, "toy.n256.jsonl": 2, "toy.n512.jsonl": 2}
    assert {record.case for record in read_study(tmp_path, "toy")} == {"one", "two", "three"}
    assert runner.plan_study(TOY, toy, tmp_path).done == 3
