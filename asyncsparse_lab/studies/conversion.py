"""From CSR to BCSR and WCSR, on the host and on the GPU, in units of a product.

A format is worth its conversion when enough products follow: with a conversion of time t, a product
of time p in the format and of time q on CSR as it is, after t / (q - p) of them.

A case is one matrix.  Conversions are timed from CSR arrays that lie where they are read, in the
host's memory or in the device's, to arrays in device memory; the clock is the host's, on the core
that is quickest then, and the allocation of the result is inside.  What the GPU gives is held to
what the host gives, bit for bit.  Beside stands what the same conversion takes of a matrix with one
entry: a launch, allocations and a look at the sizes, below which none can be.  The products have
N = 512 columns, bf16 out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.sparse import csr_array

from asyncsparse_lab.errors import MemoryLimitError
from asyncsparse_lab.formats import BCSR, WCSR
from asyncsparse_lab.formats.layouts import K16
from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm.convert import HEIGHTS, blocks_from_csr, windows_from_csr
from asyncsparse_lab.spmm.geometry import BLOCK
from asyncsparse_lab.spmm.product import Product
from asyncsparse_lab.spmm.variants import VARIANTS, Variant
from asyncsparse_lab.studies.base import Case, Drawing, Table
from asyncsparse_lab.studies.host_clock import on_the_quickest_core

if TYPE_CHECKING:
    import pandas as pd

    from asyncsparse_lab.gpu.compile import KernelBuild
    from asyncsparse_lab.spmm.contender import Contender

STUDY: Final = "conversion"
SUITE: Final = "shared"
LEAST_ROWS: Final = 1000
"""Smaller matrices of the suite are left out: there a product is a launch and little else."""
GENERATED: Final = (
    "gate_proj-keep10-uniform-s0",
    "mycielskian14",
    "uniform(rows=100000,cols=100000,density=0.0001)",
    "rmat(scale=17)",
    "stencil3d(nx=100,ny=100,nz=100)",
)
N: Final = 512
DTYPE_OUT: Final = "bfloat16"
BLOCKS_KERNEL: Final = "bcsr-overlap"
WINDOWS_KERNEL: Final = "wcsr-pipelined"
CSR_KERNELS: Final = ("csr-vector", "csr-alg2", "csr-alg3")
"""What multiplies CSR as it is, ours and cuSPARSE's."""
REPEATS: Final = 11
HOST_REPEATS: Final = 3
HOST_SECONDS: Final = 0.02
"""A conversion that takes longer is not repeated."""
SLOWEST_ENTRIES: Final = 5e6
"""Entries that the host converts in a second, for the prediction of a case's time."""


@dataclass(frozen=True)
class Conversion:
    """One conversion to be timed: to which format and size, and where.

    Attributes
    ----------
    variant : {"bcsr", "wcsr"}
    size : int
        Side of a block, or rows of a window.
    where : {"host", "gpu"}
    """

    variant: str
    size: int
    where: str

    @property
    def params(self) -> dict[str, Any]:
        """As in the record."""
        return {"block" if self.variant == "bcsr" else "window": self.size, "where": self.where}

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the arrays that it gives."""
        if self.variant == "bcsr":
            return ("block_row_ptr", "block_col_idx", "blocks", "row_tasks")
        return ("window_row_ptr", "window_col_idx", "values")

    def function(self, product: Product) -> Callable[[], Any]:
        """Return what converts A of a product whose CSR arrays are on the device already."""
        from asyncsparse_lab.spmm.layout import DeviceBcsr
        from asyncsparse_lab.spmm.windows import DeviceWindows

        A, csr, size = product.A, product.device_csr, self.size
        if self.variant == "bcsr":
            if self.where == "gpu":
                return lambda: blocks_from_csr(csr, A.shape)
            return lambda: DeviceBcsr.from_csr(A)
        if self.where == "gpu":
            return lambda: windows_from_csr(csr, A.shape, size)[0]
        return lambda: DeviceWindows.from_csr(A, size)


def conversions() -> list[Conversion]:
    """Return what is timed of each matrix, the host before the GPU."""
    formats = [("bcsr", BLOCK), *(("wcsr", height) for height in HEIGHTS)]
    return [
        Conversion(variant, size, where) for variant, size in formats for where in ("host", "gpu")
    ]


def cases() -> list[Case]:
    """Return a case for each matrix of the suite that is not small, and for some large ones."""
    from asyncsparse_lab.matrices import load_suite

    entries = [(e.name, e.nnz) for e in load_suite(SUITE).entries if e.rows >= LEAST_ROWS]
    generated = [(name, 2_000_000) for name in GENERATED]
    return [
        Case(name, name, N, seconds=1.0 + len(HEIGHTS) * nnz / SLOWEST_ENTRIES)
        for name, nnz in (*entries, *generated)
    ]


def kernels() -> list[Variant]:
    """Return the kernels that read the formats, and ours that reads CSR."""
    from asyncsparse_lab.spmm.builds import pipelined_builds

    tall = {int(v.constants["HEIGHT"]): v for v in pipelined_builds() if _is_square(v)}
    windows = [VARIANTS[WINDOWS_KERNEL], *(tall[height] for height in HEIGHTS[1:])]
    return [VARIANTS["csr-vector"], VARIANTS[BLOCKS_KERNEL], *windows]


def _is_square(variant: Variant) -> bool:
    return variant.constants["WGMMA_N"] == 128  # the one width that every height is built for


def libraries() -> list[Contender]:
    """Return what multiplies CSR without a conversion."""
    from asyncsparse_lab.baselines import BASELINES

    return [BASELINES[f"cusparse-{name}"] for name in CSR_KERNELS[1:]]


def kernel_builds() -> dict[str, list[KernelBuild]]:
    """Return the compilations behind the records, by variant."""
    from asyncsparse_lab.spmm import convert_kernels
    from asyncsparse_lab.studies.spmm_common import kernel_build

    builds = {"bcsr": convert_kernels.kernel_builds(), "wcsr": convert_kernels.kernel_builds()}
    for variant in kernels():
        builds.setdefault(variant.name, []).append(kernel_build(variant, DTYPE_OUT))
    return builds


def measure(case: Case) -> list[Record]:
    """Time all conversions of one matrix, and the products that they are for."""
    from asyncsparse_lab.gpu.compile import compile_many
    from asyncsparse_lab.spmm.handed_on import ON_THE_GPU
    from asyncsparse_lab.spmm.measure import measure_product
    from asyncsparse_lab.spmm.run import Ours
    from asyncsparse_lab.studies.spmm_common import (
        ceilings_here,
        kernel_build,
        product_with_truth,
    )

    assert case.matrix is not None
    assert case.n is not None
    compile_many([kernel_build(variant, DTYPE_OUT) for variant in kernels()])
    product, truth = product_with_truth(case.matrix, case.n)
    product = product.with_output(DTYPE_OUT)
    converted = _converted(case, product)
    product.conversions.makers = ON_THE_GPU  # the products need not wait for the host
    products = measure_product(
        [*map(Ours, kernels()), *libraries()],
        product,
        study=STUDY,
        case=case.name,
        matrix=case.matrix,
        truth=truth,
        l2_states=("cold",),
        seconds=0.02,
        ceilings=ceilings_here(),
    )
    return [*converted, *products]


def _converted(case: Case, product: Product) -> list[Record]:
    records = []
    expected: Any = None
    ones = np.ones(1, dtype=np.float32)
    one_entry: Any = csr_array((ones, ([0], [0])), shape=(BLOCK, BLOCK))
    nothing = Product.random(one_entry, 1)
    for conversion in conversions():
        limit = HOST_REPEATS if conversion.where == "host" else REPEATS
        try:
            made, samples = timed(conversion.function(product), limit)
        except MemoryLimitError as error:
            records.append(_record(case, product, conversion, [], "oom", str(error), []))
            expected = None
            continue
        status, reason = "passed", None
        if conversion.where == "host":
            expected = made
        elif expected is not None:
            wrong = different(made, expected, conversion.fields)
            if wrong:
                status, reason = "wrong", f"{', '.join(wrong)} differ from the host's"
        least = timed(conversion.function(nothing), limit)[1]
        records.append(_record(case, product, conversion, samples, status, reason, least))
    return records


def timed(convert: Callable[[], Any], repeats: int) -> tuple[Any, list[float]]:
    """Return the last result and the times in microseconds; the first call is not among them.

    One that takes longer than :data:`HOST_SECONDS` is not repeated, and counts.
    """
    import cupy

    made: Any = None
    samples: list[float] = []
    with on_the_quickest_core():
        for attempt in range(repeats + 1):
            made = None  # its memory is free for the next
            cupy.cuda.Device().synchronize()
            start = time.perf_counter()
            made = convert()
            cupy.cuda.Device().synchronize()
            seconds = time.perf_counter() - start
            if attempt or seconds > HOST_SECONDS:
                samples.append(seconds * 1e6)
            if seconds > HOST_SECONDS:
                break
    return made, samples


def different(made: Any, expected: Any, fields: Sequence[str]) -> list[str]:
    """Return the arrays that are not the same, bit for bit."""
    return [name for name in fields if not _same(getattr(made, name), getattr(expected, name))]


def _same(first: Any, second: Any) -> bool:
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    return bool((first == second).all())


def _record(
    case: Case,
    product: Product,
    conversion: Conversion,
    samples: Sequence[float],
    status: str,
    reason: str | None,
    least: Sequence[float],
) -> Record:
    times: dict[str, Any] = {}
    result = _size(product, conversion)
    if len(least):
        result["one_entry_us"] = float(np.median(least))
    if status == "passed":
        q1, median, q3 = np.percentile(samples, [25, 50, 75])
        times = {"median_us": float(median), "q1_us": float(q1), "q3_us": float(q3),
                 "sample_count": len(samples), "samples_us": tuple(samples)}  # fmt: skip
    kernel = _kernel() if conversion.where == "gpu" else {}
    return Record(
        study=STUDY,
        case=case.name,
        op="convert",
        role="ours",
        backend="asyncsparse",
        variant=conversion.variant,
        matrix=case.matrix,
        m=product.m,
        k=product.k,
        nnz=int(product.A.nnz),
        dtype_in=product.dtype_in,
        clock="wall",
        status=status,
        reason=reason,
        params=conversion.params,
        result=result,
        **times,
        **kernel,
    )


def _kernel() -> dict[str, Any]:
    from asyncsparse_lab.gpu.compile import compile_kernel
    from asyncsparse_lab.spmm.convert_kernels import kernel_builds as builds

    build = builds()[0]
    artifact = compile_kernel(build.source, build.entry, build.constants, build.arch)
    return {"kernel_hash": artifact.kernel_hash, "compiler": artifact.compiler}


def _size(product: Product, conversion: Conversion) -> dict[str, Any]:
    if conversion.variant == "bcsr":
        size = BCSR.predict(product.A, (conversion.size, conversion.size), 2)
    else:
        size = WCSR.predict(product.A, conversion.size, K16, 2)
    return {"stored": size.stored, "bytes": size.bytes, "fill_ratio": size.fill_ratio}


def draw(
    frame: pd.DataFrame,
    claims: pd.DataFrame,
    *,
    matrices: Sequence[str] = (),
    gpu: str = "",
) -> dict[str, Drawing | Table]:
    """Draw the conversions in units of a product, and against the entries; tabulate both.

    Parameters
    ----------
    matrices : sequence of str
        Only these; all if empty.
    gpu : str
        Folder of the GPU's records; the only one there is if empty.
    """
    from asyncsparse_lab.studies import conversion_figures as figures

    rows = figures.conversions(frame, matrices, gpu)
    return {
        "cost": figures.cost(rows),
        "scaling": figures.scaling(rows),
        "formats": figures.formats(rows),
        "break_even": figures.break_even(rows),
    }
