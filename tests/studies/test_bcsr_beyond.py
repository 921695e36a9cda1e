"""The study of the kernels beyond the article, drawn from made-up records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from asyncsparse_lab.claims import claims_frame
from asyncsparse_lab.records import Record
from asyncsparse_lab.records.frame import frame_of
from asyncsparse_lab.spmm.edge_cases import random_blocks
from asyncsparse_lab.spmm.product import Product
from asyncsparse_lab.spmm.variants import VARIANTS
from asyncsparse_lab.studies import bcsr_beyond

from .conftest import timed


def record(case: Any, backend: str, variant: str, us: float, role: str = "ours") -> Record:
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
        dtype_in="bfloat16",
        dtype_out="bfloat16",
        layout="row-major",
        l2="cold",
        clock="events",
        params={},
        **(timed(us) | {"result": {"l2_bytes": 1_000_000 * int(us)}}),
    )


def test_the_probe_is_another_build_and_never_a_kernel() -> None:
    overlap = VARIANTS["bcsr-overlap"]
    probe = bcsr_beyond.loads_only(overlap)
    assert probe.role == "probe"
    assert probe.macros("bfloat16") == overlap.macros("bfloat16") | {
        "SKIP_PRODUCT": 1,
        "SKIP_STORE": 1,
    }


def test_bytes_follow_from_the_tiles() -> None:
    product = Product.random(random_blocks(256, 320, 1.1), 1000, xp=np)
    loaded = bcsr_beyond.loaded_bytes(product)
    blocks, wide, narrow = 4 * 5, 2, 4  # column tiles of 512 and 256 that cover 1000
    assert loaded["bcsr-opt3"] == 2 * wide * blocks * 64 * (64 + 512)
    # Full rows share all their columns: two pairs of five steps each.
    expected = 2 * narrow * 64 * (blocks * 64 + 10 * 256)
    assert loaded["bcsr-paired"] == expected


def test_the_picture_and_the_table(draw_in_theme: Callable[..., dict[str, Any]]) -> None:
    times = {"bcsr-opt3": 220.0, "bcsr-overlap": 130.0, "bcsr-paired": 120.0}
    records = []
    for case in bcsr_beyond.cases():
        records.append(record(case, "cublas", "dense", 600.0, "library"))
        records += [record(case, "asyncsparse", name, us) for name, us in times.items()]
        records += [
            record(case, "asyncsparse", name, 100.0, "probe") for name in bcsr_beyond.PROBED
        ]
    frame = frame_of(records, gpu="nvidia-h200", gpu_name="NVIDIA H200 (made up)")
    items = draw_in_theme(bcsr_beyond, frame, claims_frame("bcsr-beyond"))
    data = items["speed"].data
    assert set(data["variant"]) == set(bcsr_beyond.KERNELS)
    paired = data.loc[data["variant"] == "bcsr-paired", "ratio"]
    assert paired.to_numpy() == pytest.approx(600.0 / 120.0)
    table = items["floors"].data
    assert len(table) == 3 * len(bcsr_beyond.cases())
    assert table.loc[table["kernel"] == "bcsr-opt3", "loads alone, us"].isna().all()
    assert set(table.loc[table["kernel"] == "bcsr-paired", "loads alone, us"]) == {100.0}
