"""Two measurements of the same thing: faster, slower, the same, or unclear.

A median is given the interval from the smallest sample to the third quartile: the smallest is
what the kernel can do, the upper half holds the disturbances.  This is a rule of thumb, no
confidence interval.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from asyncsparse_lab.records.files import newest
from asyncsparse_lab.records.record import Record

Verdict = Literal["FAST", "SLOW", "SAME", "UNCLEAR"]

CLEAR_GAP = 0.02
"""Medians closer than this are never called different."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One contender on one case, before and after.

    Attributes
    ----------
    change : float
        Median after / median before - 1; negative is faster.
    """

    before: Record
    after: Record
    change: float
    verdict: Verdict


def interval(record: Record) -> tuple[float, float]:
    """Return (smallest sample, third quartile) in microseconds."""
    low = min(record.samples_us) if record.samples_us else record.q1_us
    return float(low or 0.0), float(record.q3_us or 0.0)


def judge_pair(before: Record, after: Record) -> Comparison:
    """Compare two passed records with times.

    FAST or SLOW needs intervals that do not touch and medians at least 2 % apart; SAME needs
    each median inside the other's interval, or medians less than 2 % apart whose intervals
    touch; the rest is UNCLEAR.
    """
    assert before.median_us is not None
    assert after.median_us is not None
    change = after.median_us / before.median_us - 1.0
    (low0, high0), (low1, high1) = interval(before), interval(after)
    touching = low0 <= high1 and low1 <= high0
    near = abs(change) < CLEAR_GAP
    inside = low0 <= after.median_us <= high0 and low1 <= before.median_us <= high1
    verdict: Verdict
    if touching:
        verdict = "SAME" if near or inside else "UNCLEAR"
    else:
        verdict = "UNCLEAR" if near else "FAST" if change < 0 else "SLOW"
    return Comparison(before, after, change, verdict)


def compare(before: Iterable[Record], after: Iterable[Record]) -> list[Comparison]:
    """Compare what both sets hold a time for, by identity."""
    earlier = {record.identity(): record for record in newest(before) if record.median_us}
    return [
        judge_pair(earlier[record.identity()], record)
        for record in newest(after)
        if record.median_us and record.identity() in earlier
    ]
