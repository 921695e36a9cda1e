"""Each library adapter against the FP64 reference, and the timing, on a GPU."""

import time

import numpy as np
import pytest
from scipy.sparse import csr_array

from asyncsparse_lab.baselines import BASELINES
from asyncsparse_lab.errors import DeviceError, UnsupportedError
from asyncsparse_lab.gpu.device import driver_is_loadable
from asyncsparse_lab.gpu.timing import device_timer, empty_kernel_us, time_interleaved
from asyncsparse_lab.spmm.edge_cases import empty_rows, random_blocks, random_matrix
from asyncsparse_lab.spmm.measure import measure_product
from asyncsparse_lab.spmm.oracle import reference
from asyncsparse_lab.spmm.product import Product, poison

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not driver_is_loadable(), reason="no NVIDIA driver"),
    pytest.mark.filterwarnings("default"),  # those of CuPy, torch and Triton are not ours
]

MATRICES = {
    "blocks": (lambda: random_blocks(256, 320, 0.5), 512),
    "ragged": (lambda: random_matrix(201, 330, 0.15, seed=7), 143),
    "empty-rows": (empty_rows, 200),
}
OUTPUTS = ("float32", "bfloat16")
# What an installed version may lack; everything else has to answer.
MAY_REFUSE = {("torch-bsr", "float32"), ("cusparse-bsr", "float32"), ("cusparse-bsr", "bfloat16")}


def prepared_or_skip(name, product):
    try:
        return BASELINES[name].prepare(product)
    except UnsupportedError as error:
        if (name, product.dtype_out) in MAY_REFUSE:
            pytest.skip(str(error))
        raise


def assert_right(prepared, product):
    truth = reference(product.A, product.B)
    poison(prepared.output)
    prepared.run()
    worst = truth.worst(prepared.output)
    assert worst.rel_err <= truth.err_bound(product.dtype_out), worst


@pytest.mark.parametrize("dtype_out", OUTPUTS)
@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("name", BASELINES)
def test_product_is_right(name, matrix, dtype_out):
    make, n = MATRICES[matrix]
    product = Product.random(make(), n, dtype_out=dtype_out, seed=11)
    prepared = prepared_or_skip(name, product)
    assert_right(prepared, product)
    assert prepared.preprocess_us > 0
    assert prepared.params["algorithm"]
    assert prepared.compiler
    if matrix == "blocks":
        assert prepared.params["padded"] is False


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize(
    "options",
    [{"n": 143, "row_stride": 151, "first_column": 3}, {"n": 1}, {"n": 64, "row_stride": 80}],
    ids=["odd-stride", "one-column", "wide-stride"],
)
def test_any_storage_of_b_is_right(name, options):
    product = Product.random(random_matrix(201, 330, 0.15), dtype_out="bfloat16", **options)
    assert_right(prepared_or_skip(name, product), product)


@pytest.mark.parametrize("name", BASELINES)
def test_no_nonzeros_give_zeros(name):
    product = Product.random(csr_array((200, 150), dtype=np.float32), 64, dtype_out="bfloat16")
    prepared = prepared_or_skip(name, product)
    prepared.run()
    assert not prepared.output.any()


@pytest.mark.parametrize("name", BASELINES)
def test_run_follows_the_current_stream(name):
    import cupy

    product = Product.random(random_blocks(256, 320, 0.5), 512, dtype_out="bfloat16")
    prepared = prepared_or_skip(name, product)
    cupy.cuda.get_current_stream().synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        assert_right(prepared, product)
        stream.synchronize()


@pytest.mark.parametrize("dtype_out", OUTPUTS)
def test_all_are_measured_together(dtype_out):
    product = Product.random(random_blocks(1024, 2048, 0.2), 1024, dtype_out=dtype_out, seed=5)
    records = measure_product(
        list(BASELINES.values()), product, study="test", case="together", matrix=None
    )
    for record in records:
        print(record.backend, record.variant, record.l2, record.status, record.median_us)
        name = f"{record.backend}-{record.variant}"
        allowed = {"passed"} | ({"unsupported"} if (name, dtype_out) in MAY_REFUSE else set())
        assert record.status in allowed, record.reason
        if record.status == "passed":
            assert 10 <= record.sample_count <= 32
            assert 0.5 < record.q3_us / record.q1_us < 1.5
            assert 300 < record.result["clock_before_mhz"] < 2300


def test_launch_latency_is_hidden():
    import cupy

    buffer = cupy.zeros(1 << 10, dtype=cupy.float32)

    def slow_host():
        time.sleep(0.001)
        buffer.fill(1)

    quick, slow = time_interleaved([lambda: buffer.fill(1), slow_host], "warm", 0.02)
    assert slow.median_us < quick.median_us + 5 < 25
    assert 0.5 < empty_kernel_us(0.02) < 10


def test_a_run_that_waits_for_the_gpu_is_refused():
    import cupy

    buffer = cupy.zeros(1 << 10, dtype=cupy.float32)
    with pytest.raises(DeviceError, match="waits for the GPU"):
        time_interleaved([lambda: float(buffer.sum())], "warm", 0.02)


def test_cold_samples_read_from_memory_and_warm_ones_from_l2():
    import cupy

    source = cupy.ones(16 << 20, dtype=cupy.uint8)
    target = cupy.empty_like(source)

    def copy():
        target.data.copy_from_device_async(source.data, source.nbytes)

    (cold,) = time_interleaved([copy], "cold", 0.02)
    (warm,) = time_interleaved([copy], "warm", 0.02)
    assert warm.median_us < cold.median_us
    assert source.nbytes / (1e-6 * cold.median_us) < 6e12


def test_clock_is_that_of_the_sm():
    first, second = device_timer().clock_mhz(), device_timer().clock_mhz()
    assert 200 < first < 2300
    assert abs(first - second) < 0.1 * first
