"""The study of the kernels beyond the article, drawn from made-up records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from asyncsparse_lab.claims import claims_frame
from asyncsparse_lab.records import Record
from asyncsparse_lab.records.frame import frame_of
from asyncsparse_lab.spmm.variants import VARIANTS
from asyncsparse_lab.studies import bcsr_beyond
from asyncsparse_lab.studies.bcsr_beyond_figures import floors
from asyncsparse_lab.studies.rooflines import ceilings_for

from .conftest import timed


def record(
    case: Any, backend: str, variant: str, us: float, role: str = "ours", **params: int
) -> Record:
    return Record(
        study="bcsr-beyond",
        case=case.name,
        run="20260101T000000Z-0000",
        op="spmm",
        role=role,
        backend=backend,
        variant=variant,
        matrix=case.matrix,
        m=640,
        k=640,
        n=case.n,
        nnz=4096,
        **case.params,
        l2="cold",
        clock="events",
        params=params,
        **(timed(us) | {"result": {"blocks": 10}}),
    )


@pytest.mark.parametrize("chain", bcsr_beyond.PROBES)
def test_a_probe_is_another_build_and_never_a_kernel(chain: str) -> None:
    overlap = VARIANTS["bcsr-overlap"]
    probe = bcsr_beyond.probe_of(overlap, chain)
    assert probe.role == "probe"
    added = set(probe.macros("bfloat16").items()) - set(overlap.macros("bfloat16").items())
    assert added == {(name, 1) for name in bcsr_beyond.PROBES[chain]}
    assert added == {("MOVE_ONLY", 1)} or len(added) == 2, "one of three is left"


def test_each_case_has_the_kernels_that_take_it() -> None:
    by_name = {case.name: case for case in bcsr_beyond.cases()}
    assert len(by_name) == len(bcsr_beyond.cases()) == 14
    plain = by_name["gate_proj-keep10-uniform-s0-n4096"]
    turned = by_name["gate_proj-keep10-uniform-s0-n4096-column-major"]
    assert [kernel.name for kernel in bcsr_beyond.kernels_of(plain)] == list(bcsr_beyond.KERNELS)
    assert {kernel.name for kernel in bcsr_beyond.kernels_of(turned)} == set(bcsr_beyond.PROBED)


def test_all_builds_of_a_record_are_among_those_that_judge_it() -> None:
    builds = bcsr_beyond.kernel_builds()
    macros = [build.constants for build in builds["bcsr-paired"]]
    special_ones: tuple[dict[str, int], ...] = (
        {"INPUT_FP16": 1},
        {"TRANSPOSED": 1, "MOVE_ONLY": 1},
        {"SKIP_LOAD": 1, "SKIP_STORE": 1},
    )
    for special in special_ones:
        assert any(special.items() <= one.items() for one in macros), special


def made_up_frame() -> Any:
    records = []
    for case in bcsr_beyond.cases():
        records.append(record(case, "cublas", "dense", 600.0, "library"))
        records.append(record(case, "asyncsparse", "bcsr-overlap", 130.0))
        records.append(record(case, "asyncsparse", "bcsr-overlap-narrow", 125.0))
        records.append(record(case, "asyncsparse", "bcsr-paired", 120.0))
        if case.params == {"dtype_in": "bfloat16", "dtype_out": "bfloat16", "layout": "row-major"}:
            records.append(record(case, "asyncsparse", "bcsr-opt3", 220.0))
        for name in bcsr_beyond.PROBED:
            for us, (_, skipped) in zip(
                (100, 40, 90, 110), bcsr_beyond.PROBES.items(), strict=True
            ):
                params = {skip.lower(): 1 for skip in skipped}
                records.append(record(case, "asyncsparse", name, us, "probe", **params))
    return frame_of(records, gpu="nvidia-h200", gpu_name="NVIDIA H200 (made up)")


def test_the_picture_and_the_tables(draw_in_theme: Callable[..., dict[str, Any]]) -> None:
    frame = made_up_frame()
    items = draw_in_theme(bcsr_beyond, frame, claims_frame("bcsr-beyond"))
    data = items["speed"].data
    assert set(data["variant"]) == set(bcsr_beyond.KERNELS)
    paired = data.loc[data["variant"] == "bcsr-paired", "ratio"]
    assert paired.to_numpy() == pytest.approx(600.0 / 120.0)

    steps = items["ladder"].data
    one = steps[steps["case"] == "bcsstk16-n4096"].set_index("step")
    assert list(one["measured, us"]) == [220.0, 130.0, 125.0, 120.0]
    assert one.loc["bcsr-overlap", "won"] == pytest.approx(220 / 130)
    assert one.loc["bcsr-overlap-narrow", "won"] == pytest.approx(130 / 125)
    assert one.loc["bcsr-paired", "won"] == pytest.approx(130 / 120)
    assert one.loc["bcsr-paired", "predicted, us"] == 100.0
    assert one.loc["bcsr-paired", "predicted to win"] == pytest.approx(1.3)
    assert one.loc["bcsr-paired", "longest"] == "loads"
    assert np.isnan(one.loc["bcsr-opt3", "predicted, us"])

    table = items["floors"].data
    assert set(table["kernel"]) == set(bcsr_beyond.KERNELS)
    assert set(table["bound by"]) == {bcsr_beyond.MOVES}
    shares = table.set_index(["case", "kernel"])["share of the floor"]
    assert shares["bcsstk16-n4096", "bcsr-paired"] == pytest.approx(110 / 120)
    # Opt3 is held to the producer that has its tiles.
    assert shares["bcsstk16-n4096", "bcsr-opt3"] == pytest.approx(110 / 220)


def test_tensor_cores_bind_where_they_take_longer() -> None:
    frame = made_up_frame()
    frame["result.blocks"] = 1e6
    rows = frame[frame["case"] == "bcsstk16-n4096"]
    line = floors(rows).data.set_index("kernel").loc["bcsr-overlap"]
    assert line["bound by"] == "tensor cores"
    ceilings = ceilings_for(rows)
    assert ceilings is not None
    seconds = 2 * 64 * 64 * 1e6 * 4096 / ceilings.mma_flops_per_s
    assert line["tensor cores, us"] == pytest.approx(seconds * 1e6)
    assert line["share of the floor"] == pytest.approx(line["tensor cores, us"] / 130)
