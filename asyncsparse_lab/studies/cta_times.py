r"""Where thread blocks spend their time: an account that adds up to the kernel's.

With one block on an SM at a time, the time T from the first begin to the last end is, on each SM,
the wait for its first block, the blocks with their phases, the gaps between them, and the idle
time at the end.  Its mean over all SMs is therefore

.. math:: T = start + gaps + \sum_{phases} + tail

and the difference of two kernels is the sum of the differences.  Cycles of an SM become time by
its own clock over the same launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asyncsparse_lab.gpu.compile import compile_many
from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm.instrument import read_rows
from asyncsparse_lab.spmm.variants import Variant
from asyncsparse_lab.studies.spmm_cases import Measured
from asyncsparse_lab.studies.spmm_common import kernel_build

LAUNCHES: Final = 8
"""Launches that an account is the mean of; each finds L2 cold."""
NAMED_ENOUGH: Final = 0.8
"""Share of a loss from which on the causes that the document names count as its causes."""

CONSUMER_PHASES: Final = ("setup", "reset", "first_wait", "wait", "epilogue", "leave")
PARTS: Final = ("start", "gaps", *CONSUMER_PHASES, "multiply", "tail")
"""Parts of an account. ``wait``: for loads, without the first of each tile; ``multiply``: products
and all that is nothing else."""


def account(rows: NDArray[Any], sm_count: int, cluster: int = 1) -> dict[str, Any]:
    """Return the account of one launch, in microseconds for the mean SM.

    Parameters
    ----------
    rows : structured array, thread blocks x roles
        As :func:`asyncsparse_lab.spmm.instrument.read_rows` gives them: producer, consumers.
    sm_count : int
        SMs of the GPU; those without a block were idle.
    cluster : int
        Blocks of a cluster: the producer of the first of them waits for all.

    Returns
    -------
    dict
        ``span_us``; ``spent_X`` for each of :data:`PARTS`, which add up to it; ``ghz``;
        ``empty_wait_cycles`` and ``remote_wait_cycles`` a wait of the producers (remote: after the
        block's own consumers had released the slot; first blocks of clusters only);
        ``remote_us``: that time for the mean SM, for every block of a cluster;
        ``reset_cycles`` a tile; ``end_spread_us``, ``end_std_us`` and ``sm_end_us``: when the last
        block of each SM ended, after the first begin.
    """
    begin = rows["begin_clock"].min(axis=1).astype(np.int64)
    end = rows["end_clock"].max(axis=1).astype(np.int64)
    begin_ns = rows["begin_ns"].min(axis=1).astype(np.int64)
    end_ns = rows["end_ns"].max(axis=1).astype(np.int64)
    sms, of = np.unique(rows["sm"][:, 0], return_inverse=True)
    first_clock, last_clock = _extreme(np.minimum, of, begin), _extreme(np.maximum, of, end)
    first_ns, last_ns = _extreme(np.minimum, of, begin_ns), _extreme(np.maximum, of, end_ns)
    ghz = float(np.median((last_clock - first_clock) / np.maximum(last_ns - first_ns, 1)))
    span = float(last_ns.max() - first_ns.min())

    def mean_us(cycles: Any) -> float:
        return float(np.sum(cycles)) / sm_count / ghz / 1e3

    consumers = rows[:, 1:]
    cycles = {name: consumers[name].mean(axis=1) for name in CONSUMER_PHASES}
    cycles["wait"] = cycles["wait"] - cycles["first_wait"]
    cycles["multiply"] = (end - begin) - sum(cycles.values())
    spent = {name: mean_us(cycles[name]) for name in (*CONSUMER_PHASES, "multiply")}
    spent["gaps"] = mean_us(last_clock - first_clock) - mean_us(end - begin)
    spent["start"] = float(np.sum(first_ns - first_ns.min())) / sm_count / 1e3
    spent["tail"] = span / 1e3 - sum(spent.values())

    producers, leaders = rows[:, 0], rows[::cluster, 0]
    ends = (last_ns - first_ns.min()) / 1e3
    return {
        "span_us": span / 1e3,
        **{f"spent_{name}": spent[name] for name in PARTS},
        "ghz": ghz,
        "active_sms": len(sms),
        "empty_wait_cycles": _ratio(producers["wait"], producers["waits"]),
        "remote_wait_cycles": _ratio(leaders["remote_wait"], leaders["waits"]),
        "remote_us": mean_us(cluster * leaders["remote_wait"].astype(np.float64)),
        "reset_cycles": _ratio(consumers["reset"], consumers["tiles"]),
        "end_spread_us": float(ends.max() - ends.min()),
        "end_std_us": float(ends.std()),
        "sm_end_us": np.round(np.sort(ends), 2).tolist(),
    }


def _extreme(choose: np.ufunc, groups: NDArray[Any], values: NDArray[np.int64]) -> NDArray[Any]:
    """Return the smallest or largest value of each group."""
    limit = np.iinfo(np.int64).max if choose is np.minimum else np.iinfo(np.int64).min
    found = np.full(int(groups.max()) + 1, limit)
    choose.at(found, groups, values)
    return found


def _ratio(amount: Any, count: Any) -> float:
    return float(np.sum(amount, dtype=np.float64)) / max(float(np.sum(count, dtype=np.float64)), 1)


def mean_account(accounts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean of several launches' accounts; a sum stays the sum of its parts.

    Of lists (such as the ends of all SMs) the last launch's is kept.
    """
    mean = {
        name: last
        if isinstance(last, list)
        else round(float(np.mean([one[name] for one in accounts])), 4)
        for name, last in accounts[-1].items()
    }
    return mean | {"launches": len(accounts)}


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
    from asyncsparse_lab.spmm.measure import record_identity
    from asyncsparse_lab.spmm.product import poison
    from asyncsparse_lab.spmm.run import Ours

    product, truth = measured.product, measured.truth
    probe = Ours(variant)
    prepared = probe.prepare(product)
    poison(prepared.output)
    rows = measured_rows(prepared, LAUNCHES + 1)[1:]  # the first one loads the module
    error, bound = truth.relative_error(prepared.output), truth.err_bound(product.dtype_out)
    right = error <= bound
    return Record(
        **record_identity(probe, product, study, case, matrix),
        l2="cold",
        status="passed" if right else "wrong",
        reason=None if right else f"rel_err {error:.3g} exceeds {bound:.3g}",
        rel_err=error,
        err_bound=bound,
        kernel_hash=prepared.kernel_hash,
        host_hash=prepared.host_hash,
        compiler=prepared.compiler,
        params=prepared.params,
        result=mean_account([result(launch) for launch in rows]) if right else {},
    )


def account_probes(
    variants: Sequence[Variant], measured: Measured, study: str, case: str, matrix: str
) -> list[Record]:
    """Return a record with the account of each instrumented build."""
    from asyncsparse_lab.gpu.device import device_facts

    dtype_out = measured.product.dtype_out
    compile_many([kernel_build(variant, dtype_out) for variant in variants])
    sm_count = device_facts().sm_count
    records = []
    for variant in variants:
        cluster = variant.constants.get("CLUSTER", 1)
        records.append(
            probe_record(
                variant, measured, study, case, matrix,
                lambda rows, cluster=cluster: account(rows, sm_count, cluster),
            )
        )  # fmt: skip
    return records


def explain(
    probes: Sequence[Record],
    timed: Sequence[Record],
    causes: Mapping[str, Sequence[str]],
    named: Sequence[str],
    baseline: str = "bcsr-opt3",
) -> list[Record]:
    """Split each probe's loss against a kernel into causes.

    Parameters
    ----------
    probes : sequence of Record
        From :func:`account_probes`, the baseline's among them.
    timed : sequence of Record
        Of the same case, without instruments.
    causes : mapping
        Name of a cause to the parts of the account whose differences it is; all parts once.
        ``remote`` among them stands for the cross-block wait, taken out of the waits for loads.
    named : sequence of str
        The causes that the document names.

    Returns
    -------
    list of Record
        With ``measured_loss_us`` (cold medians), ``loss_X_us`` for each cause, ``loss_us`` (their
        sum: the difference of the spans), ``explained_share`` (sum over measured),
        ``named_causes_share``, and ``named_causes_hold``: 1 if there is a loss and the named
        causes make up at least :data:`NAMED_ENOUGH` of it.
    """
    base = next((probe for probe in probes if probe.variant == baseline), None)
    if base is None or base.status != "passed":
        return list(probes)
    explained = []
    for probe in probes:
        if probe.status != "passed":
            explained.append(probe)
            continue
        losses = split_loss(probe.result, base.result, causes)
        measured = _median(timed, probe) - _median(timed, base)
        total, by_name = sum(losses.values()), sum(losses[name] for name in named)
        found = {
            "measured_loss_us": measured,
            "loss_us": total,
            **{f"loss_{name}_us": value for name, value in losses.items()},
            "explained_share": total / measured if measured else None,
            "named_causes_share": by_name / total if total > 0 else None,
            "named_causes_hold": float(
                min(measured, total) > 0 and by_name >= NAMED_ENOUGH * total
            ),
        }
        explained.append(replace(probe, result={**probe.result, **found}))
    return explained


def split_loss(
    result: Mapping[str, Any], base: Mapping[str, Any], causes: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """Return the differences of two accounts by cause; see :func:`explain`."""
    more = {name: float(result[f"spent_{name}"] - base[f"spent_{name}"]) for name in PARTS}
    waits = max(more["wait"], 0.0) + max(more["first_wait"], 0.0)
    more["remote"] = 0.0
    if any("remote" in parts for parts in causes.values()):
        # No more than the consumers waited longer: the rest of it was hidden behind the ring.
        more["remote"] = min(max(float(result["remote_us"] - base["remote_us"]), 0.0), waits)
        more["wait"] -= more["remote"]
    return {cause: sum(more[part] for part in parts) for cause, parts in causes.items()}


def _median(timed: Sequence[Record], probe: Record) -> float:
    """Return the cold median of a probe's kernel without its instruments."""
    ignored = {"instrument"}
    wanted = {key: value for key, value in probe.params.items() if key not in ignored}
    for record in timed:
        same = record.variant == probe.variant and dict(record.params) == wanted
        if same and record.l2 == "cold" and record.median_us is not None:
            return record.median_us
    return float("nan")


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
