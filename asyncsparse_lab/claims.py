"""What the documents say, and how our records stand to it.

``data/claims.toml`` holds every value of the two documents, and declares how the measured
counterpart comes out of the records:

==============  ==================================================================================
``measure``     measured value
==============  ==================================================================================
``speedup``     time of ``over`` / time of ``of`` within comparable rows
                (:func:`asyncsparse_lab.records.frame.ratios`), geometric mean
``gain-share``  100 (1 - 1 / speedup), in per cent
``value``       geometric mean of ``column``, times ``scale`` plus ``offset`` where given
``count``       how many different values ``column`` has
``best``        the value of ``column`` whose times have the lowest geometric mean, over groups of
                rows that differ in ``column`` alone
``grows``       1 if the geometric mean of ``value`` (default: 1 / time) grows with ``column`` at
                every step, else 0
==============  ==================================================================================

A study whose module has ``judged(frame)`` gives its records further columns to judge by, such as
what recorded peers took on the same matrices.

``where``, ``of`` and ``over`` are conditions for :meth:`pandas.DataFrame.query`; ``reduce``
replaces the geometric mean by ``min``, ``max`` or ``median``.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from asyncsparse_lab.errors import InputError, RecordError
from asyncsparse_lab.records.frame import COMPARABLE, geometric_mean, load_records, ratios, select
from asyncsparse_lab.resources import resource_path

if TYPE_CHECKING:
    import pandas as pd

    from asyncsparse_lab.records.files import Source

KINDS: Final = ("stated", "derived", "elsewhere")
RELATIONS: Final = ("equal", "above", "below", "at-least", "at-most")
STATES: Final = ("reproduced", "beaten", "not reproduced", "not yet measured")
MEASURES: Final = ("speedup", "gain-share", "value", "count", "best", "grows")
_NEEDED: Final = {
    "speedup": {"of", "over"},
    "gain-share": {"of", "over"},
    "value": {"column"},
    "count": {"column"},
    "best": {"column"},
    "grows": {"column"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One value of a document; the keys are explained at the head of ``data/claims.toml``.

    Raises
    ------
    RecordError
        A key has a value outside its list, or a derived value does not say how.
    """

    id: str
    document: str
    section: str
    statement: str
    value: float | str | list[float]
    unit: str
    kind: str
    study: str
    also: tuple[str, ...] = ()
    how: str = ""
    relation: str = "equal"
    tolerance: float = 0.1
    better: str | None = None
    check: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        allowed: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
            ("kind", self.kind, KINDS),
            ("relation", self.relation, RELATIONS),
            ("better", self.better, ("higher", "lower", None)),
        )
        for name, value, choices in allowed:
            if value not in choices:
                raise RecordError(f"claim {self.id}: {name}={value!r} is not one of {choices}")
        if (self.kind == "derived") != bool(self.how):
            raise RecordError(f"claim {self.id}: `how` belongs to a derived value, and only there")
        if self.check:
            measure = self.check.get("measure", "")
            if measure not in MEASURES:
                raise RecordError(f"claim {self.id}: measure={measure!r} is not one of {MEASURES}")
            missing = _NEEDED[measure] - self.check.keys()
            if missing:
                raise RecordError(f"claim {self.id}: measure {measure!r} needs {min(missing)!r}")

    @property
    def number(self) -> float:
        """The value as a number, NaN where the document gives a text or a list."""
        return float(self.value) if isinstance(self.value, int | float) else math.nan


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim's state, the measured value (NaN where there is none), and a remark."""

    state: str
    measured: float
    note: str = ""


def check_kind(kind: str) -> None:
    """Refuse what is not a kind of claim.

    Raises
    ------
    InputError
        It is none of stated, derived, elsewhere.
    """
    if kind not in KINDS:
        raise InputError(f"kind {kind!r} is not one of {', '.join(KINDS)}")


@cache
def read_claims() -> tuple[Claim, ...]:
    """Return all claims, in the file's order.

    Raises
    ------
    RecordError
        The file is not TOML, or a claim does not follow the schema.
    """
    with resource_path("claims").open("rb") as stream:
        try:
            entries = tomllib.load(stream)["claim"]
        except (tomllib.TOMLDecodeError, KeyError) as error:
            raise RecordError(f"claims.toml cannot be read: {error}") from None
    return tuple(parse_claim(entry) for entry in entries)


def parse_claim(entry: Mapping[str, Any]) -> Claim:
    """Return the claim of one table of the file.

    Raises
    ------
    RecordError
        A key is unknown or missing, or has a value outside its list.
    """
    name = entry.get("id", "without id")
    unknown = entry.keys() - {item.name for item in fields(Claim)}
    if unknown:
        raise RecordError(f"claim {name}: unknown key {min(unknown)!r}")
    try:
        return Claim(**{**entry, "also": tuple(entry.get("also", ()))})
    except TypeError as error:
        raise RecordError(f"claim {name}: {error}") from None


def claims_frame(study: str | None = None) -> pd.DataFrame:
    """Return the claims that a study draws, or all: a row each, indexed by id.

    Columns are ``document``, ``section``, ``statement``, ``relation``, ``value`` (as written),
    ``number`` (NaN where it is none), ``unit``, ``kind``, ``study`` and ``how``.
    """
    import pandas as pd

    names = ["document", "section", "statement", "relation", "value", "number", "unit", "kind"]
    names += ["study", "how"]
    chosen = [c for c in read_claims() if study is None or study == c.study or study in c.also]
    rows = [[getattr(claim, name) for name in names] for claim in chosen]
    return pd.DataFrame(rows, columns=names, index=pd.Index([c.id for c in chosen], name="id"))


def judge(claim: Claim, frame: pd.DataFrame) -> Verdict:
    """Return how records stand to a claim.

    Parameters
    ----------
    frame : DataFrame
        The records of the claim's study, from :func:`asyncsparse_lab.load_records`.
    """
    open_state = STATES[3]
    if frame.empty:
        return Verdict(open_state, math.nan, "no records")
    if not claim.check:
        return Verdict(open_state, math.nan, "no comparison declared")
    try:
        measured = measure_claim(claim.check, _extended(claim, frame))
    except InputError as error:  # such as a column that no record has yet
        return Verdict(open_state, math.nan, str(error))
    if math.isnan(measured):
        return Verdict(open_state, measured, "no record fulfils the conditions")
    return Verdict(_state(claim, measured), measured)


def _extended(claim: Claim, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the records with the columns that the claim's study adds, where it reads one."""
    from asyncsparse_lab.studies import STUDIES, load_study

    reads = f"{claim.check.get('column', '')} {claim.check.get('value', '')}"
    if claim.study not in STUDIES or not any(name in reads for name in ("peer.", "article.")):
        return frame
    extended: pd.DataFrame = load_study(claim.study).judged(frame)
    return extended


def _state(claim: Claim, measured: float) -> str:
    reproduced, beaten, missed, _ = STATES
    if math.isnan(claim.number):
        return reproduced if measured == 1.0 else missed
    value = claim.number
    held = {
        "equal": abs(measured - value) <= claim.tolerance * (abs(value) or 1.0),
        "above": measured > value,
        "below": measured < value,
        "at-least": measured >= value,
        "at-most": measured <= value,
    }[claim.relation]
    if held:
        return reproduced
    if claim.relation == "equal" and claim.better is not None:
        gain = measured > value if claim.better == "higher" else measured < value
        return beaten if gain else missed
    return missed


def measure_claim(check: Mapping[str, Any], frame: pd.DataFrame) -> float:
    """Return the measured counterpart of a claim, NaN where no record fulfils the conditions.

    Raises
    ------
    InputError
        A condition cannot be read, or names a column that no record has.
    """
    rows = select(frame[frame["status"] == "passed"], check.get("where", ""))
    measure = check["measure"]
    if measure in ("speedup", "gain-share"):
        ratio = _reduce(ratios(rows, check["of"], check["over"])["ratio"], check)
        return ratio if measure == "speedup" else 100.0 * (1.0 - 1.0 / ratio)
    column = check["column"]
    if column not in rows:
        raise InputError(f"no record has {column!r}")
    if measure == "count":
        return float(rows[column].nunique()) if len(rows) else math.nan
    if measure == "value":
        value = _reduce(rows[column].dropna(), check)
        return float(check.get("scale", 1)) * value + float(check.get("offset", 0))
    means = _means_by(rows, column, check.get("value"))
    if means.empty:
        return math.nan
    if measure == "best":
        return float(means.index.to_numpy()[means.argmax()])
    return float(len(means) > 1 and bool(means.sort_index().diff().dropna().gt(0).all()))


def _reduce(values: pd.Series[float], check: Mapping[str, Any]) -> float:
    how = check.get("reduce", "geomean")
    if how == "geomean":
        return geometric_mean(values)
    if how not in ("min", "max", "median"):
        raise InputError(f"reduce={how!r} is not one of geomean, min, max, median")
    return float(values.agg(how)) if len(values) else math.nan


def _means_by(rows: pd.DataFrame, column: str, value: str | None) -> pd.Series[float]:
    """Return the geometric mean of a rate by ``column``, over groups that have all its values."""
    rate = 1.0 / rows["median_us"] if value is None else rows[value]
    # the case may be what sets the column (a case for each n), so it cannot be held fixed
    held = ["variant", *(name for name in COMPARABLE if name not in (column, "case", "run"))]
    table = rows.assign(_rate=rate.astype("float64")).pivot_table(
        index=[name for name in held if rows[name].notna().all()],
        columns=column,
        values="_rate",
        aggfunc="max",
    )
    return table.dropna().agg(geometric_mean)


def judge_all(source: Source = "recorded") -> pd.DataFrame:
    """Return the claims of :func:`claims_frame` with ``state``, ``measured`` and ``note``."""
    from asyncsparse_lab.studies import STUDIES

    verdicts = []
    frames: dict[str, pd.DataFrame] = {}
    for claim in read_claims():
        if claim.study not in STUDIES:
            verdicts.append(Verdict(STATES[3], math.nan, "the study is not there yet"))
            continue
        if claim.study not in frames:
            frames[claim.study] = load_records(claim.study, source)
        verdicts.append(judge(claim, frames[claim.study]))
    return claims_frame().assign(
        state=[verdict.state for verdict in verdicts],
        measured=[verdict.measured for verdict in verdicts],
        note=[verdict.note for verdict in verdicts],
    )
