"""``asyncsparse records``: merge, status, compare."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.records import Record, newest, read_records, read_study, record_folders
from asyncsparse_lab.records import merge as merge_folders
from asyncsparse_lab.records.compare import compare as compare_records
from asyncsparse_lab.records.files import RUNS
from asyncsparse_lab.records.stale import compiler_here, stale_flags
from asyncsparse_lab.resources import checkout_root, resource_path
from asyncsparse_lab.studies import STUDIES, find_study, load_study

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Merge, compare and check measurements."
)

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


@app.command()
def merge(
    source: Annotated[Path, typer.Argument(help="A folder that 'measure' wrote.")],
    into: Annotated[
        Path | None, typer.Option(help="[default: data/recorded/<name of SOURCE>]")
    ] = None,
) -> None:
    """Bring records home: the newest run of a case counts, older lines are removed."""
    if into is None and checkout_root() is None:
        raise InputError("this is no checkout, whose records could be added to: name --into FOLDER")
    target = into if into is not None else resource_path("recorded") / source.resolve().name
    for study, (taken, total) in merge_folders(source, target).items():
        print(f"{study}: {taken} cases taken, {total} cases in {target.name}")


@app.command()
def status(
    studies: Annotated[list[str] | None, typer.Argument(help="[default: all]")] = None,
    records: Annotated[str, typer.Option(help="recorded or local")] = "recorded",
    as_json: Json = False,
) -> None:
    """Say what is missing or was measured with an earlier kernel, and the minutes it takes."""
    rows = [row for name in studies or STUDIES for row in _status(name, records)]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    if compiler_here() is None:
        print("no compiler here: whether kernels have changed was not checked")
    for row in rows:
        print(
            f"{row['study']} ({row['folder']}): {row['held']} of {row['cases']} cases, "
            f"{len(row['missing'])} missing, {len(row['stale'])} stale; "
            f"{row['minutes']:.1f} minutes to measure{_told(row['not_passed'])}"
        )
        for case in row["missing"]:
            print(f"  missing  {case}")
        for case in row["stale"]:
            print(f"  stale    {case}")


def _status(name: str, source: Any) -> Iterator[dict[str, Any]]:
    study = find_study(name)
    cases = {case.name: case for case in load_study(name).cases()}
    on_cpu = study.device == "cpu"
    folders: list[Path | None] = []
    folders += [path for path in record_folders(source) if (path.name == "cpu") == on_cpu]
    for folder in folders or [None]:
        held = [] if folder is None else newest(read_study(folder, name))
        flags = stale_flags(name, held)
        stale = {record.case for record, flag in zip(held, flags, strict=True) if flag}
        missing = cases.keys() - {record.case for record in held}
        again = [case for case in cases if case in missing | stale]
        yield {
            "study": name,
            "folder": study.device if folder is None else folder.name,
            "cases": len(cases),
            "held": len({record.case for record in held} & cases.keys()),
            "not_passed": _not_passed(held),
            "missing": [case for case in cases if case in missing],
            "stale": [case for case in cases if case in stale],
            "minutes": sum(cases[case].seconds for case in again) / 60,
        }


def _not_passed(records: Sequence[Record]) -> dict[str, int]:
    """Count the records that did not pass, by whose they are and what they are, most first."""
    counted = Counter(
        f"{record.backend} {record.status}" for record in records if record.status != "passed"
    )
    return dict(counted.most_common())


def _told(not_passed: dict[str, int]) -> str:
    said = ", ".join(f"{count} of {who}" for who, count in not_passed.items())
    return f"; not passed: {said}" if said else ""


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(help="A .jsonl file, or a folder of them.")],
    after: Annotated[Path, typer.Argument(help="The same, measured later.")],
    as_json: Json = False,
) -> None:
    """Say of each measurement in both whether it got FAST, SLOW, stayed SAME, or is UNCLEAR."""
    found = compare_records(_read_any(before), _read_any(after))
    if as_json:
        keys = ("study", "case", "backend", "variant", "l2")
        rows = [
            {key: getattr(item.after, key) for key in keys}
            | {
                "before_us": item.before.median_us,
                "after_us": item.after.median_us,
                "change": item.change,
                "verdict": item.verdict,
            }
            for item in found
        ]
        print(json.dumps(rows, indent=1))
        return
    for item in sorted(found, key=lambda item: item.change):
        print(
            f"{item.verdict:8}{item.change:+7.1%}  {item.before.median_us:10.2f} -> "
            f"{item.after.median_us:10.2f} us  {item.after.study} {item.after.case} "
            f"{item.after.backend} {item.after.variant} {item.after.l2 or ''}".rstrip()
        )
    counts = {name: sum(item.verdict == name for item in found) for name in _VERDICTS}
    print(", ".join(f"{count} {name}" for name, count in counts.items()))


_VERDICTS = ("FAST", "SLOW", "SAME", "UNCLEAR")


def _read_any(path: Path) -> list[Record]:
    if path.is_file():
        return read_records(path)
    files = sorted(item for item in path.glob("*.jsonl") if item.name != RUNS)
    if not files:
        raise InputError(f"no records (*.jsonl) in {path}: name a file or a folder of them")
    return [record for item in files for record in read_records(item)]
