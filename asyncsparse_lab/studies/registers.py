"""What moving registers between warpgroups buys: registers, blocks on an SM, time.

opt3 asks for 24 registers a producer thread and 240 a consumer thread: 24 * 128 + 240 * 256 =
64,512 of the SM's 65,536.  The article says that this lets several blocks live on an SM; the
kernel then holds 168 registers a thread from its launch on, so one block fills the SM.  Without
setmaxnreg a thread holds what its tile needs, and several blocks of the small tiles fit.

The ``ladder`` cases set opt1, opt2 and opt3 beside each other at two tiles: with the smaller one
two blocks of opt1 and opt2 share an SM, and one loads while the other multiplies.

(Two blocks an SM by launch bounds cannot be had with setmaxnreg: the block is launched with 80
registers a thread, and its consumers would wait for ever for the 240.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncsparse_lab.records import Record
from asyncsparse_lab.records.frame import ratios
from asyncsparse_lab.spmm.variants import VARIANTS, Variant
from asyncsparse_lab.studies.base import Case, Drawing, Table

if TYPE_CHECKING:
    import pandas as pd

    from asyncsparse_lab.gpu.compile import KernelBuild

STUDY: Final = "registers"
MATRIX: Final = "gate_proj-keep10-uniform-s0"
COLUMNS: Final = (1024, 4096)
TILES: Final = ((32, 3), (64, 3), (128, 3), (128, 2), (192, 3), (256, 3))
"""WGMMA_N and stages."""
LADDER: Final = ("bcsr-opt1", "bcsr-opt2", "bcsr-opt3")
LADDER_TILES: Final = (128, 256)
DTYPE_OUT: Final = "bfloat16"


def cases() -> list[Case]:
    """Return a case for each tile and n, setmaxnreg on and off; and one for the ladder's tiles."""
    switched = [
        Case(
            name=f"n{n}-wgmma{wgmma_n}-stages{stages}",
            matrix=MATRIX,
            n=n,
            params={"wgmma_n": wgmma_n, "stages": stages},
            seconds=4.0,
        )
        for n in COLUMNS
        for wgmma_n, stages in TILES
    ]
    return switched + [Case(f"ladder-n{n}", MATRIX, n, {"ladder": True}, 5.0) for n in COLUMNS]


def builds(case: Case) -> list[Variant]:
    """Return opt3 at a case's tile, with setmaxnreg and without; or the ladder at both tiles."""
    if case.params.get("ladder"):
        return [
            VARIANTS[name].with_constants(WGMMA_N=wgmma_n)
            for name in LADDER
            for wgmma_n in LADDER_TILES
        ]
    return [
        VARIANTS["bcsr-opt3"].with_constants(
            WGMMA_N=case.params["wgmma_n"], STAGES=case.params["stages"], SETMAXNREG=setmaxnreg
        )
        for setmaxnreg in (1, 0)
    ]


def kernel_builds() -> dict[str, list[KernelBuild]]:
    """Return the compilations behind the records of this study, by variant."""
    from asyncsparse_lab.studies.spmm_common import kernel_build

    found: dict[str, list[KernelBuild]] = {}
    for case in cases():
        for variant in builds(case):
            found.setdefault(variant.name, []).append(kernel_build(variant, DTYPE_OUT))
    return found


def measure(case: Case) -> list[Record]:
    """Measure both builds, cold and warm, with their registers and the occupancy query's answer."""
    from asyncsparse_lab.spmm.measure import measure_product
    from asyncsparse_lab.spmm.run import Ours
    from asyncsparse_lab.studies.spmm_common import ceilings_here, product_with_truth

    assert case.matrix is not None
    assert case.n is not None
    product, truth = product_with_truth(case.matrix, case.n)
    variants = builds(case)
    records = measure_product(
        [Ours(variant) for variant in variants],
        product.with_output(DTYPE_OUT),
        study=STUDY,
        case=case.name,
        matrix=case.matrix,
        truth=truth,
        seconds=0.1,
        ceilings=ceilings_here(),
    )
    l2_states = len(records) // len(variants)
    footprints = [footprint(variant) for variant in variants for _ in range(l2_states)]
    return [
        replace(record, result={**record.result, **found})
        for record, found in zip(records, footprints, strict=True)
    ]


def footprint(variant: Variant) -> dict[str, Any]:
    """Return registers a thread at launch, shared bytes a block, and blocks that one SM holds."""
    from asyncsparse_lab.gpu.launch import load
    from asyncsparse_lab.spmm.run import compile_variant

    artifact, geometry = compile_variant(variant, DTYPE_OUT), variant.launch_geometry
    return {
        "registers": artifact.resources.registers,
        "shared_bytes": geometry.shared_bytes + artifact.resources.static_shared,
        "blocks_per_sm": load(artifact).blocks_per_sm(geometry.threads, geometry.shared_bytes),
    }


def draw(
    frame: pd.DataFrame, claims: pd.DataFrame, *, l2: str = "cold", gpu: str = ""
) -> dict[str, Drawing | Table]:
    """Draw the time with and without setmaxnreg by tile; tabulate registers and blocks per SM."""
    from asyncsparse_lab.studies.spmm_common import rows_of_one_gpu

    rows = rows_of_one_gpu(frame, gpu)
    rows = rows[(rows["status"] == "passed") & (rows["l2"] == l2)]
    is_ladder = rows["case"].str.startswith("ladder")
    switched = rows[~is_ladder]
    return {
        "registers": _table(switched),
        "time": _times(switched),
        "ladder-tiles": _ladder_table(rows[is_ladder]),
    }


def _ladder_table(rows: pd.DataFrame) -> Table:
    columns = {
        "n": "N",
        "variant": "variant",
        "params.wgmma_n": "WGMMA_N",
        "result.registers": "registers a thread",
        "result.blocks_per_sm": "blocks per SM",
        "median_us": "median, us",
    }
    rows = rows.sort_values(["n", "variant", "params.wgmma_n"])
    table = rows[list(columns)].rename(columns=columns).reset_index(drop=True)
    return Table(
        table.astype({"WGMMA_N": "int64", "registers a thread": "int64", "blocks per SM": "int64"}),
        "The ladder at two tiles: a step gains less where the step before it already overlaps "
        "loads and products by having two blocks on an SM.",
    )


def _table(rows: pd.DataFrame) -> Table:
    import pandas as pd

    columns = {
        "n": "N",
        "params.wgmma_n": "WGMMA_N",
        "params.stages": "stages",
        "params.setmaxnreg": "setmaxnreg",
        "result.registers": "registers a thread",
        "result.shared_bytes": "shared bytes",
        "result.blocks_per_sm": "blocks per SM",
        "median_us": "median, us",
    }
    rows = rows.sort_values(["n", "params.wgmma_n", "params.stages", "params.setmaxnreg"])
    table = rows[list(columns)].rename(columns=columns).reset_index(drop=True)
    whole = [title for title in columns.values() if title != "median, us"]
    table[whole] = table[whole].astype("int64")
    assert isinstance(table, pd.DataFrame)
    return Table(
        table,
        "opt3 with setmaxnreg 24/240 and without, by tile: registers at launch, what the "
        "occupancy query answers, and the time.",
    )


def _times(rows: pd.DataFrame) -> Drawing:
    from matplotlib import pyplot as plt

    from asyncsparse_lab.studies import style

    gains = ratios(
        rows.rename(columns={"params.setmaxnreg": "setmaxnreg"}),
        "setmaxnreg == 1",
        "setmaxnreg == 0",
    ).reset_index()
    tiles = rows.drop_duplicates("case").set_index("case")[["params.wgmma_n", "params.stages"]]
    gains = gains.join(tiles, on="case").sort_values(["n", "params.wgmma_n", "params.stages"])
    columns = sorted(set(rows["n"]))
    look = style.look("bcsr-opt3")
    figure, panels = plt.subplots(
        2, len(columns), figsize=(9.2, 4.8), sharex="col", squeeze=False, height_ratios=(1.5, 1)
    )
    for (top, bottom), n in zip(panels.T, columns, strict=True):
        own = rows[rows["n"] == n].sort_values(["params.wgmma_n", "params.stages"])
        labels = list(dict.fromkeys(zip(own["params.wgmma_n"], own["params.stages"], strict=True)))
        for shift, setmaxnreg in ((-0.2, 0), (0.2, 1)):
            part = own[own["params.setmaxnreg"] == setmaxnreg]
            places = np.arange(len(part)) + shift
            top.bar(
                places,
                part["median_us"],
                0.38,
                color=look.color if setmaxnreg else "#c0c0c0",
                yerr=(part["median_us"] - part["q1_us"], part["q3_us"] - part["median_us"]),
                error_kw={"linewidth": 0.8},
                label="setmaxnreg 24/240" if setmaxnreg else "without",
            )
            for place, time, blocks in zip(
                places, part["median_us"], part["result.blocks_per_sm"], strict=True
            ):
                top.annotate(
                    f"{int(blocks)}", (place, time), (0, 3), textcoords="offset points",
                    ha="center", fontsize=7,
                )  # fmt: skip
        found = gains.loc[gains["n"] == n, "ratio"]
        bottom.plot(range(len(found)), 100 * (found - 1), look.marker, color=look.color)
        bottom.axhline(0.0, color="#707070", linewidth=1, linestyle="--")
        top.set(ylabel="median, us", title=f"N = {n}; numbers: blocks per SM")
        top.margins(y=0.3)
        bottom.set(ylabel="gain by setmaxnreg, %")
        bottom.margins(y=0.25)
        bottom.set_xticks(
            range(len(labels)),
            [f"{int(wgmma_n)}\n{int(stages)} stages" for wgmma_n, stages in labels],
            fontsize=7,
        )
        bottom.set_xlabel("WGMMA_N")
    panels[0, 0].legend(fontsize=7, ncols=2, loc="upper left")
    style.provenance(figure, rows)
    names = ["variant", "n", "params.wgmma_n", "params.stages", "params.setmaxnreg", "median_us",
             "result.blocks_per_sm"]  # fmt: skip
    return Drawing(
        figure,
        rows.sort_values(names[1:5])[names].reset_index(drop=True),
        "Time of opt3 on gate_proj with and without register reallocation, by tile; bars end at "
        "medians, whiskers at quartiles, the number is how many blocks one SM holds.",
    )
