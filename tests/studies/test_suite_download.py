"""The evaluation on matrices that are downloaded: a cut line, a missing matrix, shares."""

# ruff: noqa: F401, F811 -- fixtures of other modules are imported, and asked for by their names

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from asyncsparse_lab.cli import main
from asyncsparse_lab.records import read_study
from asyncsparse_lab.studies import provenance, suite

from ..matrices.conftest import cache, pack, site
from .test_suite_measured import pretended

NAMES = ("bcsstk30", "bcsstk31", "bcsstk32")
MTX = b"%%MatrixMarket matrix coordinate real general\n3 3 3\n1 1 4\n2 1 1\n3 3 5\n"


@pytest.fixture(autouse=True)
def collection(site: Any, pretended: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection with tiny matrices in place of two of three, and a pretended GPU."""
    lines = [f"HB,{name},3,3,3,1,0,0,0,0,0,structural problem,3" for name in NAMES]
    site.files["/files/ssstats.csv"] = "\n".join(["3", "01-Jan-2020", *lines, ""]).encode()
    for name in NAMES[:2]:
        site.files[f"/MM/HB/{name}.tar.gz"] = pack({f"{name}/{name}.mtx": MTX})
    for name in ("gpu_facts", "gpu_state"):
        monkeypatch.setattr(provenance, name, lambda: {"name": "made up"})
    from asyncsparse_lab.cli import measure

    monkeypatch.setattr(measure, "device_folder", lambda study: "made-up")


def measure(folder: Path, *arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(["measure", "suite", "--suite", "paper414", "--only", "bcsstk3[012]-n256*",
              "--out", str(folder), *arguments])  # fmt: skip
    return int(left.value.code or 0)


def cases(folder: Path) -> set[str]:
    return {record.case for record in read_study(folder, "suite")}


def test_what_there_is_is_measured_and_the_next_call_goes_on(
    site: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    archive = "/MM/HB/bcsstk30.tar.gz"
    site.cuts[archive] = [100, 110, 120]  # as often as one call asks
    assert measure(tmp_path) == 1
    shown = capsys.readouterr().out
    assert "bcsstk30-n256: failed: DownloadError" in shown
    assert "bcsstk32-n256: failed: DownloadError" in shown
    assert cases(tmp_path) >= {"bcsstk31-n256", "bcsstk31-n256-float32"}, shown
    asked = len(site.requests)
    assert measure(tmp_path) == 1, "one is still not there"
    again = [path for _, path, _ in site.requests[asked:]]
    assert "/MM/HB/bcsstk31.tar.gz" not in again, "what was measured is not asked for"
    names = {f"{name}-n256{kind}" for name in NAMES[:2] for kind in ("", "-float32")}
    assert cases(tmp_path) == names


def test_two_machines_share_the_matrices(tmp_path: Path) -> None:
    folders = (tmp_path / "one", tmp_path / "two")
    for number, folder in enumerate(folders, 1):
        measure(folder, "--shard", f"{number}/2")
    first, second = (
        {record.matrix for record in read_study(folder, "suite")} for folder in folders
    )
    assert first | second == set(NAMES[:2])
    assert not first & second


def test_a_name_of_several_groups_is_that_of_the_suites_group(
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = NAMES[0]
    for group in ("Other", "Another"):
        path = cache / "suitesparse" / group / f"{name}.mtx.gz"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"")
    assert {case.params["source"] for case in suite.cases("paper414") if case.matrix == name} == {
        f"HB/{name}"
    }
