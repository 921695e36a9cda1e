"""Figure and tables of the study bcsr-beyond: speed, the ladder, and what bounds each kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from asyncsparse_lab.studies.base import Drawing, Table
from asyncsparse_lab.studies.bcsr_beyond import CHAINS, KERNELS, MOVES, PROBES, STEPS, TILES_OF
from asyncsparse_lab.studies.rooflines import ceilings_for

if TYPE_CHECKING:
    import pandas as pd


def chain_times(rows: pd.DataFrame) -> dict[tuple[str, str], dict[str, float]]:
    """Return the time of each probe, by case and variant, in microseconds."""
    constants = {name for made in PROBES.values() for name in made}
    found: dict[tuple[str, str], dict[str, float]] = {}
    for _, row in rows[rows["role"] == "probe"].iterrows():
        made = {name for name in constants if row.get(f"params.{name.lower()}") == 1}
        for chain, own in PROBES.items():
            if made == set(own):
                times = found.setdefault((row["case"], row["variant"]), {})
                times[chain] = float(row["median_us"])
    return found


def floors(rows: pd.DataFrame) -> Table:
    """Tabulate each kernel against dense cuBLAS and against its floor."""
    import pandas as pd

    ceilings = ceilings_for(rows)
    rate = ceilings.mma_flops_per_s if ceilings else np.nan
    probes = chain_times(rows)
    lines = []
    for case, own in rows[rows["role"] != "probe"].groupby("case", sort=False):
        dense = own.loc[own["variant"] == "dense", "median_us"]
        for name in KERNELS:
            moved = probes.get((str(case), TILES_OF.get(name, name)), {}).get(MOVES, np.nan)
            for _, row in own[own["variant"] == name].iterrows():
                flops = 2 * 64 * 64 * float(row["result.blocks"]) * float(row["n"])
                parts = pd.Series({MOVES: moved, "tensor cores": flops / rate * 1e6})
                lines.append(
                    {
                        "case": case,
                        "kernel": name,
                        "measured, us": row["median_us"],
                        "times dense": dense.iloc[0] / row["median_us"] if len(dense) else np.nan,
                        **{f"{part}, us": time for part, time in parts.items()},
                        "share of the floor": parts.max() / row["median_us"],
                        "bound by": parts.idxmax() if parts.notna().any() else None,
                    }
                )
    return Table(
        pd.DataFrame(lines),
        "Cold L2; output of the input's type. The floor is the longer of two times: the loads and "
        "stores of the kernel's tiles in its order, by a producer alone that waits for no product "
        "(measured in the same case), and the operations of its blocks on tensor cores at their "
        "measured rate. Opt3 has the tiles of overlap.",
    )


def ladder(rows: pd.DataFrame) -> Table:
    """Tabulate each step: what it was predicted to win, and what it won."""
    import pandas as pd

    chains = chain_times(rows)
    lines = []
    for case, own in rows[rows["role"] != "probe"].groupby("case", sort=False):
        times = own.set_index("variant")["median_us"].astype(float)
        for step in KERNELS:
            if step not in times:
                continue
            before = times.get(STEPS[step], np.nan)
            alone = chains.get((str(case), step), {})
            single = [chain for chain in CHAINS if chain in alone]
            longest = max(single, key=lambda chain: alone[chain], default=None)
            predicted = alone[longest] if longest else np.nan
            lines.append(
                {
                    "case": case,
                    "step": step,
                    "measured, us": times[step],
                    "won": before / times[step],
                    "predicted, us": predicted,
                    "predicted to win": before / predicted,
                    **{f"{chain} alone, us": alone.get(chain, np.nan) for chain in PROBES},
                    "longest": longest,
                }
            )
    return Table(
        pd.DataFrame(lines),
        "One idea a step, each against the step before, which is overlap for its narrow tiles and "
        "for paired; cold L2, bf16 and row-major unless said otherwise. Predicted: the longest of "
        "the kernel's three chains, each run alone; that is perfect overlap.",
    )


def speed(rows: pd.DataFrame) -> Drawing:
    """Draw the speed over dense cuBLAS in the same case."""
    import pandas as pd
    from matplotlib import pyplot as plt

    from asyncsparse_lab.records.frame import ratios
    from asyncsparse_lab.studies import style

    kernels = rows[rows["role"] != "probe"]
    parts = []
    for name in KERNELS:
        found = ratios(kernels, f"variant == {name!r}", "variant == 'dense'").reset_index()
        parts.append(found.assign(variant=name))
    speeds = pd.concat(parts)
    names = list(dict.fromkeys(kernels.sort_values(["layout", "dtype_in", "matrix", "n"])["case"]))
    names.sort(key=lambda name: name.endswith(("float16", "column-major")))
    figure, axes = plt.subplots(figsize=(9.2, 0.62 * len(names) + 1.6))
    for shift, name in zip(np.linspace(-0.3, 0.3, len(KERNELS)), KERNELS, strict=True):
        own = speeds[speeds["variant"] == name].set_index("case")["ratio"].reindex(names)
        look = style.look(name)
        places = [place + shift for place in range(len(names))]
        axes.barh(places, own, 0.18, color=look.color, label=style.contender_name("", name))
        for place, value in zip(places, own, strict=True):
            if value == value:
                axes.annotate(f"{value:.2f}", (value, place), (3, 0), textcoords="offset points",
                              va="center", fontsize=6.5)  # fmt: skip
    axes.axvline(1.0, color="#707070", linewidth=1, linestyle="--")
    axes.set_yticks(range(len(names)), [name.replace("-uniform-s0", "") for name in names])
    axes.invert_yaxis()
    axes.set_xlabel("times dense cuBLAS's speed, output of the input's type")
    axes.legend(fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.08)
    style.provenance(figure, kernels)
    data = speeds[["variant", "case", "ratio"]].sort_values(["case", "variant"])
    return Drawing(
        figure,
        data.reset_index(drop=True),
        "Speed over dense cuBLAS in the same case, cold L2, bf16 and row-major unless said "
        "otherwise: the article's opt3, stores and loads of different tiles overlapped (overlap, "
        "and with tiles half as wide, narrow), block rows matched in pairs (paired).",
    )
