"""The LSMR studies without a GPU: cases, what runs on a CPU, pictures of made-up records."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from asyncsparse_lab.claims import claims_frame
from asyncsparse_lab.errors import DeviceError
from asyncsparse_lab.matrices import load_matrix
from asyncsparse_lab.records import Record
from asyncsparse_lab.records.frame import frame_of
from asyncsparse_lab.studies import (
    STUDIES,
    load_study,
    lsmr,
    lsmr_breakdown,
    lsmr_common,
    lsmr_fusion,
    lsmr_problems,
    lsmr_scaling,
    lsmr_solvers,
)
from asyncsparse_lab.studies.base import Case

NAMES = ("lsmr", "lsmr-fusion", "lsmr-breakdown", "lsmr-scaling", "lsmr-problems")
Draw = Callable[..., dict[str, Any]]


def made_up(
    study: str, case: str, contender: tuple[str, str, str], us: float, **more: Any
) -> Record:
    role, backend, variant = contender
    known: dict[str, Any] = {"m": 12_351, "k": 6_177, "n": 1, "nnz": 43_221, "dtype_in": "float32"}
    known |= {"l2": "warm", "clock": "wall", "matrix": case} | more
    return Record(
        study=study,
        case=case,
        run="20260101T000000Z-0000",
        op="lsmr",
        role=role,
        backend=backend,
        variant=variant,
        status="passed",
        **lsmr_common.times([0.98 * us, us, 1.02 * us]),
        **known,
    )


def frame(records: list[Record]) -> pd.DataFrame:
    return frame_of(records, gpu="nvidia-h200", gpu_name="NVIDIA H200 (made up)")


PERSISTENT = ("ours", "asyncsparse", "persistent")
DOCUMENT = ("paper", "asyncsparse", "document")
CUPY = ("library", "cupy", "lsmr")
SCIPY = ("library", "scipy", "lsmr")


@pytest.mark.parametrize("name", NAMES)
def test_each_study_has_its_cases_and_its_builds(name: str) -> None:
    module = load_study(name)
    cases = module.cases()
    assert len({case.name for case in cases}) == len(cases)
    ours = {"persistent", "document"} if name != "lsmr-fusion" else set(lsmr_fusion.VARIANTS)
    assert set(module.kernel_builds()) == ours
    assert STUDIES[name].notebook is not None


def test_the_geometries_that_are_compared_are_among_the_builds() -> None:
    listed = [dict(build.constants) for build in lsmr.kernel_builds()["persistent"]]
    for geometry in lsmr.geometries():
        assert dict(geometry.constants(np.dtype(np.float32), 1)) in listed


def test_all_studies_take_less_than_their_minutes() -> None:
    seconds = sum(case.seconds for name in NAMES for case in load_study(name).cases())
    assert seconds < 240


def test_the_stand_ins_have_the_stated_residual_and_size() -> None:
    claims = claims_frame("lsmr")
    for name, short in (("8kv-stand-in", "8kv"), ("11kv-stand-in", "11kv")):
        problem = lsmr_common.stand_in(name)
        assert problem.A.shape[1] == claims.loc[f"lsmr-n-{short}", "number"]
        found = lsmr_common.quality(problem, problem.x)
        stated = claims.loc[f"lsmr-residual-{short}", "number"]
        assert found["relative_residual"] == pytest.approx(stated, abs=5e-8)
        assert found["x_error"] == 0


def test_solvers_on_the_cpu_give_records() -> None:
    problem = lsmr_common.stand_in("8kv-stand-in")
    case = Case("8kv-stand-in", "8kv-stand-in")
    record, x = lsmr_solvers._scipy(case, problem)
    assert (record.status, record.result["stop_code"]) == ("passed", 2)
    assert record.sample_count == lsmr_common.SOLVES
    assert record.result["iterations"] == pytest.approx(127, rel=0.03)
    direct, exact = lsmr_solvers._direct(case, problem)
    assert direct.result["x_error"] < 1e-10
    against = lsmr_solvers._against(direct, exact, x)
    assert 0 < against.result["x_diff"] < 1e-3
    wrong, _ = lsmr_solvers.finish(case, problem, SCIPY, [1.0], 0 * x, {})
    assert (wrong.status, wrong.median_us) == ("wrong", None)


def test_an_iteration_is_the_difference_of_two_solves(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def solve(limit: int) -> int:
        clock[0] += 1e-3 + 1e-5 * limit
        return limit

    monkeypatch.setattr(lsmr_common.time, "perf_counter", lambda: clock[0])
    assert lsmr_breakdown.per_iteration(solve) == pytest.approx([10.0] * lsmr_breakdown.PAIRS)
    samples, done = lsmr_scaling.per_iteration(solve, 333, 3)
    assert (samples, done) == (pytest.approx([10.0] * 3), 110)


def test_the_traffic_of_an_iteration_is_the_difference_of_two_solves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    A = load_matrix("feeder(buses=50)").astype(np.float32)

    def count(study: str, job: dict[str, Any], kernels: str, expected: int) -> Any:
        saved = np.load(f"{job['folder']}/indices.npy")
        np.testing.assert_array_equal(saved, A.indices)
        assert (study, expected) == ("lsmr_scaling", 2)
        return [{"dram_bytes": 100.0 + 7.0 * limit} for limit in job["limits"]]

    monkeypatch.setattr(lsmr_scaling, "count_launches", count)
    assert lsmr_scaling.read_traffic(A, 50) == {"dram_bytes": pytest.approx(7.0)}

    def refuse(*_: Any) -> Any:
        raise DeviceError("ncu is missing")

    monkeypatch.setattr(lsmr_scaling, "count_launches", refuse)
    assert lsmr_scaling.read_traffic(A, 50) == {"counters": "ncu is missing"}


def test_problems_of_the_studies() -> None:
    short = lsmr_breakdown.problem_of("short-rows")
    assert np.diff(short.A.indptr).max() == 2
    skewed = lsmr_breakdown.problem_of("skewed-rows")
    assert np.diff(skewed.A.indptr).max() == skewed.A.shape[1]
    case = next(case for case in lsmr_problems.cases() if "call" in case.params)
    problem, damp = lsmr_problems.problem_of(case)
    assert (problem.name, damp) == (case.name, 0.0)
    absent = lsmr_problems.measure(Case("nowhere", "nowhere"))
    assert [record.status for record in absent] == ["unsupported"]


def test_scipy_on_a_standard_problem() -> None:
    case = next(case for case in lsmr_problems.cases() if "call" in case.params)
    problem, damp = lsmr_problems.problem_of(case)
    way = lsmr_problems.Way(SCIPY, "float64", 1e-10)
    record = lsmr_problems._solve(case, problem, damp, way)
    assert record.result["x_error"] < 1e-5
    assert abs(record.result["excess_residual"]) < 1e-8


def test_small_helpers() -> None:
    assert lsmr_problems.thin([(i, 0.0) for i in range(5)], 9) == [(i, 0.0) for i in range(5)]
    thinned = lsmr_problems.thin([(i, 0.0) for i in range(1000)], 60)
    assert (len(thinned), thinned[0][0], thinned[-1][0]) == (60, 0, 999)
    A = load_matrix("8kv-stand-in")
    moved = lsmr_scaling.iteration_bytes(*A.shape, A.nnz)
    both_formats = 2 * (A.indices.nbytes // A.indices.itemsize * 8)
    assert moved > both_formats
    assert lsmr_fusion._CUPY_BYTES == 68


def test_the_solvers_are_drawn(draw_in_theme: Draw) -> None:
    records = []
    reached = {
        "stop_code": 2, "iterations": 127, "relative_residual": 0.3540266, "x_diff": 1e-6,
        "x_error": 4e-4, "true_normar": 1e-3, "us_per_iteration": 7.0,
    }  # fmt: skip
    for case in ("8kv-stand-in", "11kv-stand-in"):
        grid = {"blocks": 64, "threads": 256, "staged": True, "together": 1}
        ours = reached | {"kernel_us_per_iteration": 6.4, "floor_us_per_iteration": 4.5}
        for scaled in (None, "columns"):
            params = lsmr_common.params(precondition=scaled, **grid)
            records.append(made_up("lsmr", case, PERSISTENT, 900, params=params, result=ours))
        for variant in lsmr_solvers.DOCUMENT_VARIANTS:
            params = lsmr_common.params(
                **{"formats": "dual", "deterministic": False, "fused": True, "float4": False}
                | variant
            )
            result = reached | {
                "counted_us": 6000.0, "busy_us_per_iteration": 30.0, "host_sync_us": 9.0,
                "launches": 1000, "host_syncs": 255, "matrix_bytes": 10**6, "bitwise_equal": True,
            }  # fmt: skip
            records.append(made_up("lsmr", case, DOCUMENT, 8000, params=params, result=result))
        for form in ("csr", "csc"):
            params = lsmr_common.params(format=form)
            records.append(made_up("lsmr", case, CUPY, 100_000, params=params, result=reached))
        records.append(
            made_up("lsmr", case, SCIPY, 34_000, params=lsmr_common.params(), result=reached)
        )
        direct = reached | {"stop_code": None, "iterations": None}
        records.append(
            made_up("lsmr", case, ("library", "scipy", "direct"), 9000, params={}, result=direct)
        )
        for geometry in lsmr.geometries():
            params = lsmr_common.params(
                chosen=geometry.blocks == 66, **lsmr_common.geometry_params(geometry)
            )
            result = {"us_per_iteration": 7.0, "floor_us_per_iteration": 4.4,
                      "predicted_us_per_iteration": 7.2}  # fmt: skip
            records.append(
                made_up("lsmr", f"{case}-geometry", PERSISTENT, 900, matrix=case, params=params,
                        result=result)
            )  # fmt: skip
    long = lsmr_common.params(where="a quarter of the GPU", blocks=33)
    records.append(
        made_up("lsmr", "ten-thousand-solves", PERSISTENT, 900, matrix="8kv-stand-in", params=long,
                result={"solves": 4000, "differing": 0})
    )  # fmt: skip
    items = draw_in_theme(lsmr, frame(records), claims_frame("lsmr"))
    assert set(items) == {"times", "reached", "speedups", "variants", "geometries", "repeats"}
    times = items["times"].data
    assert len(times) == 2 * 6
    bars = [bar.get_width() for axes in items["times"].figure.axes for bar in axes.patches]
    assert sorted(bars) == pytest.approx(sorted(times["median_us"] / 1e3))
    speedups = items["speedups"].data.set_index(["matrix", "against"])["times faster"]
    assert speedups["8kv-stand-in", "cupy lsmr (CSC)"] == pytest.approx(100_000 / 900)
    counted = [name for name in speedups.index if "host waits" in name[1]]
    assert speedups[counted[0]] == pytest.approx(6000 / 900)
    stated = items["reached"].data.query("status == 'stated'")
    assert list(stated["x against CuPy's"]) == [1.84e-7, 6.26e-7]
    assert len(items["variants"].data) == 10
    one = draw_in_theme(lsmr, frame(records), claims_frame("lsmr"), matrices=("8kv-stand-in",))
    assert set(one["times"].data["matrix"]) == {"8kv-stand-in"}


def test_the_fusion_is_drawn(draw_in_theme: Draw) -> None:
    records = []
    for case in lsmr_fusion.cases():
        n = case.params["n"]
        for name in (lsmr_fusion.CUPY, *lsmr_fusion.VARIANTS):
            for l2 in ("cold", "warm"):
                for with_h in (False, True):
                    counted = lsmr_fusion.COUNTED_BYTES.get(name, 68)
                    launches = lsmr_fusion.launches_of(name, with_h)
                    result = {"launches": launches, "bytes_an_element": counted}
                    if l2 == "cold":
                        result |= {"l2_bytes": 1.01 * counted * n, "dram_bytes": 0.9 * counted * n}
                    contender = ("paper", "asyncsparse", name)
                    records.append(
                        made_up("lsmr-fusion", case.name, contender, 2 + n / 1e5, matrix=None,
                                m=None, k=n, nnz=None, l2=l2, params={"with_h": with_h},
                                result=result)
                    )  # fmt: skip
    items = draw_in_theme(lsmr_fusion, frame(records), claims_frame("lsmr-fusion"))
    flow = items["data-flow"]
    assert list(flow.data["bytes an element"]) == list(flow.data["stated bytes"]) == [24, 20]
    red = [p for axes in flow.figure.axes for p in axes.patches if p.get_linewidth() == 2.0]
    assert len(red) == 2  # written by one kernel, read by the next
    table = items["bytes"].data
    assert len(table) == len(lsmr_fusion.SIZES) * 8
    alone = table[table["vectors"] == "hbar, x"]
    fused = alone[alone["variant"] == "update-fused"]
    assert fused["L2 bytes an element, measured"].tolist() == pytest.approx([20.2] * 4)
    assert fused["stated"].tolist() == [20] * 4
    five = table[(table["variant"] == lsmr_fusion.CUPY) & (table["vectors"] == "hbar, x, h")]
    assert set(five["launches"]) == {6}
    assert five["L2 bytes an element, measured"].tolist() == pytest.approx([68.68] * 4)
    assert five["stated"].isna().all()
    assert len(items["times"].data) == 4 * 4 * 2


@pytest.mark.parametrize("missing", [0, 1])
def test_the_profiler_counts_each_way(missing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {
        "lts__t_sectors_srcunit_tex_op_read.sum": 3,
        "lts__t_sectors_srcunit_tex_op_write.sum": 1,
        "dram__bytes_read.sum": 1_000,
        "dram__bytes_write.sum": 500,
    }
    total = sum(lsmr_fusion.launches_of(*way) for way in lsmr_fusion.WAYS)
    lines = ["==PROF== profiled", '"ID","Metric Name","Metric Value"']
    for launch in range(total - missing):
        lines += [f'"{launch}","{name}","{value:,}"' for name, value in names.items()]
    done = subprocess.CompletedProcess([], 0, "\n".join(lines), "")
    monkeypatch.setattr(shutil, "which", lambda *_, **__: "ncu")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    found = lsmr_fusion.read_counters(1_000)
    if missing:
        assert found == {"failure": f"ncu counted {total - 1} launches of {total}"}
        return
    assert set(found) == set(lsmr_fusion.WAYS)
    assert found[lsmr_fusion.CUPY, True] == {"l2_bytes": 6 * 128, "dram_bytes": 6 * 1_500}
    assert found["update-fused", False] == {"l2_bytes": 128, "dram_bytes": 1_500}


def test_the_parts_are_drawn(draw_in_theme: Draw) -> None:
    records = []
    parts = {"products_us": 20.0, "norms_us": 9.0, "vector_updates_us": 8.0, "waiting_us": 30.0}
    shared = {"mean_row": 3.5, "longest_row": 6, "host_syncs": 2}
    for case in lsmr_breakdown.cases():
        records.append(made_up("lsmr-breakdown", case.name, CUPY, 800, result=parts | shared))
        records.append(made_up("lsmr-breakdown", case.name, DOCUMENT, 67, result=parts | shared))
        ours = {"exchanges_us": 4.5, "products_and_updates_us": 2.0, "waiting_us": 0.0}
        records.append(made_up("lsmr-breakdown", case.name, PERSISTENT, 6.5, result=ours | shared))
    items = draw_in_theme(lsmr_breakdown, frame(records), claims_frame("lsmr-breakdown"))
    panels = items["parts"].figure.axes
    assert len(panels) == len(lsmr_breakdown.MATRICES)
    widths = sorted(round(bar.get_width(), 3) for bar in panels[0].patches)
    shares = [100 * value / sum(parts.values()) for value in parts.values()]
    expected = sorted([*shares, *shares, 100 * 4.5 / 6.5, 100 * 2 / 6.5])
    assert widths == pytest.approx(expected, abs=1e-3)
    assert len(items["table"].data) == 12


def test_the_scaling_is_drawn(draw_in_theme: Draw) -> None:
    records = []
    for case in lsmr_scaling.cases():
        n = 3 * case.params["buses"]
        floors = {"bandwidth_floor_us": n / 3e4, "copy_tb_per_s": 4.2}
        grid = {"blocks": 132, "threads": 640, "staged": n < 1e5}
        ours = floors | {"exchange_floor_us": 5.0, "share_of_bandwidth": 0.8}
        if case.params["buses"] >= lsmr_scaling.STREAMING:
            ours |= {"traffic_floor_us": n / 2.8e4, "share_of_traffic": 0.9}
        size: dict[str, Any] = {"k": n, "m": 2 * n, "nnz": 7 * n}
        us = 6 + n / 2.5e4
        records += [
            made_up("lsmr-scaling", case.name, PERSISTENT, us, params=grid, result=ours, **size),
            made_up("lsmr-scaling", case.name, DOCUMENT, 60 + us,
                    result=floors | {"counted_us": 50 + us}, **size),
            made_up("lsmr-scaling", case.name, CUPY, 700 + us, result=floors, **size),
        ]  # fmt: skip
    items = draw_in_theme(lsmr_scaling, frame(records), claims_frame("lsmr-scaling"))
    table = items["table"].data
    assert list(table["n"]) == [3 * buses for buses in lsmr_scaling.BUSES]
    assert (table["times faster than cupy lsmr"] > 1).all()
    assert table["times faster than scipy lsmr"].isna().all()
    assert table["share of them"].notna().sum() == 4
    labels = items["scaling"].figure.axes[0].get_legend_handles_labels()[1]
    floors_drawn = {"bandwidth floor", "exchange floor", "DRAM's measured bytes at a copy's rate"}
    assert {"persistent"} | floors_drawn <= set(labels)


def test_the_problems_are_drawn(draw_in_theme: Draw) -> None:
    records = [lsmr_problems._absent(Case("well1850", "well1850"), "no matrix 'well1850'")]
    for name in ("well1033", "illc1033"):
        for way in lsmr_problems.ways():
            curve = [] if way.contender[1] == "scipy" else [1, 2, 3]
            result = {
                "stop_code": 2, "iterations": 90 if way.scaled else 120, "true_normr": 0.75,
                "normar": 1e-5, "true_normar": 1e-3, "x_error": 1e-4, "excess_residual": 1e-9,
                "confirmed": True, "curve_iterations": curve,
                "curve_normar": [1.0, 0.1, 1e-5][: len(curve)],
            }  # fmt: skip
            params = lsmr_common.params(
                atol=way.tolerance, precondition="columns" if way.scaled else None
            )
            records.append(
                made_up("lsmr-problems", name, way.contender, 500, dtype_in=way.dtype,
                        params=params, result=result)
            )  # fmt: skip
    items = draw_in_theme(lsmr_problems, frame(records), claims_frame("lsmr-problems"))
    assert len(items["reached"].data) == len(records)
    assert items["reached"].data["remark"].str.contains("well1850").sum() == 1
    assert len(items["convergence"].data) == 2 * 4
    scaling = items["scaling"].data
    assert (scaling["of the iterations"] == 0.75).all()
    few = draw_in_theme(
        lsmr_problems, frame(records), claims_frame("lsmr-problems"), problems=("well1033",),
        tolerance=1e-6,
    )  # fmt: skip
    assert set(few["reached"].data["tolerance"]) == {1e-6}
    without_curves = draw_in_theme(
        lsmr_problems, frame(records), claims_frame("lsmr-problems"), backends=("lsmr",)
    )
    assert without_curves["convergence"].data.empty
    assert len(without_curves["reached"].data) > 0
    assert without_curves["scaling"].data.empty
