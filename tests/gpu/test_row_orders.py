"""Windows of rows in another order, on the GPU: every order, and plans that take new values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import asyncsparse_lab as asl
from asyncsparse_lab.gpu.device import driver_is_loadable
from asyncsparse_lab.matrices import load_matrix
from asyncsparse_lab.spmm.oracle import reference
from asyncsparse_lab.spmm.orders import ORDERS, orders_of
from asyncsparse_lab.spmm.product import Product, poison
from asyncsparse_lab.spmm.run import Ours
from asyncsparse_lab.spmm.variants import VARIANTS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not driver_is_loadable(), reason="no NVIDIA driver"),
    pytest.mark.filterwarnings("default"),  # those of CuPy are not ours
]

PIPELINED = VARIANTS["wcsr-pipelined"]


@pytest.mark.parametrize("name", ["mycielskian9", "Trefethen_2000", "uniform(rows=700,cols=333)"])
@pytest.mark.parametrize("n", [1, 143, 512])
def test_every_order_gives_the_same_product(name: str, n: int) -> None:
    product = Product.random(load_matrix(name), n, dtype_out="float32")
    truth = reference(product.A, product.B)
    for code in orders_of(product.A.shape).values():
        prepared = Ours(PIPELINED.with_options(row_order=code)).prepare(product)
        poison(prepared.output)
        prepared.run()
        assert truth.relative_error(prepared.output) <= truth.err_bound("float32")


@pytest.mark.parametrize("order", list(ORDERS))
def test_new_values_reach_reordered_rows(order: str) -> None:
    import cupy

    A = load_matrix("mycielskian9").astype(np.float64)
    kernel = PIPELINED.with_options(row_order=ORDERS[order], max_cols_per_task=64)
    plan = asl.plan(A, 96, compute="bfloat16", out_dtype="float32", kernel=kernel)
    rng = np.random.default_rng(0)
    B = rng.integers(-4, 5, (A.shape[1], 96)).astype(np.float32)
    on_gpu = cupy.asarray(B)
    for _ in range(3):  # the first finds the places, the others scatter
        np.testing.assert_array_equal((plan @ on_gpu).get(), A.toarray() @ B)
        A.data = rng.integers(1, 9, A.nnz).astype(np.float64)
        plan.update_values(A.data)
    np.testing.assert_array_equal((plan @ on_gpu).get(), A.toarray() @ B)


def test_a_plan_of_many_products_orders_rows_and_takes_new_values() -> None:
    import cupy

    rng = np.random.default_rng(0)
    groups = np.sort(rng.random((16, 4000)).argsort(axis=1)[:, :300], axis=1)
    columns = groups[np.arange(1024) % 16].ravel()
    values = rng.integers(1, 9, len(columns)).astype(np.float64)
    A = csr_array((values, columns, 300 * np.arange(1025)), shape=(1024, 4000))
    plan = asl.plan(A, 512, compute="bfloat16", out_dtype="float32", products=10**6)
    B = rng.integers(-4, 5, (4000, 512)).astype(np.float32)
    for factor in (1, 2, 1):
        plan.update_values(factor * A.data)
        C = plan @ cupy.asarray(B)
        np.testing.assert_array_equal(C.get(), factor * (A @ B))
    table = plan.explain()
    assert list(table[table["used"]]["order"]) == ["similarity"]
