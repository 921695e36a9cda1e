"""The evaluation: its cases, and what is drawn from made-up records."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest

from asyncsparse_lab.claims import claims_frame, judge, read_claims
from asyncsparse_lab.errors import InputError
from asyncsparse_lab.records import Record
from asyncsparse_lab.records.frame import frame_of, geometric_mean
from asyncsparse_lab.records.peers import best_of_series, load_peers
from asyncsparse_lab.spmm.builds import all_builds
from asyncsparse_lab.studies import suite, suite_claims, suite_search, suite_tables
from asyncsparse_lab.studies.base import Case, Drawing, Missing
from asyncsparse_lab.studies.suite_frame import (
    AUTO,
    BEST_LIVE,
    BEST_OF_ALL,
    BEST_OURS,
    WCSR,
    Evaluation,
)

from .conftest import timed

ENTRIES = {entry.name: entry for entry in suite.entries()}
LIVE = {("cublas", "dense", "bfloat16"): "cuBLAS",
        ("cusparse", "csr-alg2", "float32"): "cuSPARSE CSR ALG2",
        ("cusparse", "csr-alg3", "bfloat16"): "cuSPARSE CSR ALG3",
        ("cusparse", "blocked-ell", "bfloat16"): "cuSPARSE Blocked-ELL"}  # fmt: skip


def record(case: Case, role: str, backend: str, variant: str, us: float, **keys: Any) -> Record:
    entry = ENTRIES[str(case.matrix)]
    assert case.n is not None
    useful = 2.0 * entry.nnz * case.n / us / 1e6
    least = 2 * entry.nnz + 2 * (entry.rows + entry.cols) * case.n
    values = timed(us) | {"result": {"useful_tflops": useful, "least_bytes": least}}
    return Record(
        study="suite",
        case=case.name,
        run="20260101T000000Z-0000",
        op="spmm",
        role=role,
        backend=backend,
        variant=variant,
        matrix=case.matrix,
        m=entry.rows,
        k=entry.cols,
        n=case.n,
        nnz=entry.nnz,
        dtype_in="bfloat16",
        dtype_out=case.params["dtype_out"],
        layout="row-major",
        clock="events",
        **({"l2": "cold"} | values | keys),
    )


def made_up(library_factor: float = 1.0) -> pd.DataFrame:
    """Records of every case: libraries near their recorded times, ours around the best of them."""
    rng = np.random.default_rng(0)
    recorded = best_of_series(load_peers()).set_index(["series", "matrix", "n"])["product_us"]
    records = []
    for case in suite.cases():
        entry = ENTRIES[str(case.matrix)]
        assert case.n is not None
        dtype_out = case.params["dtype_out"]
        guess = 6.0 + 2.0 * entry.nnz * case.n / 4e6 + 4e-6 * entry.rows * case.n
        best = guess
        if not case.params["search"]:
            for (backend, variant, dtype), series in LIVE.items():
                if dtype != dtype_out:
                    continue
                there = recorded.get((series, case.matrix, case.n))
                us = library_factor * (there or guess * float(rng.uniform(1.2, 3.0)))
                us *= float(rng.uniform(0.99, 1.01))
                records.append(record(case, "library", backend, variant, us))
                best = min(best, us)
        us = best / float(rng.lognormal(0.5, 0.3))
        params = {"params": {"chosen": "bcsr-overlap"}}
        records.append(record(case, "planner", "asyncsparse", "auto", us, **params))
        if dtype_out == "float32":
            continue
        for name, factor in (("bcsr-opt3", 1.6), ("bcsr-overlap", 1.05), ("bcsr-paired", 1.2)):
            role = "paper" if name == "bcsr-opt3" else "ours"
            slower = us * factor * float(rng.uniform(0.97, 1.3))
            records.append(record(case, role, "asyncsparse", name, slower))
        pipelined = us * 1.3 * float(rng.uniform(0.9, 1.2))
        records.append(record(case, "ours", "asyncsparse", "wcsr-pipelined", pipelined))
        for name, limit in (("wcsr-paper", 512), ("wcsr-paper-unsplit", 0)):
            slower = us * 2.1 * float(rng.uniform(0.9, 1.4))
            options = {"params": {"max_cols_per_task": limit}}
            records.append(record(case, "paper", "asyncsparse", name, slower, **options))
        if not case.params["search"]:
            warm = {"l2": "warm"}
            records.append(record(case, "planner", "asyncsparse", "auto", 0.8 * us, **warm))
            records.append(record(case, "library", "cublas", "dense", 1.2 * us, **warm))
            records.append(record(case, "paper", "asyncsparse", "bcsr-opt3", 1.6 * us, **warm))
    return frame_of(records, gpu="nvidia-h200", gpu_name="NVIDIA H200 (made up)")


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return made_up()


@pytest.fixture(scope="module")
def strange() -> pd.DataFrame:
    """The same with libraries that have become a fifth slower."""
    return made_up(library_factor=1.2)


def test_cases_are_each_matrix_once_in_a_part_for_each_n() -> None:
    cases = suite.cases()
    main = [case for case in cases if not case.params["search"]]
    assert len(ENTRIES) == 96
    assert len(main) == 96 * 3 * 2
    assert {case.part for case in cases} == {"n256", "n512", "n1024", "search"}
    assert len({case.name for case in cases}) == len(cases)
    searched = [case for case in cases if case.params["search"]]
    assert len(searched) == len(suite.SEARCHED) == 12
    matrices = [case.matrix for case in cases]
    changes = sum(a != b for a, b in pairwise(matrices))
    assert changes == 95, "a matrix is converted once, so its cases stand together"


def test_another_suite_takes_its_place() -> None:
    cases = suite.cases("smoke")
    assert len(cases) == 20 * 3 * 2
    assert {case.params["search"] for case in cases} == {False}
    fetched = [case for case in suite.cases("paper414") if case.matrix == "wave"]
    assert {case.params["source"] for case in fetched} == {"AG-Monien/wave"}
    with pytest.raises(InputError, match="no suite"):
        suite.cases("nobody")


def test_the_kernels_of_every_case_are_among_the_verified_builds() -> None:
    built = {(one.variant.name, *sorted(one.variant.constants.items())) for one in all_builds()}
    chosen = suite.our_kernels()
    assert {kernel.role for kernel in chosen} == {"ours"}
    assert len(chosen) == len(suite.KERNELS) + len(suite.TILES)
    assert {(one.name, *sorted(one.constants.items())) for one in chosen} <= built


def test_predicted_time_of_one_n() -> None:
    seconds = sum(case.seconds for case in suite.cases() if case.part == "n1024")
    assert seconds < 300


def case_of(name: str) -> Case:
    return next(case for case in suite.cases() if case.name == name)


def test_who_is_timed_warm(frame: pd.DataFrame) -> None:
    case = case_of("power-n512")
    times = {("planner", "asyncsparse"): [4.0], ("paper", "asyncsparse"): [6.0, 5.0],
             ("library", "cublas"): [9.0], ("library", "cusparse"): [8.0, 7.0, 9.0]}  # fmt: skip
    records = [
        record(case, role, backend, f"{backend}-{place}", us)
        for (role, backend), several in times.items()
        for place, us in enumerate(several)
    ]
    assert suite.warm_too(records) == [0, 2, 3, 5]
    assert suite.warm_too([]) == []


def test_every_picture_and_table(
    frame: pd.DataFrame, draw_in_theme: Callable[..., dict[str, Any]]
) -> None:
    items = draw_in_theme(suite, frame, claims_frame("suite"))
    assert set(items) == {
        *("speedup", "throughput", "columns", "profile", "wins"),
        *("targets", "means", "summary", "reasons", "agreement", "peers"),
        *("matrices", "sizes", "times", "search", "warm"),
    }
    sentences = items["reasons"].data["here"] + items["reasons"].data["because"]
    assert len(sentences) == 5
    assert sentences.str.contains(r"\d").all()
    assert not sentences.str.contains("nan|not measured").any()
    for item in items.values():
        assert len(item.data)
        assert "Recorded peers are not drawn" not in item.caption
    assert len(items["matrices"].data) == len(items["times"].data) == 96
    columns = {"best library", "library / auto", "best peer", "peer / auto", "floor, us"}
    assert columns <= set(items["matrices"].data)
    warm = items["warm"].data.set_index(["n", "over"])["warm"]
    assert warm[1024, "cuBLAS dense"] == pytest.approx(1.5)
    assert warm[512, "best of the article"] == pytest.approx(2.0)
    means = items["means"].data
    assert set(zip(means["n"], means["suite"], strict=True)) == {
        (n, name) for n in suite.COLUMNS for name in suite.SUITES
    }
    assert set(items["targets"].data["reached"]) <= {"yes", "no", ""}
    found = items["agreement"].data
    assert found["agrees"].all()
    assert set(found["n"]) == {256, 512, 1024}
    assert "RoDe" in set(items["speedup"].data["over"])
    assert set(items["wins"].data["comparison"]) == {"measured live", "with recorded peers"}


def test_shares_of_wins_add_up(
    frame: pd.DataFrame, draw_in_theme: Callable[..., dict[str, Any]]
) -> None:
    wins = draw_in_theme(suite, frame, claims_frame("suite"))["wins"].data
    totals = wins.groupby(["n", "comparison", "density"])["share"].sum()
    assert len(totals) == 3 * 2 * 4
    assert totals.to_numpy() == pytest.approx(100.0)


def test_peers_that_do_not_agree_are_not_drawn_and_the_figure_says_so(
    strange: pd.DataFrame, draw_in_theme: Callable[..., dict[str, Any]]
) -> None:
    items = draw_in_theme(suite, strange, claims_frame("suite"), n=512)
    assert not items["agreement"].data["agrees"].any()
    speedup = items["speedup"]
    assert isinstance(speedup, Drawing)
    assert not set(speedup.data["over"]) & {"RoDe", "AccSpMM", BEST_OF_ALL}
    notes = [text.get_text() for text in speedup.figure.texts]
    assert any(note.startswith("No recorded peers drawn") for note in notes)
    assert "Recorded peers are left out" in items["targets"].caption
    assert not items["reasons"].data["question"].str.contains("WCSR over recorded").any()
    best = items["targets"].data.set_index("what").loc[f"{AUTO} / {BEST_OF_ALL}"]
    assert set(best["reached"]) == {""}


def test_ratios_are_of_the_numbers(frame: pd.DataFrame) -> None:
    evaluation = Evaluation.of(frame, n=1024)
    table = evaluation.compared()
    row = table.loc["bcsstk13"]
    libraries = ["cuBLAS dense", "cuSPARSE CSR ALG3", "cuSPARSE Blocked-ELL"]
    assert row[BEST_LIVE] == row[libraries].min()
    codes = evaluation.peer_times().loc["bcsstk13"].min()
    assert row[BEST_OF_ALL] == min(row[BEST_LIVE], codes)
    assert np.isnan(table.loc["mycielskian14", BEST_OF_ALL]), "no peer was recorded there"
    own = frame[(frame["case"] == "bcsstk13-n1024") & (frame["l2"] == "cold")]
    wcsr = own[own["variant"].str.startswith("wcsr-paper")]["median_us"].min()
    assert row[WCSR] == wcsr
    kernels = own[own["role"].isin(["paper", "ours"])]["median_us"].min()
    assert row[BEST_OURS] == kernels
    targets = suite_tables.targets(evaluation).data
    line = targets[(targets["what"] == f"{AUTO} / {BEST_LIVE}") & (targets["of"] == "mean")]
    dense = line[line["density"] == ">= 0.1 %"].iloc[0]
    facts = evaluation.facts
    chosen = facts[facts["shared"] & (facts["density"] >= 0.001)].index
    expected = geometric_mean(table.loc[chosen, BEST_LIVE] / table.loc[chosen, AUTO])
    assert dense["measured"] == pytest.approx(expected)
    assert dense["reached"] == ("yes" if expected >= 1.5 else "no")
    smaller = evaluation.compared(256)
    expected = geometric_mean(smaller.loc[chosen, BEST_LIVE] / smaller.loc[chosen, AUTO])
    assert dense["n = 256"] == pytest.approx(expected)
    large = targets[targets["of"] == "smallest"].iloc[0]
    assert large["matrices"] == 29
    sizes = suite_tables.sizes_table(evaluation).data.set_index("matrix").loc["bcsstk13"]
    assert sizes["best live / auto, n = 1024"] == row[BEST_LIVE] / row[AUTO]
    assert sizes["auto, us, n = 256"] == smaller.loc["bcsstk13", AUTO]


def test_the_choice_of_configurations_grows_towards_the_best() -> None:
    behind = pd.DataFrame(
        {"m1": [1.0, 1.1, 3.0], "m2": [1.2, 1.1, 1.0], "m3": [1.1, 1.0, np.nan]},
        index=["a", "b", "c"],
    )
    assert suite_search.greedy(behind) == {"b": 1, "a": 2, "c": 3}
    assert suite_search.greedy(behind, count=1) == {"b": 1}


def test_claims_about_other_codes_are_judged(frame: pd.DataFrame, strange: pd.DataFrame) -> None:
    claims = {claim.id: claim for claim in read_claims() if claim.study == "suite"}
    states = {name: judge(claim, frame).state for name, claim in claims.items()}
    open_ones = {name for name, state in states.items() if state == "not yet measured"}
    assert open_ones == {"paper-machine"}
    fall = judge(claims["suite-others-fall"], frame)
    assert (fall.state, fall.measured) == ("not reproduced", 0.0), "they rise, on the H200"
    evaluation = Evaluation.of(frame, n=1024)
    table = evaluation.in_class(">= 1 %", evaluation.times())
    flops = 2.0 * 1024 * evaluation.facts["nnz"].reindex(table.index) / 1e6
    for claim, kernel in (("suite-wcsr-tflops", WCSR), ("suite-bcsr-tflops", "BCSR (article)")):
        expected = geometric_mean((flops / table[kernel]).dropna())
        assert judge(claims[claim], frame).measured == pytest.approx(expected), claim
    over = judge(claims["suite-wcsr-accspmm"], frame)
    tflops = judge(claims["suite-accspmm-tflops-derived"], frame)
    assert over.measured > 0
    assert tflops.measured == pytest.approx(2.28, abs=0.35), "AccSpMM on 17 matrices"
    assert judge(claims["suite-wcsr-accspmm"], strange).state == "not yet measured"


def test_bcsr_passes_from_a_density_on(frame: pd.DataFrame) -> None:
    evaluation = Evaluation.of(frame, n=1024)
    table = evaluation.compared()
    baselines = [*evaluation.libraries(table), "RoDe"]
    density = evaluation.facts["density"].reindex(table.index)
    for name in (*baselines, "AccSpMM", "DTC-SpMM", "Voltrix-SpMM", "FlashSparse fp16",
                 "FlashSparse tf32"):  # fmt: skip
        table[name] = table["BCSR (article)"] * np.where(density >= 0.005, 1.5, 0.01)
    found = suite_claims.bcsr_passes(evaluation, table)
    assert 0.1 < found <= 0.5
    table["RoDe"] = 0.1
    assert suite_claims.bcsr_passes(evaluation, table) == 100.0


def test_an_n_that_was_not_measured_is_refused(frame: pd.DataFrame) -> None:
    with pytest.raises(InputError, match="n=64: the suite was measured at 256, 512, 1024"):
        Evaluation.of(frame, n=64)


def test_what_was_not_measured_says_what_measures_it(frame: pd.DataFrame) -> None:
    items = suite.draw(frame[frame["case"].str.startswith("search-")], claims_frame("suite"))
    assert {name for name in items if isinstance(items[name], Missing)} == set(suite.COMPARISON)
