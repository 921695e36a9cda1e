from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from asyncsparse_lab.cli import main
from asyncsparse_lab.gpu import device
from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm.edge_cases import EdgeCase
from asyncsparse_lab.spmm.handed_on import ON_THE_GPU
from asyncsparse_lab.spmm.variants import VARIANTS, Variant
from asyncsparse_lab.spmm.verify import CaseOutcome
from asyncsparse_lab.studies import provenance, verify
from asyncsparse_lab.studies.base import Case


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(["verify", *arguments])
    return int(left.value.code or 0)


@pytest.fixture
def measured(
    monkeypatch: pytest.MonkeyPatch, make_record: Callable[..., Record]
) -> Callable[[str], list[str]]:
    """Stand in for a GPU: every case gives one record of the given status."""
    asked: list[str] = []

    def stand_in(status: str) -> list[str]:
        def measure(case: Case) -> list[Record]:
            asked.append(case.name)
            reason = None if status == "passed" else "C[0, 0] is nan"
            record = make_record(
                us=None, study="verify", case=case.name, status=status, reason=reason
            )
            return [record]

        monkeypatch.setattr(device, "require_gpu", lambda: SimpleNamespace(slug="nvidia-h200"))
        monkeypatch.setattr(provenance, "gpu_facts", lambda: {"name": "made up"})
        monkeypatch.setattr(provenance, "gpu_state", lambda: {})
        monkeypatch.setattr(verify, "measure", measure)
        return asked

    return stand_in


def test_all_right_is_exit_code_0(
    measured: Callable[[str], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = measured("passed")
    arguments = ("--variant", "bcsr-opt0", "--variant", "bcsr-opt3", "--out", str(tmp_path))
    assert run(*arguments, "--json") == 0
    assert asked == ["oracle", "edge-cases-bcsr-opt0", "edge-cases-bcsr-opt3"]
    records = json.loads(capsys.readouterr().out)
    assert [record["case"] for record in records] == sorted(asked, key=asked.index)
    assert len((tmp_path / "verify.jsonl").read_text().splitlines()) == 3


def test_something_wrong_is_exit_code_1_and_a_line(
    measured: Callable[[str], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured("wrong")
    assert run("--variant", "bcsr-opt0", "--out", str(tmp_path)) == 1
    shown = capsys.readouterr().out
    assert "bcsr-opt3 float32 wrong: C[0, 0] is nan" in shown
    assert "0 of 2 passed" in shown


def test_the_hang_test_and_the_sanitizer_are_asked_for(
    measured: Callable[[str], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = measured("passed")
    begun: list[str] = []
    monkeypatch.setattr(
        verify, "begin", lambda chosen, jobs: begun.extend(f"{case.name} {jobs}" for case in chosen)
    )
    arguments = ("--variant", "bcsr-opt2", "--jobs", "3", "--out", str(tmp_path))
    assert run("--launches", "--sanitize", *arguments) == 0
    assert asked == [
        "launches-bcsr-opt2",
        "sanitize-memcheck-bcsr-opt2",
        "sanitize-synccheck-bcsr-opt2",
        "sanitize-racecheck-bcsr-opt2",
    ]
    assert begun == [f"{name} 3" for name in asked]


def test_an_unknown_variant_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--variant", "bcsr-opt9") == 1
    assert "no variant 'bcsr-opt9'" in capsys.readouterr().err


def test_without_a_gpu_the_exit_code_is_3(capsys: pytest.CaptureFixture[str]) -> None:
    if device.missing_gpu() is None:
        pytest.skip("this machine has a GPU")
    assert run() == 3
    assert capsys.readouterr().err.startswith("asyncsparse: ")


@pytest.mark.parametrize(("fault", "code"), [(None, 0), ("C[0, 0] is nan", 1)])
def test_what_the_sanitizer_watches(
    fault: str | None,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every tile on the small cases, with the conversion on the GPU."""
    seen: list[tuple[str, set[str], object]] = []

    def verify_build(
        variant: Variant, dtype_out: str, suite: list[EdgeCase], *rest: object
    ) -> list[CaseOutcome]:
        seen.append((str(variant.params), {case.scope for case in suite}, rest[-1]))
        return [CaseOutcome("one", 0.0, 1e-3, 9, fault, {}, None, None, None)]

    pool = SimpleNamespace(set_allocator=lambda allocator: None)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=pool))
    monkeypatch.setattr(device, "require_gpu", lambda: SimpleNamespace(slug="nvidia-h200"))
    monkeypatch.setattr("asyncsparse_lab.spmm.verify.verify_build", verify_build)
    assert run("--small", "--variant", "wcsr-pipelined") == code
    builds = verify.small_builds(VARIANTS["wcsr-pipelined"])
    assert [params for params, _, _ in seen] == [str(build.variant.params) for build in builds]
    assert all(scopes == {"small"} for _, scopes, _ in seen)
    assert all(makers is ON_THE_GPU for _, _, makers in seen)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(builds)
    assert all("height=" in line and line.endswith(fault or "right") for line in lines)


@pytest.mark.parametrize("arguments", [(), ("--launches",)])
def test_lsmr_is_looked_at_by_the_sanitizer_alone(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--variant", "lsmr-persistent", *arguments) == 1
    error = capsys.readouterr().err
    assert "lsmr-persistent is looked at by --sanitize and --small only" in error
    assert error.count("\n") == 1


def test_an_unknown_name_is_told_all_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--variant", "lsmr-nosuch", "--sanitize") == 1
    error = capsys.readouterr().err
    assert all(name in error for name in verify.names())
    assert error.count("\n") == 1
