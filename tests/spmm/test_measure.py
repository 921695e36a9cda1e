"""How a case becomes records: contenders that are right, wrong, refused or broken; no GPU."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from asyncsparse_lab.errors import DeviceError, MemoryLimitError, UnsupportedError
from asyncsparse_lab.formats import bfloat16_bits, bfloat16_from_bits
from asyncsparse_lab.gpu.timing import Ceilings
from asyncsparse_lab.spmm.contender import Prepared
from asyncsparse_lab.spmm.measure import measure_product
from asyncsparse_lab.spmm.product import Product


class FakeTimer:
    def __init__(self):
        self.calls = 0

    def sample(self, run, l2, delay_ns):
        run()
        self.calls += 1
        return (20.0 if l2 == "cold" else 10.0) + 0.001 * self.calls % 1, delay_ns

    def clock_mhz(self):
        return 1980.0


@dataclass
class Fake:
    """Computes the product in float32; ``spoil`` may break the result or raise."""

    variant: str = "right"
    spoil: object = None
    role: str = "library"
    backend: str = "scipy"
    params: dict = field(default_factory=lambda: {"fixed": 1})

    def prepare(self, product):
        output = product.new_output()
        calls = []

        def run():
            calls.append(1)
            C = product.A @ bfloat16_from_bits(product.B)
            output[...] = bfloat16_bits(C) if output.dtype == np.uint16 else C
            if self.spoil is not None:
                self.spoil(output, len(calls))

        if self.spoil is not None:
            self.spoil(None, 0)
        return Prepared(run, output, 12.3456, {"padded": False}, "k" * 64, "h" * 64, "fake 1.0")


def raising(error, at=0):
    def spoil(output, call):
        if call == at:
            raise error

    return spoil


@pytest.fixture
def product():
    A = csr_array(random_array((40, 30), density=0.2, format="csr", rng=0))
    return Product.random(A, 8, xp=np, dtype_out="float32")


def measured(contenders, product, **options):
    common = {"study": "s", "case": "c", "matrix": "m", "timer": FakeTimer()}
    return measure_product(contenders, product, **common, seconds=100.0, **options)


@pytest.mark.parametrize("dtype_out", ["float32", "bfloat16"])
def test_a_right_contender_leaves_a_full_record_for_each_l2_state(dtype_out):
    A = csr_array(random_array((40, 30), density=0.2, format="csr", rng=0))
    product = Product.random(A, 8, xp=np, dtype_out=dtype_out)
    cold, warm = measured([Fake()], product)
    assert (cold.l2, warm.l2) == ("cold", "warm")
    for record in (cold, warm):
        assert (record.status, record.reason, record.clock) == ("passed", None, "events")
        assert (record.study, record.case, record.op, record.matrix) == ("s", "c", "spmm", "m")
        assert (record.role, record.backend, record.variant) == ("library", "scipy", "right")
        assert (record.m, record.k, record.n, record.nnz) == (40, 30, 8, product.A.nnz)
        assert (record.dtype_in, record.dtype_out) == ("bfloat16", dtype_out)
        assert record.layout == "row-major"
        assert dict(record.params) == {"fixed": 1, "padded": False}
        assert (record.kernel_hash, record.host_hash) == ("k" * 64, "h" * 64)
        assert (record.compiler, record.preprocess_us) == ("fake 1.0", 12.35)
        assert 0 <= record.rel_err <= record.err_bound
        assert record.sample_count == len(record.samples_us) == 32
        expected = 2 * product.A.nnz * 8 / record.median_us / 1e6
        assert record.result["useful_tflops"] == pytest.approx(expected)
        assert record.result["clock_before_mhz"] == 1980.0
    assert 20 <= cold.median_us < 21
    assert 10 <= warm.median_us < 11


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (UnsupportedError("no bf16 here"), "unsupported", "no bf16 here"),
        (MemoryLimitError("needs 5 bytes"), "oom", "needs 5 bytes"),
        (MemoryError("pool is empty"), "oom", "MemoryError: pool is empty"),
        (DeviceError("launch failed\ndetails"), "error", "DeviceError: launch failed"),
    ],
)
@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_a_failure_is_a_record_and_does_not_stop_the_others(product, error, status, reason, at):
    records = measured([Fake("broken", raising(error, at)), Fake()], product)
    assert [r.status for r in records] == [status, status, "passed", "passed"]
    assert [r.l2 for r in records] == ["cold", "warm"] * 2
    for record in records[:2]:
        assert record.reason.endswith(reason)
        assert record.median_us is record.samples_us is None


def test_a_programming_error_is_not_swallowed(product):
    with pytest.raises(KeyError):
        measured([Fake("buggy", raising(KeyError("x")))], product)


def wrong_at(first_wrong_call):
    def spoil(output, call):
        if call and call >= first_wrong_call:
            output[3, 4] = 1e3

    return spoil


def test_a_wrong_result_is_not_timed(product):
    timer = FakeTimer()
    records = measure_product(
        [Fake("wrong", wrong_at(1))], product, study="s", case="c", matrix=None, timer=timer
    )
    assert timer.calls == 1
    for record in records:
        assert record.status == "wrong"
        assert "before the timed loop" in record.reason
        assert record.rel_err > record.err_bound
        assert record.median_us is None


def test_a_result_that_goes_wrong_during_timing_loses_its_time(product):
    records = measured([Fake("drifts", wrong_at(40)), Fake()], product)
    assert [r.status for r in records] == ["wrong", "wrong", "passed", "passed"]
    assert "after the timed loop" in records[0].reason
    assert records[0].median_us is None


def test_an_element_that_is_not_written_is_found_before_and_after(product):
    def leave_out(output, call):
        if call:
            output[7, 7] = np.nan

    records = measured([Fake("holes", leave_out)], product)
    assert {r.status for r in records} == {"wrong"}


def test_all_contenders_run_between_two_samples_of_one(product):
    order = []

    def note(name):
        return lambda output, call: order.append(name) if call else None

    measured([Fake("a", note("a")), Fake("b", note("b"))], product, l2_states=("cold",))
    timed = "".join(order)
    assert "ab" * 30 in timed


def test_an_impossible_time_becomes_an_error(product):
    ceilings = Ceilings(hbm_bytes_per_s=product.compulsory_bytes / 15e-6, mma_flops_per_s=1e30)
    (warm,) = measured([Fake()], product, l2_states=("warm",), ceilings=ceilings)
    assert warm.status == "passed"
    slower = Ceilings(hbm_bytes_per_s=product.compulsory_bytes / 30e-6, mma_flops_per_s=1e30)
    (cold,) = measured([Fake()], product, l2_states=("cold",), ceilings=slower)
    assert (cold.status, cold.median_us) == ("error", None)
    assert "below the HBM floor" in cold.reason


def test_nothing_ready_means_nothing_timed(product):
    records = measured([Fake("x", raising(UnsupportedError("no")))], product)
    assert {r.status for r in records} == {"unsupported"}
