from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
from matplotlib import pyplot

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.records import stale
from asyncsparse_lab.report import files, open_study
from asyncsparse_lab.report import study as study_module
from asyncsparse_lab.studies.base import Drawing, Missing, Table


@pytest.fixture
def toy(monkeypatch, checkout, make_record):
    """The study "formats", measured once and drawn by a toy module."""
    calls: list[dict] = []

    def draw(frame, claims, *, scale=1.0):
        calls.append({"scale": scale, "claims": len(claims), "rows": len(frame)})
        figure, axes = pyplot.subplots()
        axes.plot([0, scale])
        data = pd.DataFrame({"variant": frame["variant"], "y": [scale] * len(frame)})
        items = {"line": Drawing(figure, data, "A line"), "numbers": Table(data, "Numbers")}
        return {**items, "rest": Missing("asyncsparse measure formats")}

    monkeypatch.setattr(study_module, "load_study", lambda name: SimpleNamespace(draw=draw))
    monkeypatch.setattr(stale, "compiler_here", lambda: "nvrtc 1")
    monkeypatch.setattr(stale, "kernel_hashes", lambda study, variant: frozenset({"h1"}))
    records = [
        make_record(study="formats", variant=name, kernel_hash=kernel, compiler="nvrtc 1")
        for name, kernel in (("fresh", "h1"), ("old", "h0"))
    ]
    checkout.record("cpu", records)
    return calls


def test_show_saves_what_it_shows(toy, tmp_path, capsys):
    opened = open_study("formats", out=tmp_path)
    opened.show("line", scale=2.0)
    opened.show("numbers", scale=2.0)
    opened.show("rest", scale=2.0)  # is not saved
    assert toy == [{"scale": 2.0, "claims": 2, "rows": 2}]  # drawn once
    manifest = files.read_manifest(tmp_path / "formats")
    assert manifest["notebook"] == "01_formats"
    assert list(manifest["records_sha256"]) == ["cpu"]
    line, numbers = manifest["items"]
    assert (line["name"], line["parameters"], line["stale"]) == ("line", {"scale": 2.0}, ["old"])
    assert (numbers["name"], numbers["kind"]) == ("numbers", "table")
    assert pyplot.get_fignums() == []


def test_what_a_picture_does_not_show_is_not_stamped_on_it(toy):
    opened = open_study("formats")
    item = replace(opened.draw()["line"], cases=frozenset({"another"}))
    assert opened._stale_in(item) == []


def test_a_stale_series_is_stamped(toy):
    opened = open_study("formats")
    item = opened.draw()["line"]
    texts = [text.get_text() for text in item.figure.texts]
    assert texts == ["measured with an earlier kernel: old"]
    assert opened.frame["stale"].tolist() == [False, True]


def test_parameters_that_choose_nothing_are_refused(toy):
    opened = open_study("formats")
    for choice, message in (
        ({"n": 7}, r"not measured with n=7; n there: 8"),
        ({"n": 8, "matrices": ["other"]}, r"with n=8, matrices=\['other'\]; matrix there: toy"),
        ({"l2": "tepid"}, "with l2='tepid'; l2 there: cold"),
        ({"backends": ["nobody"]}, r"with backends=\['nobody'\]; variant there: fresh, old"),
    ):
        with pytest.raises(InputError, match=message):
            opened.draw(**choice)
    assert toy == []


def test_without_a_folder_nothing_is_saved(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    open_study("formats").show("line")
    assert {path.name for path in tmp_path.iterdir()} == {"checkout"}


def test_what_is_not_there_is_one_line(toy):
    with pytest.raises(InputError, match="draws no 'curve'; there are line, numbers, rest"):
        open_study("formats").show("curve")
    with pytest.raises(InputError, match="no local records of formats"):
        open_study("formats", records="local")
    with pytest.raises(InputError, match="no study 'nothing'"):
        open_study("nothing")
