from __future__ import annotations

import hashlib

import pandas as pd
import pytest
from matplotlib.figure import Figure

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.report import files
from asyncsparse_lab.studies.base import Drawing, Table


def drawing(value=1.0):
    figure = Figure()
    figure.add_subplot().plot([0, 1], [0, value], label="a line")
    return Drawing(figure, pd.DataFrame({"x": [0, 1], "y": [0, value]}), "A line")


def test_a_figure_is_saved_with_its_table(tmp_path):
    saved = files.save(tmp_path, "line", drawing(), {"n": 3}, [])
    assert {path.name for path in tmp_path.iterdir()} == {"line.png", "line.svg", "line.csv"}
    csv = (tmp_path / "line.csv").read_bytes()
    assert saved.table_sha256 == hashlib.sha256(csv).hexdigest()
    assert (saved.kind, saved.parameters) == ("figure", {"n": 3})


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_pictures_are_the_same_on_every_run(kind):
    assert files.picture(drawing(), kind) == files.picture(drawing(), kind)


def test_a_table_is_saved_as_csv_and_latex(tmp_path):
    table = Table(pd.DataFrame({"share_%": [0.123456, None]}), "50 % of it_all")
    files.save(tmp_path, "shares", table, {}, [])
    tex = (tmp_path / "shares.tex").read_text()
    assert "\\toprule" in tex
    assert "\\caption{50 \\% of it\\_all}" in tex
    assert "share\\_\\%" in tex
    assert "0.1235" in tex
    assert (tmp_path / "shares.csv").read_text() == 'share_%\n0.123456\n""\n'


def test_table_bytes_depend_on_values_alone():
    exact = pd.DataFrame({"a": [1 / 3, 2.0], "b": ["x", "y"]})
    noisy = pd.DataFrame({"a": [1 / 3 + 1e-12, 2], "b": ["x", "y"]})
    objects = pd.DataFrame({"a": pd.Series([1 / 3, 2], dtype=object), "b": ["x", "y"]})
    assert files.table_text(exact) == files.table_text(noisy) == files.table_text(objects)
    assert files.table_text(exact) == "a,b\n0.333333,x\n2,y\n"
    changed = pd.DataFrame({"a": [0.33334, 2.0], "b": ["x", "y"]})
    assert files.table_text(changed) != files.table_text(exact)


def test_a_named_index_is_part_of_the_table():
    data = pd.DataFrame({"y": [1]}, index=pd.Index(["k"], name="x"))
    assert files.table_text(data) == "x,y\nk,1\n"


def test_a_manifest_comes_back(tmp_path):
    items = [{"name": "line", "table_sha256": "abc"}]
    files.write_manifest(tmp_path, {"study": "toy", "items": items})
    assert files.table_hashes(tmp_path) == {"line": "abc"}
    with pytest.raises(InputError, match="run asyncsparse reproduce"):
        files.read_manifest(tmp_path / "none")
