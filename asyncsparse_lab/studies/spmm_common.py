"""What the GPU studies of sparse times dense share: inputs with their truth, ceilings, one GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.formats import BCSR
from asyncsparse_lab.gpu.compile import KernelBuild
from asyncsparse_lab.matrices import load_matrix
from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm.handed_on import ON_THE_GPU
from asyncsparse_lab.spmm.oracle import Reference, reference, sample_rows
from asyncsparse_lab.spmm.product import Product
from asyncsparse_lab.spmm.variants import Variant
from asyncsparse_lab.studies.base import Case

if TYPE_CHECKING:
    import pandas as pd

    from asyncsparse_lab.studies.ceilings import MeasuredCeilings


@lru_cache(maxsize=1)
def product_with_truth(
    matrix: str, n: int, dtype_in: str = "bfloat16", layout: str = "row-major"
) -> tuple[Product, Reference]:
    """Return a random product on a matrix and its FP64 reference.

    The last one is kept: cases that differ in the output type share it.
    """
    product = Product.random(load_matrix(matrix), n, dtype_in=dtype_in, layout=layout)
    product.conversions.makers = ON_THE_GPU
    return product, reference(product.A, product.B, sample_rows(product.A, n))


def ceilings_here() -> MeasuredCeilings | None:
    """Return the recorded ceilings of the GPU in use, or None where there are none yet."""
    from asyncsparse_lab.gpu.device import require_gpu
    from asyncsparse_lab.studies.ceilings import load_ceilings

    try:
        return load_ceilings(require_gpu().slug)
    except InputError:
        return None


def time_probe(probe: Variant, product: Product, study: str, case: Case) -> Record:
    """Time a build that leaves out a part of the product, cold; its C is not looked at."""
    from asyncsparse_lab.gpu.timing import time_interleaved
    from asyncsparse_lab.spmm.measure import record_identity
    from asyncsparse_lab.spmm.run import Ours

    contender = Ours(probe)
    prepared = contender.prepare(product)
    (timing,) = time_interleaved([prepared.run], "cold", 0.05)
    return Record(
        **record_identity(contender, product, study, case.name, case.matrix),
        l2="cold",
        clock="events",
        status="passed",
        **timing.record_fields(),
        kernel_hash=prepared.kernel_hash,
        host_hash=prepared.host_hash,
        compiler=prepared.compiler,
        params=prepared.params,
    )


def with_blocks(records: list[Record], product: Product) -> list[Record]:
    """Add to the results of our kernels how many 64 x 64 blocks they multiply, and their fill."""
    size = BCSR.predict(product.A, (64, 64))
    blocks = {"blocks": size.stored, "fill_ratio": size.fill_ratio}
    return with_results(records, lambda record: blocks)


def with_results(
    records: Sequence[Record], more: Callable[[Record], Mapping[str, Any]]
) -> list[Record]:
    """Add to the results of our kernels, where they passed, what ``more`` says of each."""
    return [
        replace(record, result={**record.result, **more(record)})
        if record.backend == "asyncsparse" and record.status == "passed"
        else record
        for record in records
    ]


def kernel_build(
    variant: Variant, dtype_out: str, dtype_in: str = "bfloat16", layout: str = "row-major"
) -> KernelBuild:
    """Return the compilation of a variant for the types and layout of a product."""
    macros = variant.macros(dtype_out, dtype_in, layout)
    return KernelBuild(variant.path, variant.entry, macros, variant.arch)


def rows_of_one_gpu(frame: pd.DataFrame, gpu: str) -> pd.DataFrame:
    """Return the rows of one GPU; an empty name means the only one that there is.

    Raises
    ------
    InputError
        The name is empty and the records are of several GPUs, or it is not among them.
    """
    there = sorted(set(frame["gpu"]))
    if not gpu and len(there) <= 1:
        return frame
    if gpu not in there:
        raise InputError(f"gpu={gpu!r}: the records are of {', '.join(there)}")
    return frame[frame["gpu"] == gpu]
