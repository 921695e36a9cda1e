"""Floors of shorter windows and reordered rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from asyncsparse_lab.claims import claims_frame
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


@pytest.mark.parametrize("name", list(reordering.ORDERS))
def test_an_order_has_every_row_once(name: str) -> None:
    A = csr_array(random_array((300, 300), density=0.004, rng=0))
    order = reordering.ORDERS[name](A)
    np.testing.assert_array_equal(np.sort(order), np.arange(300))
    empty = reordering.ORDERS[name](csr_array((300, 300)))
    np.testing.assert_array_equal(np.sort(empty), np.arange(300))


def test_similar_rows_come_together() -> None:
    order = reordering.by_similarity(hidden_groups())
    assert (np.diff(order % 8) != 0).sum() == 7


def test_tables_tell_what_could_win() -> None:
    A = hidden_groups()
    case = Case("groups", "groups", reordering.N)
    records = [
        replace(reordering._record(case, A, name, reordering.ORDERS[name]), run="r")
        for name in ("as-stored", "similarity")
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
        "swapped": "no", "similarity": "yes", "cuthill-mckee": "no",
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
    assert list(items["ideas"].data["idea"]) == ["swapped", "similarity", "cuthill-mckee"]
    assert (items["floors"].data["today, us"] > RATES.empty_us).all()
