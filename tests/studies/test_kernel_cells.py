from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from asyncsparse_lab.records import Record
from asyncsparse_lab.records.frame import frame_of, geometric_mean, ratios
from asyncsparse_lab.studies import formats_tables, kernel_cells


@pytest.fixture
def wcsr_frame(make_record: Callable[..., Record]) -> pd.DataFrame:
    shares = {f"share_{part}": 0.1 for part in ("wait", "multiply")} | {"share_gather": 0.8}
    keys: dict[str, Any] = {"study": "wcsr-ablation", "case": "sweep-skewed-a"}
    footprint = {"registers": 127, "blocks_per_sm": 4}
    return frame_of(
        [
            make_record(None, variant="wcsr-paper", role="probe", result=shares, **keys),
            make_record(50.0, variant="wcsr-paper", params={"wgmma_n": 128},
                        result={"gathered_bytes": 10**8, **footprint}, **keys),
            make_record(150.0, variant="wcsr-paper-unsplit", params={"wgmma_n": 128},
                        result={"gathered_bytes": 10**8, **footprint}, **keys),
        ],
        gpu="nvidia-h200",
    )  # fmt: skip


@pytest.fixture
def balance_frame(make_record: Callable[..., Record]) -> pd.DataFrame:
    spans = [
        make_record(None, study="persistent", case=case, role="probe",
                    result={"span_us": 100.0, "spent_tail": tail})
        for case, tail in (("even", 4.0), ("uneven", 31.0))
    ]  # fmt: skip
    return frame_of(spans, gpu="nvidia-h200")


def test_every_cell_has_a_figure_once_all_is_measured(
    ablation_frame: pd.DataFrame,
    registers_frame: pd.DataFrame,
    wcsr_frame: pd.DataFrame,
    balance_frame: pd.DataFrame,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frames = {
        "bcsr-ablation": ablation_frame, "registers": registers_frame,
        "wcsr-ablation": wcsr_frame, "persistent": balance_frame,
    }  # fmt: skip
    monkeypatch.setattr(kernel_cells, "load_records", frames.__getitem__)
    cells = kernel_cells.measured_cells()
    own = {"Unit of storage", "Stored bytes", "Conversion from CSR", "Chosen by the rule"}
    wanted = {
        (feature, kind)
        for feature, *_ in formats_tables._FEATURES
        for kind in ("bcsr", "wcsr")
        if feature not in own
    }
    assert set(cells) == wanted
    cold = ablation_frame.query("l2 == 'cold' and dtype_out == 'bfloat16' and case != 'own-kernel'")
    ring = ratios(cold, "variant == 'bcsr-opt3'", "variant == 'bcsr-opt2'")["ratio"]
    assert f"{geometric_mean(ring):.2f} times" in cells["Overlap", "bcsr"]
    assert cells["Overlap", "wcsr"] == "10% of the time is WGMMA"
    assert cells["Loads of B", "wcsr"] == "2.0 TB/s gathered"
    assert cells["Balance", "wcsr"] == "cutting long windows: 3.0 times the speed"
    assert cells["Balance", "bcsr"] == "SMs idle at the end: 4% to 31%"
    assert cells["Registers", "wcsr"] == "127 a thread, 4 blocks per SM"
    assert re.search(r"WGMMA_N = 256: [01]\.\d\d times", cells["Registers", "bcsr"])


def test_without_records_there_are_no_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cells, "load_records", lambda study: frame_of([]))
    assert kernel_cells.measured_cells() == {}
