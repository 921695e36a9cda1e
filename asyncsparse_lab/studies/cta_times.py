"""Probes beside the kernels that they explain: sampled together, their loss split into causes.

A kernel and its probe are timed in turn, launch by launch, so that what the instruments cost is
known, and is taken off the sum of the causes.  The accounts themselves are
:mod:`asyncsparse_lab.studies.cta_account`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asyncsparse_lab.gpu.compile import compile_many
from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm.instrument import read_rows
from asyncsparse_lab.spmm.variants import Variant
from asyncsparse_lab.studies.cta_account import account, mean_account, split_mean
from asyncsparse_lab.studies.spmm_cases import Measured
from asyncsparse_lab.studies.spmm_common import kernel_build

LAUNCHES: Final = 8
"""Launches whose mean a probe's record is; each finds L2 cold."""
ROUNDS: Final = 32
"""Launches of each build in :func:`sample_builds`; the middle half by time counts."""
NAMED_ENOUGH: Final = 0.8
"""Share of a loss from which on the causes that the document names count as its causes."""

_FIRST_DELAY_NS: Final = 100_000

Split = Callable[
    [Mapping[str, Any], Mapping[str, Any], Mapping[str, Sequence[str]]], dict[str, float]
]


def measured_rows(prepared: Any, launches: int) -> list[NDArray[Any]]:
    """Launch an instrumented build some times with a cold L2, and return its rows each time."""
    import cupy

    from asyncsparse_lab.gpu.timing import FLUSH_BYTES

    flush = cupy.empty(FLUSH_BYTES, dtype=cupy.uint8)
    found = []
    for _ in range(launches):
        flush.fill(0)
        prepared.run()
        found.append(read_rows(prepared.measurements))
    return found


def probe_record(
    variant: Variant, measured: Measured, study: str, case: str, matrix: str, result: Any
) -> Record:
    """Launch an instrumented build, check what it computed, and return its record.

    Parameters
    ----------
    result : callable
        From the rows of one launch to the result's numbers.
    """
    probe = prepared_probe(variant, measured)
    rows = measured_rows(probe.prepared, LAUNCHES + 1)[1:]  # the first one loads the module
    found = mean_account([result(launch) for launch in rows])
    return _record(probe, measured, study, case, matrix, found)


@dataclass
class Probe:
    """A build that is launched but whose time is no kernel's, checked once."""

    variant: Variant
    prepared: Any
    error: float
    bound: float

    @property
    def is_right(self) -> bool:
        """Whether it computed the product."""
        return self.error <= self.bound


def prepared_probe(variant: Variant, measured: Measured) -> Probe:
    """Prepare a build, launch it once, and compare what it computed."""
    from asyncsparse_lab.spmm.product import poison
    from asyncsparse_lab.spmm.run import Ours

    product, truth = measured.product, measured.truth
    prepared = Ours(variant).prepare(product)
    poison(prepared.output)
    prepared.run()
    error = truth.relative_error(prepared.output)
    return Probe(variant, prepared, error, truth.err_bound(product.dtype_out))


def _record(
    probe: Probe, measured: Measured, study: str, case: str, matrix: str, result: dict[str, Any]
) -> Record:
    from asyncsparse_lab.spmm.measure import record_identity
    from asyncsparse_lab.spmm.run import Ours

    prepared = probe.prepared
    reason = None if probe.is_right else f"rel_err {probe.error:.3g} exceeds {probe.bound:.3g}"
    return Record(
        **record_identity(Ours(probe.variant), measured.product, study, case, matrix),
        l2="cold",
        status="passed" if probe.is_right else "wrong",
        reason=reason,
        rel_err=probe.error,
        err_bound=probe.bound,
        kernel_hash=prepared.kernel_hash,
        host_hash=prepared.host_hash,
        compiler=prepared.compiler,
        params=prepared.params,
        result=result if probe.is_right else {},
    )


def account_probes(
    variants: Sequence[Variant],
    measured: Measured,
    study: str,
    case: str,
    matrix: str,
    *,
    level: int = 1,
    twins: Mapping[str, Callable[[Variant], Variant | None]] | None = None,
) -> list[Record]:
    """Return the record of each kernel's probe: its account, and its time beside the kernel's.

    Parameters
    ----------
    variants : sequence of Variant
        The kernels, without instruments.
    level : {1, 2}
        What the probes count, see ``kernels/include/role_clock.cuh``.
    twins : mapping, optional
        Name to further builds of a kernel, which leave out one thing: timed in the same samples.

    Returns
    -------
    list of Record
        With the account, mean of the middle launches; ``plain_us`` and ``probe_us``, times of the
        kernel and of its probe; ``cost_us``, their difference; ``X_us`` for each twin X.
    """
    from asyncsparse_lab.gpu.device import device_facts
    from asyncsparse_lab.spmm.run import Ours

    twins = twins or {}
    probes = [variant.with_constants(INSTRUMENT=level) for variant in variants]
    others = [
        {name: twin for name, make in twins.items() if (twin := make(variant)) is not None}
        for variant in variants
    ]
    dtype_out = measured.product.dtype_out
    extra = [twin for named in others for twin in named.values()]
    compile_many([kernel_build(variant, dtype_out) for variant in (*probes, *extra)])

    sm_count = device_facts().sm_count
    prepared, sampled = [], []
    for variant, probe, named in zip(variants, probes, others, strict=True):
        own = prepared_probe(probe, measured)
        further = {name: prepared_probe(twin, measured) for name, twin in named.items()}
        prepared.append((own, [name for name, twin in further.items() if twin.is_right]))
        sampled.append(
            [
                Ours(variant).prepare(measured.product),
                own.prepared,
                *(twin.prepared for twin in further.values() if twin.is_right),
            ]
        )
    taken = sample_builds(sampled)
    records = []
    for (own, names), (times, rows) in zip(prepared, taken, strict=True):
        cluster = own.variant.constants.get("CLUSTER", 1)
        result = summarise(times, names)
        middle = middle_half(times[1])
        accounts = [account(rows[launch], sm_count, cluster) for launch in middle]
        result |= mean_account(accounts) if own.is_right else {}
        records.append(_record(own, measured, study, case, matrix, result))
    return records


def sample_builds(
    kernels: Sequence[Sequence[Any]], rounds: int = ROUNDS, timer: Any = None
) -> list[tuple[list[list[float]], list[NDArray[Any]]]]:
    """Time builds of several kernels in turn with a cold L2, and keep what each probe counted.

    Parameters
    ----------
    kernels : sequence of sequences
        Of each kernel its prepared builds: without instruments, the probe, others.
    timer : optional
        Replaced in tests.

    Returns
    -------
    list
        For each kernel: the times of each build in microseconds, launch by launch; and the rows
        of each launch of the probe.
    """
    from asyncsparse_lab.gpu.timing import device_timer

    timer = device_timer() if timer is None else timer
    times: list[list[list[float]]] = [[[] for _ in builds] for builds in kernels]
    delays = [[_FIRST_DELAY_NS for _ in builds] for builds in kernels]
    kept: list[list[Any]] = [[] for _ in kernels]
    for number in range(rounds + 1):  # the first round loads the modules
        for kernel, builds in enumerate(kernels):
            for build, prepared in enumerate(builds):
                elapsed, delays[kernel][build] = timer.sample(
                    prepared.run, "cold", delays[kernel][build]
                )
                if number > 0:
                    times[kernel][build].append(elapsed)
            if number > 0:
                kept[kernel].append(builds[1].measurements.copy())
    return [
        (taken, [read_rows(rows) for rows in copies])
        for taken, copies in zip(times, kept, strict=True)
    ]


def middle_half(times: Sequence[float]) -> list[int]:
    """Return which samples are left when the fastest and the slowest quarter are put aside."""
    quarter = len(times) // 4
    order = np.argsort(np.asarray(times), kind="stable")
    return sorted(int(index) for index in order[quarter : len(times) - quarter])


def summarise(times: Sequence[Sequence[float]], twins: Sequence[str]) -> dict[str, float]:
    """Return the times of a kernel's builds: means of their middle halves."""
    names = ("plain", "probe", *twins)
    means = [float(np.mean([taken[index] for index in middle_half(taken)])) for taken in times]
    found = {f"{name}_us": round(mean, 3) for name, mean in zip(names, means, strict=True)}
    return found | {"cost_us": round(means[1] - means[0], 3)}


def explain(
    probes: Sequence[Record],
    causes: Mapping[str, Sequence[str]],
    named: Sequence[str],
    split: Split = split_mean,
    baseline: str = "bcsr-opt3",
) -> list[Record]:
    """Split each probe's loss against a kernel into causes.

    Parameters
    ----------
    probes : sequence of Record
        From :func:`account_probes`, the baseline's among them.
    causes : mapping
        As ``split`` takes it.
    named : sequence of str
        The causes that the document names.
    split : callable
        :func:`~asyncsparse_lab.studies.cta_account.split_mean` or ``split_last``.

    Returns
    -------
    list of Record
        With ``measured_loss_us`` (times without instruments, sampled beside the probes),
        ``loss_X_us`` for each cause and ``loss_instruments_us``, what the probes' own cost makes
        of it; ``loss_us`` (their sum), ``explained_share`` (sum over measured) and
        ``bare_share`` (the same with the instruments' cost left in); ``named_causes_share``, and
        ``named_causes_hold``: 1 if there is a loss and the named causes make up at least
        :data:`NAMED_ENOUGH` of it.
    """
    base = next((probe for probe in probes if probe.variant == baseline), None)
    if base is None or base.status != "passed":
        return list(probes)
    explained = []
    for probe in probes:
        if probe.status != "passed":
            explained.append(probe)
            continue
        losses = split(probe.result, base.result, causes)
        measured = probe.result["plain_us"] - base.result["plain_us"]
        spans, by_name = sum(losses.values()), sum(losses[name] for name in named)
        losses["instruments"] = base.result["cost_us"] - probe.result["cost_us"]
        total = spans + losses["instruments"]
        found = {
            "measured_loss_us": measured,
            "loss_us": total,
            **{f"loss_{name}_us": value for name, value in losses.items()},
            "explained_share": total / measured if measured else None,
            "bare_share": spans / measured if measured else None,
            "named_causes_share": by_name / total if total > 0 else None,
            "named_causes_hold": float(
                min(measured, total) > 0 and by_name >= NAMED_ENOUGH * total
            ),
        }
        explained.append(replace(probe, result={**probe.result, **found}))
    return explained


def counters(
    records: Sequence[Record], variants: Sequence[Variant], measured: Measured, matrix: str
) -> list[Record]:
    """Add to the cold records of variants what ncu counts, or why it does not."""
    from asyncsparse_lab.errors import DeviceError
    from asyncsparse_lab.spmm.counters import read_counters

    product = measured.product
    found: list[dict[str, Any]]
    try:
        found = list(read_counters(variants, matrix, product.n, product.dtype_out))
    except DeviceError as error:
        found = [{"counters": str(error)[:200]} for _ in variants]
    by_params = [
        (variant.name, variant.params, more) for variant, more in zip(variants, found, strict=True)
    ]
    return [_with_counters(record, by_params) for record in records]


def _with_counters(
    record: Record, found: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any]]]
) -> Record:
    if record.l2 != "cold" or record.status != "passed" or record.role == "probe":
        return record
    for name, params, more in found:
        if record.variant == name and params.items() <= dict(record.params).items():
            return replace(record, result={**record.result, **more})
    return record
