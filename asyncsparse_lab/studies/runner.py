"""The measuring loop: which cases are left, what they will take, resume, budget, provenance."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from inspect import signature
from pathlib import Path
from time import monotonic
from types import ModuleType

from asyncsparse_lab.errors import DownloadError, InputError, MemoryLimitError, RecordError
from asyncsparse_lab.records import (
    Record,
    append_case,
    append_run,
    newest,
    read_study,
    study_path,
)
from asyncsparse_lab.records.stale import stale_flags
from asyncsparse_lab.studies import provenance
from asyncsparse_lab.studies.base import Case, Study

MAX_FAILURES_IN_A_ROW = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """What a call would measure.

    Attributes
    ----------
    cases : tuple of Case
        Left to measure, in the study's order.
    done : int
        Cases that the folder already holds.
    """

    cases: tuple[Case, ...]
    done: int

    @property
    def minutes(self) -> float:
        """Predicted minutes of the cases left."""
        return sum(case.seconds for case in self.cases) / 60


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call did: cases measured, cases that failed, cases left when the budget ended."""

    measured: int
    failed: int
    left: int


def parse_duration(text: str) -> float:
    """Return seconds from ``540s``, ``9m``, ``1.5h`` or a plain number of seconds.

    Raises
    ------
    InputError
        The text is none of these.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if match is None:
        raise InputError(f"budget {text!r} is not a duration: write 540s, 9m or 1.5h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def parse_shard(text: str) -> tuple[int, int]:
    """Return (i, k) of ``i/k``, the i-th of k shares.

    Raises
    ------
    InputError
        The text is not that, or i is not one of 1 to k.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise InputError(f"shard {text!r} is none of k shares: write 1/4, 2/4 ...")
    return int(match[1]), int(match[2])


def cases_of(study: Study, module: ModuleType, suite: str | None = None) -> list[Case]:
    """Return a study's cases; of a suite that is named, where the study takes one.

    Raises
    ------
    InputError
        The study is of fixed matrices, or there is no such suite.
    """
    if suite is None:
        return list(module.cases())
    if "suite" not in signature(module.cases).parameters:
        raise InputError(f"--suite {suite}: the matrices of study {study.name} are fixed")
    return list(module.cases(suite=suite))


def plan_study(
    study: Study,
    module: ModuleType,
    folder: Path,
    *,
    suite: str | None = None,
    only: str | None = None,
    shard: tuple[int, int] = (1, 1),
    again: bool = False,
) -> Plan:
    """Return the cases left: those that match ``only`` and that ``folder`` does not hold.

    A case with a stale record (its kernel has changed since) is not held.

    Parameters
    ----------
    suite : str or None
        The matrices of this suite, for a study that takes one.
    shard : (int, int)
        (i, k): of the matrices of the cases that match, held or not, every k-th from the i-th on,
        so that k machines share a study without knowing of each other.
    only : str or None
        A shell pattern for case names; without a wildcard, any part of the name.
    again : bool
        Measure also what is there.

    Raises
    ------
    InputError
        Two cases have one name, or no case matches ``only``.
    CompileError
        A kernel behind a record does not compile.
    """
    cases = cases_of(study, module, suite)
    names = [case.name for case in cases]
    if len(set(names)) != len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise InputError(f"study {study.name}: two cases are called {double!r}")
    if only is not None:
        pattern = only if any(sign in only for sign in "*?[") else f"*{only}*"
        cases = [case for case in cases if fnmatchcase(case.name, pattern)]
        if not cases:
            raise InputError(f"--only {only!r} matches no case of {study.name}: try --dry-run")
    cases = _share(cases, *shard)
    records = newest(read_study(folder, study.name))
    flags = stale_flags(study.name, records)
    stale = {record.case for record, flag in zip(records, flags, strict=True) if flag}
    held = {record.case for record in records} - stale
    left = tuple(case for case in cases if again or case.name not in held)
    return Plan(cases=left, done=len(cases) - len(left))


def _share(cases: Sequence[Case], number: int, shares: int) -> list[Case]:
    """Return the cases of every ``shares``-th matrix: those of one matrix stay together."""
    keys = [case.matrix or case.name for case in cases]
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    return [
        case for key, case in zip(keys, cases, strict=True) if places[key] % shares == number - 1
    ]


def run_study(
    study: Study,
    module: ModuleType,
    folder: Path,
    plan: Plan,
    *,
    budget: float | None = None,
    seed: int = 0,
    commit: str | None = None,
    tell: Callable[[str], None] = print,
) -> Outcome:
    """Measure the cases of a plan, each appended whole to its study's file in the folder.

    A case that raises is told and skipped; after two in a row the run ends, since a GPU that has
    faulted answers nothing any more.  Matrices that cannot be had or do not fit do not count.

    Parameters
    ----------
    budget : float or None
        Seconds; a case that is predicted to end later is not begun.
    tell : callable
        Takes a line for the person who waits.

    Raises
    ------
    DeviceError
        The study needs a GPU and there is none.
    """
    if not plan.cases:
        return Outcome(0, 0, 0)
    on_gpu = study.device == "gpu"
    about = provenance.describe_run(
        run := provenance.new_run_name(), study=study.name, seed=seed, commit=commit
    )
    if on_gpu:
        about["gpu"] = provenance.gpu_facts()
        about["before"] = provenance.gpu_state()
    append_run(folder, about)
    measured = failed = in_a_row = 0
    healthy = False  # a GPU that has faulted cannot be asked for its clocks
    try:
        for case in _within(plan.cases, budget):
            started = monotonic()
            try:
                records = _measure_case(study, module, case, run)
            except Exception as error:
                failed += 1
                in_a_row += _may_be_the_gpu(error)
                tell(f"{case.name}: failed: {type(error).__name__}: {error}")
                if in_a_row == MAX_FAILURES_IN_A_ROW:
                    tell("two cases failed in a row: stopping")
                    break
                continue
            append_case(study_path(folder, study.name, case.part), records)
            measured, in_a_row = measured + 1, 0
            tell(_line(case, records, monotonic() - started, measured + failed, len(plan.cases)))
        healthy = in_a_row == 0
    finally:
        about["ended"] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        if on_gpu and healthy:
            about["after"] = provenance.gpu_state()
        append_run(folder, about)
    return Outcome(measured, failed, len(plan.cases) - measured - failed)


def _may_be_the_gpu(error: Exception) -> bool:
    """Return False for a matrix that cannot be had or does not fit: the next may."""
    return not isinstance(error, DownloadError | InputError | MemoryLimitError)


def _within(cases: Sequence[Case], budget: float | None) -> Iterator[Case]:
    end = float("inf") if budget is None else monotonic() + budget
    for case in cases:
        if monotonic() + case.seconds > end:
            return
        yield case


def _measure_case(study: Study, module: ModuleType, case: Case, run: str) -> list[Record]:
    records = [replace(record, run=run) for record in module.measure(case)]
    if not records:
        raise RecordError(f"case {case.name} gave no record")
    for record in records:
        if (record.study, record.case) != (study.name, case.name):
            raise RecordError(
                f"case {case.name} of {study.name} gave a record of {record.study}/{record.case}"
            )
    return records


def _line(case: Case, records: Sequence[Record], seconds: float, number: int, total: int) -> str:
    bad = [record for record in records if record.status != "passed"]
    note = ", ".join(f"{record.backend} {record.variant} {record.status}" for record in bad)
    return f"[{number}/{total}] {case.name}: {len(records)} records, {seconds:.1f} s" + (
        f" ({note})" if note else ""
    )
