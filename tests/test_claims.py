from __future__ import annotations

import math
import re

import pytest

from asyncsparse_lab.claims import (
    Claim,
    check_kind,
    claims_frame,
    judge,
    judge_all,
    measure_claim,
    parse_claim,
    read_claims,
)
from asyncsparse_lab.errors import InputError, RecordError
from asyncsparse_lab.records.frame import frame_of, select

# The documents' values, by study, as they have to be there: (stated, derived, elsewhere).
VALUES = {
    "bcsr-ablation": ([5.3, 3.7, 2.75, 98, 4.3], [0.08, 0.42, 1.56, 4.31], []),
    "registers": ([24, 240, 1], [64512], []),
    "stages": ([3], [], []),
    "wgmma-n": ([128], [256], []),
    "cluster-multicast": ([1], [], []),
    "persistent": ([1], [], [2.6]),
    "selection": ([70, 50], [], []),
    "suite": (
        [414, 23.53, 18.05, 4.86, 2.40, 2.85, 0.1],
        [4.84, 9.80, 8.26],
        [6.24, 1.47],
    ),
    "ffn": ([1.58, 1.98, 3.19], [], []),
    "end-to-end": ([1.4, 1.73, 2.66], [], []),
    "lsmr-fusion": ([24, 20, 2, 1], [], []),
    "lsmr": (
        [
            *(6177, 23394, 2, 2, 1.84e-7, 6.26e-7, 0.3540266, 0.2360898),
            *(100, 1, 7, 2, 1e-6, 0, 1e8, 5000),
        ],
        [],
        [],
    ),
}


@pytest.mark.parametrize("study", VALUES)
def test_every_value_is_there_with_its_kind(study):
    claims = [claim for claim in read_claims() if claim.study == study]
    for kind, values in zip(("stated", "derived", "elsewhere"), VALUES[study], strict=True):
        numbers = [c.number for c in claims if c.kind == kind and not math.isnan(c.number)]
        assert sorted(numbers) == sorted(values)


def test_no_claim_belongs_to_a_study_that_nobody_checked():
    assert {claim.study for claim in read_claims()} == set(VALUES)


def test_names_are_unique_and_derivations_told():
    names = [claim.id for claim in read_claims()]
    assert len(set(names)) == len(names)
    assert all(claim.how for claim in read_claims() if claim.kind == "derived")


def test_conditions_can_be_read(make_record):
    """A column that this record lacks is the only excuse, and a column is quoted as one."""
    frame = frame_of([make_record()])
    faults = []
    for claim in read_claims():
        for key in ("where", "of", "over"):
            try:
                select(frame, claim.check.get(key, ""))
            except InputError as error:
                faults.append(str(error))
    lacking = re.compile(r"'BACKTICK_QUOTED_STRING_(params|result)_DOT_\w+' is not defined")
    assert [fault for fault in faults if not lacking.search(fault)] == []


def test_a_study_finds_its_own_and_shared_claims():
    assert {"bcsr-good-fill", "bcsr-suitable-fill"} == set(claims_frame("formats").index)
    assert claims_frame("formats").loc["bcsr-good-fill", "number"] == 70.0


def claim(**keys):
    values = {
        "id": "toy",
        "document": "d",
        "section": "s",
        "statement": "x is faster",
        "value": 2.0,
        "unit": "x",
        "kind": "stated",
        "study": "toy",
        "check": {"measure": "speedup", "of": "variant == 'new'", "over": "variant == 'old'"},
    }
    return Claim(**(values | keys))


def frame_with_ratio(make_record, *gains):
    rows = []
    for number, gain in enumerate(gains):
        rows.append(make_record(us=gain, case=str(number), variant="old"))
        rows.append(make_record(us=1.0, case=str(number), variant="new"))
    return frame_of(rows)


@pytest.mark.parametrize(
    ("keys", "gain", "state"),
    [
        ({}, 2.1, "reproduced"),
        ({}, 2.5, "not reproduced"),
        ({"better": "higher"}, 2.5, "beaten"),
        ({"better": "higher"}, 1.5, "not reproduced"),
        ({"better": "lower"}, 1.5, "beaten"),
        ({"tolerance": 0.3}, 2.5, "reproduced"),
        ({"relation": "above"}, 2.01, "reproduced"),
        ({"relation": "above"}, 1.99, "not reproduced"),
        ({"relation": "below"}, 1.99, "reproduced"),
        ({"relation": "at-least"}, 1.0, "not reproduced"),
        ({"relation": "at-most"}, 1.0, "reproduced"),
        ({"value": 0.0, "tolerance": 0.0}, 1.0, "not reproduced"),
    ],
)
def test_states(make_record, keys, gain, state):
    verdict = judge(claim(**keys), frame_with_ratio(make_record, gain))
    assert verdict.state == state
    assert verdict.measured == pytest.approx(gain)


def test_without_records_or_comparison_nothing_is_claimed(make_record):
    frame = frame_with_ratio(make_record, 2.0)
    open_state = "not yet measured"
    assert judge(claim(), frame[:0]).state == open_state
    assert judge(claim(check={}), frame).state == open_state
    unknown = {"measure": "value", "column": "result.nobody"}
    verdict = judge(claim(check=unknown), frame)
    assert (verdict.state, "result.nobody" in verdict.note) == (open_state, True)
    nothing = {"measure": "speedup", "of": "variant == 'x'", "over": "variant == 'old'"}
    assert judge(claim(check=nothing), frame).state == open_state


def test_measures(make_record):
    frame = frame_with_ratio(make_record, 1.0, 4.0)
    sides = {"of": "variant == 'new'", "over": "variant == 'old'"}
    assert measure_claim({"measure": "speedup", **sides}, frame) == pytest.approx(2.0)
    assert measure_claim({"measure": "speedup", "reduce": "max", **sides}, frame) == 4.0
    assert measure_claim({"measure": "gain-share", **sides}, frame) == pytest.approx(50.0)
    value = {"measure": "value", "column": "median_us", "where": "variant == 'old'"}
    assert measure_claim(value, frame) == pytest.approx(2.0)
    assert measure_claim(value | {"reduce": "min"}, frame) == 1.0
    assert measure_claim({"measure": "count", "column": "case"}, frame) == 2
    with pytest.raises(InputError, match="reduce='mean'"):
        measure_claim(value | {"reduce": "mean"}, frame)


def test_the_best_value_is_that_of_all_groups_together(make_record):
    times = {"a": {2: 3.0, 3: 2.0, 4: 2.5}, "b": {2: 2.0, 3: 2.1, 4: 9.0}, "c": {2: 0.1}}
    rows = [
        make_record(us=us, matrix=matrix, params={"stages": stages})
        for matrix, by_depth in times.items()
        for stages, us in by_depth.items()
    ]
    check = {"measure": "best", "column": "params.stages"}
    assert measure_claim(check, frame_of(rows)) == 3.0


@pytest.mark.parametrize(("times", "grows"), [((3, 2, 1), 1.0), ((3, 2, 2.5), 0.0)])
def test_growth_is_at_every_step(make_record, times, grows):
    rows = [
        make_record(us=us, case=str(n), n=n) for us, n in zip(times, (256, 512, 1024), strict=True)
    ]
    assert measure_claim({"measure": "grows", "column": "n"}, frame_of(rows)) == grows
    text = claim(value="grows", check={"measure": "grows", "column": "n"})
    expected = "reproduced" if grows else "not reproduced"
    assert judge(text, frame_of(rows)).state == expected


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"kind": "guessed"}, "kind='guessed'"),
        ({"relation": "near"}, "relation='near'"),
        ({"better": "bigger"}, "better='bigger'"),
        ({"how": "by hand"}, "`how` belongs"),
        ({"kind": "derived"}, "`how` belongs"),
        ({"check": {"measure": "guess"}}, "measure='guess'"),
        ({"check": {"measure": "speedup", "of": "a"}}, "needs 'over'"),
    ],
)
def test_what_a_claim_refuses(keys, message):
    with pytest.raises(RecordError, match=message):
        claim(**keys)


def test_a_claims_file_with_strange_or_missing_keys():
    with pytest.raises(RecordError, match="unknown key 'colour'"):
        parse_claim({"id": "x", "colour": 1})
    with pytest.raises(RecordError, match="claim x"):
        parse_claim({"id": "x"})
    with pytest.raises(InputError, match="'felt'"):
        check_kind("felt")


def test_every_claim_has_a_state():
    table = judge_all()
    assert len(table) == len(read_claims())
    states = {"reproduced", "beaten", "not reproduced", "not yet measured"}
    assert set(table["state"]) <= states
