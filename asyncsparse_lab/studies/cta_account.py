r"""Where thread blocks spend their time: two accounts that add up to the kernel's.

With one block on an SM at a time, the time T from the first begin to the last end is, on each SM,
the wait for its first block, the blocks with their parts, the gaps between them, and the idle
time at the end.  So, for the mean SM and for the last one to end,

.. math:: T = start + gaps + \sum_{parts} + tail, \qquad T = start + gaps + \sum_{parts}

and the difference of two kernels is the sum of the differences.  On the last SM a part is so much
a unit of its work, n blocks or tiles at r each, and

.. math:: n' r' - n r = (n' - n) \frac{r' + r}{2} + (r' - r) \frac{n' + n}{2}

tells the share of the work (imbalance) from what the work takes, without a rest.  Cycles of an SM
become time by its own clock over the same launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

COUNTED: Final = (
    "setup", "fetch", "reset", "first_wait", "wait", "multiply", "release", "drain", "epilogue",
    "leave",
)  # fmt: skip
"""Parts that the consumers of a block count; ``wait`` is without the first of each tile."""
PARTS: Final = ("start", "gaps", *COUNTED, "rest", "tail")
"""Parts of the account of the mean SM; ``rest``: of blocks, what is nothing else."""
OF_A_BLOCK: Final = ("wait", "multiply", "release")
"""Parts that take so much a 64 x 64 block of A; the others take so much a tile."""
LAST_PARTS: Final = ("start", "work", *(part for part in PARTS if part not in ("start", "tail")))
"""Parts of a difference on the last SM; ``work``: its larger or smaller share of all work."""


def account(rows: NDArray[Any], sm_count: int, cluster: int = 1) -> dict[str, Any]:
    """Return both accounts of one launch, in microseconds.

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
        ``span_us``; ``spent_X`` for each of :data:`PARTS`, for the mean SM; ``last_X`` for the
        last SM to end, without a tail; ``mean_blocks``, ``mean_tiles``, ``last_blocks`` and
        ``last_tiles``, which they had to do; ``ghz``, ``active_sms``; ``empty_wait_cycles`` and
        ``remote_wait_cycles`` a wait of the producers (remote: after the block's own consumers
        had released the slot; first blocks of clusters only); ``remote_us``: that time for the
        mean SM, for every block of a cluster; ``reset_cycles`` a tile, ``release_cycles`` a
        block; ``end_spread_us``, ``end_std_us`` and ``sm_end_us``: when the last block of each SM
        ended, after the first begin. What the build does not count is not there.
    """
    begin = rows["begin_clock"].min(axis=1).astype(np.int64)
    end = rows["end_clock"].max(axis=1).astype(np.int64)
    sms, of = np.unique(rows["sm"][:, 0], return_inverse=True)
    clocks = _sm_clocks(rows, of, begin, end)
    first_ns, last_ns = clocks["first_ns"], clocks["last_ns"]
    ghz = float(np.median(clocks["ghz"]))
    span_us = float(last_ns.max() - first_ns.min()) / 1e3

    def on_sms(cycles: NDArray[Any]) -> NDArray[np.float64]:
        found = np.zeros(len(sms))
        np.add.at(found, of, cycles)
        return found

    consumers = rows[:, 1:]
    cycles = {name: consumers[name].mean(axis=1) for name in COUNTED}
    cycles["wait"] = cycles["wait"] - cycles["first_wait"]
    cycles["rest"] = (end - begin) - sum(cycles.values())
    of_sm = {name: on_sms(amount) for name, amount in cycles.items()}
    of_sm["gaps"] = clocks["cycles"] - on_sms(end - begin)
    spent = {name: float(found.sum()) / sm_count / ghz / 1e3 for name, found in of_sm.items()}
    spent["start"] = float(np.sum(first_ns - first_ns.min())) / sm_count / 1e3
    spent["tail"] = span_us - sum(spent.values())

    last = int(np.argmax(last_ns))
    on_last = {name: found[last] / clocks["ghz"][last] / 1e3 for name, found in of_sm.items()}
    on_last["start"] = float(first_ns[last] - first_ns.min()) / 1e3
    blocks, tiles = (on_sms(consumers[name].mean(axis=1)) for name in ("blocks", "tiles"))

    producers, leaders = rows[:, 0], rows[::cluster, 0]
    ends = (last_ns - first_ns.min()) / 1e3
    waits: dict[str, float] = {}
    if consumers["release"].any():
        remote = cluster * float(leaders["remote_wait"].sum(dtype=np.float64))
        waits = {
            "remote_wait_cycles": _ratio(leaders["remote_wait"], leaders["waits"]),
            "remote_us": remote / sm_count / ghz / 1e3,
            "release_cycles": _ratio(consumers["release"], consumers["blocks"]),
        }
    return {
        "span_us": span_us,
        **{f"spent_{name}": spent[name] for name in PARTS},
        **{f"last_{name}": float(value) for name, value in on_last.items()},
        "mean_blocks": float(blocks.sum()) / sm_count,
        "mean_tiles": float(tiles.sum()) / sm_count,
        "last_blocks": float(blocks[last]),
        "last_tiles": float(tiles[last]),
        "ghz": ghz,
        "active_sms": len(sms),
        "empty_wait_cycles": _ratio(producers["wait"], producers["waits"]),
        **waits,
        "reset_cycles": _ratio(consumers["reset"], consumers["tiles"]),
        "end_spread_us": float(ends.max() - ends.min()),
        "end_std_us": float(ends.std()),
        "sm_end_us": np.round(np.sort(ends), 2).tolist(),
    }


def _sm_clocks(
    rows: NDArray[Any], of: NDArray[np.intp], begin: NDArray[np.int64], end: NDArray[np.int64]
) -> dict[str, NDArray[np.float64]]:
    """Return of each SM the cycles from its first begin to its last end, and both in nanoseconds.

    Of each block one thread read both clocks early and one late.  The first and the last reading
    of an SM give its frequency, and what lies outside of them is extrapolated.
    """
    zero = int(rows["read_ns"][0, 0])  # so that nanoseconds are exact as floats
    found: dict[str, list[float]] = {"cycles": [], "first_ns": [], "last_ns": [], "ghz": []}
    for sm in range(int(of.max()) + 1):
        mine = of == sm
        reads = np.sort(rows[mine][:, :2].reshape(-1), order="read_clock")
        clock, ns = reads["read_clock"].astype(np.int64), reads["read_ns"].astype(np.int64) - zero
        begins, ends = int(begin[mine].min()), int(end[mine].max())
        ghz = float(clock[-1] - clock[0]) / max(float(ns[-1] - ns[0]), 1.0)
        first_ns = ns[0] - (clock[0] - begins) / ghz
        last_ns = ns[-1] + (ends - clock[-1]) / ghz
        found["cycles"].append(ends - begins)
        found["first_ns"].append(first_ns)
        found["last_ns"].append(last_ns)
        found["ghz"].append((ends - begins) / max(last_ns - first_ns, 1.0))
    return {name: np.array(values, dtype=np.float64) for name, values in found.items()}


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


def split_mean(
    result: Mapping[str, Any], base: Mapping[str, Any], causes: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """Return the difference of two spans by cause, for the mean SM.

    Parameters
    ----------
    causes : mapping
        Name of a cause to the parts of :data:`PARTS` whose differences it is; all parts once.
        ``remote`` among them stands for the cross-block wait, taken out of the waits for loads.
    """
    more = {name: float(result[f"spent_{name}"] - base[f"spent_{name}"]) for name in PARTS}
    waits = max(more["wait"], 0.0) + max(more["first_wait"], 0.0)
    more["remote"] = 0.0
    if any("remote" in parts for parts in causes.values()):
        # No more than the consumers waited longer: the rest of it was hidden behind the ring.
        more["remote"] = min(max(float(result["remote_us"] - base["remote_us"]), 0.0), waits)
        more["wait"] -= more["remote"]
    return {cause: sum(more[part] for part in parts) for cause, parts in causes.items()}


def split_last(
    result: Mapping[str, Any], base: Mapping[str, Any], causes: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """Return the difference of two spans by cause, for the last SM to end.

    Parameters
    ----------
    causes : mapping
        Name of a cause to the parts of :data:`LAST_PARTS` that it is; all parts once.
    """
    more = {"start": float(result["last_start"] - base["last_start"]), "work": 0.0}
    for part in LAST_PARTS[2:]:
        unit = "last_blocks" if part in OF_A_BLOCK else "last_tiles"
        now, then = float(result[unit]), float(base[unit])
        rate = float(result[f"last_{part}"]) / max(now, 1.0)
        rate_then = float(base[f"last_{part}"]) / max(then, 1.0)
        more["work"] += (now - then) * (rate + rate_then) / 2
        more[part] = (rate - rate_then) * (now + then) / 2
    return {cause: sum(more[part] for part in parts) for cause, parts in causes.items()}
