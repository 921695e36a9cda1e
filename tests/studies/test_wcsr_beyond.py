"""The study of the pipelined WCSR kernel, drawn from made-up records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from asyncsparse_lab.claims import claims_frame
from asyncsparse_lab.matrices import load_suite
from asyncsparse_lab.records import Record
from asyncsparse_lab.records.frame import frame_of
from asyncsparse_lab.spmm.edge_cases import one_dense_row
from asyncsparse_lab.spmm.product import Product
from asyncsparse_lab.spmm.run import Ours
from asyncsparse_lab.spmm.variants import VARIANTS
from asyncsparse_lab.studies import wcsr_beyond, wcsr_beyond_figures
from asyncsparse_lab.studies.ceilings import ceilings_of

from .conftest import timed

PAPER = VARIANTS[wcsr_beyond.PAPER]


def record(case: Any, contender: Any, us: float) -> Record:
    ours = contender.backend == "asyncsparse"
    result = {"useful_tflops": 1e4 / us}
    if ours:
        result |= {
            "gathered_bytes": 1e8,
            "a_bytes": 1e7,
            "flops": 1e10,
            "hbm_bytes": 1e7,
        }
    chosen = {"atomics": contender.params.get("deterministic") == 0} if ours else {}
    return Record(
        study="wcsr-beyond",
        case=case.name,
        run="20260101T000000Z-0000",
        op="spmm",
        role=contender.role,
        backend=contender.backend,
        variant=contender.variant,
        matrix=case.matrix,
        m=1000,
        k=1000,
        n=case.n,
        nnz=20_000,
        dtype_in="bfloat16",
        dtype_out="bfloat16",
        layout="row-major",
        l2="cold",
        clock="events",
        params=contender.params | chosen,
        **(timed(us) | {"result": result}),
    )


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Of each case: paper 100 us, ours 50 at one tile and 60 at the others, cuSPARSE 80 and 90."""
    records: list[Record] = []
    for case in wcsr_beyond.cases():
        first = len(records)
        for number, variant in enumerate(wcsr_beyond.kernels()):
            paper = variant.name == wcsr_beyond.PAPER
            us = 100.0 + number if paper else 50.0 if variant.params["window"] == 256 else 60.0
            records.append(record(case, Ours(variant), us))
        for library, us in zip(wcsr_beyond.libraries(), (200.0, 80.0, 90.0), strict=True):
            records.append(record(case, library, us))
        best = wcsr_beyond.fastest(records[first:])
        assert best is not None
        records.append(record(case, Ours(wcsr_beyond.loads_only(best)), 40.0))
    return frame_of(records, gpu="nvidia-h200", gpu_name="NVIDIA H200 (made up)")


def test_every_kernel_of_the_study_is_among_its_builds() -> None:
    from asyncsparse_lab.studies.spmm_common import kernel_build

    builds = wcsr_beyond.kernel_builds()
    pipelined = [v for v in wcsr_beyond.kernels() if v.name == wcsr_beyond.PIPELINED]
    for variant in (*wcsr_beyond.kernels(), *map(wcsr_beyond.loads_only, pipelined)):
        assert kernel_build(variant, wcsr_beyond.DTYPE_OUT) in builds[variant.name]


def test_the_fastest_is_probed_as_it_was_measured() -> None:
    case = wcsr_beyond.cases()[0]
    kernels = [v for v in wcsr_beyond.kernels() if v.name == wcsr_beyond.PIPELINED]
    assert len({str(kernel.params) for kernel in kernels}) == len(kernels)
    for chosen in kernels:
        records = [record(case, Ours(v), 50.0 if v is chosen else 60.0) for v in kernels]
        warm = replace(record(case, Ours(kernels[-1]), 1.0), l2="warm")
        best = wcsr_beyond.fastest([*records, warm, record(case, Ours(PAPER), 10.0)])
        assert best is not None
        assert best.params == chosen.params
    assert wcsr_beyond.fastest([record(case, Ours(PAPER), 10.0)]) is None


def test_windows_say_what_must_be_moved() -> None:
    product = Product.random(one_dense_row(), 200, xp=np).with_output("bfloat16")
    case = wcsr_beyond.cases()[0]
    tall = wcsr_beyond.kernels()[-3]
    (found,) = wcsr_beyond.with_windows([record(case, Ours(tall), 10.0)], product)
    assert (tall.params["window"], tall.params["wgmma_n"]) == (256, 128)
    columns = [np.unique(product.A[start : start + 256].indices).size for start in (0, 256)]
    padded = sum(-(-count // 16) * 16 for count in columns)
    assert found.result["gathered_bytes"] == 2 * 200 * sum(columns)
    assert found.result["a_bytes"] == 2 * 256 * padded * 2, "read for each of two tiles"
    assert found.result["flops"] == 2 * 256 * padded * 200
    touched = np.unique(product.A.indices).size
    assert found.result["hbm_bytes"] == 2 * 256 * padded + 2 * 200 * (300 + touched)
    library = record(case, wcsr_beyond.libraries()[0], 10.0)
    assert wcsr_beyond.with_windows([library], product) == [library]


def test_pictures_and_tables(
    frame: pd.DataFrame,
    draw_in_theme: Callable[..., dict[str, Any]],
) -> None:
    items = draw_in_theme(wcsr_beyond, frame, claims_frame("wcsr-beyond"))
    count = len(load_suite("dense1").entries)
    over = items["means"].data.set_index("over")["geometric mean"]
    assert over.to_numpy() == pytest.approx([2.0, 80 / 50, 4.0, 80 / 50])
    speed = items["speed"].data
    assert len(speed) == 3 * count
    table = items["configurations"].data
    assert set(table["windows"]) == {"by rule", "whole", "by rule, atomics"}
    tall = table["configuration"].str.startswith("256")
    assert (table.loc[tall, "best of all on"] == count).all()
    assert (table.loc[~tall, "best of all on"] == 0).all()
    assert table.loc[~tall, "least"].to_numpy() == pytest.approx(50 / 60)
    floors = items["floors"].data
    assert len(floors) == count
    assert floors["configuration"].str.startswith("256").all()
    assert floors["its loads alone, us"].to_numpy() == pytest.approx(40.0)
    lines = items["throughput"].data.set_index("what")
    assert lines.loc["wanted", "useful TFLOPS"] == 12.0
    assert set(lines["matrices"]) == {17}
    reached = 2 * 20_000 * 1024 / 50.0 / 1e6
    assert lines["best configuration"].to_numpy() == pytest.approx(reached)
    of_it = lines["best configuration, % of it"]
    assert of_it["its loads alone"] == pytest.approx(100 * 40.0 / 50.0)
    assert of_it["dense cuBLAS"] == pytest.approx(100 * 200.0 / 50.0)


def test_the_largest_floor_bounds(ceilings_frame: pd.DataFrame, frame: pd.DataFrame) -> None:
    ceilings = ceilings_of(ceilings_frame, "nvidia-h200")
    ours = frame[frame["variant"] == "wcsr-pipelined"]
    kernels, probes = ours[ours["role"] != "probe"], ours[ours["role"] == "probe"]
    data = wcsr_beyond_figures.floors(kernels, probes, ceilings).data
    assert set(data["bound by"]) == {"gather"}
    gather = 1e8 / 5.0e12 * 1e6
    assert data["gather, us"].to_numpy() == pytest.approx(gather)
    assert data["floor / measured"].to_numpy() == pytest.approx(gather / 50.0)
    table = wcsr_beyond_figures.throughput(frame[frame["role"] != "probe"], probes, ceilings)
    share = table.data.set_index("what")["best configuration, % of it"].iloc[-1]
    assert share == pytest.approx(100 * (ceilings.empty_us + gather) / 50.0)


def test_stand_ins_are_called_that() -> None:
    names = [entry.name for entry in load_suite("dense1").entries if entry.stand_in_for]
    assert names
    assert all(wcsr_beyond_figures.label(name).startswith("like ") for name in names)
    assert wcsr_beyond_figures.label("bcsstk16") == "bcsstk16"
