from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest

from asyncsparse_lab.claims import claims_frame
from asyncsparse_lab.errors import InputError
from asyncsparse_lab.records.frame import ratios
from asyncsparse_lab.spmm.run import compile_variant
from asyncsparse_lab.studies import bcsr_ablation, rooflines, spmm_common
from asyncsparse_lab.studies.bcsr_ablation import HEADLINE, LADDER, OWN_KERNEL
from asyncsparse_lab.studies.ceilings import MeasuredCeilings, ceilings_of


@pytest.fixture(scope="module")
def draw(
    ablation_frame: pd.DataFrame,
    ceilings_frame: pd.DataFrame,
    draw_in_theme: Callable[..., dict[str, Any]],
) -> Iterator[Callable[..., dict[str, Any]]]:
    def load(gpu: str, source: str) -> MeasuredCeilings:
        return ceilings_of(ceilings_frame[ceilings_frame["gpu"] == gpu], gpu)

    claims = claims_frame("bcsr-ablation")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rooflines, "load_ceilings", load)
        yield lambda **chosen: draw_in_theme(bcsr_ablation, ablation_frame, claims, **chosen)


@pytest.fixture(scope="module")
def drawn(draw: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return draw()


def test_the_cases_are_what_the_issue_asks_for_within_five_minutes() -> None:
    cases = bcsr_ablation.cases()
    assert len({case.name for case in cases}) == len(cases)
    comparisons = {
        (case.matrix, case.n, case.params["dtype_out"]) for case in cases if "own" not in case.name
    }
    assert len(comparisons) == 9 * 2 * 2
    assert (HEADLINE, 4096, "float32") in comparisons
    assert sum(case.seconds for case in cases) < 300
    backends = {contender.backend for contender in bcsr_ablation.contenders(cases[0])}
    assert backends == {"asyncsparse", "cublas", "cusparse", "torch"}


def test_the_ladder_holds_the_ratios_of_the_frame(
    drawn: dict[str, Any], ablation_frame: pd.DataFrame
) -> None:
    data = drawn["ladder"].data
    cold = ablation_frame.query("l2 == 'cold' and dtype_out == 'bfloat16'")
    for before, after in pairwise(LADDER):
        gains = ratios(cold, f"variant == '{after}'", f"variant == '{before}'")
        shown = data[(data["quantity"] == "over the step before") & (data["variant"] == after)]
        ladder_cases = gains.reset_index().query("case != 'own-kernel'")
        assert sorted(shown["ratio"]) == pytest.approx(sorted(ladder_cases["ratio"]))
    over = data[data["quantity"] == "over Blocked-ELL"]
    assert set(over["variant"]) == set(LADDER)
    assert "qp_ship12l_P" not in set(over["matrix"])  # where Blocked-ELL did not fit
    assert len(over) == 4 * 8 * 2


def test_documents_values_are_hollow_marks(drawn: dict[str, Any]) -> None:
    left, right = drawn["ladder"].figure.axes
    hollow = {
        round(float(line.get_ydata()[0]), 2)
        for axes in (left, right)
        for line in axes.lines
        if line.get_markerfacecolor() == "none" and line.get_marker() == "o"
    }
    assert {5.3, 3.7, 2.75, 4.3, 0.08, 0.42, 1.56} <= hollow


def test_parameters_choose_rows(draw: Callable[..., dict[str, Any]]) -> None:
    chosen = draw(matrices=("bcsstk16", HEADLINE), n=4096, l2="warm", dtype_out="float32")
    assert set(chosen["per-matrix"].data["matrix"]) == {"bcsstk16", HEADLINE}
    assert set(chosen["roofline"].data["n"]) == {4096}
    note = [text.get_text() for text in chosen["ladder"].figure.texts]
    assert any("warm L2, 2 matrices" in text for text in note)
    with pytest.raises(InputError, match="nvidia-h100"):
        draw(gpu="nvidia-h100")


def test_failures_of_a_library_are_told(drawn: dict[str, Any]) -> None:
    ranking = drawn["ranking"]
    table = ranking.data.set_index(["group", "contender"])
    ell = table.loc[("Other matrices", "cusparse blocked-ell")]
    assert (ell["cases"], ell["of_cases"], ell["failures"]) == (14, 16, "oom")
    assert table.loc[("Pruned layer gate_proj", "cusparse bsr"), "cases"] == 0
    texts = [text.get_text() for axes in ranking.figure.axes for text in axes.texts]
    assert any("14 of 16 cases; oom" in text for text in texts)
    assert any("no case passed" in text for text in texts)
    per_matrix = drawn["per-matrix"].figure
    assert any(t.get_text() == "no Blocked-ELL" for axes in per_matrix.axes for t in axes.texts)


def test_the_table_holds_times_and_ratios(drawn: dict[str, Any]) -> None:
    table = drawn["ratios"].data
    assert table["matrix"].iloc[-1] == "geometric mean"
    row = table[(table["matrix"] == HEADLINE) & (table["n"] == 4096)].iloc[0]
    assert row["fill, %"] == pytest.approx(100.0, abs=0.01)
    assert row["opt3 / cuBLAS dense"] >= row["opt3 / best library"]
    shown = table["opt3 / cuBLAS dense"].iloc[:-1]
    mean = table["opt3 / cuBLAS dense"].iloc[-1]
    assert mean == pytest.approx(float(np.exp(np.log(shown).mean())))


def test_shares_follow_from_the_ceilings(drawn: dict[str, Any]) -> None:
    shares = drawn["shares"].data.set_index(["n", "variant"])
    opt0, opt3 = shares.loc[(4096, "bcsr-opt0")], shares.loc[(4096, "bcsr-opt3")]
    assert opt0["of FP32 FMA, %"] == pytest.approx(100 * opt0["TFLOP/s on blocks"] / 60.0)
    assert opt3["of tensor cores, %"] == pytest.approx(100 * opt3["TFLOP/s on blocks"] / 790.0)
    # a tile of 512 columns multiplies 64 x 64 x 512 for each 8 KiB + 64 KiB that it loads
    flops_per_byte = 2 * 64 * 64 * 512 / (8192 + 65536)
    rate = opt3["TFLOP/s on blocks"] / flops_per_byte
    assert opt3["of L2 to shared, %"] == pytest.approx(100 * rate / 8.5)
    assert np.isnan(opt3["of FP32 FMA, %"])


def test_without_ceilings_the_rest_is_drawn(
    ablation_frame: pd.DataFrame,
    draw: object,
    draw_in_theme: Callable[..., dict[str, Any]],
) -> None:
    frame = ablation_frame[ablation_frame["n"] == 1024].assign(gpu="another-gpu")
    items = draw_in_theme(bcsr_ablation, frame, claims_frame("bcsr-ablation"))
    assert "roofline" not in items
    assert {"ladder", "per-matrix", "ranking", "ratios", "own-kernel"} <= set(items)


def test_ones_own_kernel_stands_beside_opt3(drawn: dict[str, Any]) -> None:
    table = drawn["own-kernel"].data
    assert set(table["contender"]) == {"bcsr-opt3", "my_kernel", "cublas dense"}
    assert set(table["L2"]) == {"cold", "warm"}
    own = table[table["contender"] == "bcsr-opt3"]
    assert (own["speed / opt3"] == 1.0).all()


def test_the_example_kernel_passes_the_compile_gate() -> None:
    for dtype_out in ("bfloat16", "float32"):
        assert compile_variant(OWN_KERNEL, dtype_out).resources.spill_stores == 0


def test_blocks_are_added_to_our_kernels_only(make_record: Callable[..., Any]) -> None:
    from asyncsparse_lab.spmm.edge_cases import random_blocks
    from asyncsparse_lab.spmm.product import Product

    product = Product.random(random_blocks(128, 192, 0.5, seed=3), 16, xp=np)
    ours, library = make_record(), make_record(backend="cublas", role="library")
    failed = make_record(us=None, status="oom", reason="too large")
    counted, plain, unchanged = spmm_common.with_blocks([ours, library, failed], product)
    assert counted.result["blocks"] == product.A.nnz // 4096
    assert counted.result["fill_ratio"] == 1.0
    assert plain.result == {}
    assert unchanged == failed
