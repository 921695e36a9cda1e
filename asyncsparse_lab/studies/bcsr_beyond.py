r"""BCSR beyond the article: stores and loads of different tiles overlapped, rows matched in pairs.

The floor of a kernel is the longer of two times.  One is measured in the same case: its producer
alone, which loads the same blocks of A and rows of B and stores the same tiles of C, in the same
order and with as many bytes on their way, but waits for no product and hands nothing over: a slot
is loaded again as soon as it has landed, and C is whatever lies there.  So it holds what L2 and HBM
need for loads beside stores, whichever of them binds.  The other is the operations of the stored
blocks at the measured rate of the tensor cores.  It is a floor of the tiles and of their order, not
of all kernels that could be written.

The other probes run one chain of the kernel alone: its loads, its products, or its stores.  A
kernel that overlaps all three perfectly would take as long as the longest: that is what a step of
the ladder is predicted to win.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm.variants import VARIANTS, Variant
from asyncsparse_lab.studies.base import Case, Drawing, Table

if TYPE_CHECKING:
    import pandas as pd

    from asyncsparse_lab.gpu.compile import KernelBuild

STUDY: Final = "bcsr-beyond"
COLUMNS: Final = 4096
LAYERS: Final = tuple(
    f"{name}-uniform-s0"
    for name in ("gate_proj-keep10", "gate_proj-keep2", "gate_proj-keep50", "down_proj-keep10")
)
OTHERS: Final = ("bcsstk16", "bcsstk13", "elasticity_tank", "navier_stokes_jac")
STEPS: Final[Mapping[str, str]] = {
    "bcsr-opt3": "",
    "bcsr-overlap": "bcsr-opt3",
    "bcsr-overlap-narrow": "bcsr-overlap",
    "bcsr-paired": "bcsr-overlap",
}
"""The kernels, each with the step before it."""
KERNELS: Final = tuple(STEPS)
PROBED: Final = KERNELS[1:]
CHAINS: Final[Mapping[str, tuple[str, ...]]] = {
    "loads": ("SKIP_PRODUCT", "SKIP_STORE"),
    "products": ("SKIP_LOAD", "SKIP_STORE"),
    "stores": ("SKIP_LOAD", "SKIP_PRODUCT"),
}
"""Constants of the builds in which one part of a kernel runs alone: what is left out."""
MOVES: Final = "loads and stores"
PROBES: Final = {**CHAINS, MOVES: ("MOVE_ONLY",)}
"""All that is measured beside the kernels: each part alone, and the producer alone."""
TILES_OF: Final = {"bcsr-opt3": "bcsr-overlap"}
"""Whose producer moves a kernel's bytes, where that is another: these have the same tiles."""


def cases() -> list[Case]:
    """Return a case for each pruned layer and each other matrix, in bf16 and row-major.

    Some layers come in float16 and in PyTorch's column-major layout too.
    """
    sizes = [(LAYERS[0], 1024), (LAYERS[0], COLUMNS), (LAYERS[0], 16384)]
    sizes += [(matrix, COLUMNS) for matrix in (*LAYERS[1:], *OTHERS)]
    found = [_case(matrix, n) for matrix, n in sizes]
    turned = [matrix for matrix in LAYERS if "keep50" not in matrix]
    found += [_case(matrix, COLUMNS, layout="column-major") for matrix in turned]
    return [*found, _case(LAYERS[0], COLUMNS, "float16")]


def _case(matrix: str, n: int, dtype: str = "bfloat16", layout: str = "row-major") -> Case:
    kind = "".join(f"-{word}" for word in (dtype, layout) if word not in ("bfloat16", "row-major"))
    params = {"dtype_in": dtype, "dtype_out": dtype, "layout": layout}
    return Case(f"{matrix}-n{n}{kind}", matrix, n, params, seconds=3.5)


def kernels_of(case: Case) -> list[Variant]:
    """Return the steps of the ladder that take the case's type and layout."""
    steps = [VARIANTS[name] for name in KERNELS]
    return [
        step
        for step in steps
        if case.params["dtype_in"] in step.dtypes_in and case.params["layout"] in step.layouts
    ]


def probe_of(variant: Variant, chain: str) -> Variant:
    """Return the build of a variant in which one chain runs alone."""
    return variant.with_constants(**dict.fromkeys(PROBES[chain], 1))


def kernel_builds() -> dict[str, list[KernelBuild]]:
    """Return the compilations behind the records, by variant."""
    from asyncsparse_lab.studies.spmm_common import kernel_build

    builds: dict[str, list[KernelBuild]] = {name: [] for name in KERNELS}
    for case in cases():
        kind = [case.params[key] for key in ("dtype_out", "dtype_in", "layout")]
        for step in kernels_of(case):
            members = [step, *_probes(step)]
            wanted = [kernel_build(member, *kind) for member in members]
            builds[step.name] += [build for build in wanted if build not in builds[step.name]]
    return builds


def _probes(step: Variant) -> list[Variant]:
    return [probe_of(step, chain) for chain in PROBES] if step.name in PROBED else []


def measure(case: Case) -> list[Record]:
    """Measure the kernels beside dense cuBLAS, and each chain of the new ones alone."""
    from asyncsparse_lab.baselines import BASELINES
    from asyncsparse_lab.studies.spmm_cases import measure_case
    from asyncsparse_lab.studies.spmm_common import time_probe

    steps = kernels_of(case)
    dense = [BASELINES["cublas-dense"]]
    measured = measure_case(STUDY, case, steps, dense, seconds=0.1, **case.params)
    probes = [probe for step in steps for probe in _probes(step)]
    return measured.records + [time_probe(probe, measured.product, STUDY, case) for probe in probes]


def draw(
    frame: pd.DataFrame,
    claims: pd.DataFrame,
    *,
    matrices: Sequence[str] = (),
    gpu: str = "",
) -> dict[str, Drawing | Table]:
    """Draw the speed over dense cuBLAS; tabulate the ladder with its predictions and floors.

    Parameters
    ----------
    matrices : sequence of str
        Only these; all if empty.
    gpu : str
        Folder of the GPU's records; the only one there is if empty.
    """
    from asyncsparse_lab.studies.bcsr_beyond_figures import floors, ladder, speed
    from asyncsparse_lab.studies.spmm_cases import chosen_rows

    rows = chosen_rows(frame, matrices=matrices, n=0, l2="cold", gpu=gpu)
    return {"speed": speed(rows), "ladder": ladder(rows), "floors": floors(rows)}
