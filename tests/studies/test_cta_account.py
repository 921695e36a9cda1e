"""The accounts of thread blocks: made-up launches whose parts are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from asyncsparse_lab.studies import cluster_multicast, persistent
from asyncsparse_lab.studies.cta_account import (
    COUNTED,
    LAST_PARTS,
    PARTS,
    account,
    mean_account,
    split_last,
    split_mean,
)


def test_the_parts_are_what_they_were_made_of(launch: Any) -> None:
    found = account(launch([3, 2], [0, 400]), sm_count=2)
    blocks = 5
    for name, cycles in (*launch.PHASES.items(), ("rest", launch.REST)):
        assert found[f"spent_{name}"] == pytest.approx(blocks * cycles / 2 / launch.GHZ / 1e3)
        assert found[f"last_{name}"] == pytest.approx(3 * cycles / launch.GHZ / 1e3)
    assert found["spent_gaps"] == pytest.approx(3 * launch.GAP / 2 / launch.GHZ / 1e3)
    assert found["last_gaps"] == pytest.approx(2 * launch.GAP / launch.GHZ / 1e3)
    assert found["spent_start"] == pytest.approx(0.2)
    assert found["last_start"] == 0.0
    assert found["ghz"] == pytest.approx(launch.GHZ)
    assert (found["mean_blocks"], found["last_blocks"]) == (2.5 * launch.BLOCKS, 3 * launch.BLOCKS)
    assert (found["mean_tiles"], found["last_tiles"]) == (2.5, 3.0)
    assert found["reset_cycles"] == launch.PHASES["reset"]
    assert found["release_cycles"] == pytest.approx(launch.PHASES["release"] / launch.BLOCKS)
    assert found["empty_wait_cycles"] == 70
    assert found["remote_wait_cycles"] == 30
    ends = [(n * launch.LENGTH + (n - 1) * launch.GAP) / launch.GHZ / 1e3 for n in (2, 3)]
    assert found["sm_end_us"] == pytest.approx([ends[0] + 0.4, ends[1]], abs=0.01)
    assert found["end_spread_us"] == pytest.approx(ends[1] - ends[0] - 0.4)


@pytest.mark.parametrize("sm_count", [3, 4])
def test_the_parts_of_both_accounts_add_up_to_the_span(launch: Any, sm_count: int) -> None:
    found = account(launch([4, 1, 3], [0, 30, 700]), sm_count)
    assert sum(found[f"spent_{name}"] for name in PARTS) == pytest.approx(found["span_us"])
    on_last = (name for name in PARTS if name != "tail")
    assert sum(found[f"last_{name}"] for name in on_last) == pytest.approx(found["span_us"])
    assert found["active_sms"] == 3
    assert min(found[f"spent_{name}"] for name in PARTS) >= 0


def test_only_the_first_block_of_a_cluster_waits_for_the_others(launch: Any) -> None:
    rows = launch([2, 2], [0, 0])
    rows["remote_wait"][1::2] = 0
    found = account(rows, sm_count=2, cluster=2)
    assert found["remote_wait_cycles"] == 30
    assert found["remote_us"] == pytest.approx(4 * 300 / 2 / launch.GHZ / 1e3)


def test_what_a_light_probe_does_not_count_is_not_there(launch: Any) -> None:
    found = account(launch([2, 2], [0, 0], level=1), sm_count=2)
    assert not {"remote_us", "remote_wait_cycles", "release_cycles"} & set(found)
    assert found["empty_wait_cycles"] == 70
    assert split_last(found, found, persistent.CAUSES).keys() == persistent.CAUSES.keys()


def test_a_mean_of_accounts_adds_up_too(launch: Any) -> None:
    mean = mean_account([account(launch([2, 2], [0, s]), 2) for s in (0, 100, 350)])
    assert sum(mean[f"spent_{name}"] for name in PARTS) == pytest.approx(mean["span_us"], abs=1e-3)
    assert mean["launches"] == 3


@pytest.mark.parametrize(
    ("causes", "parts", "split"),
    [
        (cluster_multicast.CAUSES, PARTS, split_mean),
        (persistent.CAUSES, LAST_PARTS, split_last),
    ],
)
def test_causes_use_every_part_once_and_add_up(
    launch: Any,
    causes: dict[str, tuple[str, ...]],
    parts: tuple[str, ...],
    split: Callable[..., dict[str, Any]],
) -> None:
    used = [part for parts in causes.values() for part in parts if part != "remote"]
    assert sorted(used) == sorted(parts)
    assert set(COUNTED) < set(parts)
    base, more = account(launch([3, 2], [0, 0]), 2), account(launch([3, 4], [0, 90], 1.3), 2)
    losses = split(more, base, causes)
    assert sum(losses.values()) == pytest.approx(more["span_us"] - base["span_us"])


def test_more_work_at_the_same_rates_is_imbalance_alone(launch: Any) -> None:
    base, more = account(launch([3, 3], [0, 0]), 2), account(launch([2, 4], [0, 0]), 2)
    losses = split_last(more, base, persistent.CAUSES)
    gap = losses.pop("launches")  # a gap more than blocks less one: its rate is not quite the same
    assert losses.pop("imbalance") == pytest.approx(more["span_us"] - base["span_us"] - gap)
    assert max(map(abs, losses.values())) < 1e-9
    assert abs(gap) < 0.2


def test_slower_work_in_equal_shares_is_no_imbalance(launch: Any) -> None:
    base, more = account(launch([3, 3], [0, 0]), 2), account(launch([3, 3], [0, 0], 1.5), 2)
    losses = split_last(more, base, persistent.CAUSES)
    assert losses["imbalance"] == 0.0
    assert losses["loads"] == pytest.approx(
        0.5 * 3 * launch.PHASES["wait"] / launch.GHZ / 1e3, rel=1e-3
    )


def test_the_wait_for_other_blocks_is_no_more_than_consumers_waited_longer(launch: Any) -> None:
    base = account(launch([2], [0]), 1)
    longer = base | {"spent_wait": base["spent_wait"] + 1.0, "remote_us": base["remote_us"] + 9.0}
    losses = split_mean(longer, base, cluster_multicast.CAUSES)
    assert losses["empty_barrier"] == pytest.approx(1.0)
    assert losses["loads"] == pytest.approx(0.0)
