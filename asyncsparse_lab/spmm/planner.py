"""The planner: which format, kernel and configuration, by predicted time.

Every candidate is costed (:mod:`asyncsparse_lab.spmm.cost`) on the pattern of A, which is counted
once; nothing is converted, and no GPU is needed.  Candidates whose format would not fit into
device memory are never chosen.

Rows of A in another order (:mod:`asyncsparse_lab.spmm.orders`) can save time in each product, but
to order them takes as long as hundreds of products.  They are looked at only for P products to
come, and only where they could pay: with the best time T so far, and no product faster than an
empty kernel and its bytes over HBM, :math:`T_0`, where P (T - T_0) is more than twice what counting
A's pattern took: the rows are put into the order, and counted again.  Candidates are ranked by
their time for all P products, ordering included.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from asyncsparse_lab.errors import InputError, MemoryLimitError, UnsupportedError
from asyncsparse_lab.formats.arrays import free_bytes
from asyncsparse_lab.spmm.contender import Contender, Prepared
from asyncsparse_lab.spmm.cost import predict
from asyncsparse_lab.spmm.orders import orders_of
from asyncsparse_lab.spmm.plan_checks import check_columns, check_products
from asyncsparse_lab.spmm.plan_hash import plan_hash
from asyncsparse_lab.spmm.plan_models import (
    LIBRARIES,
    configurations,
    kernel_name,
    order_name,
    work_of,
)
from asyncsparse_lab.spmm.plan_rates import Rates, load_rates
from asyncsparse_lab.spmm.plan_structure import Structure, structure_of
from asyncsparse_lab.spmm.plan_works import Problem
from asyncsparse_lab.spmm.product import ITEM_BYTES, Product, check_types

if TYPE_CHECKING:
    import pandas as pd

    from asyncsparse_lab.spmm.run import Ours

LIBRARY_LIMIT_BYTES: Final = 8 << 30
"""Above this the libraries' adapters refuse a padded format."""


@dataclass(frozen=True)
class Candidate:
    """A contender with its predicted time on a cold L2.

    Attributes
    ----------
    contender : Contender
        Prepares and runs the product.
    predicted_us : float
        The sum of ``parts``.
    parts : mapping
        What the time consists of, in us: launch, L2 or the arithmetic, HBM, task overhead,
        imbalance.
    bound_by : str
        The largest part.
    device_bytes : int
        Of A in the contender's format.
    ordering_us : float
        What it takes to put A's rows into the contender's order; 0 where they are as stored.
    """

    contender: Contender
    predicted_us: float
    parts: Mapping[str, float]
    bound_by: str
    device_bytes: int
    ordering_us: float = 0.0

    @property
    def name(self) -> str:
        """Name of the kernel or library."""
        return kernel_name(self.contender)

    @property
    def order(self) -> str:
        """Name of the order of A's rows; empty where they are as stored."""
        return order_name(self.contender)

    @property
    def label(self) -> str:
        """Name of the kernel, and of the order of A's rows where they are not as stored."""
        return f"{self.name}, {self.order}" if self.order else self.name

    def paid_after(self, found: Sequence[Candidate]) -> float:
        """Return the products after which ordering has paid, against the best without; or inf."""
        best = min((one.predicted_us for one in found if not one.order), default=0.0)
        saved = best - self.predicted_us
        return self.ordering_us / saved if saved > 0 else float("inf")


def candidates(
    A: Any,
    n: int,
    *,
    dtype_in: str = "bfloat16",
    dtype_out: str = "bfloat16",
    layout: str = "row-major",
    rates: Rates | None = None,
    memory_bytes: int | None = None,
    products: int | None = None,
) -> list[Candidate]:
    """Predict the time of C = A B for everything that can compute it.

    Parameters
    ----------
    A : scipy.sparse.csr_array, m x k, or Structure
        Only its pattern is looked at.
    n : int
        Columns of B.
    dtype_in, dtype_out, layout : str
        As of :class:`~asyncsparse_lab.spmm.product.Product`.
    rates : Rates, optional
        Measured rates and coefficients; by default those of the H200.
    memory_bytes : int, optional
        What A's format may take on the device; by default what is left of the GPU's memory
        beside B and C.
    products : int, optional
        How many are to come; by default too few for another order of A's rows.

    Returns
    -------
    list of Candidate
        Fastest first: by the predicted time, and that of ordering shared by all products.

    Raises
    ------
    InputError
        A, n, a type or the layout is not valid.
    UnsupportedError
        Nothing computes such a product.
    MemoryLimitError
        No format of A fits; the message has the smallest.
    """
    check_types(dtype_in, dtype_out, layout)
    n = check_columns(n)
    products = check_products(products)
    rates = rates or load_rates()
    structure = A if isinstance(A, Structure) else structure_of(A)
    problem = Problem(structure, n, ITEM_BYTES[dtype_out], rates)
    limit = _memory_left(problem) if memory_bytes is None else memory_bytes
    if limit < 0:
        raise MemoryLimitError(
            f"B of {structure.k} x {n} and C of {structure.m} x {n} take {-limit:,} bytes more "
            "than there are: take a smaller n or a part of the rows"
        )
    costed = [_costed(contender, problem) for contender in _contenders(dtype_in, dtype_out, layout)]
    if not costed:
        raise UnsupportedError(
            f"nothing multiplies {dtype_in} into {dtype_out}, {layout}: use bfloat16, row-major"
        )
    costed += _reordered(costed, problem, products)
    fitting = [one for one in costed if one.device_bytes <= _limit_of(one, limit)]
    if not fitting:
        least = min(costed, key=lambda one: one.device_bytes)
        raise MemoryLimitError(
            f"A of {structure.m} x {structure.k} with {structure.nnz} non-zeros needs "
            f"{least.device_bytes:,} bytes as {least.name}, {limit:,} are left: take a smaller n "
            "or a part of the rows"
        )
    return sorted(fitting, key=lambda one: one.predicted_us + one.ordering_us / products)


def table(found: Sequence[Candidate]) -> pd.DataFrame:
    """Return candidates as a frame: predicted us, what bounds each, its parts, bytes of A.

    Where rows are reordered, also what ordering takes, and after how many products it has paid.
    """
    import pandas as pd

    frame = pd.DataFrame(
        [
            {
                "kernel": one.name,
                "configuration": configuration(one.contender),
                "predicted_us": one.predicted_us,
                "bound_by": one.bound_by,
                **one.parts,
                "device_bytes": one.device_bytes,
            }
            for one in found
        ]
    )
    if not any(one.order for one in found):
        return frame
    return frame.assign(
        order=[one.order for one in found],
        ordering_us=[one.ordering_us for one in found],
        paid_after=[one.paid_after(found) if one.order else 0.0 for one in found],
    )


def configuration(contender: Contender) -> str:
    """Return a contender's parameters in words."""
    return ", ".join(f"{name}={value}" for name, value in contender.params.items())


@dataclass(frozen=True)
class Auto:
    """Whatever the planner predicts to be fastest, as a contender.

    Attributes
    ----------
    rates : Rates, optional
        By default those of the H200.
    """

    rates: Rates | None = None
    role: str = "planner"
    backend: str = "asyncsparse"
    variant: str = "auto"
    params: dict[str, Any] = field(default_factory=dict)

    def prepare(self, product: Product) -> Prepared:
        """Plan, and prepare the best candidate that this machine can run.

        ``params["chosen"]`` names it, and ``params["planner"]`` who chose; ``preprocess_us`` has
        the time of planning in it.

        Raises
        ------
        UnsupportedError, MemoryLimitError, DeviceError, CompileError
            None of the candidates can be prepared.
        """
        from asyncsparse_lab.spmm.choice import Choice

        start = time.perf_counter()
        c_bytes = 0 if product.out is not None else ITEM_BYTES[product.dtype_out] * product.m
        found = candidates(
            product.A,
            product.n,
            dtype_in=product.dtype_in,
            dtype_out=product.dtype_out,
            layout=product.layout,
            rates=self.rates,
            memory_bytes=free_bytes(product.xp) - c_bytes * product.n,
        )
        planning_us = 1e6 * (time.perf_counter() - start)
        choice = Choice(found, [one.contender for one in found])
        prepared = choice.prepare(product)
        return replace(
            prepared,
            preprocess_us=prepared.preprocess_us + planning_us,
            params={
                **choice.contender.params,
                **prepared.params,
                "chosen": kernel_name(choice.contender),
                "planner": plan_hash(self.rates),
            },
        )


def _contenders(dtype_in: str, dtype_out: str, layout: str) -> Iterator[Contender]:
    """Yield what takes such a product."""
    from asyncsparse_lab.baselines import BASELINES
    from asyncsparse_lab.spmm.run import Ours

    for variant in configurations():
        try:
            variant.macros(dtype_out, dtype_in, layout)
        except InputError:
            continue
        yield Ours(variant)
    for name in LIBRARIES:
        if name != "cublas-dense" and (dtype_in, layout) != ("bfloat16", "row-major"):
            continue  # its adapter takes nothing else
        # ALG2 with bf16 output rounds sums on the way: recorded as wrong.
        if name != "cusparse-csr-alg2" or dtype_out == "float32":
            yield BASELINES[name]


def _reordered(found: Sequence[Candidate], problem: Problem, products: int) -> list[Candidate]:
    """Return the kernels that take A's rows in any order, in those orders that could pay."""
    structure = problem.structure
    kernels = [one.contender for one in found if "row_order" in one.contender.params]
    if not kernels or structure.csr is None:
        return []
    least = problem.rates.empty_us + problem.hbm_us(0)
    best = min(one.predicted_us for one in found)
    more: list[Candidate] = []
    for code in orders_of((structure.m, structure.k)).values():
        if products * (best - least) <= 2 * structure.counted_us:
            break
        ordered = structure.ordered(code)
        other = replace(problem, structure=ordered.structure)
        costed = [
            replace(_costed(_in_order(kernel, code), other), ordering_us=ordered.ordering_us)
            for kernel in kernels
        ]
        best = min(best, *(one.predicted_us + one.ordering_us / products for one in costed))
        more += costed
    return more


def _in_order(contender: Contender, code: int) -> Ours:
    from asyncsparse_lab.spmm.run import Ours

    assert isinstance(contender, Ours)
    return Ours(contender.kernel.with_options(row_order=code))


def _costed(contender: Contender, problem: Problem) -> Candidate:
    name = kernel_name(contender)
    work, device_bytes = work_of(name, contender.params, problem)
    cost = predict(work, problem.rates.of(name), problem.rates.empty_us)
    return Candidate(contender, cost.us, cost.parts, cost.bound_by, device_bytes)


def _memory_left(problem: Problem) -> int:
    structure, n = problem.structure, problem.n
    dense = 2 * structure.k * n + problem.output_bytes * structure.m * n
    return problem.rates.memory_bytes - dense


def _limit_of(candidate: Candidate, limit: int) -> int:
    padded = candidate.name in ("cublas-dense", "cusparse-blocked-ell")
    return min(limit, LIBRARY_LIMIT_BYTES) if padded else limit
