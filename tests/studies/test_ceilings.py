from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from asyncsparse_lab.claims import claims_frame
from asyncsparse_lab.errors import InputError
from asyncsparse_lab.gpu.compile import Artifact, compile_many
from asyncsparse_lab.gpu.timing import Timing, check_floor
from asyncsparse_lab.studies import ceilings, l2_probes, probes, trial
from asyncsparse_lab.studies.base import Case


def test_the_best_configuration_counts(ceilings_frame: pd.DataFrame) -> None:
    found = ceilings.ceilings_of(ceilings_frame, "nvidia-h200")
    assert found.hbm_bytes_per_s == 4.3e12
    assert found.mma_flops_per_s == 790e12
    assert found.tma_bytes_per_s == 8.5e12, "independent reads of the largest working set"
    assert found.tma_shared_bytes_per_s == 22e12
    assert found.empty_us == 3.5
    assert found.grid_barrier_us == 1.3
    check_floor(100.0, "cold", found, compulsory_bytes=1e8, flops=1e9)


def test_a_missing_probe_is_named(ceilings_frame: pd.DataFrame) -> None:
    part = ceilings_frame[ceilings_frame["variant"] != "fma"]
    with pytest.raises(InputError, match="no ceiling of fma is recorded for h200"):
        ceilings.ceilings_of(part, "h200")


def test_a_failed_probe_does_not_count(ceilings_frame: pd.DataFrame) -> None:
    failed = ceilings_frame.assign(
        status=ceilings_frame["status"].where(ceilings_frame["variant"] != "mma", "wrong")
    )
    with pytest.raises(InputError, match="no ceiling of mma"):
        ceilings.ceilings_of(failed, "nvidia-h200")


def test_the_table(
    ceilings_frame: pd.DataFrame, draw_in_theme: Callable[..., dict[str, Any]]
) -> None:
    items = draw_in_theme(ceilings, ceilings_frame, claims_frame("ceilings"))
    table = items["ceilings"].data.set_index("probe")
    assert list(table.index.unique()) == list(ceilings.PROBES)
    assert table.loc["tma-l2", "best"].tolist() == [8.5, 22.0]
    assert table.loc["copy", "best"] == 4.3
    assert table.loc["copy", "worst configuration"] == 4.1
    assert table.loc["copy", "best configuration"] == "configuration=1"
    assert table.loc["mbarrier", "unit"] == "cycles"
    assert table.loc["empty", "unit"] == "us"


def test_every_probe_has_a_case_and_is_prepared() -> None:
    assert [case.name for case in ceilings.cases()] == list(ceilings.PROBES)
    assert set(probes.PREPARE) == set(ceilings.PROBES)
    assert set(ceilings.kernel_builds()) == set(ceilings.PROBES) - {"cublas"}


def test_probes_compile_without_spills_and_fit_the_device() -> None:
    builds = [build for group in ceilings.kernel_builds().values() for build in group]
    artifacts = compile_many(builds)
    assert all(isinstance(artifact, Artifact) for artifact in artifacts)
    for boxes, stages, per_sm in l2_probes.TMA_SHAPES:
        shared = stages * boxes * l2_probes.BOX_BYTES + trial.ALIGNMENT + 1024
        assert per_sm * shared <= 228 * 1024
    for row_bytes, stage_rows, stages, per_sm in l2_probes.GATHER_SHAPES:
        assert per_sm * (stages * stage_rows * row_bytes + 1024) <= 228 * 1024


def test_argument_mirrors_have_the_size_of_the_structs() -> None:
    import ctypes

    sizes = {
        probes.CopyArguments: 24,
        probes.MmaArguments: 24,
        probes.FmaArguments: 24,
        probes.EmptyArguments: 8,
        probes.MbarrierArguments: 16,
        probes.GridBarrierArguments: 16,
        l2_probes.TmaArguments: 192,
        l2_probes.GatherArguments: 32,
    }
    assert {kind.__name__: ctypes.sizeof(kind) for kind in sizes} == {
        kind.__name__: size for kind, size in sizes.items()
    }


@pytest.mark.parametrize("fault", [None, "3 blocks ended with other rows"])
def test_a_probe_that_gives_nonsense_has_no_time(
    fault: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = trial.Trial(
        run=lambda: None,
        params={"boxes": 4},
        rates=trial.per_second(2e6, "tb_per_s"),
        fault=lambda: fault,
    )
    monkeypatch.setitem(probes.PREPARE, "tma-l2", lambda: [one])
    timing = Timing.from_samples([2.0, 2.0, 2.0], 1700.0, 1800.0)
    monkeypatch.setattr(ceilings.timing, "time_interleaved", lambda *_args, **_more: [timing])
    (record,) = ceilings.measure(Case("tma-l2"))
    if fault is None:
        assert record.status == "passed"
        assert record.result == {"tb_per_s": 1.0, "clock_mhz": 1750.0}
    else:
        assert (record.status, record.reason, record.median_us) == ("wrong", fault, None)
