"""Made-up kernels, and the way of a GPU's matrices through a plan, for NumPy's."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from asyncsparse_lab.formats import BCSR, WCSR, bfloat16_bits
from asyncsparse_lab.formats.layouts import core_matrices
from asyncsparse_lab.spmm.contender import Prepared
from asyncsparse_lab.spmm.elementwise import widen
from asyncsparse_lab.spmm.orders import SIMILARITY, row_order
from asyncsparse_lab.spmm.plan_object import Plan

FORMS = ["blocks", "windows", "reordered", "csr", "dense", "half_bits", "hidden"]
"""What :class:`Fake` can convert A to."""


@pytest.fixture
def A():
    A = csr_array(random_array((100, 70), density=0.08, format="csr", rng=0))
    A.data = np.round(A.data * 15 + 1)  # sums of products of these are exact
    return A


def dense_b(k, n=16, seed=1):
    return np.random.default_rng(seed).integers(-8, 8, (k, n)).astype(np.float16)


def bits(B):
    return bfloat16_bits(B.astype(np.float32))


@dataclass(frozen=True)
class Tiles:
    """A converted matrix: patterns in wide integers, values in 16 bits."""

    pointer: np.ndarray
    columns: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class Reordered(Tiles):
    """The same, of rows in another order."""

    rows: np.ndarray


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

    def reordered(self, product):
        def convert(A):
            order = row_order(A, SIMILARITY)
            found = WCSR.from_csr(A[order], 64, 16)
            values = narrow(found.values, product)
            return Reordered(found.window_row_ptr, found.window_col_idx, values, order)

        tiles, _ = product.converted("windows64-order1", convert)

        def multiply(B):
            parts = (tiles.pointer, tiles.columns, widen(tiles.values, product.dtype_in))
            C = np.empty((product.A.shape[0], B.shape[1]), np.float32)
            C[tiles.rows] = WCSR(product.A.shape, 64, *parts) @ B
            return C

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

    def half_bits(self, product):
        """float16 as bits, as blocks of the kernels are."""

        def convert(A):
            found = BCSR.from_csr(A, (8, 16))
            values = narrow(found.blocks, product).view(np.uint16)
            return Tiles(found.block_row_ptr, found.block_col_idx, values)

        tiles, _ = product.converted("bits", convert)
        kind = np.uint16 if product.dtype_in == "bfloat16" else np.float16

        def multiply(B):
            blocks = widen(tiles.values.view(kind), product.dtype_in)
            return BCSR(product.A.shape, (8, 16), tiles.pointer, tiles.columns, blocks) @ B

        return multiply

    def hidden(self, product):
        """Keeps its values where a plan cannot see them, as some libraries do."""
        kept = product.A.copy()
        return lambda B: kept @ B


def narrow(values, product):
    return bfloat16_bits(values) if product.dtype_in == "bfloat16" else values.astype(np.float16)


@pytest.fixture(scope="session", name="Fake")
def fake():
    """The class of the made-up kernels."""
    return Fake


def on_numpy(self, B, out, alpha, beta):
    self._multiply(B, out, out.layouts[0], alpha, beta, 0)


@pytest.fixture
def launched(monkeypatch):
    """NumPy's matrices take the way that a GPU's take."""
    monkeypatch.setattr(Plan, "_multiply_on_cpu", on_numpy)
