"""Which contender multiplies: the planner's candidates, or the one that the caller names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from asyncsparse_lab.errors import (
    CompileError,
    DeviceError,
    InputError,
    MemoryLimitError,
    UnsupportedError,
)
from asyncsparse_lab.formats.arrays import free_bytes
from asyncsparse_lab.spmm.contender import Contender, Prepared
from asyncsparse_lab.spmm.plan_models import kernel_name, order_name
from asyncsparse_lab.spmm.product import Product
from asyncsparse_lab.spmm.variants import VARIANTS, Variant

if TYPE_CHECKING:
    from pandas import DataFrame

    from asyncsparse_lab.spmm.plan_structure import Structure
    from asyncsparse_lab.spmm.planner import Candidate


@dataclass(eq=False)
class Choice:
    """The contenders for one A and n, best first, and which of them is in use.

    Attributes
    ----------
    candidates : list of Candidate
        By predicted time; empty where the caller named the kernel.
    contenders : list of Contender
        What is tried, in this order.
    position : int
        The one in use.
    refusals : dict
        Position to the reason why it was passed over.
    """

    candidates: list[Candidate]
    contenders: list[Contender]
    position: int = 0
    refusals: dict[int, str] = field(default_factory=dict)

    @property
    def contender(self) -> Contender:
        """The one in use."""
        return self.contenders[self.position]

    @property
    def used(self) -> Candidate | None:
        """The planner's candidate that is in use; None where the caller named the kernel."""
        return self.candidates[self.position] if self.candidates else None

    def prepare(self, product: Product) -> Prepared:
        """Prepare the best that takes this product.

        Raises
        ------
        UnsupportedError, MemoryLimitError, DeviceError, CompileError
            None does; the last one's reason.
        """
        while True:
            try:
                return self.contender.prepare(product)
            except (
                UnsupportedError,
                MemoryLimitError,
                DeviceError,
                CompileError,
                InputError,
            ) as no:
                self.refusals[self.position] = str(no)
                if self.position + 1 == len(self.contenders):
                    raise
                self.position += 1

    def among(self, planned: Choice) -> Choice:
        """Return the planner's candidates with the one in use, that the caller named, marked."""
        keys = [(candidate.name, candidate.order) for candidate in planned.candidates]
        key = kernel_name(self.contender), order_name(self.contender)
        position = keys.index(key) if key in keys else -1
        return Choice(planned.candidates, planned.contenders, position)

    def table(self) -> DataFrame:
        """Return every candidate: predicted time and its parts, what bounds it, which is used."""
        from asyncsparse_lab.spmm.planner import table

        places = range(len(self.candidates))
        return table(self.candidates).assign(
            used=[place == self.position for place in places],
            refused=[self.refusals.get(place, "") for place in places],
        )


def find_contender(name: str | Variant | Contender) -> Contender:
    """Return one of our variants, or a library's adapter, by its name; one's own as it is.

    Raises
    ------
    InputError
        There is none of this name.
    """
    from asyncsparse_lab.baselines import BASELINES
    from asyncsparse_lab.spmm.run import Ours

    if isinstance(name, Variant):
        return Ours(name)
    if not isinstance(name, str):
        if not hasattr(name, "prepare"):
            raise InputError(
                f"kernel={name!r}: pass the name of a kernel, a Variant or a contender"
            )
        return name
    if name in VARIANTS:
        return Ours(VARIANTS[name])
    if name in BASELINES:
        return BASELINES[name]
    raise InputError(f"no kernel {name!r}; there are {', '.join([*VARIANTS, *BASELINES])}")


def choose(
    A: Structure,
    n: int,
    dtype_in: str,
    dtype_out: str,
    layout: str,
    on_this_gpu: bool = False,
    products: int | None = None,
) -> Choice:
    """Plan a product on the CPU.

    Parameters
    ----------
    on_this_gpu : bool
        Whether A's format must fit into what the current GPU has free; else into an H200.
    products : int, optional
        How many are to come.

    Raises
    ------
    UnsupportedError, MemoryLimitError
        Nothing takes these types and this layout, or no format of A fits.
    """
    from asyncsparse_lab.spmm.planner import candidates

    memory_bytes = None
    if on_this_gpu:
        import cupy

        memory_bytes = free_bytes(cupy)
    found = candidates(
        A,
        n,
        dtype_in=dtype_in,
        dtype_out=dtype_out,
        layout=layout,
        memory_bytes=memory_bytes,
        products=products,
    )
    return Choice(found, [candidate.contender for candidate in found])
