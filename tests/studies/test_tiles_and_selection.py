"""The studies of tiles, depth, WCSR, selection, multicast and persistent: cases and pictures."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from asyncsparse_lab.claims import claims_frame, judge, read_claims
from asyncsparse_lab.matrices import find_call, load_suite
from asyncsparse_lab.records import Record
from asyncsparse_lab.records.frame import frame_of
from asyncsparse_lab.spmm.builds import all_builds, unfenced
from asyncsparse_lab.spmm.variants import VARIANTS
from asyncsparse_lab.studies import (
    cluster_multicast,
    cta_account,
    cta_times,
    persistent,
    selection,
    stages,
    wcsr_ablation,
    wcsr_figures,
    wgmma_n,
)
from asyncsparse_lab.studies.base import Case

STUDIES = (wgmma_n, stages, cluster_multicast, persistent, wcsr_ablation, selection)
RUN = "20260101T000000Z-0000"


def timed(us: float) -> dict[str, Any]:
    return {"median_us": us, "q1_us": 0.99 * us, "q3_us": 1.01 * us, "sample_count": 4,
            "samples_us": (us,) * 4}  # fmt: skip


def record(study: Any, case: Case, us: float | None, l2: str = "cold", **keys: Any) -> Record:
    values: dict[str, Any] = {
        "study": study.STUDY, "case": case.name, "run": RUN, "op": "spmm", "role": "paper",
        "backend": "asyncsparse", "variant": "bcsr-opt3", "matrix": case.matrix,
        "m": 4096, "k": 4096, "n": case.n, "nnz": 200_000, "dtype_in": "bfloat16",
        "dtype_out": case.params.get("dtype_out", "bfloat16"), "layout": "row-major", "l2": l2,
        "status": "passed",
    }  # fmt: skip
    values |= keys
    return Record(**values, **({} if us is None else timed(us)))


def frame(records: Sequence[Record]) -> pd.DataFrame:
    return frame_of(list(records), gpu="nvidia-h200", gpu_name="NVIDIA H200 (made up)")


def verdict(name: str, rows: pd.DataFrame) -> tuple[str, float]:
    claim = next(claim for claim in read_claims() if claim.id == name)
    found = judge(claim, rows)
    return found.state, found.measured


def test_all_cases_take_less_than_four_minutes() -> None:
    cases = [case for study in STUDIES for case in study.cases()]
    assert sum(case.seconds for case in cases) < 240
    for study in STUDIES:
        names = [case.name for case in study.cases()]
        assert len(set(names)) == len(names)


def test_every_matrix_is_generated_or_in_a_suite() -> None:
    known = {entry.name for suite in ("shared", "dense1") for entry in load_suite(suite).entries}
    wanted = {case.matrix for study in STUDIES for case in study.cases()}
    missing = [name for name in wanted if name not in known and find_call(str(name)) is None]
    assert missing == []


def test_everything_that_is_launched_is_among_the_builds() -> None:
    known = [
        (build.variant.name, dict(build.variant.constants), build.dtype_out)
        for build in all_builds()
    ]
    wanted = [(v, "bfloat16") for v in (*wgmma_n.variants(), *selection.variants())]
    wanted += [(v, "bfloat16") for case in stages.cases() for v in stages.variants(case)]
    wanted += [(v, "bfloat16") for v in (*cluster_multicast.variants(), *persistent.variants())]
    for case in wcsr_ablation.cases():
        wanted += [(v, case.params["dtype_out"]) for v in wcsr_ablation.variants(case)]
    for name, constants, dtype_out in ((v.name, dict(v.constants), d) for v, d in wanted):
        assert (name, constants, dtype_out) in known


# --- tiles ----------------------------------------------------------------------------------------


def test_the_rules_of_the_article() -> None:
    assert wgmma_n.dividing_rule(1024) == 256
    assert wgmma_n.dividing_rule(64) == 32
    assert wgmma_n.dividing_rule(1000) is None
    assert wgmma_n.padding_rule(1024) == 256
    assert wgmma_n.padding_rule(64) == 64
    assert wgmma_n.padding_rule(1000) == 256
    assert wgmma_n.padding_waste(1000, 256) == pytest.approx(24 / 1024)
    assert wgmma_n.padding_waste(64, 256) == pytest.approx(1 - 64 / 512)


def wgmma_records(best: int = 128) -> list[Record]:
    records = []
    for case in wgmma_n.cases():
        own = []
        for variant in wgmma_n.variants():
            width = variant.constants["WGMMA_N"]
            us = 10 + abs(np.log2(width / best)) + (case.n or 0) / 100
            own.append(record(wgmma_n, case, us, params=variant.params,
                              result={"useful_tflops": 100 / us}))  # fmt: skip
        records += [wgmma_n._with_padding(one, own) for one in own]
    return records


def test_throughput_and_rules_are_drawn(draw_in_theme: Callable[..., dict[str, Any]]) -> None:
    items = draw_in_theme(wgmma_n, frame(wgmma_records()), claims_frame("wgmma-n"))
    data = items["throughput"].data
    assert len(data) == len(wgmma_n.COLUMNS) * 7
    table = items["rules"].data.set_index("N")
    assert set(table["best WGMMA_N"]) == {128}
    assert table.loc[1024, "largest that divides"] == 256
    assert table.loc[1024, "article's example"] == 128
    assert pd.isna(table.loc[1000, "largest that divides"])
    assert table.loc[1024, "of the best, %"] < 100
    one = draw_in_theme(wgmma_n, frame(wgmma_records()), claims_frame("wgmma-n"), n=1024,
                        matrices=("bcsstk16",))  # fmt: skip
    assert set(one["throughput"].data["n"]) == {1024}


def test_claims_on_the_width_get_a_state() -> None:
    rows = frame(wgmma_records())
    assert verdict("wgmma-n-1024", rows) == ("reproduced", 128)
    assert verdict("wgmma-n-1024-rule", rows)[0] == "not reproduced"
    assert verdict("wgmma-n-grows", rows)[0] == "not reproduced"
    assert verdict("wgmma-n-grows", frame(wgmma_records(best=256)))[0] == "reproduced"
    assert (
        verdict("wgmma-n-variable", frame(wgmma_records(best=256)))[0] == "not reproduced"
    )  # N = 64


def stages_records() -> list[Record]:
    records = []
    for case in stages.cases():
        for variant in stages.variants(case):
            us = 50 + abs(variant.constants["STAGES"] - 4)
            records.append(record(stages, case, us, params=variant.params))
    return records


def test_depths_are_drawn_for_every_tile(draw_in_theme: Callable[..., dict[str, Any]]) -> None:
    items = draw_in_theme(stages, frame(stages_records()), claims_frame("stages"))
    table = items["best-depth"].data
    assert len(table) == len(stages.cases())
    wide = table[table["WGMMA_N"] == 256]
    assert set(wide["deepest that fits"]) == {3}
    assert set(table.loc[table["WGMMA_N"] == 64, "best depth"]) == {4}
    hollow = [line for line in items["depth"].figure.axes[0].lines
              if line.get_markerfacecolor() == "none"]  # fmt: skip
    assert {tuple(line.get_xdata()) for line in hollow} == {(3,)}
    assert verdict("ring-depth", frame(stages_records())) == ("not reproduced", 4)


# --- multicast and persistent ---------------------------------------------------------------------


def probed_records(study: Any) -> list[Record]:
    """Kernels after opt3 in the study's order are each slower by 10 %, all of it waiting.

    Their instruments cost 1 us more each, in products.
    """
    records = []
    for case in study.cases():
        timed_records, probes = [], []
        for place, variant in enumerate(study.variants()):
            us = 200 * (1 + 0.1 * place)
            spent = {f"spent_{part}": 20.0 for part in cta_account.PARTS}
            spent |= {f"last_{part}": 20.0 for part in cta_account.PARTS if part != "tail"}
            spent["spent_wait"] += us - 200
            spent["last_wait"] += us - 200
            cost = 2.0 + place
            result = {**spent, "span_us": us + cost, "remote_us": 5.0 * place, "ghz": 1.7,
                      "plain_us": us, "probe_us": us + cost, "cost_us": cost,
                      "mean_blocks": 90.0, "last_blocks": 100.0,
                      "mean_tiles": 9.0, "last_tiles": 10.0,
                      "empty_wait_cycles": 100.0 * place, "remote_wait_cycles": 50.0 * place,
                      "reset_cycles": 64.0, "end_spread_us": 9.0, "active_sms": 132,
                      "sm_end_us": [us - 9.0, us - 3.0, us]}  # fmt: skip
            if study is cluster_multicast:
                result["release_cycles"] = 30.0 + 500.0 * (place > 1)
            if unfenced(variant):
                result["unfenced_us"] = us - 10.0
            result["spent_multiply"] += cost
            result["last_multiply"] += cost
            counted = {"l2_bytes": 2e9, "l2_hit_rate": 0.5 + 0.1 * place, "dram_bytes": 1e9,
                       "saved_share": 0.05}  # fmt: skip
            timed_records.append(
                record(study, case, us, variant=variant.name, params=variant.params, result=counted)
            )
            probe = variant.with_constants(INSTRUMENT=2 if study is cluster_multicast else 1)
            probes.append(
                record(study, case, None, role="probe", variant=variant.name,
                       params=probe.params, result=result)
            )  # fmt: skip
        records += timed_records
        split = cta_account.split_last if study is persistent else cta_account.split_mean
        records += cta_times.explain(probes, study.CAUSES, study.NAMED, split)
        records.append(record(study, case, 500.0, role="library", backend="cusparse",
                              variant="blocked-ell"))  # fmt: skip
    return records


@pytest.mark.parametrize("study", [cluster_multicast, persistent])
def test_losses_are_drawn_by_cause(
    study: Any, draw_in_theme: Callable[..., dict[str, Any]]
) -> None:
    rows = frame(probed_records(study))
    items = draw_in_theme(study, rows, claims_frame(study.STUDY))
    table = items["causes-table"].data
    assert len(table) == len(study.cases()) * len(study.variants())
    others = table[table["kernel"] != "opt3"]
    np.testing.assert_allclose(others["sum / measured"], 1.0)
    np.testing.assert_allclose(others["sum of causes, us"], others["slower than opt3, us"])
    place = others["instruments cost, us"] - 2.0
    np.testing.assert_allclose(others["products, us"], place)
    np.testing.assert_allclose(others["taken off: what the instruments cost, us"], -place)
    bare = others["the same with the instruments' cost left in"]
    np.testing.assert_allclose(bare, 1 + place / others["slower than opt3, us"])
    fences = items["reasons"].data
    fences = fences[fences["question"].str.contains("fence")]
    assert list(fences["here"]) == [
        f"10 us of {loss} us" for loss in (40, 60) if study is cluster_multicast
    ]
    ends = items["ends"].data
    assert set(ends["last, us"] - ends["first SM ends, us"]) == {9.0}
    speeds = items["speed"].data
    slowest = 1 / (1 + 0.1 * (len(study.variants()) - 1))
    assert speeds["ratio"].min() == pytest.approx(slowest)
    assert items["counters"].data["L2 hit rate, %"].max() > 50
    kept = draw_in_theme(
        study, rows, claims_frame(study.STUDY), matrices=(study.cases()[0].matrix,)
    )
    assert len(kept["causes-table"].data) == len(study.variants())


def test_claims_on_regressions_get_a_state() -> None:
    clusters, blocks = frame(probed_records(cluster_multicast)), frame(probed_records(persistent))
    state, ratio = verdict("multicast-regression", clusters)
    assert (state, ratio) == ("reproduced", pytest.approx(1 / 1.2))  # clusters of 2, not of 1
    # 10 of the 40 us that a cluster of 2 loses are waits for the other block.
    assert verdict("multicast-causes", clusters)[0] == "not reproduced"
    assert verdict("persistent-regression", blocks)[0] == "reproduced"
    assert verdict("persistent-causes", blocks)[0] == "reproduced"
    assert verdict("persistent-cusparse", blocks)[1] == pytest.approx(500 / 220)


# --- WCSR and selection ---------------------------------------------------------------------------


def wcsr_records() -> list[Record]:
    records = []
    for case in wcsr_ablation.cases():
        for variant in wcsr_ablation.variants(case):
            limit = variant.options["max_cols_per_task"]
            us = 100.0 if limit == 0 else 40 + abs(limit - 256) / 100
            us += abs(variant.constants["WGMMA_N"] - 128) / 10
            result = {"columns_median": 90.0, "columns_max": 2000, "tasks": 500,
                      "split_windows": 7, "gathered_bytes": 10**8}  # fmt: skip
            records.append(
                record(wcsr_ablation, case, us, variant=variant.name, params=variant.params,
                       result=result)
            )  # fmt: skip
        for name, us in (("blocked-ell", 120.0), ("csr-alg2", 90.0), ("csr-alg3", 70.0)):
            records.append(record(wcsr_ablation, case, us, role="library", backend="cusparse",
                                  variant=name))  # fmt: skip
        if case.params["kind"] != "dense":
            for name in ("wcsr-paper", "wcsr-paper-unsplit"):
                probe = VARIANTS[name].with_constants(INSTRUMENT=1)
                shares = {f"share_{part}": 1 / 6 for part in (*wcsr_ablation.SHARES, "rest")}
                records.append(
                    record(wcsr_ablation, case, None, role="probe", variant=name,
                           params=probe.params, result=shares)
                )  # fmt: skip
    return records


def test_thresholds_bounds_and_blocked_ell_are_drawn(
    draw_in_theme: Callable[..., dict[str, Any]],
) -> None:
    rows = frame(wcsr_records())
    items = draw_in_theme(wcsr_ablation, rows, claims_frame("wcsr-ablation"))
    swept = len(wcsr_ablation.SKEWED) + len(wcsr_ablation.EVEN)
    gains = items["threshold"].data
    assert len(gains) == swept * len(wcsr_ablation.THRESHOLDS)
    assert gains["gain"].max() == pytest.approx(100 / 40)
    table = items["sweep"].data
    assert set(table["best max_cols_per_task"]) == {256}
    assert set(table["best WGMMA_N"]) == {128}
    assert table["over the best CSR"].unique() == pytest.approx(70 / 40)
    assert len(items["bound"].data) == 2 * swept
    why = items["reasons"].data.set_index("question").loc["why it stays below 3 x", "because"]
    beside = items["blocked-ell"]
    ratio = float(beside.data["ratio"].mean())  # the same everywhere, and a sixth is gathering
    assert f"{ratio / (1 - 1 / 6):.2f} x on the 5 of these matrices" in why
    assert f"from {ratio:.2f} x" in why
    assert len(beside.data) == len(wcsr_ablation.DENSE)
    marks = [line for line in beside.figure.axes[0].lines if line.get_markerfacecolor() == "none"]
    assert [float(line.get_ydata()[0]) for line in marks] == [4.86]


def selection_records(equal: float) -> list[Record]:
    """BCSR's time does not depend on fill; WCSR's is BCSR's at the fill ``equal``."""
    records = []
    for case in selection.cases():
        fill = case.params["fill"]
        own = [
            record(selection, case, us, variant=variant.name, params=variant.params,
                   result={"fill_ratio": fill})
            for variant, us in zip(
                selection.variants(),
                (50.0, 50 * (fill / equal) ** 0.5, 90 * (fill / equal) ** 0.5),
                strict=True,
            )
        ]  # fmt: skip
        own.append(record(selection, case, 70.0, role="library", backend="cublas", variant="dense"))
        records += [selection._with_ratio(one, own) for one in own]
    return records


def test_the_break_even_is_found_between_fills(
    draw_in_theme: Callable[..., dict[str, Any]],
) -> None:
    items = draw_in_theme(selection, frame(selection_records(0.3)), claims_frame("selection"))
    data = items["break-even"].data
    assert wcsr_figures.break_even(data) == pytest.approx(30.0)
    assert "30.0 %" in items["break-even"].caption
    table = items["selection"].data.set_index("fill")
    assert table.loc[20.0, "faster"] == "wcsr"
    assert table.loc[35.0, "faster"] == "bcsr"
    assert table.loc[35.0, "rule"] == "wcsr"


def test_the_stated_thresholds_get_a_state() -> None:
    assert verdict("bcsr-good-fill", frame(selection_records(0.6))) == ("reproduced", 70)
    assert verdict("bcsr-suitable-fill", frame(selection_records(0.3))) == ("not reproduced", 35)
    assert np.isnan(wcsr_figures.break_even(wcsr_figures.compared(frame(selection_records(1e-4)))))


# --- notebooks ------------------------------------------------------------------------------------

NOTEBOOKS = {
    "04_wgmma_n_and_stages": lambda: [*wgmma_records(), *stages_records()],
    "05_cluster_multicast": lambda: probed_records(cluster_multicast),
    "06_persistent": lambda: probed_records(persistent),
    "07_wcsr_ablation": wcsr_records,
    "08_selection": lambda: selection_records(0.3),
}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_draws_everything_its_studies_have(
    name: str, checkout: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases: dict[tuple[str, str], list[Record]] = {}
    for one in NOTEBOOKS[name]():
        cases.setdefault((one.study, one.case), []).append(one)
    for records in cases.values():
        checkout.record("nvidia-h200", records, gpu={"name": "NVIDIA H200 (made up)"})
    path = Path(__file__).parents[2] / "notebooks" / f"{name}.ipynb"
    notebook = nbformat.read(path, 4)
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert codes[0].metadata.tags == ["parameters"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in codes)
    assert all(re.match(r"\w+: \S+ = ", line) for line in codes[0].source.splitlines())
    scope: dict[str, Any] = {}
    exec(codes[0].source, scope)
    scope["out"] = str(tmp_path)
    for cell in codes[1:]:
        exec(cell.source, scope)
    for opened in [value for value in scope.values() if hasattr(value, "show")]:
        written = {file.stem for file in (tmp_path / opened.study.name).iterdir()}
        assert set(opened.draw(**scope["chosen"])) <= written
    plt.close("all")
    capsys.readouterr()
