"""The page of floors: of the committed records, and written by reproduce."""

from __future__ import annotations

from pathlib import Path

import pytest

from asyncsparse_lab.cli import reproduce
from asyncsparse_lab.records.frame import load_records
from asyncsparse_lab.report.performance import PAGE, performance_page
from asyncsparse_lab.resources import checkout_root


def test_the_committed_page_is_of_the_committed_records() -> None:
    root = checkout_root()
    assert root is not None
    assert (root / PAGE).read_text() == performance_page(), "run asyncsparse reproduce"


def test_every_measured_case_and_kernel_has_a_line() -> None:
    page = performance_page()
    rows = load_records("bcsr-beyond")
    kernels = rows[(rows["backend"] == "asyncsparse") & (rows["role"] != "probe")]
    passed = kernels[(kernels["status"] == "passed") & (kernels["l2"] == "cold")]
    for case, own in passed.groupby("case"):
        section = page.partition(f"### {case}\n")[2].partition("###")[0]
        for name in set(own["variant"]):
            line = next(line for line in section.splitlines() if line.startswith(f"| {name} "))
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            measured = own.loc[own["variant"] == name, "median_us"]
            assert float(cells[1]) in [pytest.approx(us, abs=0.051) for us in measured]
            assert cells[6] in ("loads and stores", "tensor cores")


def test_a_page_of_other_records_is_told(tmp_path: Path) -> None:
    assert reproduce._performance(tmp_path, check=True) == [], "no checkout"
    (tmp_path / "docs").mkdir()
    (told,) = reproduce._performance(tmp_path, check=True)
    assert "run asyncsparse reproduce" in told
    assert reproduce._performance(tmp_path, check=False) == []
    assert reproduce._performance(tmp_path, check=True) == []
    (tmp_path / PAGE).write_text("by hand")
    assert len(reproduce._performance(tmp_path, check=True)) == 1
