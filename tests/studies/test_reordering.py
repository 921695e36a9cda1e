"""Floors of shorter windows and reordered rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from asyncsparse_lab.claims import claims_frame
from asyncsparse_lab.formats import WCSR
from asyncsparse_lab.records.frame import frame_of
from asyncsparse_lab.spmm.plan_rates import load_rates
from asyncsparse_lab.studies import reordering
from asyncsparse_lab.studies.base import Case

RATES = load_rates()


def hidden_groups() -> csr_array:
    """Return 8 groups of 64 equal rows, no two of a group next to each other."""
    A = np.zeros((512, 4096))
    for row in range(512):
        group = row % 8
        A[row, 512 * group : 512 * group + 256] = 1.0
    return csr_array(A)


def test_tiles_are_counted_by_hand() -> None:
    # Of 40 columns, ascending, the first 64 rows touch the even ones, the next the odd ones.
    A = np.zeros((128, 40))
    A[0, 0::2] = A[127, 1::2] = 1
    assert reordering.count_tiles(csr_array(A), 128) == {"sorted": 2 * 3, "grouped": 2 + 2}
    assert reordering.count_tiles(csr_array((128, 40)), 128) == {"sorted": 0, "grouped": 0}


@pytest.mark.parametrize("height", reordering.GROUPED)
def test_tiles_are_those_of_the_windows(height: int) -> None:
    A = csr_array(random_array((700, 300), density=0.02, rng=0))
    full = np.zeros((-(-700 // height) * height, 300), bool)
    full[:700] = A.toarray() != 0
    expected = 0
    for window in full.reshape(-1, height // 64, 64, 300).any(axis=2):
        touched = window[:, window.any(axis=0)]
        for first in range(0, touched.shape[1], 16):
            expected += int(touched[:, first : first + 16].any(axis=1).sum())
    counts = reordering.count_tiles(A, height)
    assert counts["sorted"] == expected
    least = sum(-(-int(c) // 16) for c in WCSR.count_columns(A, 64))
    assert least <= counts["grouped"] <= counts["sorted"]


def test_tables_tell_what_could_win() -> None:
    A = hidden_groups()
    case = Case("groups", "groups", reordering.N)
    records = [
        replace(reordering._record(case, A, name), run="r") for name in ("as-stored", "similarity")
    ]
    stored, similar = (record.result for record in records)
    assert stored["columns_64"] == 8 * 2048
    assert similar["columns_64"] == stored["touched"] == 2048
    floors = reordering.floors_table(frame_of(records), RATES)
    assert floors["similarity, times"].item() > reordering.WINS
    assert floors["swapped, times"].item() < 1
    floors = floors.loc[[0] * reordering.WORTH_IT].reset_index(drop=True)
    floors["cuthill-mckee, times"] = np.nan
    floors["cuthill-mckee, us"] = floors["cuthill-mckee, ordering, us"] = np.nan
    ideas = reordering.ideas_table(floors).set_index("idea")
    assert ideas["5 or more"].to_dict() == {
        "swapped": "no", "empty tiles left out": "no", "columns by groups, too": "no",
        "similarity": "yes", "cuthill-mckee": "no",
    }  # fmt: skip
    saved = floors["today, us"] - floors["similarity, us"]
    paid = floors["similarity, ordering, us"] / saved
    assert ideas["paid after products"]["similarity"] == pytest.approx(paid[0])


def test_a_matrix_of_the_evaluation_is_measured_and_drawn() -> None:
    generated = [entry for entry in reordering.entries() if entry.stand_in_for]
    smallest = min(generated, key=lambda entry: entry.nnz).name
    (case,) = (case for case in reordering.cases() if case.matrix == smallest)
    records = [replace(record, run="r") for record in reordering.measure(case)]
    assert {record.variant for record in records} == set(reordering.ORDERS)
    items = reordering.draw(frame_of(records), claims_frame("reordering"))
    assert list(items["ideas"].data["idea"]) == [
        "swapped", *reordering.TILES.values(), "similarity", "cuthill-mckee"
    ]  # fmt: skip
    assert (items["floors"].data["today, us"] > RATES.empty_us).all()
