"""Figure and tables of the study bcsr-beyond: speed, the ladder, and what bounds each kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncsparse_lab.studies.base import Drawing, Table
from asyncsparse_lab.studies.bcsr_beyond import CHAINS, KERNELS, MOVES, PROBES
from asyncsparse_lab.studies.rooflines import BLOCK_BYTES, ceilings_for

if TYPE_CHECKING:
    import pandas as pd

    from asyncsparse_lab.studies.ceilings import MeasuredCeilings

_OUTPUT_BYTES: Final = {"bfloat16": 2, "float16": 2, "float32": 4}


def chain_times(rows: pd.DataFrame) -> dict[tuple[str, str], dict[str, float]]:
    """Return the time of each chain alone, by case and variant, in microseconds."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for _, row in rows[rows["role"] == "probe"].iterrows():
        skipped = {
            name.removeprefix("params.").upper()
            for name in rows.columns
            if name.startswith("params.skip_") and row[name] == 1
        }
        for chain, left_out in PROBES.items():
            if skipped == set(left_out):
                times = found.setdefault((row["case"], row["variant"]), {})
                times[chain] = float(row["median_us"])
    return found


def floor_parts(row: Any, ceilings: MeasuredCeilings) -> dict[str, float]:
    """Return what each resource takes for a kernel's work at its measured rate, in microseconds.

    L2: the bytes that its tiles load; tensor cores: the operations of the stored blocks; HBM: A's
    blocks, B and C once.
    """
    n, blocks = float(row["n"]), float(row["result.blocks"])
    hbm = blocks * BLOCK_BYTES + 2 * row["k"] * n + _OUTPUT_BYTES[row["dtype_out"]] * row["m"] * n
    return {
        "L2": row["result.l2_bytes"] / ceilings.tma_bytes_per_s * 1e6,
        "tensor cores": 2 * 64 * 64 * blocks * n / ceilings.mma_flops_per_s * 1e6,
        "HBM": hbm / ceilings.hbm_bytes_per_s * 1e6,
    }


def floors(rows: pd.DataFrame) -> Table:
    """Tabulate each kernel against dense cuBLAS and against its floor."""
    import pandas as pd

    ceilings = ceilings_for(rows)
    chains = chain_times(rows)
    lines = []
    for case, own in rows[rows["role"] != "probe"].groupby("case", sort=False):
        dense = own.loc[own["variant"] == "dense", "median_us"]
        for name in KERNELS:
            for _, row in own[own["variant"] == name].iterrows():
                parts = floor_parts(row, ceilings) if ceilings else {}
                bound = max(parts, key=lambda part: parts[part], default=None)
                floor = parts[bound] if bound else np.nan
                moves = chains.get((str(case), name), {}).get(MOVES, np.nan)
                lines.append(
                    {
                        "case": case,
                        "kernel": name,
                        "measured, us": row["median_us"],
                        "times dense": dense.iloc[0] / row["median_us"] if len(dense) else np.nan,
                        "floor, us": floor,
                        "share of the floor": floor / row["median_us"],
                        "bound by": bound,
                        "without products, us": moves,
                        "share of that": moves / row["median_us"],
                    }
                )
    return Table(
        pd.DataFrame(lines),
        "Cold L2; output of the input's type. The floor is the longest of three times at measured "
        "rates: the bytes of the kernel's tiles from L2 by independent TMA reads, the operations "
        "of its blocks on tensor cores, and A's blocks, B and C once through HBM. Without "
        "products: the same kernel with its loads and stores alone, what moving takes when both "
        "share L2.",
    )


def ladder(rows: pd.DataFrame) -> Table:
    """Tabulate each step: what it was predicted to win, and what it won."""
    import pandas as pd

    chains = chain_times(rows)
    lines = []
    for case, own in rows[rows["role"] != "probe"].groupby("case", sort=False):
        times = own.set_index("variant")["median_us"].astype(float)
        before = None
        for step in KERNELS:
            if step not in times:
                continue
            alone = chains.get((str(case), step), {})
            single = [chain for chain in CHAINS if chain in alone]
            longest = max(single, key=lambda chain: alone[chain], default=None)
            predicted = alone[longest] if longest else np.nan
            lines.append(
                {
                    "case": case,
                    "step": step,
                    "measured, us": times[step],
                    "won": before / times[step] if before else np.nan,
                    "predicted, us": predicted,
                    "predicted to win": before / predicted if before else np.nan,
                    **{f"{chain} alone, us": alone.get(chain, np.nan) for chain in PROBES},
                    "longest": longest,
                }
            )
            before = times[step]
    return Table(
        pd.DataFrame(lines),
        "One idea a step, each against the step before. Predicted: the longest of the kernel's "
        "three chains, each run alone; that is perfect overlap.",
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
    figure, axes = plt.subplots(figsize=(9.2, 0.36 * len(names) + 1.6))
    for shift, name in zip((-0.26, 0.0, 0.26), KERNELS, strict=True):
        own = speeds[speeds["variant"] == name].set_index("case")["ratio"].reindex(names)
        look = style.look(name)
        places = [place + shift for place in range(len(names))]
        axes.barh(places, own, 0.24, color=look.color, label=style.contender_name("", name))
        for place, value in zip(places, own, strict=True):
            if value == value:
                axes.annotate(f"{value:.2f}", (value, place), (3, 0), textcoords="offset points",
                              va="center", fontsize=7)  # fmt: skip
    axes.axvline(1.0, color="#707070", linewidth=1, linestyle="--")
    axes.set_yticks(range(len(names)), [name.replace("-uniform-s0", "") for name in names])
    axes.invert_yaxis()
    axes.set_xlabel("times dense cuBLAS's speed, output of the input's type")
    axes.legend(fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.08)
    style.provenance(figure, kernels)
    data = speeds[["variant", "case", "ratio"]].sort_values(["case", "variant"])
    return Drawing(
        figure,
        data.reset_index(drop=True),
        "Speed over dense cuBLAS in the same case, cold L2, bf16 and row-major unless said "
        "otherwise: the article's opt3, stores and loads of different tiles overlapped (overlap), "
        "block rows matched in pairs (paired).",
    )
