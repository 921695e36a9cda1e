"""What the documents' causes of the two regressions come to here, in computed sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncsparse_lab.studies.base import Table
from asyncsparse_lab.studies.cta_tables import labelled, short
from asyncsparse_lab.studies.reasons import sm_count, span, table_of

if TYPE_CHECKING:
    import pandas as pd


def multicast(probes: pd.DataFrame, timed: pd.DataFrame) -> Table:
    """Return each cause that the document names for the multicast's loss, as measured."""
    probes, timed = labelled(probes), labelled(timed)
    base = probes[probes["label"] == "opt3"].set_index("matrix")
    lines = []
    for size in sorted(set(probes["params.cluster"].dropna().astype(int)) - {1}):
        own = probes[probes["params.cluster"] == size].set_index("matrix")
        loss = own["result.measured_loss_us"]
        alone = probes[probes["params.cluster"] == 1].set_index("matrix")
        idle = sm_count(timed) - own["result.active_sms"].astype(int)  # SMs unknown: below 0
        named = f"a cluster of {size}: "
        lines += [
            {
                "question": named + "co-scheduling",
                "here": f"{span(own['result.loss_co_scheduling_us'])} us of {span(loss)} us",
                "document": "named, without a number",
                "because": "idle ends, gaps between blocks and the cluster's barriers at begin and "
                f"end; {_idle(idle)}the last SM ends {span(own['result.end_spread_us'])} us after "
                f"the first, opt3's {span(base['result.end_spread_us'])} us.",
            },
            {
                "question": named + "the empty barrier across blocks",
                "here": f"{span(own['result.loss_empty_barrier_us'])} us of {span(loss)} us",
                "document": "named, without a number",
                "because": "the block that loads A waits "
                f"{span(own['result.remote_wait_cycles'])} cycles for each slot after its own "
                f"consumers were done, {span(base['result.remote_wait_cycles'])} in opt3; the ring "
                f"hides most of that from the consumers' waits.{_release(own, base)}",
            },
            *_fence(own, base, named),
            {
                "question": named + "what the document does not name",
                "here": f"{span(own['result.loss_products_us'])} us of {span(loss)} us in products",
                "document": "",
                "because": "the number of products is the same, so what differs is how long "
                "consumers wait for each other inside one. In a cluster of 1, which has the same "
                f"barriers and shares nothing, it is {span(alone['result.loss_products_us'])} us "
                f"and waits for loads are {span(-alone['result.loss_loads_us'])} us shorter.",
            },
            {
                "question": named + "little reuse of A",
                "here": _saved(timed, size),
                "document": "named, without a number",
                "because": "A is the small part of a stage, its slices of B are the rest; and of A "
                "each block but one is saved. What is not saved are the waits.",
            },
        ]
    return table_of(
        lines, "What the causes that the document names come to here, on both matrices."
    )


def _idle(counts: pd.Series[int]) -> str:
    if counts.max() <= 0:
        return ""
    return f"{span(counts)} SMs get no block at all, since clusters need free neighbours; "


def _release(own: pd.DataFrame, base: pd.DataFrame) -> str:
    """Return what a consumer's arrival on the empty barriers takes, where it was counted."""
    if "result.release_cycles" not in own or own["result.release_cycles"].isna().any():
        return ""
    return (
        f" To release a slot takes a consumer {span(own['result.release_cycles'])} cycles in the "
        f"mean, {span(base['result.release_cycles'])} in opt3."
    )


def _fence(own: pd.DataFrame, base: pd.DataFrame, named: str) -> list[dict[str, str]]:
    """Return what the fence of a remote arrival costs, by the build without it."""
    if "result.unfenced_us" not in own or own["result.unfenced_us"].isna().any():
        return []
    cost = own["result.plain_us"] - own["result.unfenced_us"]
    left = own["result.unfenced_us"] - base["result.plain_us"].reindex(own.index)
    return [
        {
            "question": named + "the fence of the remote arrival",
            "here": f"{span(cost)} us of {span(own['result.measured_loss_us'])} us",
            "document": "",
            "because": "a release at cluster scope is compiled to a fence of the whole GPU "
            "(MEMBAR.ALL.GPU), which each consumer of the other blocks passes for each slot. The "
            "same kernel with that arrival at the scope of a thread block, as wgmma's reads need "
            f"no more, takes opt3's time {_signed(left)} us.",
        }
    ]


def _signed(values: pd.Series[float]) -> str:
    return " to ".join(f"{value:+.1f}" for value in (values.min(), values.max()))


def _saved(timed: pd.DataFrame, size: int) -> str:
    own = timed[timed["params.cluster"] == size].set_index("matrix")
    base = timed[timed["label"] == "opt3"].set_index("matrix")
    words = f"{span(100 * own['result.saved_share'], 1)} % of a stage's bytes to save"
    if "result.l2_bytes" not in timed or own["result.l2_bytes"].isna().all():
        return f"{words}; not counted"
    change = 100 * (own["result.l2_bytes"] / base["result.l2_bytes"] - 1)
    parts = [f"{value:+.1f} % on {short(str(matrix))}" for matrix, value in change.items()]
    return f"{words}; bytes read from L2: {', '.join(parts)}"


def persistent(probes: pd.DataFrame, timed: pd.DataFrame) -> Table:
    """Return each cause that the document names for the persistent kernel's loss, as measured."""
    by_variant = {
        name: probes[probes["variant"] == name].set_index("matrix")
        for name in ("bcsr-opt3", "bcsr-persistent", "bcsr-persistent-swizzle")
    }
    opt3, plain, swizzle = by_variant.values()
    lines = [
        {
            "question": "imbalance",
            "here": f"{_each(plain['result.loss_imbalance_us'], ' us')}",
            "document": "named, without a number",
            "because": f"{_work(plain, opt3)}Idle at the end, of the span and for the mean SM: "
            f"{_each(_idle_share(plain))}; opt3, whose blocks the hardware hands out as SMs get "
            f"free: {_each(_idle_share(opt3))}. With the swizzle: {_each(_idle_share(swizzle))}"
            f"{_met_again(_idle_share(swizzle) - _idle_share(plain))}.",
        },
        {
            "question": "no reuse of B in L2",
            "here": _counted(timed, "bcsr-persistent"),
            "document": "named, without a number",
            "because": f"opt3: {_counted(timed, 'bcsr-opt3')}. With the swizzle: "
            f"{_counted(timed, 'bcsr-persistent-swizzle')}. Waits for loads change by "
            f"{_each(plain['result.loss_loads_us'], ' us')}, with the swizzle by "
            f"{_each(swizzle['result.loss_loads_us'], ' us')}.",
        },
        {
            "question": "reset of accumulators",
            "here": f"{span(plain['result.loss_reset_us'], 2)} us more than in opt3",
            "document": "named, without a number",
            "because": f"a reset takes {span(plain['result.reset_cycles'])} cycles, in opt3 "
            f"{span(opt3['result.reset_cycles'])}: opt3 zeroes them too, once a tile.",
        },
        {
            "question": "what the document does not name",
            "here": f"writing C: {_each(plain['result.loss_epilogue_us'], ' us')}",
            "document": "",
            "because": "stores now run beside the next tile's loads. What persistence gains stands "
            f"against it: launches {_each(plain['result.loss_launches_us'], ' us')}, first loads "
            f"{_each(plain['result.loss_first_loads_us'], ' us')}.",
        },
    ]
    return table_of(
        lines, "What the causes that the document names come to here; signs are against opt3."
    )


def _work(own: pd.DataFrame, base: pd.DataFrame) -> str:
    """Return how much work the last SM to end had, in blocks against the mean SM's."""
    if "result.last_blocks" not in own or own["result.last_blocks"].isna().any():
        return ""
    share = 100 * (own["result.last_blocks"] / own["result.mean_blocks"] - 1)
    share_base = 100 * (base["result.last_blocks"] / base["result.mean_blocks"] - 1)
    return (
        "the last SM to end has more or fewer blocks than the mean SM by "
        f"{_each(share, ' %', '+')}, in opt3 by {_each(share_base, ' %', '+')}. "
    )


def _idle_share(rows: pd.DataFrame) -> pd.Series[float]:
    return 100 * rows["result.spent_tail"] / rows["result.span_us"]


def _met_again(more_idle: pd.Series[float]) -> str:
    """Return why SMs idle longer with the swizzle, on matrices where they do by a tenth."""
    names = [short(str(matrix)) for matrix, share in more_idle.items() if share > 10]
    if not names:
        return ""
    return (
        f"; on {', '.join(names)} the same SMs meet the long block rows in each round again, since "
        "tiles are numbered down the columns"
    )


def _each(values: pd.Series[float], unit: str = " %", sign: str = "") -> str:
    sign = "+" if unit == " us" else sign
    return ", ".join(
        f"{value:{sign}.0f}{unit} on {short(str(matrix))}" for matrix, value in values.items()
    )


def _counted(timed: pd.DataFrame, variant: str) -> str:
    rows = timed[timed["variant"] == variant]
    if "result.l2_hit_rate" not in rows or rows["result.l2_hit_rate"].isna().all():
        return "not counted"
    return ", ".join(
        f"{100 * rate:.0f} % hits and {size / 1e9:.2f} GB from DRAM on {short(matrix)}"
        for matrix, rate, size in zip(
            rows["matrix"], rows["result.l2_hit_rate"], rows["result.dram_bytes"], strict=True
        )
    )
