"""What the committed records of the H200 have to fulfil, whoever measured them."""

from __future__ import annotations

from functools import cache

import pandas as pd
import pytest
from matplotlib import pyplot

from asyncsparse_lab.claims import STATES, claims_frame, judge, read_claims
from asyncsparse_lab.lsmr.watched import WATCHED
from asyncsparse_lab.records.frame import COMPARABLE, load_records
from asyncsparse_lab.spmm.oracle import UNIT_ROUNDOFF, err_bound
from asyncsparse_lab.spmm.variants import VARIANTS
from asyncsparse_lab.studies import load_study
from asyncsparse_lab.studies.sanitize import TOOLS

STUDIES = (
    "bcsr-ablation",
    "registers",
    "wgmma-n",
    "stages",
    "cluster-multicast",
    "persistent",
    "wcsr-ablation",
    "selection",
    "bcsr-beyond",
    "wcsr-beyond",
)
EVALUATED = (*STUDIES, "suite")


@cache
def recorded(study: str) -> pd.DataFrame:
    frame = load_records(study)
    return frame[frame["gpu"] == "nvidia-h200"]


@pytest.mark.parametrize("study", EVALUATED)
def test_every_kernel_in_a_figure_was_verified_as_it_is(study: str) -> None:
    verified = recorded("verify")
    passed = verified[
        verified["case"].str.startswith("edge-cases") & (verified["status"] == "passed")
    ]
    rows = recorded(study)
    ours = rows["role"].isin(["paper", "ours"]) | (rows["variant"] == "auto")
    drawn = rows[ours & rows["kernel_hash"].notna() & (rows["status"] == "passed")]
    assert len(drawn)
    unknown = drawn[~drawn["kernel_hash"].isin(passed["kernel_hash"])]
    assert set(unknown["variant"]) == set()


@pytest.mark.parametrize("study", EVALUATED)
def test_no_variant_in_a_figure_failed_a_check(study: str) -> None:
    """Edge cases and ten thousand launches of every variant; probes are held to the oracle."""
    verified = recorded("verify").set_index("case")["status"]
    names = set(recorded(study).query("role in ('paper', 'ours')")["variant"])
    for name in names:
        for kind in ("edge-cases", "launches"):
            assert set(verified[[f"{kind}-{name}"]]) == {"passed"}, (kind, name)


@pytest.mark.parametrize("study", STUDIES)
def test_what_passed_is_within_its_bound(study: str) -> None:
    rows = recorded(study)
    # Probes that leave products out are timed only.
    passed = rows[(rows["status"] == "passed") & rows["err_bound"].notna()]
    assert len(passed)
    assert (passed["rel_err"] <= passed["err_bound"]).all()
    # The bound is of the matrix and the output type, not of the contender.
    assert (passed.groupby("case")["err_bound"].nunique() == 1).all()
    floor = passed["dtype_out"].map({name: err_bound(0, name) for name in UNIT_ROUNDOFF})
    assert (passed["err_bound"] >= floor).all()
    assert (passed["err_bound"] < 2 * floor + 0.002).all(), "a bound that holds nothing back"


@pytest.mark.parametrize("study", EVALUATED)
def test_a_case_is_of_one_run_and_one_comparison(study: str) -> None:
    rows = recorded(study)
    same = [name for name in COMPARABLE if name not in ("case", "l2")]
    assert (rows.groupby("case")[same].nunique(dropna=False) == 1).all(axis=None)


def test_the_ladder_climbs_on_every_matrix() -> None:
    rows = recorded("bcsr-ablation")
    rows = rows[(rows["l2"] == "cold") & (rows["case"] != "own-kernel")]
    times = rows[rows["variant"].str.startswith("bcsr-opt")].pivot(
        index="case", columns="variant", values="median_us"
    )
    assert len(times) == 36
    assert (times.diff(axis=1).iloc[:, 1:] < 0).all(axis=None)


def test_opt3_keeps_what_issue_3_asks_of_it() -> None:
    rows = recorded("bcsr-ablation")
    for dtype_out in ("bfloat16", "float32"):
        case = rows[(rows["case"] == f"gate_proj-keep10-uniform-s0-n4096-{dtype_out}")]
        cold = case[(case["l2"] == "cold") & (case["status"] == "passed")].set_index("variant")
        opt3 = cold.loc["bcsr-opt3", "median_us"]
        assert cold.loc["dense", "median_us"] >= 2.4 * opt3, dtype_out
        assert cold.loc["blocked-ell", "median_us"] >= 2.0 * opt3, dtype_out


@pytest.mark.parametrize("study", STUDIES)
def test_every_claim_of_the_documents_ablations_has_a_state(study: str) -> None:
    verdicts = {
        claim.id: judge(claim, recorded(study)) for claim in read_claims() if claim.study == study
    }
    open_ones = {name for name, found in verdicts.items() if found.state == STATES[3]}
    assert open_ones == set()


@pytest.mark.parametrize(
    "study",
    [name for name in STUDIES if name not in ("registers", "bcsr-beyond", "wcsr-beyond")],
)
def test_reasons_are_told_in_numbers(study: str) -> None:
    drawn = load_study(study).draw(recorded(study), claims_frame(study))
    pyplot.close("all")
    lines = drawn["reasons"].data
    assert list(lines) == ["question", "here", "document", "because"]
    sentences = lines["here"] + lines["because"]
    assert sentences.str.contains(r"\d").all()
    assert not sentences.str.contains("nan|not measured|not counted").any()


@pytest.mark.parametrize("tool", TOOLS)
def test_the_sanitizer_found_nothing_in_any_variant(tool: str) -> None:
    verified = recorded("verify")
    rows = verified[verified["case"].str.startswith(f"sanitize-{tool}-")]
    assert set(rows["variant"]) >= {*VARIANTS, *WATCHED}
    assert set(rows.loc[rows["status"] != "passed", "variant"]) == set()
    # LSMR has a record for each build, and the errors of all of them in the first.
    assert (rows.groupby("case")["result.errors"].sum(min_count=1) == 0).all()


def test_windows_of_every_height_were_launched_ten_thousand_times() -> None:
    verified = recorded("verify")
    rows = verified[verified["case"].str.startswith("launches-wcsr-pipelined")]
    launched = rows[rows["result.launches"] == 10_000]
    assert set(launched["params.height"].astype(int)) == {64, 128, 256}
    assert (launched["result.different_words"] == 0).all()
