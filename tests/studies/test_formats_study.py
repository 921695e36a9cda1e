"""The study of formats: what a case records, and what is drawn of it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from asyncsparse_lab.claims import claims_frame
from asyncsparse_lab.errors import InputError
from asyncsparse_lab.formats import WCSR
from asyncsparse_lab.matrices import load_matrix
from asyncsparse_lab.records import Record
from asyncsparse_lab.records.frame import frame_of
from asyncsparse_lab.resources import resource_path
from asyncsparse_lab.studies import formats, formats_tables, style

BLOCKS = "smoke/blocks(rows=1024, cols=768, keep=0.25)"
BAND = "smoke/band(n=3000, half_bandwidth=6)"


def case_of(name):
    return next(case for case in formats.cases() if case.name == name)


@pytest.fixture(scope="module")
def records():
    return [record for name in (BLOCKS, BAND) for record in formats.measure(case_of(name))]


@pytest.fixture(scope="module")
def frame(records):
    return frame_of(records, gpu="cpu", gpu_name="a processor")


@pytest.fixture
def drawn(frame, monkeypatch):
    told = {("Overlap", "wcsr"): "none of it"}
    monkeypatch.setattr(formats_tables, "measured_cells", lambda: told)
    with style.theme():
        yield formats.draw(frame, claims_frame("formats"), suites=["smoke"])


def record_of(records, name, variant, size):
    key = {"block" if variant == "bcsr" else "window": size}
    return next(r for r in records if (r.case, r.variant, dict(r.params)) == (name, variant, key))


def test_every_suite_that_is_there_has_its_cases():
    names = [case.name for case in formats.cases()]
    assert {BLOCKS, BAND} <= set(names)
    assert len(set(names)) == len(names)
    assert {name.split("/")[0] for name in names} <= set(formats.SUITES)


def test_a_case_records_each_size_of_both_formats(records):
    assert len(records) == 20
    assert len({record.identity() for record in records}) == 20
    assert {record.status for record in records} == {"passed"}
    assert all(record.preprocess_us > 0 for record in records)


def test_the_numbers_are_those_of_the_matrix(records):
    full = record_of(records, BLOCKS, "bcsr", 64).result
    assert full["fill_ratio"] == 1.0
    assert full["stored"] == 48  # a quarter of 16 x 12 blocks
    assert full["bytes"] == 48 * 64 * 64 * 2 + 48 * 4 + 17 * 8
    assert (full["verdict"], full["picks"]) == ("preferred", "bcsr")
    # A band of 13 diagonals reaches 6 columns past each side of a window of 64 rows.
    band = record_of(records, BAND, "wcsr", 64).result
    assert (band["columns_median"], band["columns_max"]) == (76, 76)
    assert band["columns"] == int(WCSR.count_columns(load_matrix(BAND.split("/")[1])).sum())
    assert record_of(records, BAND, "bcsr", 64).result["picks"] == "wcsr"


def test_a_conversion_beyond_the_limit_is_predicted_only(monkeypatch):
    monkeypatch.setattr(formats, "CONVERSION_LIMIT", 10**6)
    records = formats.measure(case_of(BAND))
    timed = [record.preprocess_us is not None for record in records]
    assert timed == [4 * record.result["values"] <= 10**6 for record in records]
    assert any(timed)
    assert not all(timed)
    assert {record.status for record in records} == {"passed"}


def test_a_conversion_that_changes_the_matrix_is_recorded_as_wrong(monkeypatch):
    monkeypatch.setattr(WCSR, "to_csr", lambda self: load_matrix(BAND.split("/")[1]) * 2)
    records = formats.measure(case_of(BAND))
    assert [r.status for r in records] == ["passed"] * 5 + ["wrong"] * 5
    assert all(r.preprocess_us is None for r in records if r.status == "wrong")


def test_what_is_drawn_is_what_was_recorded(drawn, records):
    assert list(drawn) == ["fill", "bytes", "columns", "choice", "matrices", "kernels"]
    fill = drawn["fill"].data
    assert len(fill) == 20
    row = fill[
        (fill["variant"] == "bcsr") & (fill["size"] == 32) & (fill["matrix"].str[:4] == "band")
    ]
    expected = record_of(records, BAND, "bcsr", 32).result["fill_ratio"]
    assert row["fill_ratio"].tolist() == [expected]
    sizes = drawn["bytes"].data.set_index("matrix").loc[BAND.split("/")[1]]
    nnz = int(load_matrix(BAND.split("/")[1]).nnz)
    assert sizes["bytes_csr"] == 6 * nnz + 8 * 3001
    assert sizes["bytes_dense"] == 2 * 3000 * 3000
    assert sizes["bytes_wcsr"] == record_of(records, BAND, "wcsr", 64).result["bytes"]
    picks = drawn["choice"].data
    assert picks[picks["size"] == 64].set_index("matrix")["picks"].to_dict() == {
        BLOCKS.split("/")[1]: "bcsr",
        BAND.split("/")[1]: "wcsr",
    }


def test_thresholds_are_those_of_the_claims(frame):
    claims = claims_frame("formats")
    claims.loc["bcsr-good-fill", "number"] = 81.0
    with style.theme():
        drawn = formats.draw(frame, claims, suites=["smoke"])
    assert "BCSR above 81 %" in drawn["choice"].caption
    heights = [line.get_ydata()[0] for line in drawn["fill"].figure.axes[0].lines]
    assert 0.81 in heights
    assert 0.70 not in heights


def test_a_cell_without_a_measurement_says_so(drawn):
    table = drawn["kernels"].data.set_index("feature")
    assert table.loc["Chosen by the rule", "BCSR measured"] == "1 of 2 matrices"
    assert table.loc["Overlap", "BCSR measured"] == "not yet measured"
    assert table.loc["Overlap", "WCSR measured"] == "none of it"
    assert not (table == "").any().any()


def test_a_suite_without_records_is_refused(frame):
    with pytest.raises(InputError, match=r"suite 'shared' has no record of formats; .* smoke"):
        formats.draw(frame, claims_frame("formats"))
    with pytest.raises(InputError, match=r"suites=\[\] chooses no matrix; there are: smoke"):
        formats.draw(frame, claims_frame("formats"), suites=[])


def test_the_notebook_shows_all_that_is_drawn(drawn):
    notebook = json.loads((resource_path("notebooks") / "01_formats.ipynb").read_text())
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells)
    shown = [
        name for name in drawn for cell in cells if f'show("{name}"' in "".join(cell["source"])
    ]
    assert shown == list(drawn)


def test_committed_records_agree_with_the_suites():
    path = resource_path("recorded") / "cpu" / "formats.jsonl"
    recorded = [Record.from_json(line) for line in path.read_text().splitlines()]
    for name in (BLOCKS, BAND):
        for record in formats.measure(case_of(name)):
            old = next(r for r in recorded if r.identity() == record.identity())
            assert old.result == record.result
            assert (old.m, old.k, old.nnz) == (record.m, record.k, record.nnz)
    assert all(np.isfinite(r.result["fill_ratio"]) for r in recorded)
