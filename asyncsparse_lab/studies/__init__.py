"""The studies: one module a figure or table.

Who adds a study adds a module with ``cases``, ``measure`` and ``draw`` (see
:mod:`asyncsparse_lab.studies.base`), a line here and a notebook.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.studies.base import Case, Drawing, Study, Table

__all__ = ["STUDIES", "Case", "Drawing", "Study", "Table", "find_study", "load_study"]

STUDIES: Final[dict[str, Study]] = {
    study.name: study
    for study in (
        Study(
            name="formats",
            title="BCSR and WCSR on each matrix: fill, bytes, columns per window, the rule's pick",
            module="formats",
            notebook="01_formats",
            device="cpu",
        ),
        Study(
            name="bcsr-ablation",
            title="From scalar FMA to a warp-specialised ring: the ladder opt0 to opt3",
            module="bcsr_ablation",
            notebook="02_bcsr_ablation",
            device="gpu",
        ),
        Study(
            name="verify",
            title="Every kernel against the FP64 reference, ten thousand launches, the sanitizer",
            module="verify",
            notebook="02_bcsr_ablation",
            device="gpu",
        ),
        Study(
            name="registers",
            title="What setmaxnreg buys: registers, thread blocks per SM, time",
            module="registers",
            notebook="03_registers_and_ceilings",
            device="gpu",
        ),
        Study(
            name="ceilings",
            title="What this GPU can do at most: copies, tile products, barriers, an empty kernel",
            module="ceilings",
            notebook="03_registers_and_ceilings",
            device="gpu",
        ),
        Study(
            name="stages",
            title="Depth of the ring: every number of stages that fits, by tile",
            module="stages",
            notebook="04_wgmma_n_and_stages",
            device="gpu",
        ),
        Study(
            name="wgmma-n",
            title="Width of a WGMMA: throughput, padding and the article's two rules",
            module="wgmma_n",
            notebook="04_wgmma_n_and_stages",
            device="gpu",
        ),
        Study(
            name="cluster-multicast",
            title="Clusters that share A by TMA multicast: what it costs, by cause",
            module="cluster_multicast",
            notebook="05_cluster_multicast",
            device="gpu",
        ),
        Study(
            name="persistent",
            title="One thread block per SM with static round-robin: what it costs, by cause",
            module="persistent",
            notebook="06_persistent",
            device="gpu",
        ),
        Study(
            name="wcsr-ablation",
            title="The article's WCSR kernel: cutting windows into tasks, and what bounds it",
            module="wcsr_ablation",
            notebook="07_wcsr_ablation",
            device="gpu",
        ),
        Study(
            name="selection",
            title="Where BCSR overtakes WCSR: time against the fill of the blocks",
            module="selection",
            notebook="08_selection",
            device="gpu",
        ),
        Study(
            name="suite",
            title="SuiteSparse and its like: auto, the article's kernels, libraries and peers",
            module="suite",
            notebook="09_suite",
            device="gpu",
        ),
        Study(
            name="planner",
            title="The planner's predictions against the suite, and what its choices cost",
            module="planner",
            notebook="14_planner",
            device="cpu",
        ),
        Study(
            name="reordering",
            title="What shorter windows and reordered rows could win, by floors",
            module="reordering",
            notebook="16_reordering",
            device="cpu",
        ),
        Study(
            name="row-orders",
            title="Rows of A in another order: what a product gains, and when ordering has paid",
            module="row_orders",
            notebook="17_row_orders",
            device="gpu",
        ),
        Study(
            name="bcsr-beyond",
            title="BCSR beyond the article: a hidden epilogue, and block rows in pairs",
            module="bcsr_beyond",
            notebook="12_bcsr_beyond",
            device="gpu",
        ),
        Study(
            name="wcsr-beyond",
            title="WCSR beyond the article: a gather that never waits, and taller windows",
            module="wcsr_beyond",
            notebook="13_wcsr_beyond",
            device="gpu",
        ),
        Study(
            name="conversion",
            title="From CSR to blocks and windows on the GPU, in units of a product",
            module="conversion",
            notebook="15_conversion",
            device="gpu",
        ),
        Study(
            name="lsmr-fusion",
            title="LSMR's vector updates fused: the data flow, bytes, launches and time",
            module="lsmr_fusion",
            notebook="20_lsmr_fusion",
            device="gpu",
        ),
        Study(
            name="lsmr",
            title="LSMR on stand-ins for 8kv and 11kv: ours, the document's, CuPy, SciPy, direct",
            module="lsmr",
            notebook="21_lsmr",
            device="gpu",
        ),
        Study(
            name="lsmr-breakdown",
            title="Where an iteration of LSMR goes: products, norms, updates, waits",
            module="lsmr_breakdown",
            notebook="22_lsmr_breakdown",
            device="gpu",
        ),
        Study(
            name="lsmr-scaling",
            title="An iteration of LSMR from a thousand to ten million unknowns, and its floors",
            module="lsmr_scaling",
            notebook="23_lsmr_scaling",
            device="gpu",
        ),
        Study(
            name="lsmr-problems",
            title="Standard least-squares problems: stop codes, true norms, convergence, scaling",
            module="lsmr_problems",
            notebook="24_lsmr_problems",
            device="gpu",
        ),
    )
}


def find_study(name: str) -> Study:
    """Return the entry of a study.

    Raises
    ------
    InputError
        There is no study of that name.
    """
    if name not in STUDIES:
        raise InputError(f"no study {name!r}; there are {', '.join(STUDIES)}")
    return STUDIES[name]


def load_study(name: str) -> ModuleType:
    """Import the module of a study."""
    return import_module(f"asyncsparse_lab.studies.{find_study(name).module}")
