"""A of a plan: the caller's values, rounded, in the formats that its kernels read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from scipy.sparse import csr_array

from asyncsparse_lab.errors import MemoryLimitError, UnsupportedError
from asyncsparse_lab.formats.arrays import Array, array_module
from asyncsparse_lab.spmm.contender import Contender
from asyncsparse_lab.spmm.elementwise import widen
from asyncsparse_lab.spmm.handed_on import (
    BCSR_NAME,
    ON_THE_GPU,
    handed_on,
    structure_of_blocks,
    with_blocks,
)
from asyncsparse_lab.spmm.places import DERIVED, Places, read_places, scatter
from asyncsparse_lab.spmm.plan_structure import Structure, structure_of
from asyncsparse_lab.spmm.product import Product
from asyncsparse_lab.spmm.ring import TILES_NAME
from asyncsparse_lab.spmm.sparse_operands import DeferredCsr, Sparse

_KEEPS_VALUES: Final = ("dense", "csr-alg2", "csr-alg3")  # libraries that read our conversions


class PlanMatrix:
    """A in host memory, and on one GPU in the formats that were needed so far.

    Parameters
    ----------
    A : Sparse
    compute : {"bfloat16", "float16"}
    """

    def __init__(self, A: Sparse, compute: str) -> None:
        self.compute: Final = compute
        self._newest: Array | None = None  # 16-bit, in the caller's order; not yet in _matrix
        self._base: Product | None = None
        self._places: Places = {}
        self._load(A)

    def _load(self, A: Sparse) -> None:
        self._A = A
        self._matrix: Any
        self._order: Array | None
        if A.blocks is None:
            self._matrix, self._order = A.canonical(self.compute)
        else:
            self._matrix, self._order = DeferredCsr(A, self.compute), None

    @property
    def operand(self) -> Sparse:
        """What the caller passed."""
        return self._A

    @property
    def nnz(self) -> int:
        """Stored values."""
        return int(self._matrix.nnz)

    @property
    def matrix(self) -> csr_array:
        """A as a product takes it, with the newest values."""
        self._renew()
        matrix: csr_array = self._matrix if self._A.blocks is None else self._matrix.csr
        return matrix

    def structure(self) -> Structure:
        """Return what the planner looks at; blocks count as full."""
        if self._A.blocks is None:
            return structure_of(self._matrix)
        return structure_of_blocks(self._A.shape, self._A.blocks)

    def product(self, B: Array, dtype_out: str, layout: str, out: Array, device: int) -> Product:
        """Return the product with these dense matrices."""
        self._renew()  # a contender may convert it
        if self._base is None:
            # Checking A again would take longer than many products.
            nothing: Any = csr_array(self._A.shape, dtype=np.float32)
            bare = Product(nothing, B.shape[1], self.compute, dtype_out, layout, B, out=out)
            self._base = bare.with_matrix(self._matrix)
            if array_module(B) is not np:
                self._base.conversions.makers = ON_THE_GPU
                in_order = self._order is None
                for name, found in handed_on(self._A, self.compute, in_order, device).items():
                    self._base.conversions.keep(name, found)
            return self._base
        return self._base.with_operands(B, dtype_out, layout, out)

    def _renew(self) -> None:
        """Bring the newest values to the host."""
        if self._newest is not None:
            newest = self._newest if array_module(self._newest) is np else self._newest.get()
            self._write(newest)
            self._newest = None

    def update(self, values: Array, used: Sequence[tuple[Contender, Product]]) -> bool:
        """Take new values.

        Parameters
        ----------
        values : array
            Of the 16-bit type, in the caller's order; kept.
        used : sequence
            The contenders that convert A, each with a product that it was prepared for.

        Returns
        -------
        bool
            Whether what was prepared is still valid.
        """
        is_summed = self._order is not None and len(self._order) != len(values)
        if self._base is None or is_summed or not all(_keeps_values(one) for one, _ in used):
            return self._convert_again(values)
        known = set(self._base.conversions.matrices()) - {DERIVED} <= set(self._places)
        if not known:
            try:
                self._find_places(used)
            except (UnsupportedError, MemoryLimitError):
                return self._convert_again(values)
        self._base.conversions.forget(DERIVED)
        scatter(self._base.conversions.matrices(), self._places, values)
        self._newest = values
        return known

    def replace_blocks(self, A: Sparse) -> None:
        """Take other blocks in the same places, without copying them."""
        assert A.blocks is not None
        self._load(A)
        if self._base is None:
            return
        converted = self._base.conversions.matrices()
        self._base = self._base.with_matrix(self._matrix)
        for name, found in converted.items():
            if name == BCSR_NAME:
                self._base.conversions.keep(name, with_blocks(found, A.blocks))
            elif name == TILES_NAME:  # of the pattern alone
                self._base.conversions.keep(name, found)

    def _find_places(self, used: Sequence[tuple[Contender, Product]]) -> None:
        assert self._base is not None
        self._base.conversions.forget()  # one set of conversions at a time

        def prepare(named: Product) -> None:
            for contender, last in used:
                B, out = last.B, last.out
                contender.prepare(named.with_operands(B, last.dtype_out, last.layout, out))

        self._places, conversions = read_places(self._base, prepare)
        if self._order is not None:
            self._places = {
                name: [self._in_callers_order(place) for place in found]
                for name, found in self._places.items()
            }
        for name, found in conversions.items():
            self._base.conversions.keep(name, found)

    def _in_callers_order(self, place: Array) -> Array:
        xp = array_module(place)
        turned = xp.empty_like(place)
        turned[xp.asarray(self._order)] = place
        return turned

    def _convert_again(self, values: Array) -> bool:
        self._write(values if array_module(values) is np else values.get())
        self._newest, self._places = None, {}
        if self._base is None:
            return True
        self._base.conversions.forget()
        return False

    def _write(self, values: Array) -> None:
        wide = widen(values, self.compute)
        if self._order is None:
            self._matrix.data[...] = wide
        elif len(self._order) == len(values):
            self._matrix.data[...] = wide[self._order]
        else:  # duplicates are summed again
            self._matrix.data[...] = self._A.with_values(wide).canonical(self.compute)[0].data


def _keeps_values(contender: Contender) -> bool:
    """Whether its values are all in the product's conversions, where they can be replaced."""
    ours = contender.backend == "asyncsparse" and contender.role != "planner"
    return ours or contender.variant in _KEEPS_VALUES
