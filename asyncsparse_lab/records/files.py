"""Files of records: appended a case at a time, read whole cases only, merged by newest run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from asyncsparse_lab.errors import InputError, RecordError
from asyncsparse_lab.records.record import Record
from asyncsparse_lab.resources import checkout_root, resource_path

Source = Literal["recorded", "local"]
RUNS = "runs.jsonl"


def local_folder() -> Path:
    """Return where one's own measurements go: ``data/local`` of the checkout, else of the cwd."""
    return (checkout_root() or Path.cwd()) / "data" / "local"


def record_folders(source: Source = "recorded") -> list[Path]:
    """Return the folders of one source, a GPU each, sorted by name; none is an empty list.

    Raises
    ------
    InputError
        The source is neither "recorded" nor "local".
    """
    if source not in ("recorded", "local"):
        raise InputError(f"records={source!r}: choose 'recorded' or 'local'")
    root = resource_path("recorded") if source == "recorded" else local_folder()
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def study_path(folder: Path, study: str, part: str = "") -> Path:
    """Return the file of a study's records, or of a part of it."""
    return folder / (f"{study}.{part}.jsonl" if part else f"{study}.jsonl")


def study_paths(folder: Path, study: str) -> list[Path]:
    """Return the files of a study that are there, whole or in parts, sorted by name."""
    return sorted({*folder.glob(f"{study}.jsonl"), *folder.glob(f"{study}.*.jsonl")})


def read_study(folder: Path, study: str) -> list[Record]:
    """Read all records of a study in a folder; none if there is no file.

    Raises
    ------
    RecordError
        A complete line is not a record; names the file and the line.
    """
    return [record for path in study_paths(folder, study) for record in read_records(path)]


def _whole_lines(path: Path) -> tuple[list[str], bool]:
    """Return the complete lines, and whether the last write was cut off."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = text.split("\n")
    return [line for line in lines[:-1] if line], bool(lines[-1])


def read_records(path: Path) -> list[Record]:
    """Read a file of records; a missing file holds none.

    A case is written in one piece, so when the last line was cut off, the case before the cut
    may be incomplete, and is left out as well.

    Raises
    ------
    RecordError
        A complete line is not a record; names the file and the line.
    """
    lines, cut = _whole_lines(path)
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(Record.from_json(line))
        except RecordError as error:
            raise RecordError(f"{path.name}:{number}: {error}") from None
    if cut and records:
        last = (records[-1].run, records[-1].case)
        while records and (records[-1].run, records[-1].case) == last:
            records.pop()
    return records


def append_case(path: Path, records: Sequence[Record]) -> None:
    """Append one case's records in a single write, flushed to the disk.

    Raises
    ------
    RecordError
        There are none, or they belong to several cases.
    """
    if len({(record.study, record.case, record.run) for record in records}) != 1:
        raise RecordError("append_case takes the records of exactly one case of one run")
    if _whole_lines(path)[1]:
        write_records(path, read_records(path))
    _append(path, "".join(record.to_json() + "\n" for record in records))


def append_run(folder: Path, provenance: Mapping[str, Any]) -> None:
    """Append a run's provenance to ``runs.jsonl``; a later line of the same run replaces it."""
    _append(folder / RUNS, json.dumps(provenance, separators=(",", ":")) + "\n")


def _append(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode()
    with path.open("ab", buffering=0) as stream:
        start = stream.tell()
        written = stream.write(data)
        if written != len(data):
            stream.truncate(start)
            raise OSError(f"{path.name}: wrote {written} of {len(data)} bytes; is the disk full?")
        os.fsync(stream.fileno())


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Write a file of records anew, through a temporary name."""
    _replace(path, "".join(record.to_json() + "\n" for record in records))


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def read_runs(folder: Path) -> dict[str, dict[str, Any]]:
    """Return provenance by run name, the last line of each run.

    Raises
    ------
    RecordError
        A complete line of ``runs.jsonl`` is not a JSON object with a ``run``.
    """
    runs = {}
    for number, line in enumerate(_whole_lines(folder / RUNS)[0], start=1):
        try:
            provenance = json.loads(line)
            runs[provenance["run"]] = provenance
        except (ValueError, TypeError, KeyError):
            raise RecordError(f"{RUNS}:{number}: not a JSON object with a run") from None
    return runs


def newest(records: Iterable[Record]) -> list[Record]:
    """Keep, of each case, the lines of its newest run; of equal identities, the last line.

    Run names start with their time in UTC, so their order is the order of time.  A case is
    measured whole, so an older run of it has nothing left to say, and rows of one case always
    come from one run.
    """
    records = list(records)
    latest: dict[tuple[str, str], str] = {}
    for record in records:
        key = (record.study, record.case)
        latest[key] = max(latest.get(key, ""), record.run or "")
    kept = {
        record.identity(): record
        for record in records
        if (record.run or "") == latest[record.study, record.case]
    }
    return list(kept.values())


def merge(source: Path, target: Path) -> dict[str, tuple[int, int]]:
    """Merge the folder ``source`` into ``target``: the newest run of a case counts.

    Older lines are removed, runs that no record names any more with them.

    Returns
    -------
    dict
        Study name -> (cases taken from ``source``, cases now in ``target``).

    Raises
    ------
    InputError
        ``source`` holds no records, or is ``target``.
    """
    if source.resolve() == target.resolve():
        raise InputError(f"{source} is what is merged into: name a folder that 'measure' wrote")
    files = sorted(path for path in source.glob("*.jsonl") if path.name != RUNS)
    if not files:
        raise InputError(f"no records (*.jsonl) in {source}: name a folder that 'measure' wrote")
    outcome = {}
    for path in files:
        ours = newest([*read_records(target / path.name), *read_records(path)])
        taken = {record.run for record in read_records(path)}
        write_records(target / path.name, sorted(ours, key=lambda record: record.case))
        cases = {(record.case, record.run) for record in ours}
        outcome[path.stem] = (sum(run in taken for _, run in cases), len(cases))
    runs = read_runs(target) | read_runs(source)
    named = {
        record.run
        for path in target.glob("*.jsonl")
        if path.name != RUNS
        for record in read_records(path)
    }
    lines = [json.dumps(runs[run], separators=(",", ":")) for run in sorted(runs) if run in named]
    _replace(target / RUNS, "".join(line + "\n" for line in lines))
    return outcome
