from __future__ import annotations

from pathlib import Path

import pytest

import asyncsparse_lab as asl
from asyncsparse_lab.errors import CompileError, DeviceError
from asyncsparse_lab.gpu.device import missing_gpu
from asyncsparse_lab.studies import own_kernel

EXAMPLE = asl.Variant(source="examples/my_kernel.cu", constants={"WGMMA_N": 128, "STAGES": 4})


def test_the_example_is_described_beside_opt3() -> None:
    table = own_kernel.describe(EXAMPLE)
    assert list(table.columns) == ["bcsr-opt3", "my_kernel"]
    assert table.loc["spilled, bytes", "my_kernel"] == 0
    assert table.loc["HGMMA instructions", "my_kernel"] > 0
    assert table.loc["UTMALDG instructions", "my_kernel"] > 0
    assert table.loc["registers a thread at launch", "my_kernel"] == 168


def test_a_source_of_ones_own_is_compiled_where_it_lies(tmp_path: Path) -> None:
    source = tmp_path / "mine.cu"
    source.write_text(EXAMPLE.path.read_text().replace("column_major_tile", "my_tile"))
    mine = asl.Variant(source=str(source), constants={"WGMMA_N": 128, "STAGES": 4})
    assert mine.name == "mine"
    assert own_kernel.describe(mine)["mine"].equals(own_kernel.describe(EXAMPLE)["my_kernel"])
    source.write_text("no kernel at all")
    with pytest.raises(CompileError, match=r"mine\.cu"):
        own_kernel.describe(mine)


def test_comparing_needs_a_gpu_and_says_so() -> None:
    if missing_gpu() is None:
        pytest.skip("this machine has a GPU")
    with pytest.raises(DeviceError):
        own_kernel.compare(EXAMPLE, "bcsstk16", n=1024)


@pytest.mark.gpu
def test_the_example_is_right_and_timed() -> None:
    table = own_kernel.compare(EXAMPLE, "gate_proj-keep10-uniform-s0", n=1024)
    assert set(table["status"]) == {"passed"}
    assert set(table["edge cases failed"]) == {"none"}
    assert (table["speed / opt3"] > 0.2).all()
