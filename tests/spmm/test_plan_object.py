"""A plan as it runs on a GPU, with NumPy's arrays and contenders that are made up here."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from scipy.sparse import csr_array

import asyncsparse_lab as asl
from asyncsparse_lab.errors import InputError, MemoryLimitError, UnsupportedError
from asyncsparse_lab.formats import BCSR, bfloat16_bits
from asyncsparse_lab.spmm import choice as choice_module
from asyncsparse_lab.spmm import planner, sparse_operands
from asyncsparse_lab.spmm.elementwise import widen
from asyncsparse_lab.spmm.handed_on import structure_of_blocks
from asyncsparse_lab.spmm.launches import Launches
from asyncsparse_lab.spmm.plan_structure import structure_of
from asyncsparse_lab.spmm.planner import Candidate
from asyncsparse_lab.spmm.sparse_operands import sparse

from .conftest import FORMS, bits, dense_b

pytestmark = pytest.mark.usefixtures("launched")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compute", ["bfloat16", "float16"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_product_in_every_form_type_and_layout(A, form, compute, order, Fake):
    B = np.asarray(dense_b(70), order=order)
    plan = asl.plan(A, compute=compute, out_dtype="float32", kernel=Fake(form))
    C = plan @ B
    np.testing.assert_array_equal(C, A.toarray() @ B.astype(np.float64))
    assert C.flags.c_contiguous == (order == "C")


# -- Reuse --


def test_a_repeated_call_reuses_the_launch(A, Fake):
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


def test_another_n_and_another_layout_of_one_plan(A, Fake):
    plan = asl.plan(A, 16, compute="bfloat16", out_dtype="float32", kernel=Fake())
    for n in (1, 7, 40):
        for order in "CF":
            B = np.asarray(dense_b(70, n), order=order)
            np.testing.assert_array_equal(plan @ B, A.toarray() @ B.astype(float))


def test_without_a_kernel_that_takes_it_columns_are_turned(A, monkeypatch, Fake):
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


def test_alpha_and_beta_go_through_a_float32_workspace(A, Fake):
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


def test_the_best_that_can_be_prepared_is_used_and_the_others_say_why(A, monkeypatch, Fake):
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


def test_when_nothing_can_be_prepared_the_reason_is_told(A, monkeypatch, Fake):
    offer(monkeypatch, [Fake(refuses=UnsupportedError("a")), Fake(refuses=UnsupportedError("b"))])
    plan = asl.plan(A, 16, compute="bfloat16")
    for _ in range(2):
        with pytest.raises(UnsupportedError):
            plan(bits(dense_b(70)))


def test_rows_are_reordered_where_many_products_are_to_come():
    rng = np.random.default_rng(0)
    groups = np.sort(rng.random((16, 4000)).argsort(axis=1)[:, :300], axis=1)
    columns = groups[np.arange(1024) % 16].ravel()
    A = csr_array((np.ones(len(columns)), columns, 300 * np.arange(1025)), (1024, 4000))
    plan = asl.plan(A, 512, compute="bfloat16", products=10**6)
    assert "wcsr-pipelined, similarity, predicted" in repr(plan)
    table = plan.explain()
    used = table[table["used"]].iloc[0]
    assert used["order"] == "similarity"
    assert used["ordering_us"] > 0
    assert 0 < used["paid_after"] < 10**6
    once = asl.plan(A, 512, compute="bfloat16")
    assert "similarity" not in repr(once)
    named = asl.plan(A, 512, compute="bfloat16", products=10**6, kernel="wcsr-pipelined").explain()
    assert list(named[named["used"]]["order"]) == [""]  # what was asked for keeps the order
    with pytest.raises(InputError, match="products=-1: pass how many"):
        asl.plan(A, 512, compute="bfloat16", products=-1)


def test_a_plan_is_not_pickled(A):
    plan = asl.plan(A, 16, compute="bfloat16")
    for carry_off in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="pickle A, and make a plan of it there"):
            carry_off(plan)


def test_a_plan_without_n_is_made_for_the_first_b(A, monkeypatch, Fake):
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


# -- A that came as blocks --


@pytest.fixture
def rounded_blocks():
    """Full blocks of bf16, 5 x 4 of them with some rows and columns empty."""
    pattern = np.array([[1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 0, 1]])
    full = np.kron(pattern, np.random.default_rng(0).integers(1, 9, (64, 64)))
    found = BCSR.from_csr(csr_array(full.astype(np.float32)))
    parts = (found.block_row_ptr, found.block_col_idx, bfloat16_bits(found.blocks))
    return BCSR(found.shape, found.block, *parts), full


def test_the_structure_of_full_blocks_is_read_off_their_pattern(rounded_blocks):
    blocks, full = rounded_blocks
    operand = sparse(blocks)
    found, expected = (
        structure_of_blocks(operand.shape, operand.blocks),
        structure_of(csr_array(full)),
    )
    assert (found.m, found.k, found.nnz) == (expected.m, expected.k, expected.nnz)
    assert (found.blocks, found.touched_rows) == (expected.blocks, expected.touched_rows)
    for name in ("row_lengths", "blocks_per_row", "blocks_per_pair"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    for height, columns in expected.columns.items():
        np.testing.assert_array_equal(found.columns[height], columns)


def test_blocks_are_planned_and_held_without_making_csr_of_them(rounded_blocks, monkeypatch, Fake):
    blocks, full = rounded_blocks
    monkeypatch.setattr(
        sparse_operands, "bsr_array", lambda *args, **options: pytest.fail("made CSR")
    )
    plan = asl.plan(blocks, 64)
    assert plan.nnz == np.count_nonzero(full)
    assert len(plan.explain()) > 1
    B = bits(dense_b(full.shape[1]))

    class Reads(Fake):
        def blocks(self, product):
            assert product.A.shape == full.shape
            assert product.A.nnz == np.count_nonzero(full)
            return lambda B: full @ B

    C = asl.plan(blocks, out_dtype="float32", kernel=Reads()) @ B
    np.testing.assert_array_equal(C, full @ dense_b(full.shape[1]).astype(float))
    monkeypatch.undo()


def test_kernels_that_want_csr_get_it_of_blocks(rounded_blocks, Fake):
    blocks, full = rounded_blocks
    plan = asl.plan(blocks, out_dtype="float32", kernel=Fake("csr"))
    B = dense_b(full.shape[1])
    np.testing.assert_array_equal(plan @ bits(B), full @ B.astype(float))
    doubled = BCSR(blocks.shape, blocks.block, blocks.block_row_ptr, blocks.block_col_idx,
                   bits(2 * widen(blocks.blocks, "bfloat16")))  # fmt: skip
    plan.update_values(doubled)
    np.testing.assert_array_equal(plan @ bits(B), 2 * (full @ B.astype(float)))
