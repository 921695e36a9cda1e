"""The commands below ``asyncsparse matrices``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from asyncsparse_lab.cli.matrices import app
from asyncsparse_lab.errors import InputError
from asyncsparse_lab.matrices import load_matrix


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_list_names_everything(cache: Path) -> None:
    text = run("list")
    for word in ("mycielskian", "feeder", "dense1", "gate_proj-keep10-uniform-s0"):
        assert word in text
    data = json.loads(run("list", "--json"))
    assert data["suites"]["paper414"]["count"] == 414
    points = data["generators"]["stencil2d"]["parameters"][2]
    assert (points["name"], points["default"], points["choices"]) == ("points", 5, [5, 9])


def test_list_of_a_suite(cache: Path) -> None:
    assert "heart1 (stand-in)" in run("list", "dense1")
    rows = json.loads(run("list", "shared", "--json"))
    assert len(rows) == 80
    assert {row["name"]: row["available"] for row in rows}["bcsstk16"] is False
    with pytest.raises(InputError, match="no suite"):
        run("list", "nope")


def test_info_prints_the_facts(cache: Path) -> None:
    text = run("info", "stencil2d(nx=20, ny=20)")
    for word in ("400 x 400", "1,920", "symmetric", "BCSR fill", "the rule picks", "wcsr"):
        assert word in text
    data = json.loads(run("info", "stencil2d(nx=20, ny=20)", "--json"))
    assert data["nnz"] == 1920
    assert data["row_lengths"]["largest"] == 5
    assert set(data["block_fill"]) == {"8", "16", "32", "64", "128"}
    assert data["choice"]["format"] == "wcsr"


def test_make_writes_what_was_asked_for(tmp_path: Path, cache: Path) -> None:
    out = tmp_path / "x.mtx.gz"
    assert "25 x 25, 105 non-zeros" in run("make", "stencil2d(nx=5, ny=5)", "-o", str(out))
    assert (load_matrix(out) != load_matrix("stencil2d(nx=5, ny=5)")).nnz == 0
    with pytest.raises(InputError, match="is no generator"):
        run("make", "bcsstk16", "-o", str(out))


def test_fetch(
    site: Any, cache: Path, tmp_path: Path, archive: Callable[[dict[str, bytes]], bytes]
) -> None:
    matrix = b"%%MatrixMarket matrix coordinate pattern general\n2 2 1\n2 1\n"
    packed = archive({"toy/toy.mtx": matrix})
    site.files["/MM/HB/toy.tar.gz"] = packed
    statistics = tmp_path / "stats.csv"
    statistics.write_text("1\ndate\nHB,toy,2,2,1,1,1,0,0,0,0,kind,1\n")
    text = run("fetch", "HB/toy", "--statistics", str(statistics), "--dry-run")
    assert f"1 matrices, {len(packed)} bytes to fetch" in text
    assert not (cache / "suitesparse" / "HB" / "toy.mtx.gz").exists()
    text = run("fetch", "HB/toy")
    assert text.splitlines()[-1] == str(cache / "suitesparse" / "HB" / "toy.mtx.gz")
    assert "HB/toy" in run("list", "--search", "toy")
    with pytest.raises(InputError, match="nothing to fetch"):
        run("fetch")
    with pytest.raises(InputError, match="names no groups"):
        run("fetch", "--suite", "smoke")
