from __future__ import annotations

from types import SimpleNamespace

import pytest

from asyncsparse_lab import cli
from asyncsparse_lab.cli import measure as command
from asyncsparse_lab.records import read_records
from asyncsparse_lab.studies import STUDIES
from asyncsparse_lab.studies.base import Case


@pytest.fixture
def toy(monkeypatch, checkout, make_record):
    """The study "formats" with two cases of a toy."""

    def measure(case):
        if case.name == "bad":
            raise ValueError("broken")
        return [make_record(study="formats", case=case.name)]

    module = SimpleNamespace(
        cases=lambda: [Case("good", seconds=60.0), Case("bad", seconds=60.0)], measure=measure
    )
    monkeypatch.setattr(command, "load_study", lambda name: module)
    return checkout.root


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(["measure", *arguments])
    return ended.value.code


def test_measures_into_local(toy, capsys):
    assert run("formats", "--only", "good") == 0
    (record,) = read_records(toy / "data" / "local" / "cpu" / "formats.jsonl")
    assert record.case == "good"
    assert "formats: 1 measured, 0 failed, 0 left" in capsys.readouterr().out


def test_a_failed_case_is_1(toy):
    assert run("formats") == 1


def test_a_dry_run_measures_nothing(toy, capsys, tmp_path):
    assert run("formats", "--dry-run", "--out", str(tmp_path / "out")) == 0
    shown = capsys.readouterr().out
    assert "formats  good  60 s" in shown
    assert "2 cases left, 0 done, about 2.0 minutes" in shown
    assert not (tmp_path / "out").exists()


def test_the_budget_is_for_all_studies_together(toy, capsys, tmp_path):
    assert run("formats", "--budget", "30s", "--out", str(tmp_path)) == 0
    assert "0 measured, 0 failed, 2 left" in capsys.readouterr().out
    assert run("formats", "--budget", "soon") == 1


def test_without_a_gpu_a_gpu_study_is_3_and_its_plan_is_told(toy, capsys, monkeypatch):
    monkeypatch.setattr("asyncsparse_lab.gpu.device.missing_gpu", lambda: "no NVIDIA driver")
    gpu_study = next(study.name for study in STUDIES.values() if study.device == "gpu")
    assert run(gpu_study) == 3
    assert "no NVIDIA driver" in capsys.readouterr().err
    assert run(gpu_study, "--dry-run") == 0
    assert "2 cases left" in capsys.readouterr().out


def test_a_shard_measures_its_share(toy, capsys, tmp_path):
    assert run("formats", "--shard", "1/2", "--out", str(tmp_path)) == 0
    assert "formats: 1 measured, 0 failed, 0 left" in capsys.readouterr().out
    assert run("formats", "--shard", "3/2") == 1
    assert run("formats", "--suite", "smoke") == 1
    assert "matrices of study formats are fixed" in capsys.readouterr().err
