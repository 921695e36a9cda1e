from __future__ import annotations

import numpy as np
import pytest

from asyncsparse_lab.formats import bfloat16_bits, bfloat16_from_bits
from asyncsparse_lab.spmm.edge_cases import (
    EDGE_CASES,
    EdgeCase,
    make_b,
    tall,
    uncovered_rows,
    wide,
)
from asyncsparse_lab.spmm.oracle import reference
from asyncsparse_lab.spmm.product import Product

ORDINARY = [case for case in EDGE_CASES if case.scope != "named"]


@pytest.mark.parametrize("case", ORDINARY, ids=lambda case: case.name)
def test_a_case_is_a_valid_product_whose_truth_is_finite(case: EdgeCase) -> None:
    A = case.make()
    B = make_b(np, A, case)
    Product(A, case.n, "bfloat16", "float32", "row-major", B)
    truth = reference(A, B)
    assert np.isfinite(truth.values).all()
    assert truth.relative_error(truth.values.astype(np.float32)) <= truth.err_bound("float32")


def test_names_are_unique() -> None:
    assert len({case.name for case in EDGE_CASES}) == len(EDGE_CASES)


def test_the_suite_holds_what_the_issue_asks_for() -> None:
    cases = {case.name: case for case in EDGE_CASES}
    assert {1, 8, 100, 143, 200, 1000, 1024} <= {case.n for case in EDGE_CASES}
    ragged = cases["ragged-n143"].make()
    assert all(size % 64 for size in ragged.shape)
    assert cases["no-nonzeros"].make().nnz == 0
    lengths = np.diff(cases["empty-rows"].make().indptr)
    assert not lengths[64 * 3 : 64 * 5].any()
    assert not lengths[448:].any()
    assert not lengths[:64].any()
    assert lengths[64:192].any()
    dense = np.diff(cases["one-dense-row"].make().indptr)
    assert dense.max() == 3000
    assert np.median(dense) <= 3


def test_poison_is_where_no_block_reads() -> None:
    case = next(case for case in EDGE_CASES if case.name == "poisoned-b")
    A = case.make()
    B = bfloat16_from_bits(make_b(np, A, case))
    poisoned = np.flatnonzero(~np.isfinite(B).all(axis=1))
    np.testing.assert_array_equal(poisoned, uncovered_rows(A))
    assert {0, 63, 64, 127, 256, 319, 384, 409} <= set(poisoned.tolist())
    assert np.isnan(B[poisoned]).any()
    assert np.isinf(B[poisoned]).any()
    blocks_read = np.unique(A.indices // 64)
    assert not np.isin(poisoned // 64, blocks_read).any()


@pytest.mark.parametrize(
    ("storage", "stride_bytes", "offset"), [("contiguous", 286, 0), ("odd", 296, 3)]
)
def test_storage(storage: str, stride_bytes: int, offset: int) -> None:
    case = EdgeCase("a", lambda: tall(70), 143, storage=storage)  # type: ignore[arg-type]
    B = make_b(np, case.make(), case)
    assert B.strides == (stride_bytes, 2)
    assert B.base is not None
    memory = bfloat16_from_bits(B.base)
    inside = np.zeros(memory.shape, dtype=bool)
    inside[:192, offset : offset + 143] = True
    assert np.isnan(memory[~inside]).all()
    assert np.isfinite(memory[inside]).all()


def test_aligned_storage_suits_a_tensor_map() -> None:
    case = EdgeCase("a", lambda: tall(70), 201, storage="aligned")
    B = make_b(np, case.make(), case)
    assert B.strides[0] % 16 == 0
    assert B.strides[0] > 2 * 201
    assert (B.ctypes.data - B.base.ctypes.data) % 16 == 0


def test_b_is_made_in_parts_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    case = EdgeCase("a", lambda: tall(70), 143)
    B = bfloat16_from_bits(make_b(np, case.make(), case))
    assert abs(B.mean()) < 0.05
    assert abs(B.std() - 1) < 0.05
    assert np.unique(bfloat16_bits(B)).size > 500


@pytest.mark.parametrize("make", [tall, wide])
def test_long_matrices_reach_their_last_row_and_column(make) -> None:  # type: ignore[no-untyped-def]
    A = make(100_003)
    assert A.nnz
    if make is tall:
        assert A.shape[0] == 100_003
        assert np.diff(A.indptr)[-1] == 1
        assert np.diff(A.indptr).max() == 1
    else:
        assert A.shape[1] == 100_003
        assert A.indices.max() == 100_002


def test_long_cases_pass_two_to_the_31() -> None:
    sizes = {case.name: case.n * ((1 << 21) + 77) for case in EDGE_CASES if case.scope == "named"}
    assert len(sizes) == 2
    assert min(sizes.values()) > 2**31


@pytest.mark.parametrize("dtype_in", ["bfloat16", "float16"])
@pytest.mark.parametrize("storage", ["contiguous", "aligned", "odd"])
def test_columns_are_stored_as_rows_are(dtype_in: str, storage: str) -> None:
    case = EdgeCase("a", lambda: tall(70), 143, storage=storage)  # type: ignore[arg-type]
    A = case.make()
    B = make_b(np, A, case, dtype_in=dtype_in, layout="column-major")
    rows = make_b(np, A, case, dtype_in=dtype_in)
    np.testing.assert_array_equal(B, rows)
    assert B.strides[0] == 2
    assert B.strides[1] == {"contiguous": 384, "aligned": 416, "odd": 394}[storage]
    Product(A, case.n, dtype_in, "float32", "column-major", B)
    memory = B.base
    while memory.base is not None:
        memory = memory.base
    memory = memory if dtype_in == "float16" else bfloat16_from_bits(memory)
    assert np.isfinite(memory).sum() == B.size
