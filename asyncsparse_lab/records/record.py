"""The record: one measurement of one contender on one case, as one JSON line.

``docs/architecture.md`` and ``data/README.md`` describe the keys.  A failure is a record too;
a time is there only when the result was right.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from asyncsparse_lab.errors import RecordError

SCHEMA = 1
MAX_SAMPLES = 32

CHOICES: Mapping[str, frozenset[str | None]] = {
    "op": frozenset({"spmm", "ffn", "lsmr", "prefill", "convert", "format"}),
    "role": frozenset({"paper", "ours", "planner", "library", "probe"}),
    "backend": frozenset({"asyncsparse", "cublas", "cusparse", "cupy", "torch", "scipy"}),
    "l2": frozenset({"cold", "warm", None}),
    "clock": frozenset({"events", "wall", None}),
    "status": frozenset({"passed", "wrong", "oom", "unsupported", "error"}),
}

IDENTITY = (
    "study", "case", "op", "role", "backend", "variant", "matrix",
    "m", "k", "n", "dtype_in", "dtype_out", "layout", "l2", "params",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of ``data/recorded/<gpu>/<study>.jsonl``.

    A is m x k with ``nnz`` non-zeros, B is k x n; for ``op="lsmr"`` n counts right-hand sides.
    Times are in microseconds; ``samples_us`` holds at most 32, in time order, rounded to 10 ns.
    ``params`` is what was chosen, ``result`` what came out; both hold JSON values (NumPy scalars
    are converted, a float that is not finite becomes null).

    Raises
    ------
    RecordError
        A key has a value outside its list, a time stands beside a status other than "passed",
        a failure has no reason, or a passed record exceeds its error bound.
    """

    schema: int = SCHEMA
    run: str | None = None
    study: str
    case: str
    op: str
    role: str
    backend: str
    variant: str
    matrix: str | None = None
    m: int | None = None
    k: int | None = None
    n: int | None = None
    nnz: int | None = None
    dtype_in: str | None = None
    dtype_out: str | None = None
    layout: str | None = None
    l2: str | None = None
    clock: str | None = None
    status: str
    reason: str | None = None
    median_us: float | None = None
    q1_us: float | None = None
    q3_us: float | None = None
    sample_count: int | None = None
    samples_us: tuple[float, ...] | None = None
    rel_err: float | None = None
    err_bound: float | None = None
    preprocess_us: float | None = None
    kernel_hash: str | None = None
    host_hash: str | None = None
    compiler: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for item in fields(self):
            object.__setattr__(self, item.name, _plain(getattr(self, item.name)))
        if self.samples_us is not None:
            samples = tuple(round(float(sample), 2) for sample in self.samples_us)
            object.__setattr__(self, "samples_us", samples)
        self._check()

    def _check(self) -> None:
        if self.schema != SCHEMA:
            raise self._error(f"schema {self.schema} is not {SCHEMA}: update the package")
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                listed = ", ".join(sorted(str(choice) for choice in allowed))
                raise self._error(f"{name}={value!r} is not one of {listed}")
        times = (self.median_us, self.q1_us, self.q3_us, self.sample_count, self.samples_us)
        if self.status != "passed":
            if any(time is not None for time in times):
                raise self._error(f"a time beside status {self.status!r}: leave the times out")
            if not self.reason:
                raise self._error(f"status {self.status!r} without a reason: say why")
            return
        if self.median_us is not None:
            if None in times[:4]:
                raise self._error("median_us without q1_us, q3_us and sample_count")
            low, high = self.q1_us or 0.0, self.q3_us or 0.0
            if not 0.0 < low <= self.median_us <= high:
                raise self._error(f"quartiles {low}, {self.median_us}, {high} us are not ordered")
        if len(self.samples_us or ()) > MAX_SAMPLES:
            raise self._error(f"{len(self.samples_us or ())} samples: keep {MAX_SAMPLES} at most")
        if self.err_bound is not None and (self.rel_err is None or self.rel_err > self.err_bound):
            raise self._error(f"passed with rel_err {self.rel_err} above {self.err_bound}")

    def _error(self, text: str) -> RecordError:
        return RecordError(f"record {self.study}/{self.case}/{self.variant}: {text}")

    def identity(self) -> tuple[Any, ...]:
        """Return what makes two lines measurements of the same thing."""
        return tuple(
            json.dumps(value, sort_keys=True) if name == "params" else value
            for name, value in ((name, getattr(self, name)) for name in IDENTITY)
        )

    def to_json(self) -> str:
        """Return the record as one line without its newline, keys in the schema's order."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return json.dumps(values, allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> Record:
        """Read one line.

        Raises
        ------
        RecordError
            The line is not a JSON object, or lacks or adds a key.
        """
        try:
            values = json.loads(line)
        except ValueError as error:
            raise RecordError(f"not a JSON line ({error}): {line[:60]!r}") from None
        if not isinstance(values, dict):
            raise RecordError(f"not a JSON object: {line[:60]!r}")
        unknown = values.keys() - {item.name for item in fields(cls)}
        if unknown:
            raise RecordError(f"unknown key {min(unknown)!r} in a record: update the package")
        try:
            return cls(**values)
        except TypeError as error:
            raise RecordError(f"a record lacks a key ({error})") from None


def _plain(value: Any) -> Any:
    """Turn NumPy scalars and arrays, tuples and mappings into what JSON holds."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    if hasattr(value, "tolist"):  # NumPy
        return _plain(value.tolist())
    raise RecordError(f"a record cannot hold {type(value).__name__} {value!r}")
