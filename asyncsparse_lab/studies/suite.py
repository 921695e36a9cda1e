"""The evaluation: the article's kernels, ours, the planner and every library, matrix by matrix.

A case is one matrix and one n, bf16 out; a second case of the same product has float32 out, for
libraries that offer nothing else.  All contenders are timed on a cold L2; the planner, the best of
the article's kernels, dense cuBLAS and the best of cuSPARSE on a warm one too.

The *search* measures all configurations of our kernels that the planner may choose, on a dozen
matrices; the few of :func:`our_kernels` come from it and are measured on every matrix.

Measured on the suites ``shared`` and ``dense1``; with ``asyncsparse measure suite --suite
paper414`` on any other, as far as its matrices can be downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.sparse import csr_array

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.matrices import SuiteEntry, load_suite
from asyncsparse_lab.matrices.load import find_matrix
from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm.contender import Contender, Prepared
from asyncsparse_lab.spmm.variants import VARIANTS, Variant
from asyncsparse_lab.studies.base import Case, Drawing, Missing, Table

if TYPE_CHECKING:
    import pandas as pd

    from asyncsparse_lab.gpu.compile import KernelBuild
    from asyncsparse_lab.spmm.oracle import Reference
    from asyncsparse_lab.spmm.product import Product
    from asyncsparse_lab.studies.ceilings import MeasuredCeilings

STUDY: Final = "suite"
SUITES: Final = ("shared", "dense1")
COLUMNS: Final = (1024, 512, 256)
OUTPUTS: Final = ("bfloat16", "float32")
SECONDS: Final = 0.02
"""For each contender; a fast one has its 32 samples by then, a slow one takes 10."""

PAPER: Final = ("bcsr-opt3", "wcsr-paper", "wcsr-paper-unsplit")
KERNELS: Final = ("bcsr-overlap", "bcsr-paired", "csr-vector", "wcsr-pipelined")
TILES: Final = ((64, 64), (64, 256), (128, 128), (128, 256))
"""Rows and columns of the tiles, beside its own, at which wcsr-pipelined is on every matrix."""

SEARCHED: Final = (
    "bcsstk16", "mycielskian13", "dlmc_rn50_magnitude90_proj4", "nd3k", "gupta3",
    "elasticity_tank", "twitch_de", "netlib_maros_r7", "navier_stokes_jac",
    "luxembourg_osm", "qp_boyd1_A", "as-caida_pattern",
)  # fmt: skip
"""The dozen, by name or by what they stand in for: five of 1 % and more, four of 0.1 %."""
SEARCH_COLUMNS: Final = 1024

COMPARISON: Final = (
    "speedup", "throughput", "columns", "profile", "wins", "targets", "means", "warm", "summary",
    "reasons", "agreement", "peers", "matrices", "sizes", "times",
)  # fmt: skip
"""What is drawn of the comparison; the search has a table of its own."""
COMPARISON_MISSING: Final = Missing("asyncsparse measure suite --only n1024")
SEARCH_MISSING: Final = Missing("asyncsparse measure suite --only search")


def entries(suite: str | None = None) -> list[SuiteEntry]:
    """Return the matrices of a suite, or of the study's own, each once."""
    names = SUITES if suite is None else (suite,)
    found = {entry.name: entry for name in names for entry in load_suite(name)}
    return list(found.values())


def cases(suite: str | None = None) -> list[Case]:
    """Return the cases, a matrix's together: what it is converted to serves them all.

    Parameters
    ----------
    suite : str, optional
        The matrices of this suite; without it those of ``shared`` and ``dense1``, and the search.
    """
    found = []
    for entry in entries(suite):
        name = entry.stand_in_for + "-stand-in" if entry.stand_in_for else entry.name
        millions = entry.nnz / 1e6
        for n in COLUMNS:
            loading = 0.25 * millions if n == COLUMNS[0] else 0.0
            for dtype_out in OUTPUTS:
                main = dtype_out == "bfloat16"
                found.append(
                    Case(
                        f"{name}-n{n}" if main else f"{name}-n{n}-{dtype_out}",
                        entry.name,
                        n,
                        {"dtype_out": dtype_out, "source": _source(entry), "search": False},
                        seconds=(0.7 + loading if main else 0.2) + 0.1 * millions,
                        part=f"n{n}",
                    )
                )
        if suite is None and (entry.stand_in_for or entry.name) in SEARCHED:
            found.append(
                Case(
                    f"search-{name}",
                    entry.name,
                    SEARCH_COLUMNS,
                    {"dtype_out": "bfloat16", "source": _source(entry), "search": True},
                    seconds=1.0 + 0.2 * millions,
                    part="search",
                )
            )
    return found


def _source(entry: SuiteEntry) -> str:
    """Return what loads the matrix; one that is not here comes from its group's collection."""
    if find_matrix(entry.source) is not None:
        return entry.source
    try:
        return entry.name if find_matrix(entry.name) is not None else entry.source
    except InputError:  # fetched of other groups
        return entry.source


def our_kernels() -> list[Variant]:
    """Return our kernels, and further tiles of the pipelined one."""
    from asyncsparse_lab.spmm.builds import pipelined_builds

    tiles = [
        tile for tile in pipelined_builds()
        if (tile.constants["HEIGHT"], tile.launch_geometry.tile_columns) in TILES
    ]  # fmt: skip
    return [*(VARIANTS[name] for name in KERNELS), *tiles]


def contenders(case: Case) -> list[Contender]:
    """Return who is measured in a case."""
    from asyncsparse_lab.baselines import BASELINES
    from asyncsparse_lab.baselines.cusparse import CsrSpMM
    from asyncsparse_lab.spmm.plan_models import configurations
    from asyncsparse_lab.spmm.planner import Auto
    from asyncsparse_lab.spmm.run import Ours

    if case.params["search"]:
        return [Auto(), *(Ours(variant) for variant in configurations())]
    libraries = [*BASELINES.values(), CsrSpMM(algorithm=1)]
    if case.params["dtype_out"] == "float32":
        names = ("csr-alg1", "csr-alg2", "csr-alg3", "dense")
        return [Auto(), *(library for library in libraries if library.variant in names)]
    paper = [VARIANTS[name] for name in PAPER]
    return [Auto(), *map(Ours, [*paper, *our_kernels()]), *libraries]


def kernel_builds() -> dict[str, list[KernelBuild]]:
    """Return the compilations behind the planner's records: any that it may choose."""
    return {"auto": [build for dtype in OUTPUTS for build in _planned_builds(dtype)]}


def _planned_builds(dtype_out: str) -> list[KernelBuild]:
    from asyncsparse_lab.spmm.plan_models import configurations
    from asyncsparse_lab.studies.spmm_common import kernel_build

    return [kernel_build(variant, dtype_out) for variant in configurations()]


@cache
def _compile(dtype_out: str) -> None:
    """Compile on all cores what the study launches, once a process."""
    from asyncsparse_lab.gpu.compile import compile_many
    from asyncsparse_lab.studies.spmm_common import kernel_build

    own = [kernel_build(kernel, dtype_out) for kernel in our_kernels()]
    paper = [kernel_build(VARIANTS[name], dtype_out) for name in PAPER]
    compile_many([*_planned_builds(dtype_out), *own, *paper])


@dataclass
class Once:
    """A contender that is prepared once, however often it is measured.

    Attributes
    ----------
    inner : Contender
    """

    inner: Contender
    _prepared: Prepared | None = field(default=None, repr=False)

    @property
    def role(self) -> str:
        """As in the record."""
        return self.inner.role

    @property
    def backend(self) -> str:
        """As in the record."""
        return self.inner.backend

    @property
    def variant(self) -> str:
        """As in the record."""
        return self.inner.variant

    @property
    def params(self) -> dict[str, Any]:
        """As in the record."""
        return self.inner.params

    def prepare(self, product: Product) -> Prepared:
        """Prepare the inner contender, or return what that gave before."""
        if self._prepared is None:
            self._prepared = self.inner.prepare(product)
        return self._prepared


def measure(case: Case) -> list[Record]:
    """Time all contenders cold, and the few that are compared warm too."""
    from asyncsparse_lab.spmm.measure import measure_product

    assert case.n is not None
    dtype_out = case.params["dtype_out"]
    _compile(dtype_out)
    shared, truth = product_and_truth(case.params["source"], case.n)
    product = shared.with_output(dtype_out)

    def timed(chosen: Sequence[Contender], l2: Any) -> list[Record]:
        return measure_product(
            chosen,
            product,
            study=STUDY,
            case=case.name,
            matrix=case.matrix,
            truth=truth,
            l2_states=(l2,),
            seconds=SECONDS,
            ceilings=_ceilings(),
        )

    who: list[Contender] = [Once(contender) for contender in contenders(case)]
    cold = timed(who, "cold")
    compared = [who[index] for index in warm_too(cold)] if _is_main(case) else []
    return [_with_least_bytes(record, product) for record in [*cold, *timed(compared, "warm")]]


@cache
def _ceilings() -> MeasuredCeilings | None:
    from asyncsparse_lab.studies.spmm_common import ceilings_here

    return ceilings_here()


def _is_main(case: Case) -> bool:
    return case.params["dtype_out"] == "bfloat16" and not case.params["search"]


def warm_too(cold: Sequence[Record]) -> list[int]:
    """Return the places of the records whose contenders are timed warm too.

    The planner, dense cuBLAS, the fastest of the article's kernels and of cuSPARSE.
    """
    groups: tuple[Callable[[Record], bool], ...] = (
        lambda record: record.role == "planner",
        lambda record: record.role == "paper",
        lambda record: record.backend == "cublas",
        lambda record: record.backend == "cusparse",
    )
    chosen = []
    for group in groups:
        passed = [
            (record.median_us, place)
            for place, record in enumerate(cold)
            if record.median_us is not None and group(record)
        ]
        if passed:
            chosen.append(min(passed)[1])
    return chosen


@lru_cache(maxsize=1)
def _converted_once(source: str) -> Product:
    """Return a product of a matrix whose conversions serve every n."""
    from asyncsparse_lab.matrices import load_matrix
    from asyncsparse_lab.spmm.handed_on import ON_THE_GPU
    from asyncsparse_lab.spmm.product import Product

    product = Product.random(load_matrix(source), 1)
    product.conversions.makers = ON_THE_GPU
    return product


@lru_cache(maxsize=1)
def product_and_truth(source: str, n: int) -> tuple[Product, Reference]:
    """Return a random product with its FP64 reference; the last one is kept.

    B is new for each n, with rows of its own length; A is converted once a matrix.
    """
    from asyncsparse_lab.spmm.oracle import reference, sample_rows
    from asyncsparse_lab.spmm.product import Product

    first = _converted_once(source)
    # Of B alone: to round and check A again takes seconds of a large one.
    empty: Any = csr_array((1, first.A.shape[1]), dtype=np.float32)
    fresh = Product.random(empty, n, xp=first.xp)
    product = first.with_operands(fresh.B, "float32", "row-major")
    product.padded_B = fresh.padded_B
    return product, reference(product.A, product.B, sample_rows(product.A, n))


def _with_least_bytes(record: Record, product: Product) -> Record:
    """Add what every kernel has to move: A's values and the rows of B that it needs, and C."""
    if record.status != "passed":
        return record
    item = 4 if record.dtype_out == "float32" else 2
    least = product.compulsory_bytes + item * product.m * product.n
    return replace(record, result={**record.result, "least_bytes": least})


def judged(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the records with columns ``peer.*`` beside them, for claims about other codes."""
    from asyncsparse_lab.studies.suite_claims import with_peer_columns

    return with_peer_columns(frame)


def draw(
    frame: pd.DataFrame,
    claims: pd.DataFrame,
    *,
    n: int = 1024,
    matrices: Sequence[str] = (),
    gpu: str = "",
) -> dict[str, Drawing | Table | Missing]:
    """Draw speed against density, throughput, profile, wins; tabulate each matrix and the means.

    Parameters
    ----------
    n : int
        Columns of B in the figures of one n.
    matrices : sequence of str
        Only these; all if empty.
    gpu : str
        Folder of the GPU's records; the only one there is if empty.
    """
    from asyncsparse_lab.studies import (
        suite_figures,
        suite_profile,
        suite_reasons,
        suite_search,
        suite_tables,
    )
    from asyncsparse_lab.studies.suite_frame import Evaluation

    evaluation = Evaluation.of(frame, n=n, matrices=matrices, gpu=gpu)
    search = suite_search.search_table(evaluation) if len(evaluation.search) else SEARCH_MISSING
    if evaluation.rows.empty:
        return {**dict.fromkeys(COMPARISON, COMPARISON_MISSING), "search": search}
    shown = frozenset(evaluation.rows["case"])
    pictures = {
        "speedup": suite_figures.speedup(evaluation),
        "throughput": suite_figures.throughput(evaluation, claims),
        "columns": suite_figures.columns(evaluation, claims),
        "profile": suite_profile.profile(evaluation),
        "wins": suite_profile.wins(evaluation),
    }
    return {
        **{name: replace(picture, cases=shown) for name, picture in pictures.items()},
        "targets": suite_tables.targets(evaluation),
        "means": suite_tables.means(evaluation),
        "warm": suite_tables.warm(evaluation),
        "summary": suite_tables.summary(evaluation),
        "reasons": suite_reasons.reasons(evaluation, claims),
        "agreement": suite_tables.agreement_table(evaluation),
        "peers": suite_tables.peers_table(evaluation),
        "matrices": suite_tables.matrices_table(evaluation),
        "sizes": suite_tables.sizes_table(evaluation),
        "times": suite_tables.times_table(evaluation),
        "search": search,
    }
