"""The public call on the CPU: what is taken in, what is refused, and the reference."""

from __future__ import annotations

import inspect
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import block_array, coo_array, csr_array, eye_array, random_array

import asyncsparse_lab as asl
from asyncsparse_lab.errors import InputError, MemoryLimitError
from asyncsparse_lab.formats import bfloat16_bits, bfloat16_from_bits, round_to_bfloat16
from asyncsparse_lab.spmm.elementwise import combine, round_dense
from asyncsparse_lab.spmm.operands import dense


@pytest.fixture
def A() -> csr_array:
    return csr_array(random_array((70, 50), density=0.1, format="csr", rng=0))


@pytest.fixture
def B() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((50, 24))


def exact(A, B, round_to=round_to_bfloat16):
    """A B in float64, of the values that a kernel multiplies."""
    rounded = csr_array((round_to(A.data.astype(np.float32)), A.indices, A.indptr), shape=A.shape)
    return rounded.astype(np.float64) @ round_to(B.astype(np.float32)).astype(np.float64)


def test_the_product_is_that_of_the_rounded_values(A, B):
    C = asl.spmm(A, B, compute="bfloat16")
    assert C.dtype == np.float32
    np.testing.assert_allclose(C, exact(A, B), rtol=1e-5, atol=1e-6)
    half = asl.spmm(A, B, compute="float16", out_dtype="float32")
    expected = exact(A, B, lambda x: x.astype(np.float16).astype(np.float32))
    np.testing.assert_allclose(half, expected, rtol=1e-5, atol=1e-6)
    assert asl.spmm(A, B, compute="float16").dtype == np.float16


def test_bits_of_bf16_give_bits_back(A, B):
    bits = bfloat16_bits(B.astype(np.float32))
    C = asl.spmm(A, bits, compute="bfloat16")
    assert C.dtype == np.uint16
    np.testing.assert_allclose(bfloat16_from_bits(C), exact(A, B), rtol=2**-7, atol=1e-3)


@pytest.mark.parametrize("kind", ["csc", "coo", "bsr", "dia", "lil", "dok"])
def test_any_format_of_scipy_is_taken(A, B, kind):
    expected = asl.spmm(A, B, compute="bfloat16")
    np.testing.assert_allclose(asl.spmm(A.asformat(kind), B, compute="bfloat16"), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.int64, np.float64])
def test_any_real_type_is_rounded_when_asked_for(A, B, dtype):
    whole = csr_array((np.arange(A.nnz).astype(dtype) % 100, A.indices, A.indptr), A.shape)
    C = asl.spmm(whole, B, compute="bfloat16")
    np.testing.assert_allclose(C, exact(whole, B), rtol=1e-5, atol=1e-4)


def test_our_formats_are_taken(A, B):
    expected = asl.spmm(A, B, compute="bfloat16")
    single = A.astype(np.float32)
    for matrix in (asl.BCSR.from_csr(A, (8, 16)), asl.WCSR.from_csr(single)):
        np.testing.assert_allclose(asl.spmm(matrix, B, compute="bfloat16"), expected)
    blocks = asl.BCSR.from_csr(single)
    rounded = replace(blocks, blocks=bfloat16_bits(blocks.blocks))
    np.testing.assert_allclose(
        asl.spmm(rounded, bfloat16_bits(B.astype(np.float32)), out_dtype="float32"), expected
    )


def test_unordered_rows_duplicates_and_the_callers_arrays(B):
    entries = ([1.0, 2.0, 3.0, 0.0], [7, 3, 7, 9], [0, 4, 4])
    A = csr_array(entries, shape=(2, 50))
    before = [array.copy() for array in (A.data, A.indices, A.indptr)]
    C = asl.spmm(A, B, compute="bfloat16")
    rounded = round_to_bfloat16(B.astype(np.float32))
    np.testing.assert_allclose(C[0], 2 * rounded[3] + 4 * rounded[7], rtol=1e-6)
    assert not C[1].any()
    for array, old in zip((A.data, A.indices, A.indptr), before, strict=True):
        np.testing.assert_array_equal(array, old)


@pytest.mark.parametrize(
    ("m", "k", "n"), [(0, 5, 3), (5, 0, 3), (5, 5, 0), (1, 1, 1), (5, 7, 1), (1, 7, 3)]
)
def test_small_and_empty_sizes(m, k, n):
    A = csr_array(np.ones((m, k)))
    C = asl.spmm(A, np.ones((k, n)), compute="float16")
    np.testing.assert_array_equal(C, np.full((m, n), k))


def test_a_matrix_without_non_zeros_gives_zeros_or_scales_out(B):
    empty = csr_array((4, 50))
    assert not asl.spmm(empty, B, compute="bfloat16").any()
    out = np.ones((4, 24), dtype=np.float32)
    asl.spmm(empty, B, out, compute="bfloat16", beta=0.5)
    np.testing.assert_array_equal(out, np.full((4, 24), 0.5))


@pytest.mark.parametrize(("alpha", "beta"), [(1, 0), (2, 0), (1, 1), (-0.5, 3)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_out_is_written_in_place_and_scaled(A, B, alpha, beta, order):
    out = np.asarray(np.random.default_rng(2).standard_normal((70, 24)), np.float32, order=order)
    expected = alpha * exact(A, B) + beta * out.astype(np.float64)
    assert asl.spmm(A, B, out, compute="bfloat16", alpha=alpha, beta=beta) is out
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


def test_out_is_not_read_without_beta(A, B):
    out = np.full((70, 24), np.nan, dtype=np.float32)
    asl.spmm(A, B, out, compute="bfloat16", alpha=2)
    assert np.isfinite(out).all()


def test_nan_and_infinity_stay_where_the_reference_puts_them(A, B):
    B[3, 2] = np.nan
    C = asl.spmm(A, B, compute="bfloat16")
    reached = np.flatnonzero(A.toarray()[:, 3])
    assert np.isnan(C[reached, 2]).all()
    assert np.isnan(C).sum() == len(reached)


def test_strided_views_and_dlpack(A, B):
    expected = asl.spmm(A, B, compute="bfloat16")
    wide = np.zeros((100, 48))
    wide[::2, ::2] = B
    for view in (wide[::2, ::2], np.asfortranarray(B), B[::-1][::-1]):
        np.testing.assert_array_equal(asl.spmm(A, view, compute="bfloat16"), expected)

    class Foreign:
        def __dlpack__(self, **options):
            return B.__dlpack__(**options)

        def __dlpack_device__(self):
            return B.__dlpack_device__()

    np.testing.assert_array_equal(asl.spmm(A, Foreign(), compute="bfloat16"), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"compute": None}, 'A holds float64 and B float64: pass compute="bfloat16"'),
        ({"compute": "float32"}, "compute='float32': the kernels multiply in"),
        ({"out_dtype": "float16"}, "out_dtype='float16'"),
        ({"B": np.ones((49, 24))}, "B is 49 x 24 and A 70 x 50: B must have 50 rows"),
        ({"B": np.ones((24, 50))}, "pass B.T"),
        ({"B": np.ones(50)}, r"B has 1 dimensions, not 2: pass B\[:, None\]"),
        ({"B": [[1.0]]}, "B is a list"),
        ({"B": np.ones((50, 3), complex)}, "B holds complex128"),
        ({"B": np.ones((50, 3), ">f4")}, "foreign byte order"),
        ({"B": eye_array(50)}, "B is sparse"),
        ({"A": np.ones((70, 50))}, "A is dense"),
        ({"A": "bcsstk16"}, "A is a str"),
        ({"A": csr_array(np.ones((70, 50), complex))}, "A is complex"),
        ({"A": csr_array(np.ones((70, 50), np.uint16))}, "A holds uint16"),
        ({"A": csr_array(np.ones((70, 50), bool))}, "values of type bool"),
        ({"A": coo_array(np.ones(50))}, "A has 1 dimension"),
        ({"out": np.ones((70, 23), np.float32)}, r"out is \(70, 23\), but A B is \(70, 24\)"),
        ({"out": np.ones((70, 24))}, "out holds float64: this product gives bfloat16 or float32"),
        ({"beta": 1.0}, "beta=1.0 scales out"),
        ({"alpha": "two"}, "alpha is 'two'"),
        ({"alpha": "2"}, "alpha is '2'"),
        ({"B": np.ma.masked_array(np.ones((50, 3)))}, r"masked.*pass B\.filled\(0\)"),
        ({"kernel": "bcsr-opt9"}, "no kernel 'bcsr-opt9'; there are bcsr-opt0"),
    ],
)
def test_bad_input_is_named_in_one_line(A, B, change, message):
    options = {"A": A, "B": B, "compute": "bfloat16", **change}
    with pytest.raises(InputError, match=message) as caught:
        asl.spmm(**options)
    assert "\n" not in str(caught.value)


def test_a_stream_for_a_product_on_the_cpu_is_refused(A, B):
    with pytest.raises(InputError, match="stream is 7, but B is on the CPU"):
        asl.spmm(A, B, compute="bfloat16", stream=7)


def test_the_type_that_is_already_there_needs_no_compute(A, B):
    bits = bfloat16_bits(B.astype(np.float32))
    blocks = asl.BCSR.from_csr(A.astype(np.float32))
    rounded = replace(blocks, blocks=bfloat16_bits(blocks.blocks))
    assert asl.spmm(rounded, bits).dtype == np.uint16
    with pytest.raises(InputError, match="A holds bfloat16 and B float64"):
        asl.spmm(rounded, B)
    with pytest.raises(InputError, match="A holds bfloat16 and B float64: pass B in bfloat16"):
        asl.plan(rounded) @ B


def test_out_may_not_share_memory_or_be_read_only(A, B):
    memory = np.zeros((120, 24), dtype=np.float32)
    memory[:50] = B
    with pytest.raises(InputError, match="out and B share memory"):
        asl.spmm(A, memory[:50], memory[49:119], compute="bfloat16")
    asl.spmm(A, memory[:50], memory[50:], compute="bfloat16")
    memory.flags.writeable = False
    with pytest.raises(InputError, match="read-only"):
        asl.spmm(A, B, memory[:70], compute="bfloat16")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda A: A.indices.__setitem__(3, 50), "indices holds 50"),
        (lambda A: A.indptr.__setitem__(5, 10_000), "indptr must not fall"),
        (lambda A: A.indptr.__setitem__(-1, A.nnz + 4), "truncated"),
    ],
)
def test_malformed_arrays_are_refused(A, B, spoil, message):
    spoil(A)
    with pytest.raises(InputError, match=message):
        asl.spmm(A, B, compute="bfloat16")


def test_values_that_float16_cannot_hold_are_refused(A, B):
    A.data[5] = 1e6
    with pytest.raises(
        InputError, match=r'A holds 1000000\.0, which float16 does not: use compute="b'
    ):
        asl.spmm(A, B, compute="float16")
    assert np.isfinite(asl.spmm(A, B, compute="bfloat16")).all()


def test_the_package_and_the_call_have_one_name():
    from asyncsparse_lab.spmm.api import spmm

    assert inspect.signature(asl.spmm) == inspect.signature(spmm)
    assert asl.spmm.VARIANTS


# -- Layouts --


@pytest.mark.parametrize(
    ("view", "layouts"),
    [
        (lambda x: x, ("row-major",)),
        (lambda x: x.T, ("column-major",)),
        (lambda x: x[:, 3:], ("row-major",)),
        (lambda x: x[3:].T, ("column-major",)),
        (lambda x: x[:, ::2], ()),
        (lambda x: x[::-1], ()),
        (lambda x: np.broadcast_to(x[:1], (9, 8)), ()),
        (lambda x: x[:, :1], ("row-major",)),
        (lambda x: x[:1], ("row-major", "column-major")),
        (lambda x: np.ascontiguousarray(x[:, :1]), ("row-major", "column-major")),
        (lambda x: x[:0], ("row-major", "column-major")),
    ],
)
def test_layouts_are_read_off_the_strides(view, layouts):
    assert dense(view(np.zeros((10, 8), np.float16)), "B").layouts == layouts


@given(
    st.lists(st.floats(width=64), min_size=1, max_size=30),
    st.sampled_from(["bfloat16", "float16"]),
)
@settings(max_examples=200, deadline=None)
def test_rounding_from_float64_gives_the_nearest(values, compute):
    x = np.array(values)
    rounded = round_dense(x, "float64", compute)
    if compute == "float16":
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(rounded, x.astype(np.float16))
        return
    result = bfloat16_from_bits(rounded).astype(np.float64)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(x))
    finite = np.isfinite(x) & np.isfinite(result)
    bits = rounded[finite]
    for step in (-1, 1):
        with np.errstate(all="ignore"):
            other = bfloat16_from_bits((bits + np.int32(step)).astype(np.uint16)).astype(float)
            nearer = np.abs(other - x[finite]) < np.abs(result[finite] - x[finite])
        assert not nearer.any()


def test_a_tie_in_float32_is_decided_by_what_float64_holds():
    tie = 1 + 2.0**-8
    x = np.array([tie, tie + 2.0**-40, -tie - 2.0**-40, 1e300])
    found = bfloat16_from_bits(round_dense(x, "float64", "bfloat16"))
    np.testing.assert_array_equal(found, [1, 1 + 2.0**-7, -1 - 2.0**-7, np.inf])


def test_combining_rounds_once():
    product = np.array([[1.0, 2.0]], dtype=np.float32)
    out = bfloat16_bits(np.array([[2.0**-8, np.nan]], dtype=np.float32))
    combine(product, out, "bfloat16", 1.0, 1.0)
    np.testing.assert_array_equal(bfloat16_from_bits(out), [[1.0, np.nan]])
    combine(product, out, "bfloat16", 3.0, 0.0)
    np.testing.assert_array_equal(bfloat16_from_bits(out), [[3.0, 6.0]])


@st.composite
def messy_matrices(draw):
    """CSR with unordered rows, duplicates and stored zeros."""
    m, k = draw(st.integers(1, 20)), draw(st.integers(1, 20))
    count = draw(st.integers(0, 40))
    rows = np.sort(draw(st.lists(st.integers(0, m - 1), min_size=count, max_size=count)))
    columns = draw(st.lists(st.integers(0, k - 1), min_size=count, max_size=count))
    values = draw(st.lists(st.integers(-8, 8), min_size=count, max_size=count))
    indptr = np.searchsorted(np.asarray(rows), np.arange(m + 1)).astype(np.int32)
    arrays = (np.array(values, float), np.array(columns, np.int32), indptr)
    return csr_array(arrays, shape=(m, k))


@given(messy_matrices(), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_messy_matrices_multiply_like_dense_ones(A, n):
    B = np.random.default_rng(n).integers(-8, 8, (A.shape[1], n)).astype(np.float32)
    C = asl.spmm(A, B, compute="bfloat16")
    np.testing.assert_array_equal(C, A.toarray() @ B)


@given(messy_matrices(), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_new_values_on_the_cpu(A, seed):
    plan = asl.plan(A, compute="bfloat16")
    new = np.random.default_rng(seed).integers(-8, 8, len(A.data))
    plan.update_values(new)
    B = np.eye(A.shape[1], dtype=np.float32)
    changed = csr_array((new.astype(float), A.indices, A.indptr), shape=A.shape)
    np.testing.assert_array_equal(plan @ B, changed.toarray())


def test_block_matrices_of_scipy_keep_their_values(B):
    tiles = block_array([[np.ones((20, 25)), None], [None, 2 * np.ones((20, 25))]], format="bsr")
    C = asl.spmm(tiles, B, compute="bfloat16")
    np.testing.assert_allclose(C, exact(csr_array(tiles), B), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "diagonal"}, "layout='diagonal' is not one of"),
        ({"n": 0}, "n=0: pass the columns of B"),
        ({"n": 2.5}, "n=2.5"),
        ({"n": True}, "n=True"),
        ({"n": 2**31}, "n=2147483648: pass the columns of B, an integer from 1 to"),
        ({"n": 2**31 - 1}, "bytes more than there are: take a smaller n"),
        ({"kernel": 3}, "kernel=3: pass the name of a kernel"),
        ({"compute": None}, "A holds float64: pass compute="),
        ({"kernel": "cublas"}, "no kernel 'cublas'"),
    ],
)
def test_bad_plans_are_refused(A, options, message):
    with pytest.raises((InputError, MemoryLimitError), match=message):
        asl.plan(A, **{"n": 64, "compute": "bfloat16", **options})


def test_columns_may_be_counted_by_numpy(A):
    assert asl.plan(A, np.int64(64), compute="bfloat16").n == 64
