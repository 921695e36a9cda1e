"""The article's WCSR kernel: windows cut into tasks or not, at which length, and what bounds it.

On matrices with a few long windows (skewed) and with equal ones (even); and beside Blocked-ELL on
matrices of density 1 % and above, where the article says 4.86 times its speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from asyncsparse_lab.formats import WCSR
from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm.contender import Contender
from asyncsparse_lab.spmm.geometry import WINDOW
from asyncsparse_lab.spmm.product import Product
from asyncsparse_lab.spmm.variants import VARIANTS, Variant
from asyncsparse_lab.studies.base import Case, Drawing, Table

if TYPE_CHECKING:
    import pandas as pd

STUDY: Final = "wcsr-ablation"
SKEWED: Final = ("Groebner_id2003_aug", "memplus", "mycielskian13", "qp_huesmod_A")
"""Matrices whose longest window has many times the columns of the median one."""
EVEN: Final = ("dlmc_rn50_magnitude90_proj4", "bcsstk16", "Trefethen_2000")
DENSE: Final = (
    "mycielskian13",
    "mycielskian14",
    "Groebner_id2003_aug",
    "dlmc_rn50_magnitude90_proj4",
    "bcsstk16",
    "bcsstk13",
    "facebook_combined",
    "wiki_chameleon",
    "cora_features",
    "email-Eu-core",
    "msc01050",
    "Trefethen_2000",
    "point_cloud(nodes=148, links=1129, block=24, dimension=3, symmetry='pattern', seed=0)",
)
"""Matrices of density 1 % and above from the suite ``dense1``, of each kind one or two."""
N: Final = 1024
THRESHOLDS: Final = (64, 128, 256, 512, 1024, 2048)
"""Values of max_cols_per_task."""
WIDTHS: Final = (64, 256)
"""WGMMA_N beside the 128 of the table of kernels."""
SHARES: Final = ("gather", "wait", "multiply", "epilogue", "setup")
"""Parts of a thread block's time that its instruments tell apart."""


def cases() -> list[Case]:
    """Return a case for each matrix of the sweep, and for each dense matrix and output type."""
    found = [
        Case(f"sweep-{kind}-{matrix}", matrix, N,
             {"kind": kind, "dtype_out": "float32"}, seconds=2.5)
        for kind, matrices in (("skewed", SKEWED), ("even", EVEN))
        for matrix in matrices
    ]  # fmt: skip
    for matrix in DENSE:
        for dtype_out in ("bfloat16", "float32"):
            params = {"kind": "dense", "dtype_out": dtype_out}
            found.append(Case(f"dense-{matrix}-{dtype_out}", matrix, N, params, seconds=1.2))
    return found


def variants(case: Case) -> list[Variant]:
    """Return the kernels of a case: unsplit and split, for a sweep at all lengths and widths."""
    split, unsplit = VARIANTS["wcsr-paper"], VARIANTS["wcsr-paper-unsplit"]
    if case.params["kind"] == "dense":
        return [unsplit, split, split.with_options(max_cols_per_task=1024)]
    lengths = [split.with_options(max_cols_per_task=length) for length in THRESHOLDS]
    return [unsplit, *lengths, *(split.with_constants(WGMMA_N=width) for width in WIDTHS)]


def libraries() -> list[Contender]:
    """Return what the kernels are shown against."""
    from asyncsparse_lab.baselines import BASELINES

    names = ("cusparse-blocked-ell", "cusparse-csr-alg2", "cusparse-csr-alg3", "cublas-dense")
    return [BASELINES[name] for name in names]


def measure(case: Case) -> list[Record]:
    """Time a case's kernels; on a sweep, let probes tell where their blocks spend their time."""
    from asyncsparse_lab.studies import cta_times
    from asyncsparse_lab.studies.spmm_cases import measure_case

    assert case.matrix is not None
    measured = measure_case(
        STUDY, case, variants(case), libraries(), dtype_out=case.params["dtype_out"]
    )
    records = measured.records
    if case.params["kind"] != "dense":
        for name in ("wcsr-paper", "wcsr-paper-unsplit"):
            probe = VARIANTS[name].with_constants(INSTRUMENT=1)
            records.append(
                cta_times.probe_record(probe, measured, STUDY, case.name, case.matrix, shares)
            )
    return [_with_footprint(record) for record in with_windows(records, measured.product)]


def _with_footprint(record: Record) -> Record:
    """Add to a timed record of ours the registers a thread, and the blocks that an SM holds."""
    from asyncsparse_lab.studies.registers import footprint

    if record.backend != "asyncsparse" or record.median_us is None:
        return record
    kernel = VARIANTS[record.variant].with_constants(WGMMA_N=record.params["wgmma_n"])
    return replace(record, result={**record.result, **footprint(kernel)})


def shares(rows: NDArray[Any]) -> dict[str, float]:
    """Return what part of their time all thread blocks of a launch spent on what.

    Parameters
    ----------
    rows : structured array, thread blocks x 1
        As :func:`asyncsparse_lab.spmm.instrument.read_rows` gives them.

    Returns
    -------
    dict
        ``share_X`` for each of :data:`SHARES` and ``share_rest``, together 1; ``span_us``.
    """
    total = float((rows["end_clock"] - rows["begin_clock"]).sum())
    found = {f"share_{name}": float(rows[name].sum(dtype=np.float64)) / total for name in SHARES}
    found["share_rest"] = 1.0 - sum(found.values())
    return found | {"span_us": float(rows["end_ns"].max() - rows["begin_ns"].min()) / 1e3}


def with_windows(records: Sequence[Record], product: Product) -> list[Record]:
    """Add to our records the columns of the windows, the tasks, and the bytes that are gathered."""
    from asyncsparse_lab.studies.spmm_common import with_results

    columns = WCSR.count_columns(product.A, WINDOW)
    padded = -(-columns // 16) * 16
    gathered = 2 * int(columns.sum()) * product.n

    def more(record: Record) -> dict[str, Any]:
        limit = record.params["max_cols_per_task"]
        pieces = np.maximum(-(-padded // limit), 1) if limit else np.ones_like(padded)
        return {
            "columns_median": float(np.median(columns)),
            "columns_max": int(columns.max()),
            "tasks": int(pieces.sum()),
            "split_windows": int((pieces > 1).sum()),
            "gathered_bytes": gathered,
        }

    return with_results(records, more)


def draw(
    frame: pd.DataFrame,
    claims: pd.DataFrame,
    *,
    matrices: tuple[str, ...] = (),
    n: int = 0,
    l2: str = "cold",
    dtype_out: str = "bfloat16",
    gpu: str = "",
) -> dict[str, Drawing | Table]:
    """Draw the threshold, what bounds the kernel, and its speed over Blocked-ELL.

    Parameters
    ----------
    matrices, n, l2, gpu
        As for :func:`asyncsparse_lab.studies.wgmma_n.draw`.
    dtype_out : {"bfloat16", "float32"}
        Type of C in the comparison with Blocked-ELL; the sweep has float32 alone.
    """
    from asyncsparse_lab.studies import reasons, wcsr_figures
    from asyncsparse_lab.studies.rooflines import ceilings_for
    from asyncsparse_lab.studies.spmm_cases import chosen_rows

    rows = chosen_rows(frame, matrices=matrices, n=n, l2=l2, gpu=gpu)
    is_sweep = rows["case"].str.startswith("sweep-")
    sweep = rows[is_sweep & (rows["role"] != "probe")]
    dense = rows[~is_sweep & (rows["dtype_out"] == dtype_out)]
    probes = chosen_rows(frame, matrices=matrices, n=n, l2="cold", gpu=gpu)
    probes = probes[probes["role"] == "probe"]
    ceilings = ceilings_for(rows)
    return {
        "threshold": wcsr_figures.threshold(sweep),
        "bound": wcsr_figures.bound(probes),
        "blocked-ell": wcsr_figures.blocked_ell(dense, claims),
        "sweep": wcsr_figures.sweep_table(sweep, ceilings),
        "dense": wcsr_figures.dense_table(dense),
        "reasons": reasons.windows(dense, probes, claims, sweep, ceilings),
    }
