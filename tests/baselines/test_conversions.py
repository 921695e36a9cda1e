"""What the adapters make of A, against SciPy; and what they refuse before allocating."""

import numpy as np
import pytest
from scipy.sparse import block_array, bsr_array, csr_array, random_array

from asyncsparse_lab.baselines import BASELINES, cublas
from asyncsparse_lab.baselines.blocked_ell import (
    blocked_ell_from_bcsr,
    longest_block_row,
    predicted_bytes,
)
from asyncsparse_lab.baselines.cublas import DenseGemm, dense_bits
from asyncsparse_lab.baselines.cublas import predicted_bytes as dense_bytes
from asyncsparse_lab.baselines.cublas import version_text as cublas_version
from asyncsparse_lab.baselines.cusparse import BlockedEllSpMM, bsr_arrays
from asyncsparse_lab.baselines.libraries import load_library
from asyncsparse_lab.baselines.operands import library_operands
from asyncsparse_lab.baselines.spmm_call import version_text as cusparse_version
from asyncsparse_lab.errors import MemoryLimitError, UnsupportedError
from asyncsparse_lab.formats import BCSR, bfloat16_from_bits
from asyncsparse_lab.spmm.oracle import reference
from asyncsparse_lab.spmm.product import Product


def ragged() -> csr_array:
    """Three block rows with 2, 0 and 5 blocks of 64 x 64, cut at both edges."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.integers(0, 64, 200), rng.integers(128, 150, 300)])
    columns = np.concatenate([64 + rng.integers(0, 128, 200), rng.integers(0, 301, 300)])
    A = csr_array((np.ones(500), (rows, columns)), shape=(150, 301))
    A.sum_duplicates()
    return A


def make(A, n=16, **options):
    return Product.random(A, n, xp=np, **options)


def test_blocked_ell_holds_the_matrix_that_its_definition_describes():
    product = make(ragged())
    width = longest_block_row(product, 64)
    assert width == 5
    ell = blocked_ell_from_bcsr(BCSR.from_csr(product.device_matrix), width)
    assert ell.column_indices.dtype == np.int32
    assert ell.column_indices.shape == (3, 5)
    assert ell.values.dtype == np.uint16
    assert ell.values.shape == (192, 320)
    assert ell.values.flags.c_contiguous
    np.testing.assert_array_equal(ell.column_indices[1], [-1] * 5)
    np.testing.assert_array_equal(ell.column_indices[0], [1, 2, -1, -1, -1])

    values = bfloat16_from_bits(ell.values)
    dense = np.zeros((192, 320), np.float32)
    for block_row, slots in enumerate(ell.column_indices):
        for slot, column in enumerate(slots):
            block = values[block_row * 64 :][:64, slot * 64 :][:, :64]
            if column < 0:
                assert not block.any()
            else:
                dense[block_row * 64 :][:64, column * 64 :][:, :64] = block
    np.testing.assert_array_equal(dense[:150, :301], product.A.toarray())


@pytest.mark.parametrize("block", [8, 64])
def test_predicted_blocked_ell_bytes_are_the_allocated_ones(block):
    product = make(ragged())
    width = longest_block_row(product, block)
    ell = blocked_ell_from_bcsr(BCSR.from_csr(product.device_matrix, (block, block)), width)
    held = ell.column_indices.nbytes + ell.values.nbytes
    assert predicted_bytes(product.m, width, block) == held
    row_lengths = np.diff(bsr_array(_whole(product.A, block), blocksize=(block, block)).indptr)
    assert width == row_lengths.max()


def _whole(A, block):
    m, k = A.shape
    rows, columns = -m % block, -k % block
    return csr_array(
        block_array(
            [[A, csr_array((m, columns or 1))], [csr_array((rows or 1, k)), None]], format="csr"
        )[: m + rows, : k + columns]
    )


def test_empty_matrix_has_one_slot_of_padding():
    product = make(csr_array((100, 80), dtype=np.float64))
    assert longest_block_row(product, 64) == 1
    ell = blocked_ell_from_bcsr(BCSR.from_csr(product.device_matrix), 1)
    assert (ell.column_indices == -1).all()
    assert not ell.values.any()


def test_bsr_arrays_are_those_of_scipy():
    product = make(ragged())
    expected = bsr_array(_whole(product.A, 64), blocksize=(64, 64))
    expected.sort_indices()
    offsets, columns, blocks = bsr_arrays(product)
    assert offsets.dtype == columns.dtype == np.int32
    np.testing.assert_array_equal(offsets, expected.indptr)
    np.testing.assert_array_equal(columns, expected.indices)
    np.testing.assert_array_equal(bfloat16_from_bits(blocks), expected.data)


def test_dense_a_has_m_and_k_padded_with_zeros():
    product = make(ragged())
    bits = dense_bits(product)
    assert bits.shape == (152, 304)
    assert bits.nbytes == dense_bytes(product)
    np.testing.assert_array_equal(bfloat16_from_bits(bits)[:150, :301], product.A.toarray())
    assert not bits[:, 301:].any()
    assert not bits[150:].any()


def column_major(array, stride, rows, columns):
    """The matrix that BLAS sees at an address."""
    steps = (array.itemsize, stride * array.itemsize)
    return np.lib.stride_tricks.as_strided(array, (rows, columns), steps)


@pytest.mark.parametrize("layout", ["row-major", "column-major"])
@pytest.mark.parametrize(
    ("dtype_in", "dtype_out"), [("bfloat16", "float32"), ("float16", "float16")]
)
@pytest.mark.parametrize("n", [17, 24])
def test_the_gemm_call_means_the_product(layout, dtype_in, dtype_out, n, monkeypatch):
    monkeypatch.setattr(cublas, "pointer", lambda array: array)
    product = Product.random(
        ragged(), n, dtype_in=dtype_in, dtype_out=dtype_out, layout=layout, xp=np
    )
    operands = library_operands(
        product,
        k_multiple=8,
        row_multiple=8 if layout == "column-major" else 1,
        column_multiple=1 if layout == "column-major" else 8,
        dtypes_in=("bfloat16", "float16"),
        layouts=("row-major", "column-major"),
    )
    arguments = cublas.gemm_arguments(dense_bits(product), operands, product)
    (turned, straight, rows, columns, inner, _, first, _, lda, second, _, ldb, _, C, _, ldc, *_) = (
        arguments
    )
    assert straight == 0
    assert {lda % 8, ldb % 8, ldc % 8} == {0}

    def widen(array):
        if array.dtype == np.uint16:
            number = np.float16 if dtype_in == "float16" else None
            return array.view(number) if number else bfloat16_from_bits(array)
        return array

    def call():
        shape = (inner, rows) if turned else (rows, inner)
        left = widen(column_major(first, lda, *shape).copy()).astype(np.float64)
        right = widen(column_major(second, ldb, inner, columns).copy()).astype(np.float64)
        column_major(C, ldc, rows, columns)[...] = (left.T if turned else left) @ right

    operands.around(call)()
    truth = reference(product.A, product.B)
    assert truth.relative_error(operands.output) <= truth.err_bound(dtype_out)
    assert operands.output.shape == (150, n)


def test_dense_a_above_the_limit_is_refused_with_its_bytes():
    product = make(ragged())
    with pytest.raises(MemoryLimitError, match="dense A needs 92,416 bytes, 92,415 are allowed"):
        DenseGemm(limit_bytes=92_415).prepare(product)


def test_blocked_ell_above_the_limit_is_refused_with_its_width():
    product = make(ragged())
    with pytest.raises(MemoryLimitError, match="Blocked-ELL of width 5 needs 122,940 bytes"):
        BlockedEllSpMM(limit_bytes=1000).prepare(product)


def test_torch_refuses_float32_output_before_it_is_imported():
    with pytest.raises(UnsupportedError, match="dtype_out=bfloat16"):
        BASELINES["torch-bsr"].prepare(make(ragged(), dtype_out="float32"))


def test_int32_limits_are_refused(monkeypatch):
    product = make(csr_array(random_array((20, 20), density=0.2, format="csr", rng=0)))
    monkeypatch.setattr("asyncsparse_lab.baselines.cublas._INT_LIMIT", 27)
    with pytest.raises(UnsupportedError, match="32-bit sizes"):
        DenseGemm().prepare(product)


def test_a_missing_library_is_unsupported(monkeypatch):
    pathfinder = pytest.importorskip("cuda.pathfinder")

    def missing(name):
        raise RuntimeError(f"lib{name}.so: cannot open\nmore lines")

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", missing)
    with pytest.raises(UnsupportedError, match=r"libcusparse was not found .*cannot open\)"):
        load_library("cusparse")


def test_the_table_names_backend_and_variant():
    assert sorted(BASELINES) == [
        "cublas-dense",
        "cusparse-blocked-ell",
        "cusparse-bsr",
        "cusparse-csr-alg2",
        "cusparse-csr-alg3",
        "torch-bsr",
    ]
    for name, contender in BASELINES.items():
        assert name == f"{contender.backend}-{contender.variant}"
        assert contender.role == "library"


def test_library_versions_in_words():
    assert cusparse_version(12603) == "cuSPARSE 12.6.3"
    assert cublas_version(130002) == "cuBLAS 13.0.2"
