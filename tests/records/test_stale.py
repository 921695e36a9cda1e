from __future__ import annotations

from dataclasses import replace

import pytest

from asyncsparse_lab.records import stale
from asyncsparse_lab.records.frame import load_records
from asyncsparse_lab.spmm.plan_hash import plan_hash
from asyncsparse_lab.spmm.plan_rates import load_rates


@pytest.fixture
def compiler(monkeypatch):
    """A compiler "nvrtc 1" for which the kernel mine has the hashes h1 and h2."""
    monkeypatch.setattr(stale, "compiler_here", lambda: "nvrtc 1")
    hashes = {"mine": frozenset({"h1", "h2"})}
    monkeypatch.setattr(
        stale, "kernel_hashes", lambda study, variant: hashes.get(variant, frozenset())
    )


@pytest.mark.parametrize(
    ("variant", "kernel_hash", "compiled_by", "flag"),
    [
        ("mine", "h1", "nvrtc 1", False),
        ("mine", "h9", "nvrtc 1", True),
        ("gone", "h1", "nvrtc 1", True),
        ("mine", "h9", "nvrtc 2", False),  # another compiler makes other cubins
        ("dense", None, None, False),
    ],
)
def test_flags(compiler, make_record, variant, kernel_hash, compiled_by, flag):
    record = make_record(variant=variant, kernel_hash=kernel_hash, compiler=compiled_by)
    assert stale.stale_flags("toy", [record]) == [flag]


def test_without_a_compiler_nothing_is_called_stale(compiler, monkeypatch, make_record):
    monkeypatch.setattr(stale, "compiler_here", lambda: None)
    record = make_record(variant="mine", kernel_hash="h9", compiler="nvrtc 1")
    assert stale.stale_flags("toy", [record]) == [False]


def test_a_frame_says_which_rows_are_stale(compiler, checkout, make_record):
    keys = {"study": "formats", "variant": "mine", "compiler": "nvrtc 1"}
    checkout.record(
        "cpu",
        [make_record(kernel_hash="h1", **keys), make_record(kernel_hash="h9", n=9, **keys)],
    )
    assert load_records("formats", judge_kernels=True)["stale"].tolist() == [False, True]
    assert "stale" not in load_records("formats")


def test_sources_and_host_code_of_today_are_not_stale(make_record):
    pytest.importorskip("cuda.bindings.nvrtc")
    from asyncsparse_lab.spmm.run import compile_variant, host_hash
    from asyncsparse_lab.spmm.variants import find_variant

    variant = find_variant("bcsr-opt1")
    built = compile_variant(variant, "float32")
    now = {
        "variant": variant.name,
        "kernel_hash": built.kernel_hash,
        "host_hash": host_hash(variant),
        "compiler": built.compiler,
        "params": {name.lower(): value for name, value in variant.constants.items()},
    }
    records = [
        make_record(**now),
        make_record(**(now | {"kernel_hash": "0" * 64})),
        make_record(**(now | {"host_hash": "0" * 64})),
        make_record(**(now | {"params": {"wgmma_n": 7}})),
    ]
    assert stale.stale_flags("bcsr-ablation", records) == [False, True, True, True]


@pytest.mark.parametrize("asked", [0, 1])
@pytest.mark.parametrize("came_out", [False, True])
def test_an_option_may_be_told_by_its_outcome(make_record, asked, came_out):
    pytest.importorskip("cuda.bindings.nvrtc")
    from asyncsparse_lab.spmm.run import host_hash
    from asyncsparse_lab.spmm.variants import find_variant

    variant = find_variant("wcsr-pipelined").with_options(deterministic=asked)
    params = variant.params | {"deterministic": came_out}
    record = make_record(variant=variant.name, host_hash=host_hash(variant), params=params)
    assert not stale._host_changed(record)
    other = record.params | {"max_cols_per_task": 99}
    assert stale._host_changed(replace(record, params=other))


def test_a_plan_is_stale_when_the_planner_or_its_rates_changed(make_record, monkeypatch):
    plan = {"variant": "auto", "role": "planner", "us": None, "clock": "wall", "l2": None}
    rates = load_rates()
    records = [make_record(host_hash=found, **plan) for found in (plan_hash(), "0" * 12, None)]
    assert stale.stale_flags("planner", records) == [False, True, False]
    faster = replace(rates, empty_us=rates.empty_us / 2)
    assert plan_hash(faster) != plan_hash(rates) == plan_hash()
    monkeypatch.setattr("asyncsparse_lab.spmm.plan_hash.load_rates", lambda: faster)
    assert stale.stale_flags("planner", records) == [True, True, False]
    monkeypatch.setattr("asyncsparse_lab.spmm.plan_hash._code", lambda: "another planner")
    assert stale.stale_flags("planner", [make_record(host_hash=plan_hash(), **plan)]) == [False]
    assert stale.stale_flags("planner", records) == [True, True, False]


def test_a_time_of_auto_is_judged_as_that_of_what_it_chose(compiler, monkeypatch, make_record):
    from asyncsparse_lab.spmm.run import host_hash
    from asyncsparse_lab.spmm.variants import find_variant

    chosen = find_variant("wcsr-pipelined").with_constants(HEIGHT=128, MINIMUM_CTAS=2)
    auto = {
        "variant": "auto",
        "role": "planner",
        "kernel_hash": "h1",
        "compiler": "nvrtc 1",
        "params": chosen.params | {"chosen": chosen.name, "planner": "of another day"},
    }
    monkeypatch.setattr(stale, "kernel_hashes", lambda study, variant: frozenset({"h1"}))
    hashes = (host_hash(chosen), host_hash(find_variant("wcsr-pipelined")))
    records = [make_record(host_hash=found, **auto) for found in hashes]
    assert stale.stale_flags("suite", records) == [False, True]
