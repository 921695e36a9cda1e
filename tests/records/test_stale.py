from __future__ import annotations

from dataclasses import replace

import pytest

from asyncsparse_lab.records import stale
from asyncsparse_lab.records.frame import load_records


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
