"""Tables of the studies ``cluster-multicast`` and ``persistent``, and how well causes add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from asyncsparse_lab.studies.base import Table

if TYPE_CHECKING:
    import pandas as pd

WORDS: Final[Mapping[str, str]] = {
    "co_scheduling": "co-scheduling: gaps, cluster barriers, idle ends",
    "empty_barrier": "empty barrier across blocks: waiting, arriving",
    "loads": "waits for loads",
    "first_loads": "waits for a tile's first stage",
    "products": "products",
    "bookkeeping": "finding a tile's blocks, and the rest",
    "reset": "resetting accumulators",
    "epilogue": "writing C",
    "imbalance": "imbalance: more work on the last SM to end",
    "launches": "launching blocks, setting up barriers",
    "instruments": "taken off: what the instruments cost",
}
CLOSE_ENOUGH: Final = 0.2
"""How far the sum of causes may be from the measured loss, as a part of it."""


def labelled(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a column ``label``: the variant, and the size of its cluster."""
    names = rows["variant"].str.removeprefix("bcsr-")
    if "params.cluster" in rows:
        sizes = rows["params.cluster"].astype(float)
        clusters = "cluster of " + sizes.map("{:.0f}".format)
        names = names.where(sizes.isna(), clusters)
    return rows.assign(label=names)


def order(rows: pd.DataFrame) -> list[str]:
    """Return the labels, opt3 first."""
    return sorted(set(rows["label"]), key=lambda label: (label != "opt3", label))


def short(matrix: str) -> str:
    """Return a matrix's name without the arguments of its generator."""
    return matrix.partition("(")[0].removesuffix("-keep10-uniform-s0")


def cause_table(probes: pd.DataFrame, names: Sequence[str], named: Sequence[str]) -> Table:
    """Return the account of each kernel: its loss by cause, whether that adds up, waits, ends."""
    import pandas as pd

    rows = with_cost(labelled(probes))
    columns = {
        "matrix": "matrix",
        "label": "kernel",
        "result.span_us": "span, us",
        "median_us": "median without instruments, us",
        "cost_us": "instruments cost, us",
        "result.measured_loss_us": "slower than opt3, us",
        **{f"result.loss_{name}_us": f"{WORDS[name]}, us" for name in (*names, "instruments")},
        "result.loss_us": "sum of causes, us",
        "result.explained_share": "sum / measured",
        "result.bare_share": "the same with the instruments' cost left in",
        "result.named_causes_share": "causes that the document names / sum",
        "result.unfenced_us": "without the fence of remote arrivals, us",
        "result.release_cycles": "cycles to release a slot",
        "result.empty_wait_cycles": "cycles an empty-barrier wait",
        "result.reset_cycles": "cycles a reset",
        "result.last_blocks": "blocks of the last SM to end",
        "result.mean_blocks": "blocks of the mean SM",
        "result.spent_tail": "idle at the end, us an SM",
        "result.end_spread_us": "spread of SM ends, us",
    }
    rows = rows.sort_values(["matrix", "label"])
    table = pd.DataFrame(
        {
            title: rows[name]
            for name, title in columns.items()
            if name in rows and rows[name].notna().any()
        }
    )
    words = " and ".join(WORDS[name] for name in named)
    return Table(
        table.reset_index(drop=True),
        f"The difference to opt3 by cause, with a cold L2. The document names {words}. "
        f"{resolution(probes)}",
    )


def with_cost(probes: pd.DataFrame) -> pd.DataFrame:
    """Return the probes with ``cost_us``, their time less their kernel's without instruments.

    Probes that were not timed beside their kernel have their span for that, and its median from
    :func:`with_medians`.
    """
    if "result.cost_us" in probes:
        return probes.assign(cost_us=probes["result.cost_us"])
    return probes.assign(cost_us=probes["result.span_us"] - probes["median_us"])


def with_medians(probes: pd.DataFrame, timed: pd.DataFrame) -> pd.DataFrame:
    """Return the probes with the cold median of their kernel without instruments.

    A probe has no time of its own; its kernel is the one of its case with the same variant and
    cluster.
    """
    key = ["run", "case", "variant", *(["params.cluster"] if "params.cluster" in timed else [])]
    cold = timed[(timed["l2"] == "cold") & (timed["role"] != "probe")]
    medians = cold[[*key, "median_us"]].drop_duplicates(key)
    return probes.drop(columns="median_us").merge(medians, on=key, how="left")


def resolution(probes: pd.DataFrame) -> str:
    """Return in words how far the sums of causes are from the measured losses, and why."""
    rows = with_cost(labelled(probes))
    base = rows[rows["label"] == "opt3"].set_index("case")["cost_us"]
    rows = rows[rows["label"] != "opt3"]
    share = rows["result.explained_share"].astype(float)
    near = share.sub(1.0).abs() <= CLOSE_ENOUGH
    good, off = rows[near], rows[~near]
    words = f"The sum is within {CLOSE_ENOUGH:.0%} of the measured loss for "
    words += _listed(good, [f"{value:.2f}" for value in share[good.index]]) or "none"
    unequal = (rows["cost_us"] - rows["case"].map(base)).abs()
    words += f". Instruments cost these kernels up to {unequal.max():.1f} us more or less than opt3"
    words += _cost_left_in(rows)
    if off.empty:
        return f"{words}."
    return (
        f"{words}. It is not for {_listed(off, [f'{value:.2f}' for value in share[off.index]])}, "
        f"with losses of {off['result.measured_loss_us'].min():.1f} to "
        f"{off['result.measured_loss_us'].max():.1f} us: read the causes' order there, not their "
        "sum."
    )


def _cost_left_in(rows: pd.DataFrame) -> str:
    """Return how near the causes come by themselves: taking the cost off closes the account."""
    if "result.bare_share" not in rows or rows["result.bare_share"].isna().all():
        return ""
    bare = rows["result.bare_share"].astype(float)
    off = rows[bare.sub(1.0).abs() > CLOSE_ENOUGH]
    words = f"; with that cost left in, the sum is {bare.min():.2f} to {bare.max():.2f} of the loss"
    listed = _listed(off, [f"{value:.2f}" for value in bare[off.index]])
    return f"{words}, more than {CLOSE_ENOUGH:.0%} off for {listed}" if listed else words


def _listed(rows: pd.DataFrame, values: Sequence[str]) -> str:
    parts = [
        f"{label} on {short(matrix)} ({value})"
        for label, matrix, value in zip(rows["label"], rows["matrix"], values, strict=True)
    ]
    return ", ".join(parts)


def counter_table(timed: pd.DataFrame) -> Table:
    """Return bytes and hit rates that ncu counted beside each time, or why it did not."""
    import pandas as pd

    rows = labelled(timed[timed["backend"] == "asyncsparse"]).sort_values(["matrix", "label"])
    columns = {
        "matrix": ("matrix", 1.0),
        "label": ("kernel", 1.0),
        "median_us": ("median, us", 1.0),
        "result.l2_bytes": ("read from L2, GB", 1e-9),
        "result.l2_hit_rate": ("L2 hit rate, %", 100.0),
        "result.dram_bytes": ("DRAM, GB", 1e-9),
        "result.saved_share": ("of a stage saved by sharing A, %", 100.0),
        "result.counters": ("not counted because", 1.0),
    }
    table = {}
    for name, (title, factor) in columns.items():
        if name in rows and rows[name].notna().any():
            table[title] = rows[name] if factor == 1.0 else factor * rows[name].astype(float)
    return Table(
        pd.DataFrame(table).reset_index(drop=True),
        "What Nsight Compute counted in one launch of each kernel with flushed caches.",
    )
