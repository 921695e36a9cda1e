"""How a case of a sparse times dense study is measured, and which of its rows are drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from asyncsparse_lab.gpu.compile import compile_many
from asyncsparse_lab.gpu.timing import L2State
from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm.contender import Contender
from asyncsparse_lab.spmm.measure import L2_STATES
from asyncsparse_lab.spmm.oracle import Reference
from asyncsparse_lab.spmm.product import Product
from asyncsparse_lab.spmm.variants import Variant
from asyncsparse_lab.studies.base import Case
from asyncsparse_lab.studies.spmm_common import (
    ceilings_here,
    kernel_build,
    product_with_truth,
    rows_of_one_gpu,
    with_blocks,
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class Measured:
    """A measured case: its records, and what they were measured on."""

    records: list[Record]
    product: Product
    truth: Reference


def measure_case(
    study: str,
    case: Case,
    variants: Sequence[Variant],
    libraries: Sequence[Contender] = (),
    *,
    dtype_out: str = "bfloat16",
    dtype_in: str = "bfloat16",
    layout: str = "row-major",
    l2_states: Sequence[L2State] = L2_STATES,
    seconds: float = 0.05,
) -> Measured:
    """Measure variants and libraries of a case, interleaved, by default cold and warm.

    The kernels are compiled before, on all cores.  Our records get the blocks that they multiply
    and their fill.
    """
    from asyncsparse_lab.spmm.measure import measure_product
    from asyncsparse_lab.spmm.run import Ours

    assert case.matrix is not None
    assert case.n is not None
    compile_many([kernel_build(variant, dtype_out, dtype_in, layout) for variant in variants])
    product, truth = product_with_truth(case.matrix, case.n, dtype_in, layout)
    product = product.with_output(dtype_out)
    records = measure_product(
        [*map(Ours, variants), *libraries],
        product,
        study=study,
        case=case.name,
        matrix=case.matrix,
        truth=truth,
        l2_states=l2_states,
        seconds=seconds,
        ceilings=ceilings_here(),
    )
    return Measured(with_blocks(records, product), product, truth)


def claimed(claims: pd.DataFrame, name: str) -> float:
    """Return the number of a claim, NaN if the study draws no such claim."""
    return float(claims["number"].get(name, math.nan))


def chosen_rows(
    frame: pd.DataFrame, *, matrices: Sequence[str], n: int, l2: str, gpu: str
) -> pd.DataFrame:
    """Return the passed rows of one GPU: of these matrices and this n; all if empty or 0."""
    rows = rows_of_one_gpu(frame, gpu)
    rows = rows[(rows["status"] == "passed") & (rows["l2"] == l2)]
    if matrices:
        rows = rows[rows["matrix"].isin(list(matrices))]
    return rows[rows["n"] == n] if n else rows
