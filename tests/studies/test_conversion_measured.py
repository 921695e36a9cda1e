"""How the study of conversions measures: its clocks, its cuts and its records, without a GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from asyncsparse_lab.errors import MemoryLimitError
from asyncsparse_lab.gpu.compile import compile_kernel
from asyncsparse_lab.records import Record, stale
from asyncsparse_lab.records.record import MAX_SAMPLES
from asyncsparse_lab.spmm import convert, convert_kernels, convert_run
from asyncsparse_lab.spmm.code_hash import code_digest
from asyncsparse_lab.spmm.conversion_hash import conversion_hash
from asyncsparse_lab.spmm.product import Product
from asyncsparse_lab.spmm.run import Ours
from asyncsparse_lab.spmm.variants import VARIANTS
from asyncsparse_lab.spmm.windows import AUTO_LIMIT, CutRule
from asyncsparse_lab.studies import conversion, conversion_clocks
from asyncsparse_lab.studies.base import Case
from asyncsparse_lab.studies.conversion import Conversion

CASE = Case("power", "power", 512)


@dataclass
class Arrays:
    values: Any
    window_row_ptr: Any


def test_arrays_are_compared_bit_for_bit() -> None:
    first = Arrays(np.arange(4, dtype=np.uint16), np.array([0, 4]))
    other = Arrays(np.arange(4, dtype=np.uint16), np.array([0, 5]))
    fields = ("values", "window_row_ptr")
    assert conversion.different(first, first, fields) == []
    assert conversion.different(first, other, fields) == ["window_row_ptr"]
    short = Arrays(np.arange(3, dtype=np.uint16), np.array([0, 4]))
    assert conversion.different(first, short, fields) == ["values"]
    wide = Arrays(np.arange(4, dtype=np.int32), np.array([0, 4]))
    assert conversion.different(first, wide, fields) == ["values"]


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = SimpleNamespace(sm_count=132)
    monkeypatch.setattr("asyncsparse_lab.gpu.device.device_facts", lambda: facts)


@pytest.mark.parametrize(
    ("where", "clock", "l2"),
    [("host", "wall", None), ("gpu", "wall", None), ("gpu", "events", "cold")],
)
@pytest.mark.usefixtures("h200")
def test_a_record_says_what_was_converted_where(where: str, clock: str, l2: str | None) -> None:
    A = csr_array(np.eye(130, dtype=np.float32))
    product = Product.random(A, 8, xp=np)
    one = Conversion("wcsr", 128, where, clock)
    record = conversion._record(CASE, product, one, [3.0, 1.0, 2.0], "passed", None, [0.5])
    assert record.op == "convert"
    assert record.median_us == 2.0
    assert (record.clock, record.l2) == (clock, l2)
    assert record.params == {"window": 128, "where": where}
    assert record.result["stored"] == 128 + 16
    assert record.result["one_entry_us"] == 0.5
    build = convert_kernels.kernel_build(is_small=True)
    used = compile_kernel(build.source, build.entry, build.constants, build.arch).kernel_hash
    assert record.kernel_hash == (used if where == "gpu" else None)
    assert record.host_hash == (conversion_hash() if where == "gpu" else None)
    failed = conversion._record(CASE, product, one, [1.0], "wrong", "differ", [])
    assert failed.median_us is None


def test_records_of_other_host_code_are_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stale, "compiler_here", lambda: "nvrtc 1")
    monkeypatch.setattr(stale, "kernel_hashes", lambda study, variant: frozenset({"k"}))
    kernel = {"kernel_hash": "k", "compiler": "nvrtc 1"}
    values = {"study": "conversion", "case": "power", "op": "convert", "role": "ours",
              "backend": "asyncsparse", "variant": "wcsr", "status": "passed"}  # fmt: skip
    records = [
        Record(**values, **kernel, host_hash=conversion_hash()),
        Record(**values, **kernel, host_hash="0" * 64),
        Record(**values, **kernel),  # measured before there was a hash
        Record(**values),  # on the host
    ]
    assert stale.stale_flags("conversion", records) == [False, True, True, False]


def test_the_hash_is_of_all_that_the_host_runs() -> None:
    files = [Path(str(module.__file__)) for module in (convert, convert_kernels, convert_run)]
    assert conversion_hash() == code_digest(files)


@dataclass
class MadeUpGpu:
    """Its clocks, and what they saw: each call takes the next of the times, in microseconds."""

    times: list[float]
    sampled: list[tuple[str, int]]
    now: float = 0.0

    def sample_waiting(self, run: Callable[[], None], delay_ns: int) -> float:
        run()
        self.sampled.append(("events", delay_ns))
        return self.times.pop(0)

    def synchronize(self) -> None:
        self.sampled.append(("synchronised", 0))

    def perf_counter(self) -> float:
        return self.now

    def convert(self) -> float:
        self.now += 1e-6 * self.times[0]
        return self.times[0]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> MadeUpGpu:
    made_up = MadeUpGpu([], [])
    cupy = SimpleNamespace(cuda=SimpleNamespace(Device=lambda: made_up))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr("asyncsparse_lab.gpu.timing.device_timer", lambda: made_up)
    monkeypatch.setattr(conversion_clocks, "time", made_up)
    return made_up


def test_a_conversion_on_the_stream_is_sampled_by_events_after_a_warm_up(gpu: MadeUpGpu) -> None:
    gpu.times = [900.0, 12.0, 11.0, 13.0]
    made, samples = conversion_clocks.timed(gpu.convert, 3, "events")
    assert samples == [12.0, 11.0, 13.0]
    assert made == 13.0
    assert gpu.sampled == [("events", 100_000)] * 4


def test_the_host_s_clock_waits_for_an_idle_gpu_before_and_after(gpu: MadeUpGpu) -> None:
    def convert_next() -> float:
        took = gpu.convert()
        gpu.times.pop(0)
        gpu.sampled.append(("converted", 0))
        return took

    gpu.times = [900.0, 12.0, 11.0]
    made, samples = conversion_clocks.timed(convert_next, 2, "wall")
    assert samples == pytest.approx([12.0, 11.0])
    assert made == 11.0
    assert [what for what, _ in gpu.sampled] == ["synchronised", "converted", "synchronised"] * 3


@pytest.mark.parametrize("times", [[20_001.0, 1.0], [1.0, 20_001.0, 1.0]])
def test_a_long_conversion_is_not_repeated(gpu: MadeUpGpu, times: list[float]) -> None:
    gpu.times = list(times)
    assert conversion_clocks.timed(gpu.convert, 11, "events") == (20_001.0, [20_001.0])
    assert gpu.times == [1.0]


def test_each_moment_has_a_call_that_does_not_count(gpu: MadeUpGpu) -> None:
    gpu.times = [900.0, 1.0, 2.0, 800.0, 3.0, 4.0]
    assert conversion_clocks.timed(gpu.convert, 2, "events", 2)[1] == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("clock", ["wall", "events"])
def test_a_result_is_freed_before_the_next_call(gpu: MadeUpGpu, clock: str) -> None:
    alive: list[int] = []
    most: list[int] = []

    class Result:
        def __init__(self) -> None:
            alive.append(1)
            most.append(len(alive))

        def __del__(self) -> None:
            alive.pop()

    gpu.times = [1.0] * 4
    made, _ = conversion_clocks.timed(Result, 3, clock)
    assert most == [1, 1, 1, 1]
    assert isinstance(made, Result)


@pytest.mark.parametrize(("height", "places"), [(64, 3 * 132), (128, 2 * 132), (256, 132)])
@pytest.mark.usefixtures("h200")
def test_windows_are_cut_by_the_rule_of_their_kernel(
    monkeypatch: pytest.MonkeyPatch, height: int, places: int
) -> None:
    given: list[Any] = []

    def windows_from_csr(*arguments: Any) -> tuple[str, str]:
        given.append(arguments)
        return "windows", "pieces"

    monkeypatch.setattr(conversion, "windows_from_csr", windows_from_csr)
    product = Product.random(csr_array(np.eye(300, dtype=np.float32)), 500, xp=np)
    convert_once = Conversion("wcsr", height, "gpu").function(product)
    assert convert_once() == "windows"
    ((csr, shape, rows, rule),) = given
    assert csr is product.device_csr
    assert (shape, rows, rule) == ((300, 300), height, CutRule(AUTO_LIMIT, 4, places))
    kernel = conversion.window_kernels()[height]
    assert kernel.options["deterministic"], "as windows are cut here"
    assert kernel in conversion.kernels()


@pytest.mark.usefixtures("h200")
def test_the_host_cuts_by_the_same_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    pointer = np.array([0, 160_000, 160_016])
    windows = SimpleNamespace(window_row_ptr=pointer, window_col_idx="indices")
    copied: list[Any] = []
    monkeypatch.setattr(
        "asyncsparse_lab.spmm.windows.DeviceWindows.from_csr", lambda A, height: windows
    )
    monkeypatch.setattr(
        "asyncsparse_lab.spmm.windows.WindowPieces.on_device",
        lambda self, indices: copied.append((self.count, self.limit, self.slots, indices)),
    )
    product = Product.random(csr_array(np.eye(128, dtype=np.float32)), 512, xp=np)
    convert_once = Conversion("wcsr", 64, "host").function(product)
    assert convert_once() is windows
    limit = 1616  # what each of 396 places has of 4 tiles of columns
    assert copied == [(101, limit, 100, "indices")], "a window in 100 pieces, the other in one"


@pytest.mark.parametrize(
    ("broken", "statuses"),
    [
        (None, ["passed"] * 12),
        ("gpu", ["passed", "wrong", "wrong"] * 4),
        ("memory of the host", [*["passed"] * 6, *["oom", "passed", "passed"] * 2]),
        ("memory of the GPU", ["passed", "oom", "oom"] * 4),
    ],
)
def test_each_clock_has_a_record_and_each_result_is_compared(
    monkeypatch: pytest.MonkeyPatch, broken: str | None, statuses: list[str]
) -> None:
    A = csr_array(np.eye(130, dtype=np.float32))
    product = Product.random(A, 8, xp=np)
    monkeypatch.setattr(
        conversion.Product, "random", classmethod(lambda cls, A, n: SimpleNamespace(m=64))
    )
    monkeypatch.setattr(conversion, "_kernel", lambda product: {})
    monkeypatch.setattr(Conversion, "function", lambda self, product: (self, product))
    timed_by: list[tuple[str, str, int]] = []

    def timed_once(
        one: tuple[Conversion, Any], repeats: int, clock: str, moments: int = 1
    ) -> tuple[Any, list[float]]:
        (made_by, converts) = one
        if converts is not product:  # a matrix of one entry
            return None, [{"wall": 2.0, "events": 1.0}[clock]]
        timed_by.append((made_by.where, clock, repeats * moments))
        is_on_gpu = made_by.where == "gpu"
        is_too_much = is_on_gpu or made_by.size > 64
        if is_too_much and broken == ("memory of the GPU" if is_on_gpu else "memory of the host"):
            raise MemoryLimitError("too much")
        fields = dict.fromkeys(made_by.fields, np.arange(made_by.size))
        if is_on_gpu and broken == "gpu":
            fields[made_by.fields[-1]] = np.arange(made_by.size)[::-1]
        return SimpleNamespace(**fields), [{"wall": 30.0, "events": 20.0}[clock]] * repeats

    monkeypatch.setattr(conversion, "timed", timed_once)
    records = conversion._converted(CASE, product)
    assert [record.status for record in records] == statuses
    assert timed_by == [("host", "wall", 3), ("gpu", "wall", 30), ("gpu", "events", 30)] * 4
    assert len({record.identity() for record in records}) == 12
    for record in records:
        if record.status == "passed":
            times = (record.median_us, record.result["one_entry_us"])
            assert times == ((20.0, 1.0) if record.clock == "events" else (30.0, 2.0))


def test_five_products_stand_beside_a_conversion_by_the_same_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launched: list[Any] = []

    def prepare(self: Ours, product: Any) -> SimpleNamespace:
        return SimpleNamespace(run=lambda: launched.append(self.kernel))

    def timed_once(run: Any, repeats: int, clock: str, moments: int) -> tuple[Any, list[float]]:
        assert (repeats * moments, clock) == (30, "wall")
        return run(), [3.0, 9.0, 4.0]

    monkeypatch.setattr(Ours, "prepare", prepare)
    monkeypatch.setattr(conversion, "timed", timed_once)

    def record(variant: str, where: str, clock: str, status: str = "passed") -> Record:
        params = {"block" if variant == "bcsr" else "window": 64, "where": where}
        return Record(study="conversion", case="power", op="convert", role="ours",
                      backend="asyncsparse", variant=variant, status=status, clock=clock,
                      reason="full" if status == "oom" else None,
                      params=params, result={"stored": 1})  # fmt: skip

    for variant, kernel in (("bcsr", "bcsr-overlap"), ("wcsr", "wcsr-pipelined")):
        beside = conversion._beside_products(record(variant, "gpu", "wall"), SimpleNamespace())
        assert beside.result == {"stored": 1, "five_products_us": 4.0}
        assert launched == [VARIANTS[kernel]] * 5
        launched.clear()
    others = [("host", "wall"), ("gpu", "events"), ("gpu", "wall", "oom")]
    for other in (record("wcsr", *which) for which in others):
        assert conversion._beside_products(other, SimpleNamespace()) is other


def test_a_record_keeps_all_samples() -> None:
    assert conversion.REPEATS * conversion.MOMENTS <= MAX_SAMPLES
