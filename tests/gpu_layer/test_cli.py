import json
from pathlib import Path
from typing import Any

import pytest

from asyncsparse_lab.cli import main
from asyncsparse_lab.cli.doctor import Check, examine
from asyncsparse_lab.cli.kernels import parse_constants
from asyncsparse_lab.errors import InputError
from asyncsparse_lab.gpu.device import DeviceFacts, driver_is_loadable
from asyncsparse_lab.spmm.variants import VARIANTS


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    output = capsys.readouterr()
    return int(left.value.code or 0), output.out, output.err


def test_list_names_every_variant(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "kernels", "list", "--json")
    assert code == 0
    names = [row["variant"] for row in json.loads(out)]
    assert names[: len(VARIANTS)] == list(VARIANTS)
    assert set(names[len(VARIANTS) :]) == {"lsmr-persistent", "lsmr-document"}


def test_show_in_words_and_as_json_agree(capsys: pytest.CaptureFixture[str]) -> None:
    request = ("kernels", "show", "bcsr-opt2", "-c", "WGMMA_N=64")
    _, out, _ = run(capsys, *request, "--json")
    facts: dict[str, Any] = json.loads(out)
    assert facts["constants"]["WGMMA_N"] == 64
    assert facts["sass_counts"]["HGMMA"] > 0
    code, text, _ = run(capsys, *request)
    assert code == 0
    assert facts["kernel_hash"] in text
    assert f"{facts['resources']['registers']} a thread" in text
    assert f"HGMMA {facts['sass_counts']['HGMMA']}  " in text


def test_show_prints_the_listing(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "kernels", "show", "bcsr-opt2", "--sass")
    assert code == 0
    assert "HGMMA.64x" in out


def test_build_of_one_variant(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "kernels", "build", "bcsr-opt0", "--json")
    assert code == 0
    rows = json.loads(out)
    assert {row["dtype_out"] for row in rows} == {"bfloat16", "float32"}
    assert all(len(row["kernel_hash"]) == 64 for row in rows)


def test_build_of_a_solver(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "kernels", "build", "lsmr-document")
    assert code == 0
    assert "update_hbar_and_x WIDTH=4" in out
    assert "9 of 9 kernels built" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("kernels", "show", "bcsr-opt9"), "no variant 'bcsr-opt9'"),
        (("kernels", "show", "bcsr-opt2", "-c", "WGMMA_N=x"), "write NAME=INTEGER"),
        (("kernels", "show", "bcsr-opt2", "-c", "WGMMA_N=40"), "WGMMA_N = 40"),
    ],
)
def test_bad_request_is_one_line_and_exit_1(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, _, err = run(capsys, *arguments)
    assert code == 1
    assert message in err
    assert err.count("\n") == 1


def test_constants_from_the_command_line() -> None:
    assert parse_constants(["A=1", "B=-2"]) == {"A": 1, "B": -2}
    with pytest.raises(InputError, match="--constant A"):
        parse_constants(["A"])


def test_doctor_reports_the_same_in_words_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor", "--json")
    assert code == 0
    checks = [Check(**check) for check in json.loads(out)]
    found = {(check.part, check.name): check for check in checks}
    assert found["Python", "arrays"].state == "ok"
    assert found["compiler", "NVRTC"].state == "ok"
    assert {check.state for check in checks} <= {"ok", "missing", "limited"}
    code, text, _ = run(capsys, "doctor")
    assert code == 0
    for check in checks:
        assert check.name in text


@pytest.mark.skipif(driver_is_loadable(), reason="there is a driver")
def test_doctor_without_a_gpu_says_what_that_means() -> None:
    (driver,) = (check for check in examine() if check.part == "GPU")
    assert driver.state == "missing"
    assert "figures are drawn from the records" in driver.detail


def test_doctor_goes_on_when_a_check_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from asyncsparse_lab.cli import doctor

    monkeypatch.setenv("ASYNCSPARSE_MATRICES", "no/such/folder")
    monkeypatch.setattr(doctor, "_version_of", lambda package: None)
    checks = examine()
    failed = [check for check in checks if check.name == "the rest"]
    assert [check.part for check in failed] == ["data"]
    assert "no/such/folder" in failed[0].detail
    arrays = next(check for check in checks if check.name == "arrays")
    assert (arrays.state, arrays.remedy) == ("missing", "pip install .")


# What the H200 said of itself; the driver's functions are replaced, the report is ours.
H200 = DeviceFacts(
    name="NVIDIA H200",
    slug="nvidia-h200",
    capability=(9, 0),
    arch="sm_90",
    sm_count=132,
    l2_bytes=62914560,
    memory_bytes=150109880320,
    shared_bytes_per_block=232448,
    driver="580.159.04",
    cuda_driver="13.0",
    cuda_runtime="13.2",
)


@pytest.mark.parametrize(
    ("printed", "code", "state", "detail"),
    [
        ("sm__cycles_elapsed.max cycle 4711", 0, "ok", "counters can be read"),
        ("==ERROR== ERR_NVGPUCTRPERM", 1, "limited", "may not read the hardware counters"),
        ("==ERROR== LibraryNotLoaded", 1, "limited", "reads no counters: ==ERROR== LibraryNot"),
    ],
)
def test_doctor_with_a_gpu_tells_device_tools_and_counters(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    printed: str,
    code: int,
    state: str,
    detail: str,
) -> None:
    from asyncsparse_lab.baselines import libraries
    from asyncsparse_lab.cli import doctor

    clocks = {"sm_clock_mhz": 1980.0, "sm_clock_max_mhz": 1980.0, "throttle_reasons": ["gpu_idle"]}
    monkeypatch.setattr(doctor.device, "driver_is_loadable", lambda: True)
    monkeypatch.setattr(doctor.device, "missing_gpu", lambda: None)
    monkeypatch.setattr(doctor.device, "device_facts", lambda: H200)
    monkeypatch.setattr(doctor.device, "free_memory", lambda: 139 * 2**30)
    monkeypatch.setattr(doctor.device, "clock_state", lambda: clocks)
    monkeypatch.setattr(libraries, "load_library", lambda name: None)
    tool = tmp_path / "ncu"
    tool.write_text(f"#!/bin/sh\necho '{printed}'\nexit {code}\n")
    tool.chmod(0o755)
    monkeypatch.setattr(doctor, "_find_tool", lambda name: tool)
    found = {(check.part, check.name): check for check in examine()}
    assert found["GPU", "driver"].detail == "580.159.04 (CUDA 13.0, runtime 13.2)"
    device = found["GPU", "NVIDIA H200"]
    assert (device.state, device.detail) == (
        "ok",
        "compute capability 9.0, 132 SMs, 60 MiB L2, 139 of 140 GiB free",
    )
    assert "gpu_idle" in found["GPU", "clocks"].detail
    assert {found["libraries", name].state for name in ("cublas", "cusparse")} == {"ok"}
    assert found["profiling", "compute-sanitizer"].state == "ok"
    counters = found["profiling", "ncu"]
    assert counters.state == state
    assert detail in counters.detail
