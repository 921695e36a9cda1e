"""From CSR to BCSR and WCSR, on the host and on the GPU, in units of a product.

A format is worth its conversion when enough products follow: with a conversion of time t, a product
of time p in the format and of time q on CSR as it is, after t / (q - p) of them.

A case is one matrix.  Conversions are timed from CSR arrays that lie where they are read, in the
host's memory or in the device's, to arrays in device memory; windows are cut into tasks by the
rule of the kernel that reads them, and the cut is inside.  All are timed by the host's clock, on
the core that is quickest then: a caller waits that long, allocation of the result included.  Those
on the GPU are timed on the stream too, by events and with cold L2 as the products are, see
:meth:`asyncsparse_lab.gpu.timing.DeviceTimer.sample_waiting`.  The blocks and windows that the GPU
gives are held to what the host gives, bit for bit.  Beside stands what the same conversion takes by
the same clock of a matrix with one entry: a launch, allocations and a look at the sizes.  The
products have N = 512 columns, bf16 out; beside a conversion by the host's clock stand five of them
by the same clock, launched one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
from asyncsparse_lab.spmm.windows import CutRule, DeviceWindows, WindowPieces
from asyncsparse_lab.studies.base import Case, Drawing, Missing, Table
from asyncsparse_lab.studies.conversion_clocks import timed

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
PRODUCTS: Final = 5
"""That a conversion on the GPU may take at most: what this project set out."""
REPEATS: Final = 10
MOMENTS: Final = 3
"""At each of which a conversion on the GPU is repeated so often."""
HOST_REPEATS: Final = 3
SLOWEST_ENTRIES: Final = 5e6
"""Entries that the host converts in a second, for the prediction of a case's time."""


@dataclass(frozen=True)
class Conversion:
    """One conversion to be timed: to which format and size, where, and by which clock.

    Attributes
    ----------
    variant : {"bcsr", "wcsr"}
    size : int
        Side of a block, or rows of a window.
    where : {"host", "gpu"}
    clock : {"wall", "events"}
        The host's, or that of the stream, which times the GPU alone.
    """

    variant: str
    size: int
    where: str
    clock: str = "wall"

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

        A, csr, size = product.A, product.device_csr, self.size
        if self.variant == "bcsr":
            if self.where == "gpu":
                return lambda: blocks_from_csr(csr, A.shape)
            return lambda: DeviceBcsr.from_csr(A)
        rule = CutRule.of(window_kernels()[size], product.n)
        if self.where == "gpu":
            return lambda: windows_from_csr(csr, A.shape, size, rule)[0]
        return lambda: _cut_windows(A, size, rule)


def conversions() -> list[Conversion]:
    """Return what is timed of each matrix, the host before the GPU."""
    formats = [("bcsr", BLOCK), *(("wcsr", height) for height in HEIGHTS)]
    ways = (("host", "wall"), ("gpu", "wall"), ("gpu", "events"))
    return [Conversion(*to, *way) for to in formats for way in ways]


def _cut_windows(A: csr_array, height: int, rule: CutRule) -> DeviceWindows:
    """Convert on the host and cut there; return the windows alone, to be compared."""
    windows = DeviceWindows.from_csr(A, height)
    pointer = windows.window_row_ptr
    pieces = WindowPieces.of(pointer, rule.limit(pointer), deterministic=True)
    pieces.on_device(windows.window_col_idx)
    return windows


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
    return [VARIANTS["csr-vector"], VARIANTS[BLOCKS_KERNEL], *window_kernels().values()]


def window_kernels() -> dict[int, Variant]:
    """Return the kernel that reads windows of each height."""
    from asyncsparse_lab.spmm.builds import pipelined_builds

    tall = {int(v.constants["HEIGHT"]): v for v in pipelined_builds() if _is_square(v)}
    return {HEIGHTS[0]: VARIANTS[WINDOWS_KERNEL]} | {height: tall[height] for height in HEIGHTS[1:]}


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
    multiplied = {record.variant for record in products if record.status == "passed"}
    kernels_of = {"bcsr": BLOCKS_KERNEL, "wcsr": WINDOWS_KERNEL}
    beside = [
        _beside_products(record, product) if kernels_of[record.variant] in multiplied else record
        for record in converted
    ]
    return [*beside, *products]


def _beside_products(record: Record, product: Product) -> Record:
    """Return the record of a conversion by the host's clock with the time of products by it."""
    from asyncsparse_lab.spmm.run import Ours

    if record.status != "passed" or record.clock != "wall" or record.params["where"] != "gpu":
        return record
    height = record.params.get("window")
    kernel = window_kernels()[height] if height else VARIANTS[BLOCKS_KERNEL]
    multiply = Ours(kernel).prepare(product).run

    def multiply_often() -> None:
        for _ in range(PRODUCTS):
            multiply()

    _, samples = timed(multiply_often, REPEATS, "wall", MOMENTS)
    five_us = float(np.median(samples))
    return replace(record, result={**record.result, "five_products_us": five_us})


def _converted(case: Case, product: Product) -> list[Record]:
    records = []
    expected: Any = None
    ones = np.ones(1, dtype=np.float32)
    one_entry: Any = csr_array((ones, ([0], [0])), shape=(BLOCK, BLOCK))
    nothing = Product.random(one_entry, 1)
    for conversion in conversions():
        on_host = conversion.where == "host"
        often = {"repeats": HOST_REPEATS} if on_host else {"repeats": REPEATS, "moments": MOMENTS}
        made: Any = None  # that of the conversion before leaves its memory to this one
        try:
            made, samples = timed(conversion.function(product), clock=conversion.clock, **often)
        except MemoryLimitError as error:
            records.append(_record(case, product, conversion, [], "oom", str(error), []))
            if on_host:
                expected = None
            continue
        status, reason = "passed", None
        if on_host:
            expected = made
        elif expected is not None:
            wrong = different(made, expected, conversion.fields)
            if wrong:
                status, reason = "wrong", f"{', '.join(wrong)} differ from the host's"
        least = timed(conversion.function(nothing), clock=conversion.clock, **often)[1]
        records.append(_record(case, product, conversion, samples, status, reason, least))
    return records


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
    kernel = _kernel(product) if conversion.where == "gpu" else {}
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
        l2="cold" if conversion.clock == "events" else None,
        clock=conversion.clock,
        status=status,
        reason=reason,
        params=conversion.params,
        result=result,
        **times,
        **kernel,
    )


def _kernel(product: Product) -> dict[str, Any]:
    from asyncsparse_lab.gpu.compile import compile_kernel
    from asyncsparse_lab.gpu.device import device_facts
    from asyncsparse_lab.spmm.conversion_hash import conversion_hash
    from asyncsparse_lab.spmm.convert_kernels import kernel_build
    from asyncsparse_lab.spmm.convert_run import is_small

    build = kernel_build(is_small(product.m, product.A.nnz, device_facts().sm_count))
    artifact = compile_kernel(build.source, build.entry, build.constants, build.arch)
    return {"kernel_hash": artifact.kernel_hash, "compiler": artifact.compiler,
            "host_hash": conversion_hash()}  # fmt: skip


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
) -> dict[str, Drawing | Table | Missing]:
    """Draw the conversions in units of a product, and against the entries; tabulate both.

    Without a conversion on the stream, as in old records, there are no slowest ones.

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
        "slowest": figures.slowest(rows),
        "break_even": figures.break_even(rows),
    }
