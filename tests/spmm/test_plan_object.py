"""A plan as it runs on a GPU, with NumPy's arrays and contenders that are made up here."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

import asyncsparse_lab as asl
from asyncsparse_lab.errors import InputError, MemoryLimitError, UnsupportedError
from asyncsparse_lab.formats import BCSR, WCSR, bfloat16_bits
from asyncsparse_lab.formats.layouts import core_matrices
from asyncsparse_lab.spmm import choice as choice_module
from asyncsparse_lab.spmm import planner
from asyncsparse_lab.spmm.contender import Prepared
from asyncsparse_lab.spmm.elementwise import widen
from asyncsparse_lab.spmm.launches import Launches
from asyncsparse_lab.spmm.new_values import read_places
from asyncsparse_lab.spmm.plan_object import Plan
from asyncsparse_lab.spmm.planner import Candidate
from asyncsparse_lab.spmm.product import Product


@dataclass(frozen=True)
class Tiles:
    """A converted matrix: patterns in wide integers, values in 16 bits."""

    pointer: np.ndarray
    columns: np.ndarray
    values: np.ndarray


@dataclass
class Fake:
    """Multiplies what it converted A to, so that values that were not renewed show."""

    form: str = "blocks"
    variant: str = "bcsr-overlap"
    refuses: Exception | None = None
    layouts: tuple[str, ...] = ("row-major", "column-major")
    role: str = "ours"
    backend: str = "asyncsparse"
    params: dict = field(default_factory=dict)
    prepared: list = field(default_factory=list)

    def prepare(self, product):
        if self.refuses is not None:
            raise self.refuses
        product.require(self.variant, ("bfloat16", "float16"), self.layouts)
        self.prepared.append(product)
        output = product.new_output()
        multiply = getattr(self, self.form)(product)

        def run():
            C = multiply(widen(product.B, product.dtype_in))
            output[...] = bfloat16_bits(C) if output.dtype == np.uint16 else C

        return Prepared(run, output, 0.0)

    def blocks(self, product):
        def convert(A):
            found = BCSR.from_csr(A, (8, 16))
            return Tiles(found.block_row_ptr, found.block_col_idx, narrow(found.blocks, product))

        tiles, _ = product.converted("tiles", convert)
        wide = lambda: widen(tiles.values, product.dtype_in)  # noqa: E731
        parts = (tiles.pointer, tiles.columns)
        return lambda B: BCSR(product.A.shape, (8, 16), *parts, wide()) @ B

    def windows(self, product):
        def convert(A):
            found = WCSR.from_csr(A, 64, 16)
            values = core_matrices(narrow(found.values, product))
            return Tiles(found.window_row_ptr, found.window_col_idx, values)

        tiles, _ = product.converted("windows", convert)

        def multiply(B):
            steps = tiles.values.shape[0]
            values = tiles.values.transpose(0, 2, 5, 1, 3, 4).reshape(16 * steps, 64)
            parts = (tiles.pointer, tiles.columns, widen(values, product.dtype_in))
            return WCSR(product.A.shape, 64, *parts) @ B

        return multiply

    def csr(self, product):
        csr = product.device_csr
        shape = product.A.shape

        def multiply(B):
            values = widen(csr.values, product.dtype_in)
            return csr_array((values, csr.indices, csr.indptr), shape=shape) @ B

        return multiply

    def dense(self, product):
        def scatter():
            full = np.zeros(product.A.shape, np.float32)
            full[np.repeat(np.arange(product.m), np.diff(product.A.indptr)), product.A.indices] = (
                product.A.data
            )
            return narrow(full, product), 0.0

        full, _ = product.conversions.get("dense", scatter)
        return lambda B: widen(full, product.dtype_in) @ B

    def hidden(self, product):
        """Keeps its values where a plan cannot see them, as some libraries do."""
        kept = product.A.copy()
        return lambda B: kept @ B


def narrow(values, product):
    return bfloat16_bits(values) if product.dtype_in == "bfloat16" else values.astype(np.float16)


def on_numpy(self, B, out, alpha, beta):
    self._multiply(B, out, out.layouts[0], alpha, beta, 0)


@pytest.fixture(autouse=True)
def launched(monkeypatch):
    """NumPy's matrices take the way that a GPU's take."""
    monkeypatch.setattr(Plan, "_multiply_on_cpu", on_numpy)


@pytest.fixture
def A():
    A = csr_array(random_array((100, 70), density=0.08, format="csr", rng=0))
    A.data = np.round(A.data * 15 + 1)  # sums of products of these are exact
    return A


def dense_b(k, n=16, seed=1):
    return np.random.default_rng(seed).integers(-8, 8, (k, n)).astype(np.float16)


def bits(B):
    return bfloat16_bits(B.astype(np.float32))


FORMS = ["blocks", "windows", "csr", "dense", "hidden"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compute", ["bfloat16", "float16"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_product_in_every_form_type_and_layout(A, form, compute, order):
    B = np.asarray(dense_b(70), order=order)
    plan = asl.plan(A, compute=compute, out_dtype="float32", kernel=Fake(form))
    C = plan @ B
    np.testing.assert_array_equal(C, A.toarray() @ B.astype(np.float64))
    assert C.flags.c_contiguous == (order == "C")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compute", ["bfloat16", "float16"])
def test_new_values_reach_every_form(A, form, compute):
    fake = Fake(form, backend="cusparse" if form == "hidden" else "asyncsparse")
    B, rng = dense_b(70), np.random.default_rng(2)
    plan = asl.plan(A, compute=compute, out_dtype="float32", kernel=fake)
    for _ in range(3):
        np.testing.assert_array_equal(plan @ B, A.toarray() @ B.astype(np.float64))
        A.data = rng.integers(-8, 8, A.nnz).astype(float)
        plan.update_values(A.data)
    np.testing.assert_array_equal(plan @ B, A.toarray() @ B.astype(np.float64))


def test_from_the_second_time_on_new_values_prepare_nothing(A):
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


def test_values_that_were_zero_may_come_back(A):
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


@given(shuffled(), st.sampled_from(FORMS[:4]))
@settings(max_examples=60, deadline=None)
def test_new_values_are_in_the_callers_order(A, form):
    plan = asl.plan(A, compute="bfloat16", out_dtype="float32", kernel=Fake(form))
    B = dense_b(A.shape[1], 5)
    for factor in (1, 3, -2):
        new = factor * A.data
        plan.update_values(new)
        changed = csr_array((new, A.indices, A.indptr), shape=A.shape)
        np.testing.assert_array_equal(plan @ B, changed.toarray() @ B.astype(float))


def test_places_of_many_values_take_several_digits():
    A = csr_array(np.ones((300, 300), np.float32))
    B = bits(dense_b(300))
    product = Product(A, 16, "bfloat16", "float32", "row-major", B)
    fake = Fake("dense")
    places, conversions = read_places(product, lambda named: fake.prepare(named))
    np.testing.assert_array_equal(places["dense"][0], np.arange(90_000))
    assert conversions["dense"].shape == (300, 300)
    assert len(fake.prepared) == 3
    assert not product.conversions.matrices()


def test_a_form_that_keeps_a_value_twice_is_converted_again(A):
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
def test_new_values_that_do_not_fit_are_refused(A, new, message):
    plan = asl.plan(A, compute="bfloat16", kernel=Fake())
    with pytest.raises(InputError, match=message):
        plan.update_values(new(A))


def test_new_values_are_not_rounded_unasked(A):
    blocks = BCSR.from_csr(A.astype(np.float32), (8, 8))
    half = BCSR(blocks.shape, (8, 8), blocks.block_row_ptr, blocks.block_col_idx,
                blocks.blocks.astype(np.float16))  # fmt: skip
    plan = asl.plan(half, kernel=Fake())
    with pytest.raises(InputError, match="the new values are float64 and the plan's float16"):
        plan.update_values(A.data)
    plan.update_values(A.data.astype(np.float16))


# -- Reuse --


def test_a_repeated_call_reuses_the_launch(A):
    fake, B, out = Fake(), bits(dense_b(70)), np.empty((100, 16), np.uint16)
    plan = asl.plan(A, compute="bfloat16", kernel=fake)
    for _ in range(3):
        plan(B, out)
    assert len(fake.prepared) == 1
    plan(B[:, :8], out[:, :8])
    plan(B, np.empty((100, 16), np.float32))
    assert len(fake.prepared) == 3
    assert fake.prepared[1].conversions is fake.prepared[0].conversions
    np.testing.assert_array_equal(out, bits(A.toarray() @ dense_b(70)))


def test_the_launch_used_longest_ago_goes_first():
    launches = Launches(2)
    runs = {key: lambda: None for key in "abc"}
    for key in "ab":
        launches.keep(key, 0, runs[key])
    assert launches.find("a", 0) is runs["a"]
    launches.keep("c", 0, runs["c"])
    assert launches.find("b", 0) is None
    assert launches.find("a", 7) is None
    assert launches.find_on_any_stream("a") is runs["a"]
    assert len(launches) == 2
    launches.clear()
    assert launches.find_on_any_stream("a") is None


def test_another_n_and_another_layout_of_one_plan(A):
    plan = asl.plan(A, 16, compute="bfloat16", out_dtype="float32", kernel=Fake())
    for n in (1, 7, 40):
        for order in "CF":
            B = np.asarray(dense_b(70, n), order=order)
            np.testing.assert_array_equal(plan @ B, A.toarray() @ B.astype(float))


def test_without_a_kernel_that_takes_it_columns_are_turned(A, monkeypatch):
    fake = Fake(layouts=("row-major",))

    def candidates(structure, n, *, layout, **options):
        if layout == "column-major":
            raise UnsupportedError("no")
        return [Candidate(fake, 1.0, {"launch": 1.0}, "launch", 8)]

    monkeypatch.setattr(planner, "candidates", candidates)
    B = bits(np.asfortranarray(dense_b(70)))
    out = np.empty((16, 100), np.float32).T
    assert bits(dense_b(70)).flags.c_contiguous
    plan = asl.plan(A, 16, compute="bfloat16", layout="column-major")
    plan(np.asfortranarray(B), out)
    np.testing.assert_array_equal(out, A.toarray() @ dense_b(70))
    assert plan.kernel == "bcsr-overlap"


def test_alpha_and_beta_go_through_a_float32_workspace(A):
    fake, B = Fake(), bits(dense_b(70))
    plan = asl.plan(A, compute="bfloat16", kernel=fake)
    out = bits(np.full((100, 16), 2.0))
    plan(B, out, alpha=0.5, beta=2)
    assert fake.prepared[0].dtype_out == "float32"
    expected = bits(0.5 * (A.toarray() @ dense_b(70)) + 4)
    np.testing.assert_array_equal(out, expected)


# -- The choice --


def offer(monkeypatch, fakes):
    found = [
        Candidate(fake, 1.0 + place, {"launch": 1.0, "HBM": float(place)}, "launch", 8)
        for place, fake in enumerate(fakes)
    ]
    monkeypatch.setattr(planner, "candidates", lambda *args, **options: found)


def test_the_best_that_can_be_prepared_is_used_and_the_others_say_why(A, monkeypatch):
    refuses = Fake(variant="bcsr-paired", refuses=MemoryLimitError("needs 9 bytes"))
    second = Fake(variant="bcsr-overlap")
    offer(monkeypatch, [refuses, second])
    plan = asl.plan(A, 16, compute="bfloat16", out_dtype="float32")
    assert plan.kernel == "bcsr-paired"
    C = plan @ dense_b(70)
    np.testing.assert_array_equal(C, A.toarray() @ dense_b(70))
    table = plan.explain()
    assert list(table.used) == [False, True]
    assert list(table.refused) == ["needs 9 bytes", ""]
    assert "bcsr-overlap, predicted 2.0 us" in repr(plan)
    assert "<table" in plan._repr_html_()


def test_when_nothing_can_be_prepared_the_reason_is_told(A, monkeypatch):
    offer(monkeypatch, [Fake(refuses=UnsupportedError("a")), Fake(refuses=UnsupportedError("b"))])
    plan = asl.plan(A, 16, compute="bfloat16")
    for _ in range(2):
        with pytest.raises(UnsupportedError):
            plan(bits(dense_b(70)))


def test_a_plan_without_n_is_made_for_the_first_b(A, monkeypatch):
    asked = []

    def candidates(structure, n, **options):
        asked.append(n)
        return [Candidate(Fake(), 1.0, {"launch": 1.0}, "launch", 8)]

    monkeypatch.setattr(planner, "candidates", candidates)
    plan = asl.plan(A, compute="bfloat16", out_dtype="float32")
    assert plan.kernel is None
    assert "chosen with the first B" in repr(plan)
    assert repr(plan)[:4] in plan._repr_html_()
    with pytest.raises(InputError, match="no n yet"):
        plan.explain()
    plan @ dense_b(70, 24)
    plan @ dense_b(70, 32)
    assert asked == [24]
    assert len(plan.explain()) == 1


def test_a_named_kernel_is_taken_and_shown_among_the_candidates(A):
    plan = asl.plan(A, 64, compute="bfloat16", kernel="bcsr-overlap")
    assert plan.kernel == "bcsr-overlap"
    table = plan.explain()
    assert list(table[table.used].kernel) == ["bcsr-overlap"]
    assert (table.predicted_us > 0).all()
    assert "as asked for" in repr(plan)
    mine = asl.spmm.VARIANTS["bcsr-overlap"].with_constants(STAGES=2)
    assert asl.plan(A, compute="bfloat16", kernel=mine).kernel == "bcsr-overlap"
    assert choice_module.find_contender("cublas-dense").variant == "dense"
