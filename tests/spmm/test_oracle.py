from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.sparse import csr_array

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.formats import bfloat16_bits, bfloat16_from_bits
from asyncsparse_lab.spmm import oracle


def product(m: int = 37, k: int = 91, n: int = 13) -> tuple[csr_array, np.ndarray]:
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((m, k)) < 0.3, rng.standard_normal((m, k)), 0)
    return csr_array(dense.astype(np.float32)), rng.standard_normal((k, n)).astype(np.float32)


def test_the_product_agrees_with_exact_arithmetic() -> None:
    A, B = product(9, 20, 3)
    truth = oracle.reference(A, B)
    dense = A.toarray()
    for i in range(9):
        for j in range(3):
            terms = [
                Fraction(float(a)) * Fraction(float(b))
                for a, b in zip(dense[i], B[:, j], strict=True)
            ]
            assert truth.values[i, j] == pytest.approx(float(sum(terms)), rel=1e-15, abs=1e-15)
            assert truth.scale[i, j] == pytest.approx(float(sum(map(abs, terms))), rel=1e-15)


def test_bits_are_read_as_bf16() -> None:
    A, B = product()
    bits = bfloat16_bits(B)
    from_bits, from_floats = (
        oracle.reference(A, bits),
        oracle.reference(A, bfloat16_from_bits(bits)),
    )
    np.testing.assert_array_equal(from_bits.values, from_floats.values)
    C = bfloat16_bits(from_bits.values.astype(np.float32))
    assert 0 < from_bits.relative_error(C) <= from_bits.err_bound("bfloat16")


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    A, B = product()
    whole = oracle.reference(A, B)
    C = whole.values.copy()
    C[30, 11] += 1.0
    expected = whole.worst(C)
    monkeypatch.setattr(oracle, "_CHUNK_ELEMENTS", 50)
    parts = oracle.reference(A, B)
    np.testing.assert_array_equal(parts.values, whole.values)
    assert parts.worst(C) == expected
    assert (expected.row, expected.column) == (30, 11)


def test_one_wrong_element_shows() -> None:
    A, B = product()
    truth = oracle.reference(A, B)
    C = truth.values.astype(np.float32)
    assert truth.relative_error(C) <= truth.err_bound("float32")
    C[36, 12] = np.nextafter(C[36, 12], np.float32(np.inf)) + np.float32(1e-3)
    worst = truth.worst(C)
    assert worst.rel_err > truth.err_bound("float32")
    assert (worst.row, worst.column, worst.value) == (36, 12, pytest.approx(float(C[36, 12])))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_infinitely_wrong(bad: float) -> None:
    A, B = product()
    truth = oracle.reference(A, B)
    C = truth.values.copy()
    C[0, 0] = bad
    assert truth.relative_error(C) == math.inf


def test_a_finite_value_where_the_truth_is_not_finite_is_wrong() -> None:
    A, B = product()
    B[A.indices[0]] = np.nan
    truth = oracle.reference(A, B)
    assert math.isnan(truth.values[0, 0])
    assert truth.relative_error(truth.values) == 0.0
    assert truth.relative_error(np.nan_to_num(truth.values)) == math.inf


def test_rows_of_b_that_nothing_touches_do_not_count() -> None:
    A = csr_array(([1.0, 2.0], ([0, 2], [1, 3])), shape=(3, 5))
    B = np.full((5, 2), np.nan)
    B[1], B[3] = 10.0, 20.0
    truth = oracle.reference(A, B)
    np.testing.assert_array_equal(truth.values, [[10, 10], [0, 0], [40, 40]])


def test_an_element_without_terms_has_to_be_zero() -> None:
    A = csr_array((3, 5), dtype=np.float32)
    truth = oracle.reference(A, np.ones((5, 2)))
    assert truth.relative_error(np.zeros((3, 2))) == 0.0
    assert truth.relative_error(np.full((3, 2), 1e-30)) == math.inf
    assert truth.err_bound("float32") == 0.0


def test_sampled_rows_are_rows_of_the_whole() -> None:
    A, B = product()
    rows = np.array([0, 17, 36])
    sample, whole = oracle.reference(A, B, rows), oracle.reference(A, B)
    np.testing.assert_array_equal(sample.values, whole.values[rows])
    assert sample.longest_row == whole.longest_row
    C = whole.values.copy()
    C[1] = np.nan
    assert sample.relative_error(C) == 0.0
    C[17, 4] = np.nan
    worst = sample.worst(C)
    assert (worst.row, worst.column) == (17, 4)


def test_the_sample_holds_both_ends_and_the_longest_row(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.append(np.repeat(5000, 40), np.arange(0, 9000, 7))
    columns = np.append(np.arange(40), np.arange(0, 9000, 7) % 40)
    A = csr_array((np.ones(rows.size), (rows, columns)), shape=(10_000, 40))
    assert oracle.sample_rows(A, 8) is None
    monkeypatch.setattr(oracle, "_SAMPLE_ABOVE", 1000)
    sample = oracle.sample_rows(A, 8)
    assert sample is not None
    assert {0, 127, 5000, 9872, 9999} <= set(sample.tolist())
    assert sample.size < 3000


def test_bounds() -> None:
    assert oracle.err_bound(1000, "bfloat16") == 2.0**-8 + 1000 * 2.0**-23
    assert oracle.err_bound(1000, "float16") == 2.0**-11 + 1000 * 2.0**-23
    assert oracle.err_bound(1000, "float32") == 1000 * 2.0**-23
    with pytest.raises(InputError, match="float64"):
        oracle.err_bound(1, "float64")


def test_shapes_are_checked() -> None:
    A, B = product()
    with pytest.raises(InputError, match="needs 91 rows"):
        oracle.reference(A, B[:-1])
    with pytest.raises(InputError, match="whole output"):
        oracle.reference(A, B).worst(B)


def test_small_results_of_float16_are_held_to_its_steps() -> None:
    A = csr_array(np.array([[2.0**-10]]))
    exact = np.array([[2.0**-10 * 65 / 64]], dtype=np.float16)
    truth = oracle.reference(A, exact)
    rounded = truth.values.astype(np.float16)
    assert abs(rounded - truth.values).max() > 0, "it lies between two subnormal numbers"
    assert truth.relative_error(rounded) <= truth.err_bound("float16")
    next_one = np.nextafter(rounded, np.float16(1), dtype=np.float16)
    assert truth.relative_error(np.nextafter(next_one, np.float16(1))) > truth.err_bound("float16")
