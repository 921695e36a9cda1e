"""The protocol of the timing, with a timer and a clock that need no GPU."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from asyncsparse_lab.errors import DeviceError, InputError
from asyncsparse_lab.gpu.timing import (
    CAP_SECONDS,
    FLUSH_BYTES,
    Ceilings,
    DelayArguments,
    DeviceTimer,
    Timing,
    check_floor,
    sample_count,
    time_interleaved,
)


class FakeTimer:
    """Each run is the number of microseconds that it takes; wall time passes tenfold."""

    def __init__(self):
        self.now = 0.0
        self.order = []
        self.delays = {}
        self.clocks = iter((1980.04, 1755.0))

    def sample(self, run, l2, delay_ns):
        elapsed = run()
        self.now += 1e-5 * elapsed
        self.order.append((elapsed, l2))
        self.delays.setdefault(elapsed, []).append(delay_ns)
        return elapsed + 0.0049, delay_ns + 1

    def clock_mhz(self):
        self.order.append("clock")
        return next(self.clocks)


def timed(microseconds, **options):
    timer = FakeTimer()
    runs = [lambda value=value: value for value in microseconds]
    return timer, time_interleaved(runs, timer=timer, clock=lambda: timer.now, **options)


def test_samples_are_interleaved_between_two_readings_of_the_clock():
    timer, timings = timed([100.0, 190.0], l2="warm", seconds=0.05)
    first, last = (i for i, event in enumerate(timer.order) if event == "clock")
    measured = timer.order[first + 1 : last]
    assert last == len(timer.order) - 1
    assert measured[:4] == [(100.0, "warm"), (190.0, "warm")] * 2
    assert [len(t.samples_us) for t in timings] == [32, 26]
    assert len(measured) == 58
    assert measured[52:] == [(100.0, "warm")] * 6
    assert {t.clock_before_mhz for t in timings} == {1980.0}
    assert {t.clock_after_mhz for t in timings} == {1755.0}


def test_warm_up_lasts_two_rounds_or_twenty_milliseconds():
    timer, _ = timed([11.0], seconds=0.05)
    assert timer.order.index("clock") == 182
    timer, _ = timed([5000.0], seconds=0.05)
    assert timer.order.index("clock") == 2


def test_the_delay_of_each_run_is_handed_on_to_its_next_sample():
    timer, _ = timed([100.0, 200.0], seconds=0.05)
    for delays in timer.delays.values():
        assert np.all(np.diff(delays) == 1)


@pytest.mark.parametrize(
    ("cost", "seconds", "count"),
    [(1e-4, 0.05, 32), (0.0025, 0.05, 20), (0.02, 0.05, 10), (0.02, 0.5, 25), (0.0, 0.05, 32)],
)
def test_ten_to_thirty_two_samples(cost, seconds, count):
    assert sample_count(cost, seconds) == count


def test_no_contender_takes_more_than_the_cap():
    assert sample_count(CAP_SECONDS / 4, 60.0) == 4
    assert sample_count(10 * CAP_SECONDS, 0.05) == 1


def test_samples_are_rounded_to_ten_nanoseconds_and_quartiles_follow_from_them():
    timing = Timing.from_samples([3.14159, 2.0, 1.004, 4.016, np.float32(5.5)], 1980.0, 1980.0)
    assert timing.samples_us == (3.14, 2.0, 1.0, 4.02, 5.5)
    assert all(type(sample) is float for sample in timing.samples_us)
    assert (timing.q1_us, timing.median_us, timing.q3_us) == (2.0, 3.14, 4.02)


def test_no_runs_give_no_timings_and_touch_no_gpu():
    assert time_interleaved([]) == []


@pytest.mark.parametrize(
    ("options", "message"), [({"l2": "hot"}, "l2='hot'"), ({"seconds": 0.0}, "seconds=0.0")]
)
def test_bad_options_are_named(options, message):
    with pytest.raises(InputError, match=message):
        timed([1.0], **options)


@pytest.fixture
def on_a_stream():
    """A DeviceTimer whose stream is a list of what was enqueued; an event lasts 7 us."""
    stream = []
    timer = DeviceTimer.__new__(DeviceTimer)
    timer._arguments = DelayArguments()
    timer._cupy = SimpleNamespace(
        cuda=SimpleNamespace(
            get_current_stream=lambda: stream,
            get_elapsed_time=lambda start, end: 7e-3 if (start, end) == events else None,
        )
    )
    timer._flush = SimpleNamespace(
        data=SimpleNamespace(memset_async=lambda value, size, on: on.append(("flush", value, size)))
    )
    timer._delay = lambda: stream.append(("delay", timer._arguments.nanoseconds))

    def event(name):
        return SimpleNamespace(
            record=lambda on: on.append(name), synchronize=lambda: stream.append(f"wait for {name}")
        )

    events = (event("start"), event("end"))
    timer._start, timer._end = events
    return timer, stream


COLD = [("flush", 0, FLUSH_BYTES), ("delay", 100_000), "start", "run", "end", "wait for end"]


def test_a_run_that_waits_is_sampled_once_cold_behind_its_delay(on_a_stream):
    timer, stream = on_a_stream

    def run():
        stream.append("run")
        ends = time.perf_counter_ns() + 200_000  # longer than the delay: `sample` would try again
        while time.perf_counter_ns() < ends:
            pass

    assert timer.sample_waiting(run, 100_000) == pytest.approx(7.0)
    assert stream == COLD


def test_a_run_that_outlasts_its_delay_on_the_host_is_sampled_again(on_a_stream):
    timer, stream = on_a_stream
    elapsed, delay_ns = timer.sample(lambda: stream.append("run"), "cold", 0)
    assert elapsed == pytest.approx(7.0)
    assert delay_ns >= 50_000
    assert stream.count("run") >= 2
    stream.clear()
    timer.sample(lambda: stream.append("run"), "warm", 10**9)
    assert stream == [("delay", 10**9), "run", "start", "run", "end", "wait for end"]


CEILINGS = Ceilings(hbm_bytes_per_s=4e12, mma_flops_per_s=8e14)


def test_a_time_below_what_the_hardware_allows_is_an_error():
    # 40 MB at 4 TB/s take 10 us; 16 GFLOP at 800 TFLOP/s take 20 us
    check_floor(10.0, "cold", CEILINGS, compulsory_bytes=4e7, flops=0)
    with pytest.raises(DeviceError, match=r"8\.50 us \(cold\) is below the HBM floor of 10\.00 us"):
        check_floor(8.5, "cold", CEILINGS, compulsory_bytes=4e7, flops=0)
    check_floor(8.5, "warm", CEILINGS, compulsory_bytes=4e7, flops=0)
    for l2 in ("cold", "warm"):
        with pytest.raises(DeviceError, match="MMA floor of 20"):
            check_floor(15.0, l2, CEILINGS, compulsory_bytes=0, flops=1.6e10)
    check_floor(18.5, "warm", CEILINGS, compulsory_bytes=0, flops=1.6e10, slack=0.1)
