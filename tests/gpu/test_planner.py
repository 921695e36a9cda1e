from __future__ import annotations

import pytest

from asyncsparse_lab.errors import UnsupportedError
from asyncsparse_lab.gpu.device import driver_is_loadable
from asyncsparse_lab.matrices import load_matrix
from asyncsparse_lab.spmm.oracle import reference
from asyncsparse_lab.spmm.planner import Auto, candidates
from asyncsparse_lab.spmm.product import Product, poison

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not driver_is_loadable(), reason="no NVIDIA driver"),
    pytest.mark.filterwarnings("default"),  # those of CuPy are not ours
]

NAMES = ("mycielskian9", "Trefethen_2000", "hub_rows(rows=2000,cols=2000)")


def assert_right(prepared, product):
    truth = reference(product.A, product.B)
    poison(prepared.output)
    prepared.run()
    assert truth.relative_error(prepared.output) <= truth.err_bound(product.dtype_out)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype_out", ["bfloat16", "float32"])
@pytest.mark.parametrize("n", [1, 143, 512])
def test_auto_multiplies(name, dtype_out, n):
    product = Product.random(load_matrix(name), n, dtype_out=dtype_out)
    prepared = Auto().prepare(product)
    assert_right(prepared, product)
    assert prepared.params["chosen"] == candidates(product.A, n, dtype_out=dtype_out)[0].name


@pytest.mark.parametrize("dtype_out", ["float16", "float32"])
def test_auto_multiplies_float16(dtype_out):
    A = load_matrix("Trefethen_2000")
    product = Product.random(A, 256, dtype_in="float16", dtype_out=dtype_out)
    assert_right(Auto().prepare(product), product)


@pytest.mark.parametrize("name", NAMES)
def test_every_candidate_multiplies(name):
    product = Product.random(load_matrix(name), 320, dtype_out="float32")
    for one in candidates(product.A, 320, dtype_out="float32"):
        try:
            prepared = one.contender.prepare(product)
        except UnsupportedError:
            assert one.contender.role == "library"
            continue
        assert_right(prepared, product)
