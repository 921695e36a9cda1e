"""The document's ablation: opt0 to opt3 and the libraries, on one pruned layer and eight matrices.

The matrices are those of the suites ``shared`` and ``dense1`` with the fullest 64 x 64 blocks,
one or two of a kind: structures, a dense graph in two sizes, pruned weights, optimisation, flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm.contender import Contender
from asyncsparse_lab.spmm.variants import VARIANTS, Variant
from asyncsparse_lab.studies.base import Case, Drawing, Table

if TYPE_CHECKING:
    import pandas as pd

    from asyncsparse_lab.gpu.compile import KernelBuild

STUDY: Final = "bcsr-ablation"
HEADLINE: Final = "gate_proj-keep10-uniform-s0"
MATRICES: Final = (
    HEADLINE,
    "bcsstk16",
    "bcsstk13",
    "mycielskian13",
    "mycielskian14",
    "elasticity_tank",
    "dlmc_rn50_magnitude90_proj4",
    "qp_ship12l_P",
    "navier_stokes_jac",
)
COLUMNS: Final = (1024, 4096)
OUTPUTS: Final = ("bfloat16", "float32")
LADDER: Final = ("bcsr-opt0", "bcsr-opt1", "bcsr-opt2", "bcsr-opt3")
OWN_KERNEL: Final = Variant("examples/my_kernel.cu", constants={"WGMMA_N": 256, "STAGES": 3})
"""The documented example of one's own kernel; only its source and constants are given."""


def cases() -> list[Case]:
    """Return a case for each matrix, n and output type, and the example of one's own kernel."""
    found = []
    for matrix in MATRICES:
        for n in COLUMNS:
            for dtype_out in OUTPUTS:
                seconds = (15.0 if n == 4096 else 9.0) if matrix == HEADLINE else n / 1024 + 3.0
                name = f"{matrix}-n{n}-{dtype_out}"
                found.append(Case(name, matrix, n, {"dtype_out": dtype_out}, seconds))
    found.append(Case("own-kernel", HEADLINE, 4096, {"dtype_out": "bfloat16"}, 5.0))
    return found


def kernel_builds() -> dict[str, list[KernelBuild]]:
    """Return the compilation behind the example, which the table of kernels does not hold."""
    from asyncsparse_lab.studies.spmm_common import kernel_build

    return {OWN_KERNEL.name: [kernel_build(OWN_KERNEL, "bfloat16")]}


def measure(case: Case) -> list[Record]:
    """Measure all contenders of a case, interleaved, cold and warm."""
    from asyncsparse_lab.spmm.measure import measure_product
    from asyncsparse_lab.studies.spmm_common import ceilings_here, product_with_truth, with_blocks

    assert case.matrix is not None
    assert case.n is not None
    product, truth = product_with_truth(case.matrix, case.n)
    product = product.with_output(case.params["dtype_out"])
    records = measure_product(
        contenders(case),
        product,
        study=STUDY,
        case=case.name,
        matrix=case.matrix,
        truth=truth,
        seconds=0.3 if case.matrix == HEADLINE else 0.05,
        ceilings=ceilings_here(),
    )
    return with_blocks(records, product)


def contenders(case: Case) -> list[Contender]:
    """Return who is compared in a case."""
    from asyncsparse_lab.baselines import BASELINES
    from asyncsparse_lab.spmm.run import Ours

    if case.name == "own-kernel":
        return [Ours(VARIANTS["bcsr-opt3"]), Ours(OWN_KERNEL), BASELINES["cublas-dense"]]
    return [*(Ours(VARIANTS[name]) for name in LADDER), *BASELINES.values()]


def draw(
    frame: pd.DataFrame,
    claims: pd.DataFrame,
    *,
    matrices: Sequence[str] = (),
    n: int = 0,
    l2: str = "cold",
    dtype_out: str = "bfloat16",
    gpu: str = "",
) -> dict[str, Drawing | Table]:
    """Draw the ladder, each matrix, the ranking, the roofline; tabulate ratios and shares.

    Parameters
    ----------
    matrices : sequence of str
        Only these; all if empty.
    n : int
        Only this number of columns of B; all if 0.
    l2 : {"cold", "warm"}
        State of L2 before each sample.
    dtype_out : {"bfloat16", "float32"}
        Type of C.
    gpu : str
        Folder of the GPU's records; the only one there is if empty.
    """
    from asyncsparse_lab.studies import bcsr_figures, reasons, rooflines
    from asyncsparse_lab.studies.spmm_common import rows_of_one_gpu

    rows = rows_of_one_gpu(frame, gpu)
    own = rows[rows["case"] == "own-kernel"]
    rows = rows[rows["case"] != "own-kernel"]
    rows = rows[(rows["l2"] == l2) & (rows["dtype_out"] == dtype_out)]
    if matrices:
        rows = rows[rows["matrix"].isin(matrices)]
    if n:
        rows = rows[rows["n"] == n]
    found: dict[str, Drawing | Table] = {
        "ladder": bcsr_figures.ladder(rows, claims),
        "per-matrix": bcsr_figures.per_matrix(rows, claims),
        "ranking": bcsr_figures.ranking(rows),
        "ratios": bcsr_figures.ratio_table(rows),
        "own-kernel": bcsr_figures.own_kernel_table(own),
    }
    ceilings = rooflines.ceilings_for(rows)
    if ceilings is not None:
        found["roofline"] = rooflines.roofline(rows, ceilings)
        found["shares"] = rooflines.share_table(rows, ceilings)
        found["reasons"] = reasons.ladder(rows, claims, ceilings)
    return found
