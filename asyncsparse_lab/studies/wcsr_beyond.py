r"""WCSR beyond the article: a gather that never waits, taller windows, long windows in pieces.

What a product of windows must do follows from the columns that hold a non-zero.  Let window w of
height H have :math:`c_w` of them, :math:`p_w` with padding to 16, and C have N columns in tiles of
W.  The floors of a configuration, each over a rate that was measured:

* gather: :math:`2 N \sum_w c_w` bytes of B from L2 to shared memory, 16 bytes a copy
* A: :math:`2 H \lceil N / W \rceil \sum_w p_w` bytes from L2 to shared memory, in bulk
* MMA: :math:`2 H N \sum_w p_w` operations, the zeros that are stored among them
* HBM: A as stored, the touched rows of B and C, once each

Of the fastest configuration of each matrix a probe is timed that leaves out products and stores,
so that its loads remain, with what they wait for: no kernel that loads so can be faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from asyncsparse_lab.formats import WCSR
from asyncsparse_lab.formats.layouts import K16
from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm.builds import pipelined_builds
from asyncsparse_lab.spmm.variants import VARIANTS, Variant
from asyncsparse_lab.studies.base import Case, Drawing, Table

if TYPE_CHECKING:
    import pandas as pd

    from asyncsparse_lab.gpu.compile import KernelBuild
    from asyncsparse_lab.spmm.contender import Contender
    from asyncsparse_lab.spmm.product import Product

STUDY: Final = "wcsr-beyond"
SUITE: Final = "dense1"
N: Final = 1024
DTYPE_OUT: Final = "bfloat16"
PAPER: Final = "wcsr-paper"
PIPELINED: Final = "wcsr-pipelined"
THRESHOLDS: Final = (0, 256, 512, 1024)
"""Columns at which the article's kernel cuts windows; 0 leaves them whole."""
WANTED_TFLOPS: Final = 12.0
"""Useful, on the matrices of the suite that are in ``shared`` too."""
LIBRARIES: Final = ("cublas-dense", "cusparse-csr-alg2", "cusparse-csr-alg3")


def cases() -> list[Case]:
    """Return a case for each matrix of density 1 % and above."""
    from asyncsparse_lab.matrices import load_suite

    return [
        Case(f"{entry.name}-n{N}", entry.name, N, {"dtype_out": DTYPE_OUT},
             seconds=1.8 + 1.5e-7 * entry.nnz)
        for entry in load_suite(SUITE).entries
    ]  # fmt: skip


def kernels() -> list[Variant]:
    """Return the article's kernel at its thresholds, and the pipelined one at its tiles."""
    paper = VARIANTS[PAPER]
    return [
        *(paper.with_options(max_cols_per_task=length) for length in THRESHOLDS),
        *pipelined_builds(),
        VARIANTS[PIPELINED].with_options(max_cols_per_task=0),
        VARIANTS[PIPELINED].with_options(deterministic=0),
    ]


def libraries() -> list[Contender]:
    """Return what the kernels are shown against."""
    from asyncsparse_lab.baselines import BASELINES

    return [BASELINES[name] for name in LIBRARIES]


def loads_only(variant: Variant) -> Variant:
    """Return the build of a variant that loads and neither multiplies nor stores."""
    return variant.with_constants(SKIP_PRODUCT=1, SKIP_STORE=1)


def fastest(records: Sequence[Record]) -> Variant | None:
    """Return the pipelined kernel as it was the fastest on a cold L2, None if it never passed."""
    from asyncsparse_lab.spmm.plan_models import variant_of

    passed = [
        record
        for record in records
        if (record.variant, record.status, record.l2) == (PIPELINED, "passed", "cold")
    ]
    if not passed:
        return None
    best = min(passed, key=lambda record: record.median_us or float("inf"))
    return variant_of(PIPELINED, dict(best.params))


def kernel_builds() -> dict[str, list[KernelBuild]]:
    """Return the compilations behind the records, by variant."""
    from asyncsparse_lab.studies.spmm_common import kernel_build

    tiles = pipelined_builds()
    ours = [*tiles, *map(loads_only, tiles)]
    return {
        PAPER: [kernel_build(VARIANTS[PAPER], DTYPE_OUT)],
        PIPELINED: [kernel_build(variant, DTYPE_OUT) for variant in ours],
    }


def measure(case: Case) -> list[Record]:
    """Measure all configurations beside the libraries, and the loads of the fastest alone."""
    from asyncsparse_lab.studies.spmm_cases import measure_case
    from asyncsparse_lab.studies.spmm_common import time_probe

    measured = measure_case(STUDY, case, kernels(), libraries())
    records = measured.records
    if (best := fastest(records)) is not None:
        records = [*records, time_probe(loads_only(best), measured.product, STUDY, case)]
    return with_windows(records, measured.product)


def with_windows(records: Sequence[Record], product: Product) -> list[Record]:
    """Add to our records what their windows must move and multiply."""
    from asyncsparse_lab.studies.spmm_common import with_results

    heights = {int(r.params["window"]) for r in records if r.backend == "asyncsparse"}
    columns = {height: WCSR.count_columns(product.A, height) for height in heights}

    def more(record: Record) -> dict[str, Any]:
        height = int(record.params["window"])
        tile = int(record.params["wgmma_n"]) * int(record.params.get("column_groups", 1))
        counts = columns[height]
        padded = int((-(-counts // K16) * K16).sum())
        stored = 2 * height * padded
        return {
            "columns_max": int(counts.max(initial=0)),
            "gathered_bytes": 2 * product.n * int(counts.sum()),
            "a_bytes": stored * -(-product.n // tile),
            "flops": stored * product.n,
            "hbm_bytes": stored + 2 * product.m * product.n + product.compulsory_bytes
            - 2 * int(product.A.nnz),
        }  # fmt: skip

    return with_results(records, more)


def draw(
    frame: pd.DataFrame,
    claims: pd.DataFrame,
    *,
    matrices: Sequence[str] = (),
    l2: str = "cold",
    gpu: str = "",
) -> dict[str, Drawing | Table]:
    """Draw the speed over the article's kernel; tabulate means, configurations and floors.

    Parameters
    ----------
    matrices : sequence of str
        Only these; all if empty.
    l2 : {"cold", "warm"}
    gpu : str
        Folder of the GPU's records; the only one there is if empty.
    """
    from asyncsparse_lab.studies import wcsr_beyond_figures as figures
    from asyncsparse_lab.studies.rooflines import ceilings_for
    from asyncsparse_lab.studies.spmm_cases import chosen_rows

    rows = chosen_rows(frame, matrices=matrices, n=0, l2=l2, gpu=gpu)
    probes = chosen_rows(frame, matrices=matrices, n=0, l2="cold", gpu=gpu)
    probes = probes[probes["role"] == "probe"]
    timed = rows[rows["role"] != "probe"]
    return {
        "speed": figures.speed(timed),
        "means": figures.means(timed),
        "configurations": figures.configurations(timed),
        "floors": figures.floors(timed, probes, ceilings_for(rows)),
        "throughput": figures.throughput(timed, probes, ceilings_for(rows)),
    }
