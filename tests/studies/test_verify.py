from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from asyncsparse_lab.claims import claims_frame
from asyncsparse_lab.errors import DeviceError
from asyncsparse_lab.lsmr.watched import WATCHED
from asyncsparse_lab.records import Record
from asyncsparse_lab.records.frame import frame_of
from asyncsparse_lab.records.stale import stale_flags
from asyncsparse_lab.spmm.builds import Build, all_builds, pipelined_builds
from asyncsparse_lab.spmm.variants import VARIANTS, Variant
from asyncsparse_lab.spmm.verify import CaseOutcome, LaunchOutcome
from asyncsparse_lab.studies import registers, verify
from asyncsparse_lab.studies.base import Case
from asyncsparse_lab.studies.sanitize import SanitizerOutcome

CASES = {case.name: case for case in verify.cases()}


def outcome(case: str, fault: str | None = None, rel_err: float = 1e-3) -> CaseOutcome:
    return CaseOutcome(case, rel_err, 4e-3, 100, fault, {}, "kernel", "host", "nvrtc")


def test_every_build_that_a_study_launches_is_verified() -> None:
    verified = [
        (build.variant.name, build.variant.params, *build[1:])
        for subject in verify.SUBJECTS
        for build in verify.builds_of(subject)
    ]
    launched = [build for build in all_builds() if build.variant.name in VARIANTS]
    launched += [Build(v, "bfloat16") for case in registers.cases() for v in registers.builds(case)]
    for build in launched:
        assert (build.variant.name, build.variant.params, *build[1:]) in verified
    assert len(verified) == len({str(entry) for entry in verified})
    assert {case.params.get("variant") for case in CASES.values()} >= {*VARIANTS, "my_kernel"}


def test_a_build_gives_one_record_with_its_worst_case(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(variant: Variant, dtype_out: str, suite: list[Any], *_: str) -> list[CaseOutcome]:
        return [outcome(edge.name, rel_err=1e-5 * i) for i, edge in enumerate(suite)]

    monkeypatch.setattr(verify.verify, "verify_build", run)
    records = verify.measure(CASES["edge-cases-bcsr-opt0"])
    assert {record.dtype_out for record in records} == {"bfloat16", "float32"}
    for record in records:
        assert record.status == "passed"
        assert record.kernel_hash == "kernel"
        errors = record.result["rel_err"]
        assert record.rel_err == max(errors.values())
        assert record.result["elements"] == 100 * len(errors)
        assert "c-past-2**31" in errors


def test_large_cases_run_for_the_named_build_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[str]] = {}

    def run(variant: Variant, dtype_out: str, suite: list[Any], *_: str) -> list[CaseOutcome]:
        names = {edge.name for edge in suite}
        seen.setdefault(str(dict(variant.constants)), set()).update(names)
        return [outcome("a")]

    monkeypatch.setattr(verify.verify, "verify_build", run)
    records = verify.measure(CASES["edge-cases-bcsr-opt1"])
    assert len(records) == len({(r.dtype_out, str(r.params)) for r in records})
    large = [constants for constants, names in seen.items() if "c-past-2**31" in names]
    assert large == [str(dict(VARIANTS["bcsr-opt1"].constants))]
    assert len(seen) > 1
    assert all("ragged-n143" in names for names in seen.values())


def test_faults_and_a_broken_device_are_records(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(variant: Variant, dtype_out: str, suite: list[Any], *_: str) -> list[CaseOutcome]:
        return [outcome("good"), outcome("odd-b", "C[0, 0] is nan", float("inf"))]

    monkeypatch.setattr(verify.verify, "verify_build", wrong)
    record = verify.measure(CASES["edge-cases-bcsr-opt0"])[0]
    assert (record.status, record.reason) == ("wrong", "1 of 2 cases; odd-b: C[0, 0] is nan")

    def breaks(variant: Variant, dtype_out: str, suite: list[Any], *_: str) -> list[CaseOutcome]:
        raise DeviceError("illegal address")

    monkeypatch.setattr(verify.verify, "verify_build", breaks)
    records = verify.measure(CASES["edge-cases-bcsr-opt0"])
    assert [record.status for record in records] == ["error"]


@pytest.mark.parametrize(("different", "status"), [(0, "passed"), (12, "wrong")])
def test_launches(different: int, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(variant: Variant, launches: int) -> LaunchOutcome:
        return LaunchOutcome(launches, different, 37 if different else None, 2.5, "k", "nvrtc")

    monkeypatch.setattr(verify.verify, "launch_in_child", launch)
    (record,) = verify.measure(CASES["launches-bcsr-opt3"])
    assert (record.status, record.result["launches"]) == (status, 10_000)
    assert record.params["debug_delays"] == 1
    assert ("from launch 37 on" in (record.reason or "")) == bool(different)


def test_a_hang_is_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(variant: Variant, launches: int) -> LaunchOutcome:
        raise DeviceError("the kernel hangs")

    monkeypatch.setattr(verify.verify, "launch_in_child", launch)
    (record,) = verify.measure(CASES["launches-bcsr-opt2"])
    assert (record.status, record.reason) == ("error", "the kernel hangs")


@pytest.mark.parametrize(
    ("errors", "exit_code", "status"), [(0, 0, "passed"), (2, 0, "wrong"), (0, 1, "wrong")]
)
def test_the_sanitizer(
    errors: int, exit_code: int, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")

    def run(tool: str, variant: str) -> SanitizerOutcome:
        return SanitizerOutcome(tool, "2025.3", errors, ("Invalid read",), exit_code, 1.0)

    monkeypatch.setattr(verify.sanitize, "run_sanitizer", run)
    (record,) = verify.measure(CASES["sanitize-racecheck-bcsr-opt1"])
    assert (record.status, record.result["errors"]) == (status, errors)
    assert (record.result["tool"], record.result["version"]) == ("racecheck", "2025.3")
    assert stale_flags("verify", [record, replace(record, kernel_hash="0" * 64)]) == [False, True]


@pytest.mark.parametrize(
    ("errors", "exit_code", "status"), [(0, 0, "passed"), (2, 0, "wrong"), (0, 1, "wrong")]
)
def test_the_sanitizer_looks_at_lsmr(
    errors: int, exit_code: int, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")

    def run(tool: str, variant: str) -> SanitizerOutcome:
        return SanitizerOutcome(tool, "2025.3", errors, ("Race reported",), exit_code, 1.0)

    monkeypatch.setattr(verify.sanitize, "run_sanitizer", run)
    for name in WATCHED:
        assert verify.find_name(name) in verify.names()
        case = CASES[f"sanitize-racecheck-{name}"]
        records = verify.measure(case)
        assert len(records) == len(verify.verify_solver.builds()[name]), "each may go stale"
        assert {(record.op, record.status) for record in records} == {("lsmr", status)}
        assert [record.result.get("errors") for record in records] == [
            errors, *[None] * (len(records) - 1)
        ]  # fmt: skip
        assert all((record.reason is None) == (status == "passed") for record in records)
        changed = replace(records[-1], kernel_hash="0" * 64)
        assert stale_flags("verify", [*records, changed]) == [*[False] * len(records), True]


def test_what_lsmr_cannot_be_watched_for_is_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(tool: str, variant: str) -> SanitizerOutcome:
        raise DeviceError("memcheck: no end after 600 s")

    monkeypatch.setattr(verify.sanitize, "run_sanitizer", run)
    (record,) = verify.measure(CASES["sanitize-memcheck-lsmr-persistent"])
    assert (record.status, record.reason) == ("error", "memcheck: no end after 600 s")


def test_a_refused_kernel_does_not_hide_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def run(tool: str, variant: str) -> SanitizerOutcome:
        asked.append((tool, variant))
        if variant == "wcsr-paper":
            raise DeviceError("synccheck: no end after 200 s")
        return SanitizerOutcome(tool, "2025.3", 0, (), 0, 1.0)

    monkeypatch.setattr(verify.sanitize, "run_sanitizer", run)
    monkeypatch.setattr(verify, "compile_many", list)
    names = ("wcsr-paper", "csr-vector")
    chosen = [CASES[f"sanitize-synccheck-{name}"] for name in names]
    verify.begin([*chosen, CASES["oracle"]], jobs=2)
    records = [record for case in chosen for record in verify.measure(case)]
    assert [(r.variant, r.status) for r in records] == list(
        zip(names, ("error", "passed"), strict=True)
    )
    assert sorted(asked) == sorted(("synccheck", name) for name in names), "each once"


def test_what_was_not_begun_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    running, go_on = Event(), Event()

    def run(tool: str, variant: str) -> SanitizerOutcome:
        asked.append(variant)
        running.set()
        go_on.wait(60)
        return SanitizerOutcome(tool, "2025.3", 0, (), 0, 1.0)

    monkeypatch.setattr(verify.sanitize, "run_sanitizer", run)
    monkeypatch.setattr(verify, "compile_many", list)
    names = ("csr-vector", "wcsr-paper")
    verify.begin([CASES[f"sanitize-memcheck-{name}"] for name in names], jobs=1)
    futures = list(verify._begun.values())
    assert running.wait(60)
    verify.cancel()
    go_on.set()
    wait(futures, 60)
    assert sorted(future.cancelled() for future in futures) == [False, True]
    assert len(asked) == 1
    assert not verify._begun


def test_the_sanitizer_and_the_launches_see_every_tile_beyond_the_document() -> None:
    tiles = {str(tile.constants) for tile in pipelined_builds()}
    pipelined = VARIANTS["wcsr-pipelined"]
    small = verify.small_builds(pipelined)
    assert {str(build.variant.constants) for build in small} == tiles
    assert {build.variant.constants["HEIGHT"] for build in small} == {64, 128, 256}
    launched = [build.variant for build in verify.shaken_builds(pipelined)]
    assert launched[0] == pipelined.with_constants(DEBUG_DELAYS=1)
    assert {one.options["max_cols_per_task"] for one in launched[1:]} == {64}
    heights = [one.constants["HEIGHT"] for one in launched[1:]]
    assert len(heights) == len(tiles)
    names = [case for case in CASES if case.startswith("launches-wcsr-pipelined")]
    assert len(names) == len(launched)
    opt3 = VARIANTS["bcsr-opt3"]
    assert {str(build.variant) for build in verify.small_builds(opt3)} == {str(opt3)}


def test_the_table_has_a_line_for_each_variant(
    draw_in_theme: Callable[..., dict[str, Any]], make_record: Callable[..., Record]
) -> None:
    def record(case: str, variant: str, status: str = "passed", **result: Any) -> Record:
        return make_record(
            us=None, study="verify", case=case, variant=variant, status=status, result=result,
            rel_err=1e-3, err_bound=4e-3, reason=None if status == "passed" else "why",
        )  # fmt: skip

    frame = frame_of(
        [
            record("edge-cases-bcsr-opt0", "bcsr-opt0", elements=100),
            record("edge-cases-bcsr-opt0", "bcsr-opt0", "wrong", elements=50),
            record("launches-bcsr-opt0", "bcsr-opt0", launches=10_000, different_words=0),
            record("sanitize-memcheck-bcsr-opt0", "bcsr-opt0", errors=0),
            record("sanitize-racecheck-bcsr-opt0", "bcsr-opt0", errors=3),
        ]
    )
    table = draw_in_theme(verify, frame, claims_frame("verify"))["verify"].data
    table = table.set_index("variant")
    assert table.loc["bcsr-opt0", "builds"] == 2
    assert table.loc["bcsr-opt0", "not passed"] == 1
    assert table.loc["bcsr-opt0", "elements compared"] == 150
    assert table.loc["bcsr-opt0", "launches"] == 10_000
    assert table.loc["bcsr-opt0", "largest error / bound"] == 0.25
    assert table.loc["bcsr-opt0", "sanitizer errors"] == 3


def test_the_oracle_is_checked_on_the_smoke_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    from types import SimpleNamespace

    import numpy as np

    # NumPy in CuPy's place: the comparison with itself is exact, and the records are whole.
    stand_in = SimpleNamespace(asarray=np.asarray, asnumpy=np.asarray)
    monkeypatch.setitem(sys.modules, "cupy", stand_in)
    records = verify.measure(Case("oracle", params={"kind": "oracle"}))
    assert records
    assert {record.status for record in records} == {"passed"}
    assert {record.rel_err for record in records} == {0.0}
    assert len({record.matrix for record in records}) == len(records)
