r"""WCSR beyond the article: a gather that never waits, taller windows, long windows in pieces.

What a product of windows must do follows from the columns that hold a non-zero.  Let window w of
height H have :math:`c_w` of them, :math:`p_w` with padding to 16, and C have N columns in tiles of
W.  The floors of a configuration, each over a rate that was measured:

* gather: :math:`2 N \sum_w c_w` bytes of B from L2 to shared memory, 16 bytes a copy
* A: :math:`2 H \lceil N / W \rceil \sum_w p_w` bytes from L2 to shared memory, in bulk
* MMA: :math:`2 H N \sum_w p_w` operations, the zeros that are stored among them
* HBM: A as stored, the touched rows of B and C, once each

Each matrix has its own best configuration, so it is searched for, on a cold L2: every tile in every
order of the rows, then the few fastest tiles and orders at other limits of a window, their pieces
added up in a fixed order or by atomics.  Nothing is left out of the records.

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
from asyncsparse_lab.spmm.convert import HEIGHTS
from asyncsparse_lab.spmm.orders import AS_STORED, orders_of, row_order
from asyncsparse_lab.spmm.variants import VARIANTS, Variant
from asyncsparse_lab.studies.base import Case, Drawing, Table

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray
    from scipy.sparse import csr_array

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
DENSE_TFLOPS_THEN: Final = 8.8
"""Of dense cuBLAS on these, as told where that was set; there is no record of it."""
SEARCHED: Final = 4
"""Tiles, each in an order of the rows, that are cut in other ways: the fastest of all, and the
fastest with rows as stored."""
NEAR: Final = 5
"""Places ahead from which one of another tile is drawn."""
LIMITS: Final = (0, 512, 640, 768, 896, 1024, 1280, 1536)
"""Columns at which the windows of these are cut."""
SEARCH_SECONDS: Final = 0.015
"""For each configuration of the search."""
LIBRARIES: Final = ("cublas-dense", "cusparse-csr-alg2", "cusparse-csr-alg3")


def cases() -> list[Case]:
    """Return a case for each matrix of density 1 % and above."""
    from asyncsparse_lab.matrices import load_suite

    return [
        Case(f"{entry.name}-n{N}", entry.name, N, {"dtype_out": DTYPE_OUT},
             seconds=1.8 + 1.5e-7 * entry.nnz + search_seconds(entry.nnz))
        for entry in load_suite(SUITE).entries
    ]  # fmt: skip


def search_seconds(nnz: int) -> float:
    """Return what the search is predicted to take: two steps, and on the host the ordering."""
    return 2 * (0.7 + 0.4e-7 * nnz) + 4e-7 * nnz


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


def ranked(records: Sequence[Record]) -> list[Variant]:
    """Return the pipelined kernel as it passed on a cold L2 and as it was asked for, by time."""
    from asyncsparse_lab.spmm.plan_models import variant_of

    passed = [
        record
        for record in records
        if (record.variant, record.status, record.l2) == (PIPELINED, "passed", "cold")
    ]
    passed.sort(key=lambda record: record.median_us or float("inf"))
    # A record's ``deterministic`` is what came of it: so are atomics that add two pieces at most.
    return [
        variant_of(PIPELINED, dict(record.params)).with_options(
            deterministic=int(not record.params["atomics"])
        )
        for record in passed
    ]


def fastest(records: Sequence[Record]) -> Variant | None:
    """Return the pipelined kernel as it was the fastest on a cold L2, None if it never passed."""
    return next(iter(ranked(records)), None)


def reordered(A: csr_array) -> list[Variant]:
    """Return every tile in every order of A's rows but the stored one."""
    codes = orders_of(A.shape).values()
    return [tile.with_options(row_order=code) for code in codes for tile in pipelined_builds()]


def recut(records: Sequence[Record], known: Sequence[Variant]) -> list[Variant]:
    """Return the fastest tiles and orders, cut in every other way that is not known yet.

    Limits that no window of a tile and order reaches leave it whole, which is one way.
    """
    best: list[Variant] = []
    for variant in ranked(records):
        uncut = variant.with_options(max_cols_per_task=0, deterministic=1)
        if uncut not in best:
            best.append(uncut)
    stored = [variant for variant in best if variant.options["row_order"] == AS_STORED]
    chosen = best[:SEARCHED] + [one for one in stored[:1] if one not in best[:SEARCHED]]
    longest = {windows_of(r): r.result["columns_max"] for r in records if r.variant == PIPELINED}
    ways = [(limit, fixed) for limit in LIMITS for fixed in (1, 0) if limit or fixed]
    found = [
        uncut.with_options(max_cols_per_task=limit, deterministic=fixed)
        for limit, fixed in ways
        for uncut in chosen
        if limit < longest[uncut.constants["HEIGHT"], uncut.options["row_order"]]
    ]
    return apart([variant for variant in found if variant not in known])


def apart(variants: Sequence[Variant]) -> list[Variant]:
    """Return variants nearly in this order, one of another tile drawn ahead of one of the same."""
    left = list(variants)
    found: list[Variant] = []
    while left:
        others = (
            place
            for place, variant in enumerate(left[:NEAR])
            if not found or variant.constants != found[-1].constants
        )
        found.append(left.pop(next(others, 0)))
    return found


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
    """Measure the configurations beside the libraries, search on, and time the best's loads."""
    import scipy.sparse.csgraph  # noqa: F401  # once a process: not what preparation takes

    from asyncsparse_lab.studies.spmm_cases import measure_case
    from asyncsparse_lab.studies.spmm_common import time_probe

    measured = measure_case(STUDY, case, kernels(), libraries())
    product, orders = measured.product, reordered(measured.product.A)
    records = with_windows([*measured.records, *search(case, orders)], product)
    records += search(case, recut(records, [*kernels(), *orders]))
    if (best := fastest(records)) is not None:
        records = [*records, time_probe(loads_only(best), product, STUDY, case)]
    return with_windows(records, product)


def windows_of(record: Record) -> tuple[int, int]:
    """Return the height of the windows and the code of the order of the rows that they are of."""
    return int(record.params["window"]), int(record.params.get("row_order", AS_STORED))


def search(case: Case, variants: Sequence[Variant]) -> list[Record]:
    """Measure variants on a cold L2, interleaved, on the product that the case was measured on."""
    from asyncsparse_lab.studies.spmm_cases import measure_case

    # Option by option, tiles within: neighbours are different kernels, so that none finds its
    # instructions in the cache more than another does.
    cold = measure_case(STUDY, case, variants, l2_states=("cold",), seconds=SEARCH_SECONDS)
    return cold.records


def window_columns(product: Product, code: int) -> dict[int, NDArray[np.int64]]:
    """Return the columns of each window of A's rows in an order, by height; counted once."""

    def count(A: csr_array) -> dict[int, NDArray[np.int64]]:
        ordered = A if code == AS_STORED else A[row_order(A, code)]
        return {height: WCSR.count_columns(ordered, height) for height in HEIGHTS}

    return product.converted(f"columns of windows, row_order={code}", count)[0]


def with_windows(records: Sequence[Record], product: Product) -> list[Record]:
    """Add to our records what their windows must move and multiply."""
    from asyncsparse_lab.studies.spmm_common import with_results

    codes = {windows_of(one)[1] for one in records if one.backend == "asyncsparse"}
    columns = {code: window_columns(product, code) for code in codes}

    def more(record: Record) -> dict[str, Any]:
        height, code = windows_of(record)
        tile = int(record.params["wgmma_n"]) * int(record.params.get("column_groups", 1))
        counts = columns[code][height]
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
    """Draw the speed over others; tabulate means, configurations, tiles, floors, throughput.

    Parameters
    ----------
    matrices : sequence of str
        Only these; all if empty.
    l2 : {"cold", "warm"}
        The best on a warm L2 is of what was measured beside the libraries: the search is cold, and
        so are the loads alone.
    gpu : str
        Folder of the GPU's records; the only one there is if empty.
    """
    from asyncsparse_lab.studies import wcsr_beyond_figures as figures
    from asyncsparse_lab.studies.rooflines import ceilings_for
    from asyncsparse_lab.studies.spmm_cases import chosen_rows

    rows = chosen_rows(frame, matrices=matrices, n=0, l2=l2, gpu=gpu)
    probes = rows[rows["role"] == "probe"]
    timed = figures.merged(rows[rows["role"] != "probe"])
    return {
        "speed": figures.speed(timed),
        "means": figures.means(timed),
        "configurations": figures.configurations(timed),
        "tiles": figures.tiles(timed),
        "floors": figures.floors(timed, probes, ceilings_for(rows)),
        "throughput": figures.throughput(timed, probes, ceilings_for(rows)),
    }
