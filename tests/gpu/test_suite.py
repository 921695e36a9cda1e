"""A case of the evaluation on the GPU: who passes, and that conversions serve every n."""

from __future__ import annotations

import pytest

from asyncsparse_lab.records import Record
from asyncsparse_lab.studies import suite

pytestmark = pytest.mark.gpu

ROUNDS_ON_THE_WAY = {"csr-alg1", "csr-alg2"}
"""cuSPARSE's algorithms whose bf16 output is further from the truth than one rounding."""


def measured(name: str) -> list[Record]:
    return suite.measure(next(case for case in suite.cases("smoke") if case.name == name))


def test_everybody_is_right_or_says_why_not() -> None:
    records = measured("Trefethen_2000-n256")
    ours = [record for record in records if record.backend == "asyncsparse"]
    assert {(r.variant, r.reason) for r in ours if r.status != "passed"} == set()
    assert {record.role for record in ours} == {"planner", "paper", "ours"}
    wrong = {record.variant for record in records if record.status == "wrong"}
    assert wrong <= ROUNDS_ON_THE_WAY
    assert {record.status for record in records} <= {"passed", "wrong", "unsupported"}
    warm = [record.role for record in records if record.l2 == "warm"]
    assert warm == ["planner", "paper", "library", "library"]


def test_float32_is_compared_with_what_has_nothing_else() -> None:
    records = measured("Trefethen_2000-n256-float32")
    assert {record.dtype_out for record in records} == {"float32"}
    passed = {record.variant for record in records if record.status == "passed"}
    assert {"auto", "csr-alg2", "csr-alg3", "dense"} <= passed


def test_a_matrix_is_converted_once_for_every_n() -> None:
    measured("rmat(scale=11, edge_factor=16)-n512")
    product, _ = suite.product_and_truth("rmat(scale=11, edge_factor=16)", 512)
    before = product.conversions.matrices()
    measured("rmat(scale=11, edge_factor=16)-n256")
    after, _ = suite.product_and_truth("rmat(scale=11, edge_factor=16)", 256)
    assert before["bcsr64"] is after.conversions.matrices()["bcsr64"]
    assert after.n == 256
