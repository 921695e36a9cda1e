from __future__ import annotations

import nbformat
import pytest

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.report import notebooks
from asyncsparse_lab.report.notebooks import Job, run_notebook
from asyncsparse_lab.report.parameters import split_assignment, typed_values

PARAMETERS = """records: str = "recorded"  # whose
out: str = ""
n: int = 4  # columns of B
tolerance: float = 0.5
quick: bool = False
matrices: list[str] = ["a"]
untyped = 3"""


def write_notebook(path, *cells):
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {
        "name": "python3", "language": "python", "display_name": "Python 3",
    }  # fmt: skip
    first = nbformat.v4.new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]})
    notebook.cells = [first, *(nbformat.v4.new_code_cell(cell) for cell in cells)]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path


@pytest.fixture
def notebook(tmp_path):
    return write_notebook(tmp_path / "toy.ipynb")


def test_values_take_the_types_of_the_cell(notebook):
    given = [
        "n=8",
        "tolerance=1",
        "quick=True",
        "matrices=['x', 'y']",
        "records=local",
        "untyped=1",
    ]
    assert typed_values(notebook, given) == {
        "n": 8,
        "tolerance": 1.0,
        "quick": True,
        "matrices": ["x", "y"],
        "records": "local",
        "untyped": 1,
    }
    assert isinstance(typed_values(notebook, ["tolerance=1"])["tolerance"], float)
    assert typed_values(notebook, ["records=8"]) == {"records": "8"}
    assert typed_values(notebook, ["records='local'"]) == {"records": "local"}, "as in the cell"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("m=8", "has no parameter 'm'; there are records, out, n"),
        ("n=eight", "n='eight' is not a int"),
        ("n=8.5", "n='8.5' is not a int"),
        ("quick=1", "quick='1' is not a bool"),
        ("tolerance=None", "tolerance='None'"),
        ("matrices=x", "matrices='x'"),
        ("matrices=[1]", "matrices="),
        ("n", "write -p name=value"),
        ("out=elsewhere", "where pictures go is said by --out"),
        ("=8", "write -p name=value"),
    ],
)
def test_unknown_and_ill_typed_values_are_refused(notebook, given, message):
    with pytest.raises(InputError, match=message.replace("[", r"\[")):
        typed_values(notebook, [given])


def test_a_value_may_hold_an_equals_sign():
    assert split_assignment("matrix=stencil2d(n=4)") == ("matrix", "stencil2d(n=4)")


def job(notebook, tmp_path, timeout=60, **parameters):
    executed = tmp_path / "executed" / notebook.name
    return Job(notebook, ("toy",), parameters, executed, timeout)


@pytest.mark.notebook
def test_a_notebook_runs_with_its_parameters(tmp_path):
    path = write_notebook(
        tmp_path / "toy.ipynb", "from pathlib import Path; Path(out).write_text(str(n * 2))"
    )
    result = run_notebook(job(path, tmp_path, n=21, out=str(tmp_path / "answer")))
    assert result.failure == ""
    assert (tmp_path / "answer").read_text() == "42"
    assert result.job.executed.exists()


@pytest.mark.notebook
def test_a_failure_is_five_lines_and_the_copy_is_kept(tmp_path):
    path = write_notebook(tmp_path / "toy.ipynb", "x = 1", "# why\nraise ValueError('no\\nway')")
    result = run_notebook(job(path, tmp_path))
    lines = result.failure.splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("notebook toy failed in cell")
    assert lines[1] == "  ValueError: no"
    assert lines[2] == "  code: # why"
    assert str(result.job.executed) in lines[3]
    assert lines[4] == "  again: asyncsparse reproduce toy"
    assert "ValueError" in result.job.executed.read_text()


@pytest.mark.notebook
def test_a_cell_that_hangs_is_ended(tmp_path):
    path = write_notebook(tmp_path / "toy.ipynb", "import time; time.sleep(100)")
    result = run_notebook(job(path, tmp_path, timeout=1))
    assert "CellTimeoutError" in result.failure
    assert len(result.failure.splitlines()) == 5


def test_what_was_not_measured_or_has_no_notebook_is_left_out(checkout, make_record):
    folder = checkout.root / "notebooks"
    checkout.record("cpu", [make_record(study="formats")])
    chosen, lines = notebooks.choose([], "recorded")
    assert chosen == {}
    assert "formats: left out, no notebook yet" in lines
    path = write_notebook(folder / "01_formats.ipynb")
    write_notebook(folder / "02_bcsr_ablation.ipynb")
    chosen, lines = notebooks.choose([], "recorded")
    assert chosen == {path: ["formats"]}
    assert any(line.startswith("bcsr-ablation: left out, no recorded records") for line in lines)
    assert notebooks.choose(["formats"], "recorded") == ({path: ["formats"]}, [])


def test_a_named_study_must_be_ready(checkout):
    with pytest.raises(InputError, match="formats: no notebook yet"):
        notebooks.choose(["formats"], "recorded")
    with pytest.raises(InputError, match="no study 'nothing'"):
        notebooks.choose(["nothing"], "recorded")


def test_a_notebook_of_two_studies_waits_for_both(checkout, make_record):
    path = write_notebook(checkout.root / "notebooks" / "03_registers_and_ceilings.ipynb")
    checkout.record("nvidia-h200", [make_record(study="ceilings")])
    with pytest.raises(InputError, match="no recorded records of registers"):
        notebooks.choose(["ceilings"], "recorded")
    checkout.record("nvidia-h200", [make_record(study="registers")])
    chosen, _ = notebooks.choose(["ceilings"], "recorded")
    assert set(chosen[path]) == {"registers", "ceilings"}
