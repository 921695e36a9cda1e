from __future__ import annotations

import json

import pandas as pd
import pytest

from asyncsparse_lab import cli
from asyncsparse_lab.cli import reproduce as command
from asyncsparse_lab.report import files
from asyncsparse_lab.report import page as page_module
from asyncsparse_lab.report.notebooks import Result
from asyncsparse_lab.studies.base import Table


@pytest.fixture
def toy(monkeypatch, checkout, make_record):
    """A checkout whose one notebook "draws" the table in ``toy.value``, without a kernel."""
    checkout.record("cpu", [make_record(study="formats")], processor="A CPU", commit="abc")
    notebook = checkout.root / "notebooks" / "01_formats.ipynb"
    notebook.write_text("{}")
    checkout.value, checkout.failure = 1.0, ""

    def run_all(jobs, workers, tell):
        results = []
        for job in jobs:
            folder = checkout.root / "build" / "drawn" / "formats"
            table = Table(pd.DataFrame({"y": [checkout.value]}), "Numbers & such")
            saved = files.save(folder, "numbers", table, {}, [])
            item = {
                key: getattr(saved, key)
                for key in ("name", "kind", "caption", "parameters", "table_sha256", "stale")
            }
            run = "20260101T000000Z-0000"
            files.write_manifest(folder, {"study": "formats", "runs": [run], "items": [item]})
            assert job.parameters["out"] == str(folder.parent)
            results.append(Result(job, 0.1, checkout.failure))
            tell(results[-1])
        return results

    monkeypatch.setattr(command, "run_all", run_all)
    monkeypatch.setattr(command, "typed_values", lambda path, given: {})
    monkeypatch.setattr(command, "compiler_here", lambda: None)
    return checkout


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(["reproduce", *arguments])
    return ended.value.code


def test_figures_and_report_are_written(toy, capsys):
    assert run() == 0
    figures = toy.root / "figures"
    assert (figures / "formats" / "numbers.tex").exists()
    assert (figures / "claims" / "state.csv").exists()
    page = (figures / "report.html").read_text()
    assert "Numbers &amp; such" in page
    assert "A CPU" in page
    assert "not yet measured" in page
    for kind in ("Stated in the documents", "Derived from", "From elsewhere"):
        assert kind in page
    assert 'src="http' not in page
    assert "01_formats: done" in capsys.readouterr().out


def test_the_report_is_the_same_on_every_run(toy):
    run()
    page = (toy.root / "figures" / "report.html").read_bytes()
    run()
    assert (toy.root / "figures" / "report.html").read_bytes() == page


def test_check_compares_tables_and_changes_nothing(toy, capsys):
    assert run("--check") == 1
    assert "formats: never drawn" in capsys.readouterr().out
    assert run() == 0
    assert run("--check") == 0
    assert "1 studies match their figures" in capsys.readouterr().out
    toy.value = 1.0 + 1e-9  # beyond the digits that count
    assert run("--check") == 0
    toy.value = 2.0
    before = (toy.root / "figures" / "formats" / "numbers.csv").read_text()
    assert run("--check") == 1
    out = capsys.readouterr().out
    assert "formats/numbers: its data changed" in out
    assert "claims" not in out
    assert (toy.root / "figures" / "formats" / "numbers.csv").read_text() == before


def test_check_writes_the_report_of_what_it_drew(toy):
    run()
    page = (toy.root / "figures" / "report.html").read_bytes()
    toy.value = 2.0
    assert run("--check") == 1
    drawn = (toy.root / "build" / "drawn" / "report.html").read_text()
    assert "Numbers &amp; such" in drawn
    assert (toy.root / "figures" / "report.html").read_bytes() == page


def test_check_compares_the_claims_too(toy, capsys, monkeypatch):
    run()
    judged = page_module.judge_all("recorded")
    changed = judged.assign(state=["beaten", *judged["state"][1:]])
    monkeypatch.setattr(page_module, "judge_all", lambda records: changed)
    assert run("--check") == 1
    assert "claims/state: its data changed" in capsys.readouterr().out


def test_a_failure_keeps_the_last_figures(toy, capsys):
    run()
    toy.value, toy.failure = 2.0, "notebook 01_formats failed\n  ValueError: no"
    assert run() == 1
    assert "ValueError: no" in capsys.readouterr().err
    assert (toy.root / "figures" / "formats" / "numbers.csv").read_text() == "y\n1\n"


def test_parameters_draw_into_build(toy):
    assert run("formats", "-p", "n=3") == 0
    assert (toy.root / "build" / "figures" / "report.html").exists()
    assert not (toy.root / "figures").exists()


def test_a_study_that_is_not_there_is_refused(toy, capsys):
    assert run("nothing") == 1
    assert "no study 'nothing'" in capsys.readouterr().err


def test_manifests_are_json(toy):
    run()
    manifest = json.loads((toy.root / "figures" / "formats" / "manifest.json").read_text())
    assert manifest["items"][0]["name"] == "numbers"
