import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from asyncsparse_lab.baselines.operands import is_aligned, library_operands, timed_conversion
from asyncsparse_lab.errors import MemoryLimitError
from asyncsparse_lab.spmm import product as product_module
from asyncsparse_lab.spmm.product import Product


def make(m=70, k=50, n=24, **options):
    A = csr_array(random_array((m, k), density=0.1, format="csr", rng=0))
    return Product.random(A, n, xp=np, **options)


def aligned_product(**options):
    """NumPy aligns to 16 bytes only by chance above the allocator's own alignment: ask again."""
    product = make(**options)
    assert product.B.ctypes.data % 16 == 0
    return product


def test_what_fits_is_used_in_place():
    product = aligned_product(n=24)
    operands = library_operands(product, row_multiple=64, k_multiple=64, column_multiple=8)
    assert not operands.padded
    assert np.shares_memory(operands.B, product.B)
    assert operands.B.shape == (64, 24)
    assert operands.C.shape == (128, 24)
    assert operands.output.shape == (70, 24)
    assert np.shares_memory(operands.C, operands.output)

    def call():
        raise AssertionError("only wrapped")

    assert operands.around(call) is call


def test_no_multiples_take_any_stride_in_place():
    product = make(n=13, row_stride=21, first_column=3)
    operands = library_operands(product)
    assert not operands.padded
    assert operands.B.strides == (42, 2)
    assert operands.C.shape == (70, 13)


@pytest.mark.parametrize(
    "options",
    [
        {"n": 143},
        {"n": 1},
        {"n": 24, "row_stride": 29},
        {"n": 24, "row_stride": 32, "first_column": 1},
    ],
)
@pytest.mark.parametrize("dtype_out", ["float32", "bfloat16"])
def test_padded_workspaces_are_copied_within_each_run(options, dtype_out):
    product = make(dtype_out=dtype_out, **options)
    n = product.n
    operands = library_operands(product, row_multiple=64, k_multiple=8, column_multiple=8)
    assert operands.padded
    assert operands.B.shape == (56, n + -n % 8)
    assert operands.C.shape == (128, n + -n % 8)
    assert is_aligned(operands.B) or operands.B.strides[0] % 16 == 0
    seen = []

    def call():
        seen.append(operands.B.copy())
        operands.C[...] = len(seen)

    run = operands.around(call)
    run()
    np.testing.assert_array_equal(seen[0][:50, :n], product.B)
    assert not seen[0][50:].any()
    assert not seen[0][:, n:].any()
    assert (operands.output == 1).all()
    product.B[...] = 5
    run()
    assert (seen[1][:50, :n] == 5).all()
    assert operands.output.shape == (70, n)
    assert (operands.output == 2).all()


def test_b_without_zero_rows_behind_it_is_copied_for_padded_k():
    whole = make(n=24)
    product = Product(whole.A, 24, "bfloat16", "float32", "row-major", whole.B)
    assert library_operands(product, k_multiple=64).padded
    assert not library_operands(product, k_multiple=10).padded


def test_workspaces_that_do_not_fit_are_refused(monkeypatch):
    product = make()
    monkeypatch.setattr(product_module, "free_bytes", lambda xp: 100)
    with pytest.raises(MemoryLimitError, match="C and its workspaces"):
        library_operands(product)


def test_the_first_conversion_of_a_kind_is_not_the_one_that_counts():
    calls = []
    result, elapsed = timed_conversion("test-kind", lambda: calls.append(1) or len(calls), np)
    assert (result, len(calls)) == (2, 2)
    result, elapsed = timed_conversion("test-kind", lambda: calls.append(1) or len(calls), np)
    assert (result, len(calls)) == (3, 3)
    assert 0 < elapsed < 1e6
