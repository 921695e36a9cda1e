"""Probes beside the kernels that they explain, with a made-up timer and made-up launches."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm import run
from asyncsparse_lab.spmm.builds import unfenced
from asyncsparse_lab.spmm.edge_cases import one_dense_row
from asyncsparse_lab.spmm.product import Product
from asyncsparse_lab.spmm.run import Ours
from asyncsparse_lab.spmm.variants import VARIANTS
from asyncsparse_lab.studies import cluster_multicast, cta_times, persistent
from asyncsparse_lab.studies.cta_account import account, split_last
from asyncsparse_lab.studies.cta_times import explain, middle_half, sample_builds, summarise


@pytest.fixture
def probes(launch: Any, make_record: Callable[..., Record]) -> Callable[..., list[Record]]:
    """Probes of opt3, which takes 20 us, and of a kernel that is slower by a factor."""

    def make(slower: float, plain_us: float, cost_us: float = 0.0) -> list[Record]:
        made = []
        for name, factor, us, cost in (
            ("bcsr-opt3", 1.0, 20.0, 1.0),
            ("bcsr-persistent", slower, plain_us, 1.0 + cost_us),
        ):
            found = account(launch([3, 2], [0, 0], factor), 2)
            found |= {"plain_us": us, "probe_us": us + cost, "cost_us": cost}
            made.append(make_record(None, variant=name, role="probe", result=found))
        return made

    return make


def explained(records: list[Record]) -> dict[str, Any]:
    return dict(explain(records, persistent.CAUSES, persistent.NAMED, split_last)[1].result)


def test_a_loss_is_held_to_the_measured_one(
    launch: Any, probes: Callable[..., list[Record]]
) -> None:
    slower = launch([3, 2], [0, 0], 1.5)
    loss = account(slower, 2)["span_us"] - account(launch([3, 2], [0, 0]), 2)["span_us"]
    result = explained(probes(1.5, 20.0 + loss))
    assert result["explained_share"] == pytest.approx(1.0)
    assert result["loss_us"] == pytest.approx(loss)
    named = sum(result[f"loss_{name}_us"] for name in persistent.NAMED)
    assert result["named_causes_share"] == pytest.approx(named / loss)
    assert result["named_causes_hold"] == float(named >= 0.8 * loss)


def test_what_instruments_cost_is_taken_off(
    launch: Any, probes: Callable[..., list[Record]]
) -> None:
    slower = launch([3, 2], [0, 0], 1.5)
    loss = account(slower, 2)["span_us"] - account(launch([3, 2], [0, 0]), 2)["span_us"]
    result = explained(probes(1.5, 20.0 + loss - 1.5, cost_us=1.5))
    assert result["loss_instruments_us"] == pytest.approx(-1.5)
    assert result["explained_share"] == pytest.approx(1.0)
    assert result["bare_share"] == pytest.approx(loss / (loss - 1.5))


def test_a_gain_has_no_causes_of_a_loss(probes: Callable[..., list[Record]]) -> None:
    result = explained(probes(0.7, 15.0))
    assert result["measured_loss_us"] == pytest.approx(-5.0)
    assert result["loss_us"] < 0
    assert result["named_causes_hold"] == 0.0
    assert result["named_causes_share"] is None


def test_a_probe_that_failed_is_passed_on(make_record: Callable[..., Record]) -> None:
    failed = make_record(None, variant="bcsr-opt3", role="probe", status="wrong", reason="why")
    assert explain([failed], persistent.CAUSES, persistent.NAMED) == [failed]


class Build:
    """A prepared build that takes some time; a probe's rows tell how often it ran."""

    def __init__(self, name: str, log: list[str], takes_us: float, rows: np.ndarray) -> None:
        self.name, self.log, self.takes_us, self.rows = name, log, takes_us, rows
        self.measurements = self.rows.view(np.uint8).reshape(len(self.rows), 3, -1)

    def run(self) -> None:
        self.log.append(self.name)
        self.rows["tiles"] += 1


class Timer:
    """A timer whose samples are what a build takes, more in each launch."""

    def __init__(self, builds: list[Build]) -> None:
        self.builds = {build.run: build for build in builds}

    def sample(self, run: Callable[[], None], l2: str, delay_ns: int) -> tuple[float, int]:
        run()
        assert l2 == "cold"
        build = self.builds[run]
        return build.takes_us + build.log.count(build.name), delay_ns


def test_builds_are_sampled_in_turn_and_each_launch_keeps_its_rows(launch: Any) -> None:
    log: list[str] = []
    first, second = (
        [Build(f"{k}{n}", log, 10.0 * n, launch([1], [0])) for n in range(2)] for k in "ab"
    )
    taken = sample_builds([first, second], rounds=3, timer=Timer([*first, *second]))
    assert log == ["a0", "a1", "b0", "b1"] * 4
    times, rows = taken[0]
    assert times == [[2.0, 3.0, 4.0], [12.0, 13.0, 14.0]]
    assert [one[0, 1]["tiles"] for one in rows] == [3, 4, 5]


def test_probes_are_prepared_checked_sampled_and_recorded(
    launch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way of a case on a GPU, with kernels that are made up."""
    log: list[str] = []
    times = {"plain": 20.0, "INSTRUMENT": 21.0, "UNFENCED": 15.0}
    builds: list[Build] = []

    class Kernels(Ours):
        def prepare(self, product: Product) -> Any:
            marks = [name for name in times if self.kernel.constants.get(name)]
            kind = marks[0] if marks else "plain"
            slower = 1.0 + 0.2 * (self.kernel.constants.get("CLUSTER", 1) == 2)
            one = Build(f"{kind}{len(builds)}", log, slower * times[kind],
                        launch([2, 2], [0, 0], slower))  # fmt: skip
            builds.append(one)
            return SimpleNamespace(
                run=one.run, output=None, measurements=one.measurements, params=self.params,
                kernel_hash="k", host_hash="h", compiler="none",
            )  # fmt: skip

    truth = SimpleNamespace(relative_error=lambda _: 0.001, err_bound=lambda _: 0.01)
    product = Product.random(one_dense_row(), 16, xp=np)
    measured: Any = SimpleNamespace(records=[], product=product, truth=truth)
    monkeypatch.setattr(run, "Ours", Kernels)
    monkeypatch.setattr(cta_times, "compile_many", lambda _: [])
    monkeypatch.setattr("asyncsparse_lab.spmm.product.poison", lambda _: None)
    monkeypatch.setattr(
        "asyncsparse_lab.gpu.device.device_facts", lambda: SimpleNamespace(sm_count=2)
    )
    monkeypatch.setattr("asyncsparse_lab.gpu.timing.device_timer", lambda: Timer(builds))
    kernels = cluster_multicast.variants()[:3]  # opt3, clusters of 1 and 2
    records = cta_times.account_probes(
        kernels, measured, "cluster-multicast", "toy", "toy", level=2, twins={"unfenced": unfenced}
    )
    records = explain(records, cluster_multicast.CAUSES, cluster_multicast.NAMED)
    assert [record.role for record in records] == ["probe"] * 3
    assert [record.status for record in records] == ["passed"] * 3
    last = records[-1].result
    assert last["launches"] == cta_times.ROUNDS // 2
    # The made-up timer adds 1 us a launch, and a probe's check is one more launch.
    assert last["cost_us"] == pytest.approx(1.2 * (21 - 20) + 1)
    assert last["measured_loss_us"] == pytest.approx(0.2 * 20)
    assert last["plain_us"] - last["unfenced_us"] == pytest.approx(1.2 * (20 - 15) - 1)
    assert last["loss_us"] == pytest.approx(
        last["span_us"] - records[0].result["span_us"] + last["loss_instruments_us"]
    )
    assert "unfenced_us" not in records[0].result


def test_outliers_do_not_count() -> None:
    times = [5.0, 900.0, 4.0, 6.0, 1.0, 5.5, 4.5, 800.0]
    assert middle_half(times) == [0, 3, 5, 6]
    found = summarise([times, [t + 2.0 for t in times], [3.0] * 8], ["unfenced"])
    assert found == {"plain_us": 5.25, "probe_us": 7.25, "unfenced_us": 3.0, "cost_us": 2.0}


def test_only_clusters_have_a_fence_to_leave_out() -> None:
    assert unfenced(VARIANTS["bcsr-opt3"]) is None
    made = [unfenced(variant) for variant in cluster_multicast.variants()]
    assert [twin and twin.constants["CLUSTER"] for twin in made] == [None, None, 2, 4]
    assert {twin.role for twin in made if twin} == {"probe"}


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
