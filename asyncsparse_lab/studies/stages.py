"""Depth of the ring: opt3 with every number of stages that fits into shared memory, by tile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm.geometry import WGMMA_COLUMNS, max_stages
from asyncsparse_lab.spmm.variants import VARIANTS, Variant
from asyncsparse_lab.studies.base import Case, Drawing, Table

if TYPE_CHECKING:
    import pandas as pd

STUDY: Final = "stages"
PRODUCTS: Final = (("gate_proj-keep10-uniform-s0", 4096), ("mycielskian13", 1024))
"""Matrices and N."""


def cases() -> list[Case]:
    """Return a case for each product and WGMMA_N: all depths, interleaved."""
    return [
        Case(
            f"{matrix}-n{n}-wgmma{width}",
            matrix,
            n,
            {"wgmma_n": width},
            seconds=0.5 + max_stages(width) * 0.08 + (2.0 if width == WGMMA_COLUMNS[0] else 0.0),
        )
        for matrix, n in PRODUCTS
        for width in WGMMA_COLUMNS
    ]


def variants(case: Case) -> list[Variant]:
    """Return opt3 at a case's WGMMA_N with 2 stages, 3, ... as many as fit."""
    width = case.params["wgmma_n"]
    opt3 = VARIANTS["bcsr-opt3"]
    return [
        opt3.with_constants(WGMMA_N=width, STAGES=depth)
        for depth in range(2, max_stages(width) + 1)
    ]


def measure(case: Case) -> list[Record]:
    """Measure all depths of a case."""
    from asyncsparse_lab.studies.spmm_cases import measure_case

    return measure_case(STUDY, case, variants(case)).records


def draw(
    frame: pd.DataFrame,
    claims: pd.DataFrame,
    *,
    matrices: tuple[str, ...] = (),
    n: int = 0,
    l2: str = "cold",
    gpu: str = "",
) -> dict[str, Drawing | Table]:
    """Draw time against depth for each tile; tabulate the best depth.

    The parameters are those of :func:`asyncsparse_lab.studies.wgmma_n.draw`.
    """
    from asyncsparse_lab.studies import reasons, tile_figures
    from asyncsparse_lab.studies.spmm_cases import chosen_rows

    rows = chosen_rows(frame, matrices=matrices, n=n, l2=l2, gpu=gpu)
    best = tile_figures.best_depth(rows)
    return {
        "depth": tile_figures.depth(rows, claims),
        "best-depth": best,
        "reasons": reasons.depths(best.data, claims),
    }
