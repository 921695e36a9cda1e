from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from asyncsparse_lab.errors import InputError, MemoryLimitError, UnsupportedError
from asyncsparse_lab.formats import bfloat16_from_bits, round_to_bfloat16
from asyncsparse_lab.spmm import product as product_module
from asyncsparse_lab.spmm.product import Product, poison, predicted_bytes


@pytest.fixture
def matrix() -> csr_array:
    return csr_array(random_array((70, 50), density=0.1, format="csr", rng=0))


def make(A, n=24, **options):
    return Product.random(A, n, xp=np, **options)


def test_random_values_are_bf16_and_keep_the_pattern(matrix):
    before = matrix.copy()
    product = make(matrix)
    np.testing.assert_array_equal(product.A.indices, matrix.indices)
    np.testing.assert_array_equal(product.A.indptr, matrix.indptr)
    assert product.A.dtype == np.float32
    np.testing.assert_array_equal(round_to_bfloat16(product.A.data), product.A.data)
    assert np.unique(product.A.data).size > product.A.nnz // 2
    assert (matrix != before).nnz == 0


def test_values_of_the_matrix_are_rounded(matrix):
    product = make(matrix, values="matrix")
    expected = round_to_bfloat16(matrix.data.astype(np.float32))
    np.testing.assert_array_equal(product.A.data, expected)
    assert not np.array_equal(expected, matrix.data)


def test_b_is_standard_normal_and_fresh_for_each_seed(matrix):
    wide = csr_array((1, 5000), dtype=np.float64)
    values = bfloat16_from_bits(make(wide, 8, seed=3).B)
    assert abs(values.mean()) < 0.03
    assert abs(values.std() - 1) < 0.03
    np.testing.assert_array_equal(make(matrix, seed=3).B, make(matrix, seed=3).B)
    assert not np.array_equal(make(matrix, seed=3).B, make(matrix, seed=4).B)


def test_rows_of_b_have_the_stride_asked_for_and_go_on_with_zeros(matrix):
    product = make(matrix, n=13, row_stride=21, first_column=3)
    assert product.B.shape == (50, 13)
    assert product.B.strides == (42, 2)
    assert product.padded_B.shape == (64, 13)
    assert np.shares_memory(product.B, product.padded_B)
    assert not product.padded_B[50:].any()
    assert product.B.any(axis=1).all()


def test_output_begins_as_nan(matrix):
    for dtype_out, dtype in (("float32", np.float32), ("bfloat16", np.uint16)):
        output = make(matrix, dtype_out=dtype_out).new_output(rows=128)
        assert output.shape == (128, 24)
        assert output.dtype == dtype
        values = bfloat16_from_bits(output) if dtype_out == "bfloat16" else output
        assert np.isnan(values).all()
        output[...] = 0
        poison(output)
        assert output.any(axis=None)


def test_device_arrays_are_made_once(matrix):
    product = make(matrix)
    csr = product.device_csr
    assert product.device_csr is csr
    assert csr.indptr.dtype == csr.indices.dtype == np.int32
    np.testing.assert_array_equal(bfloat16_from_bits(csr.values), product.A.data)
    assert (product.device_matrix != product.A).nnz == 0


def test_another_output_type_shares_the_memory(matrix):
    product = make(matrix)
    csr = product.device_csr
    other = product.with_output("bfloat16")
    assert (product.dtype_out, other.dtype_out) == ("float32", "bfloat16")
    assert other.B is product.B
    assert other.padded_B is product.padded_B
    assert other.device_csr is csr
    with pytest.raises(InputError, match="float64"):
        product.with_output("float64")


def test_compulsory_bytes_count_touched_rows_of_b_only():
    A = csr_array(([1.0, 2.0, 3.0], ([0, 1, 4], [7, 7, 2])), shape=(5, 100))
    product = make(A, n=10)
    assert product.compulsory_bytes == 2 * 3 + 2 * (2 * 10)
    assert product.useful_flops == 60


def test_predicted_bytes_cover_what_is_allocated(matrix):
    product = make(matrix, row_stride=40)
    csr = product.device_csr
    held = csr.indptr.nbytes + csr.indices.nbytes + csr.values.nbytes
    held += 2 * 64 * 40 + product.new_output().nbytes
    assert held <= predicted_bytes(matrix, 24, "float32", 40) < 10 * held


def test_too_large_a_product_is_refused_before_allocating(matrix, monkeypatch):
    monkeypatch.setattr(product_module, "free_bytes", lambda xp: 1000)
    monkeypatch.setattr(np, "zeros", lambda *args, **options: pytest.fail("allocated"))
    with pytest.raises(MemoryLimitError, match="70 x 50 x 24 product needs"):
        make(matrix)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n=0"),
        ({"row_stride": 23}, "cannot hold 24 columns"),
        ({"first_column": -1}, "cannot hold"),
        ({"dtype_in": "float64"}, "dtype_in='float64'"),
        ({"dtype_out": "float16"}, "dtype_out='float16'"),
        ({"layout": "diagonal"}, "layout='diagonal'"),
        ({"values": "ones"}, "values='ones'"),
    ],
)
def test_bad_options_are_named(matrix, options, message):
    with pytest.raises(InputError, match=message):
        make(matrix, **options)


def test_complex_matrix_is_refused(matrix):
    with pytest.raises(InputError, match="complex"):
        make(matrix.astype(np.complex128))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda A, B: (A.astype(np.float64), B), "holds float64"),
        (lambda A, B: (A * np.float32(1 / 3), B), "bfloat16 does not"),
        (lambda A, B: (A, B[:-1]), "so B must be"),
        (lambda A, B: (A, B.astype(np.float32)), "so B must be"),
        (lambda A, B: (A, np.asfortranarray(B)), "contiguous"),
    ],
)
def test_inconsistent_parts_are_refused(matrix, change, message):
    product = make(matrix)
    A, B = change(product.A, product.B)
    with pytest.raises(InputError, match=message):
        Product(A, 24, "bfloat16", "float32", "row-major", B)


def test_uncanonical_matrix_is_refused(matrix):
    product = make(matrix)
    A = csr_array((product.A.data, product.A.indices[::-1].copy(), product.A.indptr), (70, 50))
    with pytest.raises(InputError, match="canonical"):
        Product(A, 24, "bfloat16", "float32", "row-major", product.B)


@pytest.mark.parametrize("dtype_in", ["bfloat16", "float16"])
def test_column_major_products_hold_transposed_memory(matrix, dtype_in):
    options = {"dtype_in": dtype_in, "dtype_out": dtype_in, "layout": "column-major"}
    product = Product.random(matrix, 24, **options, seed=3, xp=np)
    assert product.B.T.flags.c_contiguous
    assert product.new_output().T.flags.c_contiguous
    row_major = Product.random(matrix, 24, **options | {"layout": "row-major"}, seed=3, xp=np)
    np.testing.assert_array_equal(product.B, row_major.B)
    with pytest.raises(UnsupportedError, match="somebody takes row-major, not column-major"):
        product.require("somebody", dtypes_in=(dtype_in,))


def test_an_output_of_the_callers_is_used_as_it_is(matrix):
    product = Product.random(matrix, 24, dtype_out="float32", xp=np)
    out = np.zeros((product.m, 24), dtype=np.float32)
    assert replace(product, out=out).new_output() is out
    assert not out.any()


def test_a_maker_takes_the_place_of_who_asks(matrix):
    product = make(matrix)
    product.conversions.makers = {"twice": lambda asked: 2 * asked.A}
    assert (product.converted("twice", lambda A: None)[0] != 2 * product.A).nnz == 0
    assert product.converted("once", lambda A: A)[0] is product.A
    changed = product.with_matrix(3 * product.A)
    assert (changed.converted("twice", lambda A: None)[0] != 6 * product.A).nnz == 0
    other = product.with_operands(product.B[:, :5], "float32", "row-major")
    assert other.n == 5
    assert other.converted("twice", lambda A: None)[0] is product.converted("twice", None)[0]
    with pytest.raises(InputError, match="so B must be"):
        product.with_operands(product.B[:-1], "float32", "row-major")
