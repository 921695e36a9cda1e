"""The account of thread blocks: made-up launches whose parts are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm.instrument import ROW
from asyncsparse_lab.studies import cluster_multicast, cta_times, persistent
from asyncsparse_lab.studies.cta_times import PARTS, account, explain, mean_account, split_loss

GHZ = 2.0
PHASES = {"setup": 200, "reset": 60, "first_wait": 900, "wait": 2000, "epilogue": 1500, "leave": 40}
"""Cycles of a block; ``wait`` is without the first."""
MULTIPLY, GAP = 1300, 500


def launch(blocks_of_sm: list[int], starts_ns: list[int], slower: float = 1.0) -> np.ndarray:
    """Return the rows of a launch on SMs that run so many blocks in turn."""
    rows = []
    for sm, (blocks, start) in enumerate(zip(blocks_of_sm, starts_ns, strict=True)):
        clock = 10_000_000 * (sm + 1)  # the clocks of different SMs have nothing in common
        first, length = clock, int(slower * (sum(PHASES.values()) + MULTIPLY))
        for _ in range(blocks):
            block = np.zeros(3, dtype=ROW)
            block["sm"], block["tiles"] = sm, (0, 1, 1)
            block["begin_clock"], block["end_clock"] = clock, clock + length
            block["begin_ns"] = 5_000 + start + (clock - first) / GHZ
            block["end_ns"] = 5_000 + start + (clock + length - first) / GHZ
            for name, cycles in PHASES.items():
                block[name][1:] = slower * cycles
            block["wait"][1:] += block["first_wait"][1:]
            block["waits"], block["wait"][0], block["remote_wait"][0] = 10, 700, 300
            rows.append(block)
            clock += length + GAP
    return np.array(rows)


def test_the_parts_are_what_they_were_made_of() -> None:
    found = account(launch([3, 2], [0, 400]), sm_count=2)
    blocks = 5
    for name, cycles in (*PHASES.items(), ("multiply", MULTIPLY)):
        assert found[f"spent_{name}"] == pytest.approx(blocks * cycles / 2 / GHZ / 1e3)
    assert found["spent_gaps"] == pytest.approx(3 * GAP / 2 / GHZ / 1e3)
    assert found["spent_start"] == pytest.approx(0.2)
    assert found["ghz"] == pytest.approx(GHZ)
    assert found["reset_cycles"] == PHASES["reset"]
    assert found["empty_wait_cycles"] == 70
    assert found["remote_wait_cycles"] == 30
    assert found["sm_end_us"] == pytest.approx([6.65, 9.5])
    assert found["end_spread_us"] == pytest.approx(2.85)


@pytest.mark.parametrize("sm_count", [3, 4])
def test_the_parts_add_up_to_the_span(sm_count: int) -> None:
    found = account(launch([4, 1, 3], [0, 30, 700]), sm_count)
    assert sum(found[f"spent_{name}"] for name in PARTS) == pytest.approx(found["span_us"])
    assert found["active_sms"] == 3
    assert min(found[f"spent_{name}"] for name in PARTS) >= 0


def test_only_the_first_block_of_a_cluster_waits_for_the_others() -> None:
    rows = launch([2, 2], [0, 0])
    rows["remote_wait"][1::2] = 0
    found = account(rows, sm_count=2, cluster=2)
    assert found["remote_wait_cycles"] == 30
    assert found["remote_us"] == pytest.approx(4 * 300 / 2 / GHZ / 1e3)


def test_a_mean_of_accounts_adds_up_too() -> None:
    mean = mean_account([account(launch([2, 2], [0, s]), 2) for s in (0, 100, 350)])
    assert sum(mean[f"spent_{name}"] for name in PARTS) == pytest.approx(mean["span_us"], abs=1e-3)
    assert mean["launches"] == 3


@pytest.mark.parametrize("causes", [cluster_multicast.CAUSES, persistent.CAUSES])
def test_causes_use_every_part_once(causes: dict[str, tuple[str, ...]]) -> None:
    used = [part for parts in causes.values() for part in parts if part != "remote"]
    assert sorted(used) == sorted(PARTS)
    base, more = account(launch([3, 2], [0, 0]), 2), account(launch([3, 3], [0, 90], 1.3), 2)
    losses = split_loss(more, base, causes)
    assert sum(losses.values()) == pytest.approx(more["span_us"] - base["span_us"])


def test_the_wait_for_other_blocks_is_no_more_than_consumers_waited_longer() -> None:
    base = account(launch([2], [0]), 1)
    longer = base | {"spent_wait": base["spent_wait"] + 1.0, "remote_us": base["remote_us"] + 9.0}
    losses = split_loss(longer, base, cluster_multicast.CAUSES)
    assert losses["empty_barrier"] == pytest.approx(1.0)
    assert losses["loads"] == pytest.approx(0.0)


@pytest.fixture
def probes(make_record: Callable[..., Record]) -> Callable[..., list[Record]]:
    """Probes of opt3 and of a kernel that is slower by a factor, and their timed records."""

    def make(slower: float, measured_us: float) -> list[Record]:
        made = []
        for name, factor, us in (
            ("bcsr-opt3", 1.0, 20.0),
            ("bcsr-persistent", slower, measured_us),
        ):
            found = account(launch([3, 2], [0, 0], factor), 2)
            made.append(
                make_record(None, variant=name, role="probe", params={"stages": 3, "instrument": 1},
                            result=found)
            )  # fmt: skip
            made.append(make_record(us, variant=name, params={"stages": 3}))
        return made

    return make


def explained(records: list[Record]) -> dict[str, Any]:
    found = explain(
        [r for r in records if r.role == "probe"],
        [r for r in records if r.role != "probe"],
        persistent.CAUSES,
        persistent.NAMED,
    )
    return dict(found[1].result)


def test_a_loss_is_held_to_the_measured_one(probes: Callable[..., list[Record]]) -> None:
    slower = launch([3, 2], [0, 0], 1.5)
    loss = account(slower, 2)["span_us"] - account(launch([3, 2], [0, 0]), 2)["span_us"]
    result = explained(probes(1.5, 20.0 + loss))
    assert result["explained_share"] == pytest.approx(1.0)
    assert result["loss_us"] == pytest.approx(loss)
    named = sum(result[f"loss_{name}_us"] for name in persistent.NAMED)
    assert result["named_causes_share"] == pytest.approx(named / loss)
    assert result["named_causes_hold"] == float(named >= 0.8 * loss)


def test_a_gain_has_no_causes_of_a_loss(probes: Callable[..., list[Record]]) -> None:
    result = explained(probes(0.7, 15.0))
    assert result["measured_loss_us"] == pytest.approx(-5.0)
    assert result["loss_us"] < 0
    assert result["named_causes_hold"] == 0.0
    assert result["named_causes_share"] is None


def test_a_probe_that_failed_is_passed_on(make_record: Callable[..., Record]) -> None:
    failed = make_record(None, variant="bcsr-opt3", role="probe", status="wrong", reason="why")
    assert explain([failed], [], persistent.CAUSES, persistent.NAMED) == [failed]


def test_saved_bytes_follow_from_the_tile() -> None:
    assert cluster_multicast.saved_share(256, 1) == 0.0
    assert cluster_multicast.saved_share(256, 2) == pytest.approx(0.5 * 8192 / (8192 + 65536))
    assert cluster_multicast.saved_share(64, 4) == pytest.approx(0.75 * 8192 / (8192 + 16384))


def test_counters_go_to_the_cold_records_of_their_kernel(
    make_record: Callable[..., Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    from asyncsparse_lab.errors import DeviceError
    from asyncsparse_lab.spmm import counters
    from asyncsparse_lab.studies.spmm_cases import Measured

    class Product:
        n, dtype_out = 8, "float32"

    variants = cluster_multicast.variants()
    records = [
        make_record(variant=v.name, params={**v.params, "padded": False}, l2=l2)
        for v in variants
        for l2 in ("cold", "warm")
    ]
    measured = Measured(records, Product(), None)  # type: ignore[arg-type]
    answers = [{"l2_bytes": float(number)} for number in range(len(variants))]
    monkeypatch.setattr(counters, "read_counters", lambda *_: answers)
    found = cta_times.counters(records, variants, measured, "toy")
    assert [r.result.get("l2_bytes") for r in found] == [0, None, 1, None, 2, None, 3, None]

    def refuse(*_: Any) -> None:
        raise DeviceError("ncu is missing: install Nsight Compute")

    monkeypatch.setattr(counters, "read_counters", refuse)
    found = cta_times.counters(records, variants, measured, "toy")
    assert "ncu is missing" in found[0].result["counters"]
    assert "counters" not in found[1].result
