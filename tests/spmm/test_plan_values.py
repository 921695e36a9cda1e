"""New values for a plan, as on a GPU, with NumPy's arrays and kernels that are made up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import asyncsparse_lab as asl
from asyncsparse_lab.errors import InputError
from asyncsparse_lab.formats import BCSR
from asyncsparse_lab.spmm.elementwise import widen
from asyncsparse_lab.spmm.places import read_places
from asyncsparse_lab.spmm.product import Product

from .conftest import FORMS, bits, dense_b

pytestmark = pytest.mark.usefixtures("launched")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compute", ["bfloat16", "float16"])
def test_new_values_reach_every_form(A, form, compute, Fake):
    fake = Fake(form)
    B, rng = dense_b(70), np.random.default_rng(2)
    plan = asl.plan(A, compute=compute, out_dtype="float32", kernel=fake)
    for _ in range(3):
        np.testing.assert_array_equal(plan @ B, A.toarray() @ B.astype(np.float64))
        A.data = rng.integers(-8, 8, A.nnz).astype(float)
        plan.update_values(A.data)
    np.testing.assert_array_equal(plan @ B, A.toarray() @ B.astype(np.float64))


def test_from_the_second_time_on_new_values_prepare_nothing(A, Fake):
    fake, B, out = Fake("windows"), bits(dense_b(70)), np.empty((100, 16), np.float32)
    plan = asl.plan(A, compute="bfloat16", kernel=fake)
    plan(B, out)
    plan.update_values(2 * A.data)
    plan(B, out)
    count = len(fake.prepared)
    for factor in (3, 4):
        plan.update_values(factor * A)
        plan(B, out)
        np.testing.assert_array_equal(out, factor * (A.toarray() @ dense_b(70)))
    assert len(fake.prepared) == count


def test_values_that_were_zero_may_come_back(A, Fake):
    A.data[::3] = 0
    plan = asl.plan(A, compute="bfloat16", out_dtype="float32", kernel=Fake("blocks"))
    B = dense_b(70)
    np.testing.assert_array_equal(plan @ B, A.toarray() @ B.astype(float))
    A.data[:] = 3
    plan.update_values(A.data)
    np.testing.assert_array_equal(plan @ B, A.toarray() @ B.astype(float))


@st.composite
def shuffled(draw):
    """CSR whose rows are not sorted, sometimes with a duplicate."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, k = draw(st.integers(1, 80)), draw(st.integers(1, 60))
    columns = [rng.permutation(k)[: rng.integers(0, min(k, 6) + 1)] for _ in range(m)]
    if draw(st.booleans()):
        columns[0] = np.concatenate([columns[0], columns[0]])
    indptr = np.cumsum([0, *map(len, columns)])
    indices = np.concatenate(columns).astype(np.int32)
    return csr_array((rng.integers(1, 9, len(indices)).astype(float), indices, indptr), (m, k))


@given(A=shuffled(), form=st.sampled_from(FORMS[:-1]))
@settings(max_examples=60, deadline=None)
def test_new_values_are_in_the_callers_order(A, form, Fake):
    plan = asl.plan(A, compute="bfloat16", out_dtype="float32", kernel=Fake(form))
    B = dense_b(A.shape[1], 5)
    for factor in (1, 3, -2):
        new = factor * A.data
        plan.update_values(new)
        changed = csr_array((new, A.indices, A.indptr), shape=A.shape)
        np.testing.assert_array_equal(plan @ B, changed.toarray() @ B.astype(float))


def test_places_of_many_values_take_several_digits(Fake):
    A = csr_array(np.ones((300, 300), np.float32))
    B = bits(dense_b(300))
    product = Product(A, 16, "bfloat16", "float32", "row-major", B)
    fake = Fake("dense")
    places, conversions = read_places(product, lambda named: fake.prepare(named))
    np.testing.assert_array_equal(places["dense"][0], np.arange(90_000))
    assert conversions["dense"].shape == (300, 300)
    assert len(fake.prepared) == 3
    assert not product.conversions.matrices()


def test_a_form_that_keeps_a_value_twice_is_converted_again(A, Fake):
    class Twice(Fake):
        def csr(self, product):
            twice, _ = product.converted(
                "twice", lambda A: (bits(A.data), bits(np.tile(A.data, 2)))
            )
            pattern = (product.A.indices, product.A.indptr)
            return lambda B: csr_array((widen(twice[0], "bfloat16"), *pattern), A.shape) @ B

    plan = asl.plan(A, compute="bfloat16", out_dtype="float32", kernel=Twice("csr"))
    B = dense_b(70)
    plan @ B
    plan.update_values(5 * A.data)
    np.testing.assert_array_equal(plan @ B, 5 * (A.toarray() @ B))


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (lambda A: A.data[1:], r"have shape \(\d+,\), but A stores \d+"),
        (lambda A: A[:, :-1], "another pattern than the plan's: make a new plan"),
        (lambda A: A.T.tocsr(), "another pattern"),
        (lambda A: list(A.data), "the new values are a list"),
        (lambda A: A.data.astype(complex), "complex128"),
    ],
)
def test_new_values_that_do_not_fit_are_refused(A, new, message, Fake):
    plan = asl.plan(A, compute="bfloat16", kernel=Fake())
    with pytest.raises(InputError, match=message):
        plan.update_values(new(A))


def test_new_values_are_not_rounded_unasked(A, Fake):
    blocks = BCSR.from_csr(A.astype(np.float32), (8, 8))
    half = BCSR(blocks.shape, (8, 8), blocks.block_row_ptr, blocks.block_col_idx,
                blocks.blocks.astype(np.float16))  # fmt: skip
    plan = asl.plan(half, kernel=Fake())
    with pytest.raises(InputError, match="the new values are float64 and the plan's float16"):
        plan.update_values(A.data)
    plan.update_values(A.data.astype(np.float16))
