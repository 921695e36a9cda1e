"""``asyncsparse solve`` on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from asyncsparse_lab import cli
from asyncsparse_lab.matrices import load_matrix
from asyncsparse_lab.matrices.generators.least_squares import right_hand_side


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    code = ended.value.code
    assert isinstance(code, int)
    return code


MATRIX = "feeder(buses=50)"


@pytest.fixture
def problem(tmp_path: Path) -> tuple[Any, Any, Path]:
    A = load_matrix(MATRIX)
    b, x = right_hand_side(A, 0.3)
    path = tmp_path / "b.npy"
    np.save(path, b)
    return b, x, path


def test_the_convergence_and_the_table_are_shown(
    problem: tuple[Any, Any, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("solve", MATRIX, str(problem[2]), "--backend", "host") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{MATRIX}: 297 x 150")
    shown = [line.split() for line in lines[2:] if line[:6].strip().isdigit()]
    assert [int(words[0]) for words in shown[:10]] == list(range(1, 11))
    gradients = [float(words[2]) for words in shown]
    assert gradients[-1] < 1e-3 * gradients[0]
    assert any(line.split() == ["stop", "code", "2"] for line in lines)


def test_json_and_the_solution(
    problem: tuple[Any, Any, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.npy"
    options = ("--backend", "scipy", "--atol", "1e-12", "--json", "--out", str(out))
    assert run("solve", MATRIX, str(problem[2]), *options) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["|r| / |b| recomputed"] == pytest.approx(0.3, rel=1e-9)
    assert facts["backend"] == "scipy"
    np.testing.assert_allclose(np.load(out), problem[1], rtol=1e-6, atol=1e-8)
    assert list(tmp_path.glob(".*")) == []


def test_without_a_right_hand_side_the_answer_is_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.npy"
    assert run("solve", MATRIX, "--backend", "host", "--out", str(out), "--scale-columns") == 0
    assert "A times a vector of ones" in capsys.readouterr().out
    np.testing.assert_allclose(np.load(out), 1, atol=1e-3)


def test_a_stand_in_is_solved_with_the_right_hand_side_of_its_study(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("solve", "8kv-stand-in", "--backend", "scipy", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["|r| / |b| recomputed"] == pytest.approx(0.3540266, abs=1e-7)
    assert facts["iterations"] > 10


def test_what_is_no_solution_ends_with_1(problem: tuple[Any, Any, Path]) -> None:
    options = ("--backend", "host", "--maxiter", "2", "--json")
    assert run("solve", MATRIX, str(problem[2]), *options) == 1


def test_nothing_is_solved_for_a_place_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "nowhere" / "x.npy"
    assert run("solve", MATRIX, "--out", str(out)) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"--out {out}: there is no folder {out.parent}" in shown.err
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "no right-hand side"), (np.ones(3), "A has 297 rows"), (b"junk", "no array")],
)
def test_bad_right_hand_sides_are_one_line(
    content: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, content)
    assert run("solve", MATRIX, str(path)) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_matrix_market_right_hand_side(problem: tuple[Any, Any, Path], tmp_path: Path) -> None:
    from asyncsparse_lab.matrices import write_matrix_market

    path = tmp_path / "b.mtx"
    write_matrix_market(path, sparse.csr_array(problem[0][:, None]), note="b")
    assert run("solve", MATRIX, str(path), "--backend", "host", "--dtype", "float32") == 0
    assert run("solve", MATRIX, str(path), "--dtype", "int8") == 1
