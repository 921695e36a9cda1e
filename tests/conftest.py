"""What this machine cannot run is skipped, with the reason; helpers for tests of records."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from asyncsparse_lab.records import Record, append_case, append_run
from asyncsparse_lab.resources import resource_path


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--network", action="store_true", help="run tests that leave this machine")


def _driver_loads() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    reasons = {
        "gpu": None if _driver_loads() else "no NVIDIA driver",
        "network": None if config.getoption("--network") else "needs --network",
        "browser": None if shutil.which("chromedriver") else "no chromedriver (chromium-driver)",
    }
    for item in items:
        for marker, reason in reasons.items():
            if reason is not None and item.get_closest_marker(marker) is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def make_record() -> Callable[..., Record]:
    """A passed record of a toy study with three samples around ``us``; keywords replace keys."""

    def make(us: float | None = 2.0, **keys: Any) -> Record:
        values: dict[str, Any] = {
            "study": "toy",
            "case": "a",
            "run": "20260101T000000Z-0000",
            "op": "spmm",
            "role": "ours",
            "backend": "asyncsparse",
            "variant": "bcsr-opt3",
            "matrix": "toy(n=4)",
            "m": 4,
            "k": 4,
            "n": 8,
            "nnz": 4,
            "dtype_in": "bfloat16",
            "dtype_out": "float32",
            "l2": "cold",
            "status": "passed",
        }
        if us is not None:
            samples = (0.99 * us, us, 1.01 * us)
            values |= {
                "median_us": us,
                "q1_us": samples[0],
                "q3_us": samples[2],
                "sample_count": 3,
                "samples_us": samples,
            }
        return Record(**(values | keys))

    return make


class Checkout:
    """A checkout in a temporary folder: our claims, and records to be put in."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("kernels", "notebooks", "data/recorded"):
            (root / name).mkdir(parents=True)
        shutil.copy(resource_path("claims"), root / "data")

    def record(self, device: str, records: Sequence[Record], **run: Any) -> None:
        """Commit the records of one case and the provenance of its run."""
        folder = self.root / "data" / "recorded" / device
        append_case(folder / f"{records[0].study}.jsonl", records)
        append_run(folder, {"run": records[0].run, "utc": "2026-01-01T00:00:00Z", **run})


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """The package looks for kernels, notebooks and records in a temporary checkout."""
    made = Checkout(tmp_path / "checkout")
    for module in ("resources", "records.files", "cli.reproduce"):
        monkeypatch.setattr(f"asyncsparse_lab.{module}.checkout_root", lambda: made.root)
    return made
