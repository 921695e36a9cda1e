from __future__ import annotations

import errno
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

import asyncsparse_lab
from asyncsparse_lab import cli
from asyncsparse_lab.errors import DeviceError, InputError

HEAVY = {
    *("numpy", "scipy", "pandas", "matplotlib", "seaborn", "cupy", "torch", "ssgetpy"),
    *("IPython", "papermill", "jupyterlab", "ipywidgets", "jinja2"),
}


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    return ended.value.code


@pytest.fixture
def command(monkeypatch):
    """A command ``toy`` that raises what it is told to."""

    def add(error=None):
        def toy(count: int = 1) -> None:
            """Do nothing."""
            if error is not None:
                raise error

        monkeypatch.setitem(sys.modules, "toy_command", SimpleNamespace(toy=toy))
        monkeypatch.setitem(cli.COMMANDS, "toy", ("toy_command:toy", "Do nothing."))

    return add


def imported_by(code):
    """Return the top-level modules that running ``code`` imports, by Python's own account."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True
    )
    names = (line.rpartition("|")[2].strip() for line in done.stderr.splitlines())
    return {name.partition(".")[0] for name in names}


def test_importing_the_package_loads_nothing_heavy():
    loaded = imported_by("import asyncsparse_lab; dir(asyncsparse_lab)")
    assert "asyncsparse_lab" in loaded
    assert loaded & (HEAVY | {"typer", "rich"}) == set()


def test_help_loads_no_command():
    loaded = imported_by(
        "from asyncsparse_lab.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    )
    assert "typer" in loaded
    assert loaded & HEAVY == set()


def test_every_public_name_is_there():
    for name in asyncsparse_lab.__all__:
        assert getattr(asyncsparse_lab, name) is not None
        assert name in dir(asyncsparse_lab)
    with pytest.raises(AttributeError, match="nothing"):
        _ = asyncsparse_lab.nothing


def test_help_lists_every_command(capsys):
    assert run("--help") == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in cli.COMMANDS)


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_has_help(name, capsys):
    assert run(name, "--help") == 0
    assert f"asyncsparse {name}" in capsys.readouterr().out


def test_done_is_0(command):
    command()
    assert run("toy") == 0


def test_version(capsys):
    assert run("--version") == 0
    assert capsys.readouterr().out == f"asyncsparse-lab {asyncsparse_lab.__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["nosuch"], ["toy", "--nosuch"], ["toy", "--count", "many"], []]
)
def test_usage_is_2(command, arguments):
    command()
    assert run(*arguments) == 2


@pytest.mark.parametrize(
    ("error", "code"),
    [(InputError("n = 0: give a positive n"), 1), (DeviceError("no NVIDIA driver"), 3)],
)
def test_an_error_of_ours_is_one_line_and_a_code(command, capsys, error, code):
    command(error)
    assert run("toy") == code
    shown = capsys.readouterr()
    assert shown.err == f"asyncsparse: {error}\n"
    assert shown.out == ""


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/a/b"), "/a/b: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), "the disk: No space left on device"),
    ],
)
def test_a_place_that_cannot_be_written_is_one_line(command, capsys, error, shown):
    command(error)
    assert run("toy") == 1
    assert capsys.readouterr().err == (
        f"asyncsparse: {shown}: choose a place that can be written and has room\n"
    )


def test_other_errors_keep_their_traceback(command):
    command(ZeroDivisionError("a bug"))
    with pytest.raises(ZeroDivisionError):
        cli.main(["toy"])


def test_python_m_is_the_same():
    done = subprocess.run(
        [sys.executable, "-m", "asyncsparse_lab", "records", "status", "nothing", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("asyncsparse: no study 'nothing'")


def test_status_as_json(checkout, make_record, capsys, monkeypatch):
    from asyncsparse_lab.cli import records
    from asyncsparse_lab.studies.base import Case

    cases = [Case("a", seconds=30.0), Case("b", seconds=90.0)]
    monkeypatch.setattr(records, "load_study", lambda name: SimpleNamespace(cases=lambda: cases))
    checkout.record("cpu", [make_record(study="formats", case="a")])
    assert run("records", "status", "formats", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["held"], row["missing"], row["stale"]) == (1, ["b"], [])
    assert row["minutes"] == 1.5


def test_merge_and_compare(checkout, tmp_path, make_record, capsys):
    from asyncsparse_lab.records import append_case

    away = tmp_path / "nvidia-h200"
    home = checkout.root / "data" / "recorded" / "nvidia-h200"
    checkout.record("nvidia-h200", [make_record(us=4.0)])
    append_case(away / "toy.jsonl", [make_record(us=2.0, run="20270101T000000Z-0000")])
    assert run("records", "compare", str(home), str(away), "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["verdict"], row["change"]) == ("FAST", -0.5)
    assert run("records", "compare", str(home / "toy.jsonl"), str(away)) == 0
    assert "1 FAST, 0 SLOW, 0 SAME, 0 UNCLEAR" in capsys.readouterr().out
    assert run("records", "merge", str(away)) == 0
    assert "toy: 1 cases taken, 1 cases in nvidia-h200" in capsys.readouterr().out
    assert run("records", "compare", str(tmp_path / "none"), str(away)) == 1


def test_an_installed_package_is_not_merged_into(checkout, tmp_path, make_record, monkeypatch):
    from asyncsparse_lab.cli import records
    from asyncsparse_lab.records import append_case

    monkeypatch.setattr(records, "checkout_root", lambda: None)
    append_case(tmp_path / "cpu" / "toy.jsonl", [make_record()])
    with pytest.raises(InputError, match="name --into FOLDER"):
        records.merge(tmp_path / "cpu", into=None)
    records.merge(tmp_path / "cpu", into=tmp_path / "mine")
    assert (tmp_path / "mine" / "toy.jsonl").is_file()


def test_the_status_tells_whose_records_did_not_pass(make_record):
    from asyncsparse_lab.cli.records import _not_passed, _told

    kinds = [("cusparse", "wrong"), ("torch", "oom"), ("cusparse", "wrong"), ("cusparse", "passed")]
    records = []
    for backend, status in kinds:
        us, reason = (2.0, None) if status == "passed" else (None, "so it was")
        records.append(make_record(us, backend=backend, status=status, reason=reason))
    assert _not_passed(records) == {"cusparse wrong": 2, "torch oom": 1}
    assert _told(_not_passed(records)) == "; not passed: 2 of cusparse wrong, 1 of torch oom"
    assert _told({}) == ""
