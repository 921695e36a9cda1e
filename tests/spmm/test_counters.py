from __future__ import annotations

import subprocess
from typing import Any

import pytest

from asyncsparse_lab.errors import DeviceError
from asyncsparse_lab.spmm import counters
from asyncsparse_lab.spmm.variants import VARIANTS

METRICS, PLAIN_METRICS = counters._METRIC_SETS
HEAD = '"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"'


def table(metrics: dict[str, str], *launches: dict[str, float]) -> str:
    """Make up what ncu prints."""
    lines = ["==PROF== Connected to process 71", "words of the program", HEAD]
    for number, launch in enumerate(launches):
        for name, value in launch.items():
            lines.append(f'"{number}","71","bcsr_spmm","","{metrics[name]}","x","{value:,}"')
    return "\n".join(lines)


FIRST = {"l2_sectors": 4000, "l2_hits": 3000, "dram_read_bytes": 12_800, "dram_write_bytes": 200}
SECOND = {"l2_sectors": 10, "l2_hits": 0, "dram_read_bytes": 320, "dram_write_bytes": 0}


def test_launches_are_read_in_their_order() -> None:
    found = counters.parse_counters(table(dict(METRICS), FIRST, SECOND), METRICS)
    assert found == [FIRST, SECOND]
    assert counters.summarise(found[0]) == {
        "l2_bytes": 128_000.0,
        "l2_hit_rate": 0.75,
        "dram_bytes": 13_000.0,
    }


def test_a_launch_that_lacks_a_metric_is_left_out() -> None:
    partial = {name: value for name, value in SECOND.items() if name != "l2_hits"}
    assert counters.parse_counters(table(dict(METRICS), FIRST, partial), METRICS) == [FIRST]
    assert counters.parse_counters("no table", METRICS) == []


class Ncu:
    """Answers in turn what a run of ncu would print."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        return subprocess.CompletedProcess(command, 0, self.answers.pop(0), "")


def read(monkeypatch: pytest.MonkeyPatch, ncu: Ncu, count: int = 1) -> list[dict[str, float]]:
    monkeypatch.setattr(counters.shutil, "which", lambda name: f"/somewhere/{name}")
    monkeypatch.setattr(counters.subprocess, "run", ncu)
    return counters.read_counters([VARIANTS["bcsr-opt3"]] * count, "uniform", 64, "bfloat16")


def test_an_older_gpu_without_the_source_unit_counts_all_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ncu = Ncu("==ERROR== Failed to find metric lts__x", table(dict(PLAIN_METRICS), FIRST))
    assert read(monkeypatch, ncu)[0]["l2_bytes"] == 128_000
    assert "lts__t_sectors_op_read.sum" in " ".join(ncu.commands[1])
    assert "regex:^(bcsr_spmm)$" in ncu.commands[0]


def test_why_counters_cannot_be_read_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match="ERR_NVGPUCTRPERM") as refused:
        read(monkeypatch, Ncu("words\n==ERROR== ERR_NVGPUCTRPERM - no permission\nmore"))
    assert "\n" not in str(refused.value)
    with pytest.raises(DeviceError, match="1 launches of 2"):
        read(monkeypatch, Ncu(table(dict(METRICS), FIRST)), count=2)
    monkeypatch.setattr(counters.shutil, "which", lambda name: None)
    monkeypatch.setattr(counters, "_TOOLKIT", counters.Path("/nowhere/ncu"))
    with pytest.raises(DeviceError, match="ncu is missing"):
        counters.read_counters([VARIANTS["bcsr-opt3"]], "uniform", 64, "bfloat16")
