"""csr-vector beyond the edge cases of every variant: its tiles, pieces and input types."""

from __future__ import annotations

import pytest

from asyncsparse_lab.spmm.edge_cases import EDGE_CASES
from asyncsparse_lab.spmm.oracle import reference
from asyncsparse_lab.spmm.product import Product
from asyncsparse_lab.spmm.run import Ours
from asyncsparse_lab.spmm.variants import VARIANTS
from asyncsparse_lab.spmm.verify import compare_launches, verify_build

pytestmark = pytest.mark.gpu

CSR = VARIANTS["csr-vector"]
ORDINARY = [case for case in EDGE_CASES if case.scope != "named"]


@pytest.mark.parametrize("tile_columns", [64, 128, 256, 512])
@pytest.mark.parametrize(("piece_length", "order"), [(0, 1), (32, 2)])
@pytest.mark.parametrize("dtype_out", ["bfloat16", "float32"])
def test_every_tile_passes_the_edge_cases(
    tile_columns: int, piece_length: int, order: int, dtype_out: str
) -> None:
    kernel = CSR.with_options(tile_columns=tile_columns, piece_length=piece_length, order=order)
    outcomes = verify_build(kernel, dtype_out, ORDINARY)
    assert {outcome.case: outcome.fault for outcome in outcomes if outcome.fault} == {}


@pytest.mark.parametrize("dtype_out", ["float16", "float32"])
@pytest.mark.parametrize("n", [64, 143, 520])
@pytest.mark.parametrize("piece_length", [16, 1000])
def test_it_multiplies_float16(dtype_out: str, n: int, piece_length: int) -> None:
    A = next(case for case in EDGE_CASES if case.name == "ragged-n100").make()
    product = Product.random(A, n, dtype_in="float16", dtype_out=dtype_out)
    prepared = Ours(CSR.with_options(piece_length=piece_length)).prepare(product)
    assert (prepared.params["pieces"] > 0) == (piece_length == 16)
    prepared.run()
    truth = reference(product.A, product.B)
    assert truth.relative_error(prepared.output) <= truth.err_bound(dtype_out)


def test_pieces_with_delays_repeat_bit_for_bit() -> None:
    outcome = compare_launches(CSR.with_options(piece_length=32), 200)
    assert outcome.different_words == 0
