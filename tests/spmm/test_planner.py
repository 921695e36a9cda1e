from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from asyncsparse_lab.errors import InputError, MemoryLimitError, UnsupportedError
from asyncsparse_lab.formats import BCSR, WCSR
from asyncsparse_lab.spmm import plan_works as works
from asyncsparse_lab.spmm import planner
from asyncsparse_lab.spmm.builds import all_builds
from asyncsparse_lab.spmm.contender import Prepared
from asyncsparse_lab.spmm.cost import HBM, HIDDEN, IMBALANCE, L2, Work, predict
from asyncsparse_lab.spmm.orders import SIMILARITY, row_order
from asyncsparse_lab.spmm.plan_hash import plan_hash
from asyncsparse_lab.spmm.plan_models import MODELS, configurations, variant_of, work_of
from asyncsparse_lab.spmm.plan_rates import (
    Coefficients,
    load_rates,
    rates_text,
    read_rates,
)
from asyncsparse_lab.spmm.plan_structure import Structure, structure_of
from asyncsparse_lab.spmm.planner import Auto, Candidate, candidates
from asyncsparse_lab.spmm.product import Product

from .planning import RATES, dense_blocks, problem, sparse


def test_parts_add_up_and_the_largest_is_the_bound():
    for A in (sparse(), dense_blocks(), sparse(density=0.0001), csr_array((300, 200))):
        for one in candidates(A, 512, rates=RATES):
            assert one.predicted_us == pytest.approx(sum(one.parts.values()))
            assert all(us >= 0 for us in one.parts.values())
            assert one.parts[one.bound_by] == max(one.parts.values())


def test_candidates_come_fastest_first_and_every_kernel_is_among_them():
    found = candidates(sparse(), 512, dtype_out="float32", rates=RATES)
    times = [one.predicted_us for one in found]
    assert times == sorted(times)
    names = {one.name for one in found}
    assert {variant.name for variant in configurations()} <= names
    assert {"cublas-dense", "cusparse-csr-alg2", "cusparse-csr-alg3"} <= names


def test_work_by_hand_of_one_task():
    # 1 us of L2 on the whole GPU is 10 us on one of 10 slots; twice that at half the efficiency.
    work = Work(np.array([1.0]), np.array([0.25]), "tensor cores", 10, hbm_us=3.0, steps=4)
    cost = predict(work, Coefficients(fixed_us=5.0, efficiency=0.5, task_us=0.5), empty_us=2.0)
    assert cost.us == pytest.approx(5 + 20 + 4 * 0.5 + 3)
    assert cost.bound_by == IMBALANCE  # one slot of ten works
    assert cost.parts[L2] == pytest.approx(2)
    serial = predict(replace(work, overlapped=False), Coefficients(5.0, 0.5, 0.5), 2.0)
    assert serial.us == pytest.approx(cost.us + 5)
    twice = predict(replace(work, launches=2), Coefficients(5.0, 0.5, 0.5), 2.0)
    assert twice.us == pytest.approx(cost.us + 2)


def test_stages_and_merges_take_their_time():
    work = Work(np.zeros(3), np.zeros(3), "FP32 units", 3, 0.0, stages=np.array([2, 4, 8]))
    fitted = Coefficients(1.0, stage_us=0.5, merge_us=3.0)
    assert predict(work, fitted, 0.0).us == pytest.approx(1 + 4)
    cut = replace(work, merges=np.array([0, 2, 0]))
    assert predict(cut, fitted, 0.0).us == pytest.approx(1 + 2 + 6)


def test_the_exponent_says_how_far_hbm_is_hidden():
    work = Work(np.full(10, 1.0), np.zeros(10), "FP32 units", 10, hbm_us=8.0)
    free = Coefficients(0.0)
    assert predict(work, free, 0.0).us == pytest.approx(18)
    assert predict(replace(work, hbm_exponent=2.0), free, 0.0).us == pytest.approx(164**0.5)
    hidden = predict(replace(work, hbm_exponent=HIDDEN), free, 0.0)
    assert hidden.us == pytest.approx(10)
    assert hidden.parts[HBM] == 0


def test_windows_are_cut_like_the_tasks():
    from asyncsparse_lab.formats.tasks import window_tasks

    counts = -(-WCSR.count_columns(sparse(density=0.05), 64) // 16) * 16
    pointer = np.concatenate([[0], np.cumsum(counts)])
    for limit in (0, 16, 256, 4096):
        tasks = window_tasks(pointer, limit or None)
        lengths, parts = works.cut(counts, limit)
        assert sorted(np.stack([lengths, parts], 1).tolist()) == sorted(tasks[:, 2:].tolist())


def test_blocks_move_what_the_format_stores():
    A = dense_blocks()
    work, device_bytes = works.blocks_work(problem(A), 512)
    blocks = BCSR.predict(A, value_bytes=2)
    moved = blocks.stored * (64 * 64 * 2 + 64 * 512 * 2) + A.shape[0] * 512 * 2
    assert work.moved_us.sum() == pytest.approx(moved / RATES.tma_bytes_per_us)
    assert work.computed_us.sum() == pytest.approx(
        2 * blocks.stored * 64 * 64 * 512 / RATES.mma_flops_per_us
    )
    assert blocks.bytes <= device_bytes < 1.01 * blocks.bytes


def test_pairs_load_shared_slices_once():
    halves = np.kron(np.eye(4), np.ones((2, 1)))  # block rows 2 i and 2 i + 1 are alike
    A = csr_array(np.kron(halves, np.ones((64, 64))))
    work, _ = work_of("bcsr-paired", {"wgmma_n": 256}, problem(A, n=512))
    moved = 2 * (2 * 64 * 64 + 64 * 256 + 128 * 256)  # two blocks, a slice of B, a tile of C
    assert work.moved_us.tolist() == pytest.approx([moved / RATES.tma_bytes_per_us] * 4)
    assert work.repeats == 2


@pytest.mark.parametrize("longest", [3, 40_000])
def test_rows_are_shared_out_as_the_kernel_does(longest):
    rng = np.random.default_rng(0)
    lengths = np.r_[rng.integers(0, 4, 3000), longest]
    columns = np.concatenate([np.sort(rng.permutation(40_000)[:length]) for length in lengths])
    pointer = np.r_[0, np.cumsum(lengths)]
    A = csr_array((np.ones(len(columns)), columns, pointer), shape=(3001, 40_000))
    work, device_bytes = work_of("csr-vector", {}, problem(A, n=256))
    assert work.repeats == 1
    flops = 2 * A.nnz * 256
    assert work.computed_us.sum() == pytest.approx(flops / RATES.fma_flops_per_us)
    least = A.nnz * 2 * 256 + 3001 * 256 * 2
    assert least < work.moved_us.sum() * RATES.gather_bytes_per_us < 1.1 * least
    assert work.moved_us.max() < work.moved_us.sum() / 10  # the long row is cut
    pieces = np.count_nonzero(work.merges)
    assert pieces > 1 if longest > 3 else pieces == 0
    assert np.max(work.merges) == (pieces + 1 if pieces else 0)  # one of them adds up all
    assert device_bytes >= 6 * A.nnz


def test_the_pattern_decides():
    rng = np.random.default_rng(0)
    full = csr_array(rng.random((2000, 2000)))
    best = candidates(full, 1024)[0]
    assert best.name == "cublas-dense"
    assert best.bound_by == "tensor cores"
    assert candidates(dense_blocks(200, 60), 1024)[0].name.startswith("bcsr")
    assert candidates(sparse(20_000, 20_000, 2e-5), 1024)[0].name not in ("cublas-dense",)


def hidden_groups():
    """Return 16 groups of 64 rows that share 200 of 3000 columns, no two next to each other."""
    rng = np.random.default_rng(0)
    groups = [rng.permutation(3000)[:200] for _ in range(16)]
    columns = np.concatenate([np.sort(groups[row % 16]) for row in range(1024)])
    pointer = 200 * np.arange(1025)
    return csr_array((np.ones(len(columns)), columns, pointer), shape=(1024, 3000))


def test_another_order_is_looked_at_for_many_products_only():
    A = hidden_groups()
    for few in (None, 1):
        assert not any(one.order for one in candidates(A, 512, products=few))
    found = candidates(A, 512, products=10**6)
    best, stored = found[0], next(one for one in found if not one.order)
    assert (best.label, best.contender.params["row_order"]) == ("wcsr-pipelined, similarity", 1)
    assert best.predicted_us < 0.8 * stored.predicted_us
    saved = stored.predicted_us - best.predicted_us
    assert best.ordering_us > 0
    assert best.paid_after(found) == pytest.approx(best.ordering_us / saved)
    assert best.predicted_us == pytest.approx(sum(best.parts.values()))
    shown = planner.table(found)
    assert shown["order"][0] == "similarity"
    assert shown["paid_after"][0] == best.paid_after(found)
    assert "order" not in planner.table(candidates(A, 512))


def test_reordered_windows_cost_what_their_rows_cost_in_that_order():
    A = hidden_groups()
    ordered = A[row_order(A, SIMILARITY)]
    expected = {
        str(one.contender.params | {"row_order": SIMILARITY}): one.predicted_us
        for one in candidates(ordered, 512) if one.name == "wcsr-pipelined"
    }  # fmt: skip
    found = {
        str(one.contender.params): one.predicted_us
        for one in candidates(A, 512, products=10**6) if one.order == "similarity"
    }  # fmt: skip
    assert found == pytest.approx(expected)


def test_ordering_is_shared_by_the_products_to_come(monkeypatch):
    structure = structure_of(hidden_groups())
    found = candidates(structure, 512, products=10**9)
    best, stored = found[0], next(one for one in found if not one.order)
    slow = 1e6 * (stored.predicted_us - best.predicted_us)  # has paid after a million products
    ordered = structure.ordered(SIMILARITY)
    monkeypatch.setitem(structure._ordered, SIMILARITY, replace(ordered, ordering_us=slow))
    assert candidates(structure, 512, products=1_001_000)[0].order == "similarity"
    assert not candidates(structure, 512, products=999_000)[0].order


def test_an_order_that_cannot_pay_is_not_made(monkeypatch):
    structure = replace(structure_of(hidden_groups()), counted_us=1e9)
    monkeypatch.setattr(Structure, "ordered", None)  # would be called
    assert not any(one.order for one in candidates(structure, 512, products=10**6))
    blocks = replace(structure, counted_us=0.0, csr=None)
    assert not any(one.order for one in candidates(blocks, 512, products=10**6))


def test_what_does_not_fit_is_never_chosen():
    A = sparse(3000, 3000, 0.002)
    every = candidates(A, 64, rates=RATES, memory_bytes=10**12)
    least = min(one.device_bytes for one in every)
    some = candidates(A, 64, rates=RATES, memory_bytes=4 * least)
    assert len(some) < len(every)
    assert all(one.device_bytes <= 4 * least for one in some)
    with pytest.raises(MemoryLimitError, match=rf"needs {least:,} bytes as \S+, {least - 1:,} are"):
        candidates(A, 64, rates=RATES, memory_bytes=least - 1)


def test_b_and_c_count_against_the_gpu():
    A = sparse(3000, 3000, 0.002)
    small = replace(RATES, memory_bytes=2 * 2 * 3000 * 4096)
    with pytest.raises(MemoryLimitError, match="take a smaller n"):
        candidates(A, 4096, rates=small)


def test_padded_formats_end_where_their_adapters_refuse():
    dense = structure_of(csr_array(([1.0], ([0], [0])), shape=(100_000, 100_000)))
    names = {one.name for one in candidates(dense, 64, rates=RATES)}
    assert "cublas-dense" not in names
    assert "cusparse-blocked-ell" in names


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"dtype_in": "float64"}, "dtype_in='float64'"),
        ({"dtype_out": "float16"}, "dtype_out='float16'"),
        ({"layout": "tiled"}, "layout='tiled'"),
        ({"n": 0}, "n=0: pass the columns of B"),
        ({"products": 0}, "products=0: pass how many"),
        ({"products": 1.5}, "products=1.5: pass how many"),
    ],
)
def test_bad_input_is_refused(keywords, message):
    with pytest.raises(InputError, match=message):
        candidates(sparse(), **({"n": 8} | keywords), rates=RATES)


def test_only_what_takes_the_types_is_a_candidate():
    half = {one.name for one in candidates(sparse(), 64, dtype_in="float16", dtype_out="float16")}
    assert {"cublas-dense", "bcsr-overlap"} <= half
    assert not {"bcsr-opt3", "cusparse-csr-alg3"} & half
    names = {one.name for one in candidates(sparse(), 64)}
    assert "cusparse-csr-alg2" not in names  # rounds sums to bf16 on the way
    assert "cusparse-csr-alg3" in names


def test_every_configuration_is_modelled_and_built():
    built = {(build.variant.name, str(build.variant.constants)) for build in all_builds()}
    for variant in configurations():
        assert variant.name in MODELS
        assert (variant.name, str(variant.constants)) in built  # options change no code
        assert variant_of(variant.name, variant.params) == variant


def test_a_kernel_without_a_model_is_named():
    with pytest.raises(InputError, match="no cost model of 'nothing'"):
        work_of("nothing", {}, problem(sparse()))


def test_committed_rates_come_from_records_and_survive_a_round_trip():
    rates = load_rates()
    assert rates.provenance["ceilings_runs"]
    assert rates.provenance["fitted_runs"]
    assert all(one.records for one in rates.kernels.values())
    again = read_rates(rates_text(rates))
    assert again.kernels.keys() == rates.kernels.keys()
    assert again.tma_bytes_per_us == pytest.approx(rates.tma_bytes_per_us, rel=1e-5)
    assert rates_text(again) == rates_text(rates)
    assert rates.of("never fitted") == Coefficients(rates.empty_us)


def test_rates_that_are_not_there_are_refused():
    with pytest.raises(InputError, match="no rates of nvidia-none"):
        load_rates("nvidia-none")
    with pytest.raises(InputError, match="holds no rates"):
        read_rates("[rates]\n")


@dataclass
class Toy:
    """A contender that is prepared, or refuses."""

    variant: str
    refusal: Exception | None = None
    role: str = "ours"
    backend: str = "asyncsparse"
    params: dict[str, Any] = field(default_factory=lambda: {"stages": 3})

    def prepare(self, product: Product) -> Prepared:
        if self.refusal:
            raise self.refusal
        return Prepared(lambda: None, product.new_output(), 5.0, {"padded": False})


@pytest.fixture
def planned(monkeypatch):
    """Let the planner find these contenders, in this order."""

    def plan(*contenders):
        found = [Candidate(one, 1.0 + i, {}, L2, 0) for i, one in enumerate(contenders)]
        monkeypatch.setattr(planner, "candidates", lambda *args, **kwargs: found)
        return Product.random(sparse(64, 64, 0.1), 8, xp=np)

    return plan


def test_auto_prepares_the_best_and_names_it():
    product = Product.random(sparse(64, 64, 0.1), 8, xp=np)
    assert Auto().role == "planner"
    assert (Auto().backend, Auto().variant, Auto().params) == ("asyncsparse", "auto", {})
    assert product.n == 8


def test_auto_passes_over_who_refuses(planned):
    product = planned(
        Toy("first", MemoryLimitError("too large")),
        Toy("second", UnsupportedError("no cuSPARSE")),
        Toy("third"),
        Toy("fourth"),
    )
    prepared = Auto().prepare(product)
    found = {"stages": 3, "padded": False, "chosen": "third", "planner": plan_hash()}
    assert prepared.params == found
    assert prepared.preprocess_us > 5.0  # planning is part of it


def test_auto_raises_where_nobody_can(planned):
    product = planned(Toy("a", MemoryLimitError("too large")), Toy("b", UnsupportedError("no b")))
    with pytest.raises(UnsupportedError, match="no b"):
        Auto().prepare(product)


def test_auto_leaves_room_for_c(monkeypatch):
    asked = {}
    one = Candidate(Toy("only"), 1.0, {}, L2, 0)
    monkeypatch.setattr(planner, "free_bytes", lambda xp: 10**6)
    monkeypatch.setattr(
        planner, "candidates", lambda *args, **keywords: asked.update(keywords) or [one]
    )
    Auto().prepare(Product.random(sparse(64, 64, 0.1), 8, dtype_out="float32", xp=np))
    assert asked["memory_bytes"] == 10**6 - 4 * 64 * 8
