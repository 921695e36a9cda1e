"""Records as a tidy frame, and ratios taken only where they mean something."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.records.files import (
    Source,
    newest,
    read_runs,
    read_study,
    record_folders,
)
from asyncsparse_lab.records.record import Record

if TYPE_CHECKING:
    import pandas as pd

COMPARABLE: Final = (
    "gpu", "run", "case", "matrix", "n", "dtype_out", "layout", "l2",
)  # fmt: skip
"""Columns in which two rows must agree for a ratio between them to mean anything."""


def load_records(
    study: str, source: Source = "recorded", *, judge_kernels: bool = False
) -> pd.DataFrame:
    """Return a study's records, a row each; of each case the newest run, whole.

    Parameters
    ----------
    study : str
        Such as ``"bcsr-ablation"``.
    source : {"recorded", "local"}
        The committed records, or one's own below ``data/local``.
    judge_kernels : bool
        Compile the kernels behind the records (cached, no GPU needed) and add ``stale``.

    Returns
    -------
    DataFrame
        The record's keys, a column ``params.X`` or ``result.X`` for each key X that some record
        has there, and

        ``gpu``, ``gpu_name``, ``utc``
            folder, name of the GPU (for CPU studies of the processor), start of the run;
        ``density``
            nnz / (m k);
        ``stale``
            whether the kernel has changed since, where asked for.

        No records give a frame without rows.

    Raises
    ------
    InputError
        There is no such study or source.
    RecordError
        A file does not follow the schema.
    CompileError
        A kernel that is to be judged does not compile.
    """
    from asyncsparse_lab.records.stale import stale_flags
    from asyncsparse_lab.studies import find_study

    find_study(study)
    rows: list[dict[str, Any]] = []
    records: list[Record] = []
    for folder in record_folders(source):
        held = newest(read_study(folder, study))
        runs = read_runs(folder)
        rows += [_row(record, runs.get(record.run or "", {}), folder.name) for record in held]
        records += held
    frame = _frame(rows)
    return frame.assign(stale=stale_flags(study, records)) if judge_kernels else frame


def frame_of(records: list[Record], *, gpu: str = "", gpu_name: str = "") -> pd.DataFrame:
    """Return records that are not in a file yet as the frame that :func:`load_records` gives."""
    return _frame([_row(record, {}, gpu, gpu_name) for record in records])


def _row(
    record: Record, run: dict[str, Any], gpu: str, gpu_name: str | None = None
) -> dict[str, Any]:
    row = {item.name: getattr(record, item.name) for item in fields(record)}
    for key in ("params", "result"):
        row |= {f"{key}.{name}": value for name, value in row.pop(key).items()}
    row["gpu"] = gpu
    row["gpu_name"] = gpu_name or (run.get("gpu") or {}).get("name") or run.get("processor")
    row["utc"] = run.get("utc")
    return row


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    names = [item.name for item in fields(Record) if item.name not in ("params", "result")]
    extra = sorted({name for row in rows for name in row} - set(names))
    frame = pd.DataFrame(rows, columns=[*names, *extra])
    for name in ("gpu", "gpu_name", "utc"):
        if name not in frame:
            frame[name] = pd.Series(dtype="str")
    size = frame["m"].astype("float64") * frame["k"].astype("float64")
    frame["density"] = frame["nnz"].astype("float64") / size
    return frame


def ratios(frame: pd.DataFrame, of: str, over: str, value: str = "median_us") -> pd.DataFrame:
    """Return how many times faster ``of`` is than ``over``, a row for each comparable pair.

    r = min(value of ``over``) / min(value of ``of``), both taken within rows of one case that
    agree in :data:`COMPARABLE`; groups in which either has no passed row are left out.

    Parameters
    ----------
    of, over : str
        Conditions in the language of :meth:`pandas.DataFrame.query`, such as
        ``"variant == 'bcsr-opt3'"``.
    value : str
        Column whose smaller value is better.

    Returns
    -------
    DataFrame
        Indexed by :data:`COMPARABLE`, with columns ``of``, ``over`` (the values) and ``ratio``.
    """
    import pandas as pd

    passed = frame[frame["status"] == "passed"]
    best = {
        name: select(passed, condition).groupby(list(COMPARABLE), dropna=False)[value].min()
        for name, condition in (("of", of), ("over", over))
    }
    pairs = pd.DataFrame(best).dropna()
    return pairs.assign(ratio=pairs["over"] / pairs["of"])


def select(frame: pd.DataFrame, condition: str) -> pd.DataFrame:
    """Return the rows that fulfil a condition; an empty condition keeps all.

    Raises
    ------
    InputError
        The condition cannot be read, or names a column that is not there.
    """
    import pandas as pd

    if not condition:
        return frame
    try:
        return frame.query(condition)
    except (ValueError, SyntaxError, pd.errors.UndefinedVariableError) as error:
        raise InputError(f"condition {condition!r}: {error}") from None


def geometric_mean(values: pd.Series[float]) -> float:
    """Return exp(mean(log values)); NaN for no values."""
    import numpy as np

    return float(np.exp(np.log(values.astype("float64")).mean())) if len(values) else float("nan")
