"""How far the BCSR kernels are from what the GPU can do, by the measured ceilings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.studies.base import Drawing, Table
from asyncsparse_lab.studies.bcsr_figures import HEADLINE, plain_log
from asyncsparse_lab.studies.ceilings import MeasuredCeilings, load_ceilings

if TYPE_CHECKING:
    import pandas as pd

BLOCK_BYTES: Final = 64 * 64 * 2
SCALAR_TILE: Final = 128
"""Columns of a tile of opt0, which has no WGMMA_N."""


def ceilings_for(rows: pd.DataFrame) -> MeasuredCeilings | None:
    """Return the ceilings of the GPU that the rows were measured on, or None if not recorded."""
    gpus = sorted(set(rows["gpu"]))
    for source in ("recorded", "local"):
        try:
            return load_ceilings(gpus[0], source) if len(gpus) == 1 else None
        except InputError:
            continue
    return None


def counted(rows: pd.DataFrame) -> pd.DataFrame:
    """Return our kernels' passed rows with the work and the bytes that the format makes of them.

    ``flops``: 2 * 64 * 64 * N for each block, stored zeros included; ``hbm_bytes``: blocks, B and
    C once each; ``l2_bytes``: what all tiles load into shared memory, 8 KiB of A and 64 rows of B
    for each block and tile.
    """
    import pandas as pd

    ours = rows[(rows["backend"] == "asyncsparse") & (rows["status"] == "passed")].copy()
    blocks, n = ours["result.blocks"].astype(float), ours["n"].astype(float)
    wgmma_n = (
        ours["params.wgmma_n"]
        if "params.wgmma_n" in ours
        else pd.Series(np.nan, index=ours.index, dtype=float)
    )
    tile = (2 * wgmma_n.astype(float)).fillna(SCALAR_TILE)
    out_bytes = ours["dtype_out"].map({"bfloat16": 2, "float32": 4}).astype(float)
    ours["flops"] = 2.0 * 64 * 64 * blocks * n
    ours["hbm_bytes"] = blocks * BLOCK_BYTES + 2.0 * ours["k"] * n + out_bytes * ours["m"] * n
    ours["l2_bytes"] = blocks * np.ceil(n / tile) * (BLOCK_BYTES + 2 * 64 * tile)
    ours["seconds"] = ours["median_us"].astype(float) / 1e6
    return ours


def roofline(rows: pd.DataFrame, ceilings: MeasuredCeilings) -> Drawing:
    """Draw executed operations over compulsory bytes of HBM, below the measured ceilings."""
    from matplotlib import pyplot as plt

    from asyncsparse_lab.studies import style

    ours = counted(rows)
    ours["intensity"] = ours["flops"] / ours["hbm_bytes"]
    ours["tflops"] = ours["flops"] / ours["seconds"] / 1e12
    figure, axes = plt.subplots(figsize=(7.6, 4.9))
    x = np.geomspace(ours["intensity"].min() / 2.5, ours["intensity"].max() * 2.5, 200)
    memory = ceilings.hbm_bytes_per_s * x / 1e12
    peak = ceilings.mma_flops_per_s / 1e12
    per_byte = (ours["flops"] / ours["l2_bytes"])[ours["variant"] == "bcsr-opt3"].max()
    axes.plot(x, np.minimum(memory, peak), color="#202020", linewidth=1.6)
    lines = (
        (f"bf16 tensor cores {peak:.0f} TFLOP/s", peak, "-"),
        (
            f"L2 to shared memory by TMA: {ceilings.tma_bytes_per_s / 1e12:.1f} TB/s of "
            f"independent reads ({ceilings.tma_shared_bytes_per_s / 1e12:.1f} where all SMs read "
            "the same)",
            ceilings.tma_bytes_per_s * per_byte / 1e12,
            "--",
        ),
        (
            f"FP32 FMA {ceilings.fma_flops_per_s / 1e12:.0f} TFLOP/s",
            ceilings.fma_flops_per_s / 1e12,
            ":",
        ),
    )
    for words, value, line in lines:
        if value == value:
            axes.axhline(value, color="#606060", linewidth=1.0, linestyle=line)
            axes.text(0.99 * x[-1], value * 1.04, words, fontsize=7, ha="right", va="bottom")
    for name in sorted(set(ours["variant"])):
        look = style.look(name)
        for n in sorted(set(ours["n"])):
            part = ours[(ours["variant"] == name) & (ours["n"] == n)]
            axes.plot(
                part["intensity"], part["tflops"], look.marker, linestyle="none",
                color=look.color, markerfacecolor=look.color if n == ours["n"].max() else "none",
                markersize=6, label=f"{name}, N = {n}",
            )  # fmt: skip
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(x[0], x[-1]),
        xlabel="operations on stored blocks per byte of A, B and C",
        ylabel="TFLOP/s on stored blocks",
        title="Roofline of the ladder",
    )
    axes.set_ylim(min(ours["tflops"].min() / 1.5, memory[0]), 1.6 * peak)
    plain_log(axes)
    plain_log(axes, "x")
    place = int(np.searchsorted(memory, 0.75 * peak))
    axes.annotate(
        f"HBM copy {ceilings.hbm_bytes_per_s / 1e12:.2f} TB/s", (x[place], memory[place]),
        (-6, 4), textcoords="offset points", fontsize=7, ha="right", va="bottom",
    )  # fmt: skip
    figure.legend(fontsize=7, ncols=4, loc="outside upper center")
    style.provenance(figure, ours)
    names = ["variant", "matrix", "n", "intensity", "tflops"]
    return Drawing(
        figure,
        ours[names].reset_index(drop=True),
        "Operations count stored zeros of the 64 x 64 blocks, bytes count A's blocks, B and C "
        "once. All lines are measured ceilings of this GPU. The one of L2 holds for opt3's tile "
        "and reads that SMs do not share; where many SMs load the same boxes at the same time, as "
        "neighbouring tiles do for A, one read of L2 serves several, so it can be passed.",
    )


def share_table(rows: pd.DataFrame, ceilings: MeasuredCeilings) -> Table:
    """Return what share of each ceiling every variant reaches on the pruned layer."""
    import pandas as pd

    ours = counted(rows[rows["matrix"] == HEADLINE])
    rate = ours["flops"] / ours["seconds"]
    scalar = ours["variant"] == "bcsr-opt0"
    table = pd.DataFrame(
        {
            "n": ours["n"],
            "variant": ours["variant"],
            "useful TFLOP/s": ours["result.useful_tflops"],
            "TFLOP/s on blocks": rate / 1e12,
            "of FP32 FMA, %": (100 * rate / ceilings.fma_flops_per_s).where(scalar),
            "of tensor cores, %": (100 * rate / ceilings.mma_flops_per_s).where(~scalar),
            "of L2 to shared, %": 100
            * ours["l2_bytes"]
            / ours["seconds"]
            / ceilings.tma_bytes_per_s,
            "of HBM copy, %": 100 * ours["hbm_bytes"] / ours["seconds"] / ceilings.hbm_bytes_per_s,
        }
    )
    table = table.sort_values(["n", "variant"], ignore_index=True)
    return Table(
        table,
        f"Shares of the measured ceilings on {HEADLINE}: operations on stored blocks, bytes that "
        "tiles load into shared memory (of TMA's rate of independent reads), and bytes of A, B "
        "and C once.",
    )
