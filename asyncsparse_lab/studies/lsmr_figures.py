"""Pictures and tables of study ``lsmr``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib import pyplot as plt

from asyncsparse_lab.studies import style
from asyncsparse_lab.studies.base import Drawing, Table
from asyncsparse_lab.studies.lsmr_common import RESIDUALS

if TYPE_CHECKING:
    import pandas as pd

_NAMES = {"8kv-stand-in": "8kv", "11kv-stand-in": "11kv"}  # of the document's claims
THREADS = (256, 288, 384, 640, 1024)  # of a block, by colour
_STAND_INS = "The matrices are stand-ins: the document's own are not public."


def draw_solvers(rows: pd.DataFrame, claims: pd.DataFrame) -> dict[str, Drawing | Table]:
    """Return all pictures and tables of the study."""
    solvers = rows[rows["case"].isin(RESIDUALS)]
    items: dict[str, Drawing | Table] = {}
    if not solvers.empty:
        items["times"] = times(solvers, claims)
        items["reached"] = reached(solvers, claims)
        items["speedups"] = speedups(solvers)
        items["variants"] = variants(solvers)
    tuned = rows[rows["case"].str.endswith("-geometry") & (rows["status"] == "passed")]
    if not tuned.empty:
        items["geometries"] = geometries(tuned)
    long = rows[rows["case"] == "ten-thousand-solves"]
    if not long.empty:
        items["repeats"] = repeats(long)
    return items


def label(row: Any) -> str:
    """Return the name of a solver with what was chosen for it."""
    name = style.contender_name(row["backend"], row["variant"])
    chosen = []
    if row["variant"] == "document":
        chosen += ["single format"] * (row["params.formats"] == "single")
        chosen += ["deterministic"] * (row["params.deterministic"] is True)
        chosen += ["unfused"] * (row["params.fused"] is False)
        chosen += ["float4"] * (row["params.float4"] is True)
    if row["backend"] == "cupy":
        chosen.append(str(row["params.format"]).upper())
    if row.get("params.precondition") == "columns":
        chosen.append("columns scaled")
    return f"{name} ({', '.join(chosen)})" if chosen else name


def main_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that compare with one another: one of each solver, CuPy's two, unscaled."""
    labels = rows.apply(label, axis=1)
    keep = labels.isin(
        [
            "persistent",
            "document",
            "cupy lsmr (CSR)",
            "cupy lsmr (CSC)",
            "scipy lsmr",
            "scipy direct",
        ]
    )
    found: pd.DataFrame = rows[keep & (rows["status"] == "passed")].assign(label=labels[keep])
    return found


def times(rows: pd.DataFrame, claims: pd.DataFrame) -> Drawing:
    """Draw the median of seven solves of each solver, and its quartiles."""
    rows = main_rows(rows)
    matrices = [name for name in RESIDUALS if name in set(rows["matrix"])]
    figure, panels = plt.subplots(
        1, len(matrices), figsize=(4.4 * len(matrices), 3.2), squeeze=False
    )
    for axes, matrix in zip(panels[0], matrices, strict=True):
        here = rows[rows["matrix"] == matrix].sort_values("median_us", ascending=False)
        for place, (_, row) in enumerate(here.iterrows()):
            look = style.look(style.contender_name(row["backend"], row["variant"]))
            ms = row["median_us"] / 1e3
            spread = [[ms - row["q1_us"] / 1e3], [row["q3_us"] / 1e3 - ms]]
            axes.barh(place, ms, color=look.color, xerr=spread, error_kw={"lw": 1})
            beyond = 1.08 * row["q3_us"] / 1e3  # the whiskers
            axes.text(beyond, place, f"{ms:.3g} ms", va="center", fontsize=7)
        axes.set_yticks(range(len(here)), list(here["label"]), fontsize=7)
        axes.set_xscale("log")
        axes.set_xlim(right=6 * float(here["median_us"].max()) / 1e3)
        axes.set_xlabel("time of a solve, ms")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.grid(visible=False, axis="y")
        stated: Any = claims.loc[f"lsmr-n-{_NAMES[matrix]}", "number"]
        n = int(here["k"].iloc[0])
        axes.set_title(
            f"{matrix}, n = {n:,}" + (f" (document: {stated:,.0f})" if stated != n else "")
        )
    style.provenance(figure, rows)
    columns = ["matrix", "variant", "label", "median_us", "q1_us", "q3_us", "result.iterations"]
    table = rows.sort_values(["matrix", "label"])[columns].reset_index(drop=True)
    return Drawing(
        figure,
        table,
        "Median of 7 synchronised solves after 2 warm-ups, FP32, atol = btol = 1e-6; whiskers are "
        f"quartiles. SciPy's two run on the host's CPU, the direct one in FP64. {_STAND_INS}",
    )


def reached(rows: pd.DataFrame, claims: pd.DataFrame) -> Table:
    """Tabulate what each solver reached beside what the document states."""
    import pandas as pd

    lines = []
    for matrix in RESIDUALS:
        here = rows[rows["matrix"] == matrix]
        name = _NAMES[matrix]
        for _, row in here.iterrows():
            lines.append(
                {
                    "matrix": matrix,
                    "solver": label(row),
                    "stop code": row["result.stop_code"],
                    "iterations": row["result.iterations"],
                    "relative residual": _seven_digits(row["result.relative_residual"]),
                    "x against CuPy's": row["result.x_diff"],
                    "x against the exact one": row["result.x_error"],
                    "true |A'r|": row["result.true_normar"],
                    "status": row["status"],
                }
            )
        if not here.empty:
            lines.append(
                {
                    "matrix": name,
                    "solver": "the document's",
                    "stop code": claims.loc[f"lsmr-stop-{name}", "number"],
                    "iterations": claims.loc["lsmr-iterations", "number"],
                    "relative residual": _seven_digits(
                        claims.loc[f"lsmr-residual-{name}", "number"]
                    ),
                    "x against CuPy's": claims.loc[f"lsmr-diff-{name}", "number"],
                    "status": "stated",
                }
            )
    table = pd.DataFrame(lines).astype({"stop code": "Int64", "iterations": "Int64"})
    return Table(
        table,
        "What each solver reached; residuals are recomputed in FP64 with one and the same A. Both "
        f"CuPy and ours keep FP32 vectors, and x converges only to the tolerance. {_STAND_INS}",
    )


def _seven_digits(residual: Any) -> str:
    """Return a residual with as many digits as the document states."""
    return f"{residual:.7f}"


def speedups(rows: pd.DataFrame) -> Table:
    """Tabulate the persistent kernel against the others, within one case each."""
    import pandas as pd

    lines = []
    rows = main_rows(rows)
    for matrix, here in rows.groupby("matrix", sort=False):
        ours = here[here["label"] == "persistent"]
        if ours.empty:
            continue
        row = ours.iloc[0]
        document = here[here["label"] == "document"]
        for _, other in here[here["label"] != "persistent"].iterrows():
            lines.append(
                {
                    "matrix": matrix,
                    "against": other["label"],
                    "persistent, us": row["median_us"],
                    "the other, us": other["median_us"],
                    "times faster": other["median_us"] / row["median_us"],
                }
            )
        for _, other in document.iterrows():
            counted = other["result.counted_us"]
            lines.append(
                {
                    "matrix": matrix,
                    "against": "document, GPU-busy time + 2 host waits an iteration",
                    "persistent, us": row["median_us"],
                    "the other, us": counted,
                    "times faster": counted / row["median_us"],
                }
            )
        lines.append(
            {
                "matrix": matrix,
                "against": "its floor: two exchanges an iteration",
                "persistent, us": row["result.kernel_us_per_iteration"] * row["result.iterations"],
                "the other, us": row["result.floor_us_per_iteration"] * row["result.iterations"],
                "times faster": row["result.floor_us_per_iteration"]
                / row["result.kernel_us_per_iteration"],
            }
        )
    return Table(
        pd.DataFrame(lines),
        "The persistent kernel against the others on the same data; the floor is what its barriers "
        "and one dependent load take on its grid (kernel time, launches hidden).",
    )


def variants(rows: pd.DataFrame) -> Table:
    """Tabulate the document's variants: time, bytes, whether two runs give the same bits."""
    rows = rows[(rows["variant"] == "document") & (rows["status"] == "passed")]
    columns = {
        "matrix": "matrix",
        "median_us": "solve, us",
        "result.us_per_iteration": "iteration, us",
        "result.busy_us_per_iteration": "of it GPU busy, us",
        "result.host_sync_us": "a host wait, us",
        "result.launches": "launches",
        "result.host_syncs": "host waits",
        "result.matrix_bytes": "bytes of A",
        "preprocess_us": "building A, us",
        "result.bitwise_equal": "runs equal bit for bit",
    }
    table = rows[list(columns)].rename(columns=columns)
    table.insert(1, "variant", list(rows.apply(label, axis=1)))
    return Table(
        table.reset_index(drop=True),
        "The document's design and what its choices cost: one format in place of two, the "
        "deterministic algorithm, two kernels in place of the fused one, four elements a thread. "
        "GPU-busy times, by events around a whole iteration, came in steps of several "
        "microseconds for a reason that is not known: variants within a step are not told apart.",
    )


def geometries(rows: pd.DataFrame) -> Drawing:
    """Draw the time of an iteration against the grid, with the floor and the model."""
    matrices = [name for name in RESIDUALS if name in set(rows["matrix"])]
    figure, panels = plt.subplots(
        1, len(matrices), figsize=(4.4 * len(matrices), 3.8), squeeze=False
    )
    defaults = {"params.batched": 0, "params.cluster": False}
    rows = rows.assign(**{name: rows.get(name, value) for name, value in defaults.items()})
    columns = ["params.cluster", "params.batched", "params.together", "params.threads"]
    for axes, matrix in zip(panels[0], matrices, strict=True):
        here = rows[rows["matrix"] == matrix]
        groups: Any = here.groupby(columns)
        for (cluster, batched, together, threads), one in groups:
            one = one.sort_values("params.blocks")
            text = "a cluster, " * bool(cluster) + f"{int(threads)} threads"
            text += ", slices in pairs" * (together == 2) + ", loads at once" * (batched == 2)
            axes.plot(
                one["params.blocks"],
                one["result.us_per_iteration"],
                marker="D" if cluster else "s" if batched else "o",
                ls="--" if batched else "-",
                label=text,
                color=_colour_of(int(threads)),
            )
        floor = here.groupby("params.blocks")["result.floor_us_per_iteration"].min()
        axes.plot(floor.index, floor, color="black", ls=":", label="floor: two exchanges")
        chosen = here[here["params.chosen"].eq(True)]
        axes.plot(
            chosen["params.blocks"],
            chosen["result.us_per_iteration"],
            ls="none",
            marker="*",
            ms=13,
            color="black",
            label="what is chosen",
        )
        axes.set_xlabel("thread blocks")
        axes.set_ylabel("kernel time an iteration, us")
        axes.set_ylim(bottom=0)
        axes.set_title(matrix)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=9)
    style.provenance(figure, rows)
    shape = ["blocks", "threads", "together", "batched", "cluster", "chosen"]
    times = ["us_per_iteration", "floor_us_per_iteration", "predicted_us_per_iteration"]
    names = ["matrix", "variant", *(f"params.{name}" for name in shape)]
    names += [f"result.{name}" for name in times]
    table = rows[names].sort_values(names[:8], key=lambda column: column.astype(str))
    return Drawing(
        figure,
        table.reset_index(drop=True),
        "The persistent kernel on grids and blocks of several sizes, and in one cluster: more "
        "blocks make the exchange slower and the products faster.",
    )


def _colour_of(threads: int) -> Any:
    """Return the colour of a number of threads, of those that colour-blind readers tell apart."""
    import seaborn as sns

    palette = sns.color_palette("colorblind")
    return palette[THREADS.index(threads) if threads in THREADS else 9]


def repeats(rows: pd.DataFrame) -> Table:
    """Tabulate the ten thousand solves."""
    columns = {
        "params.where": "where",
        "params.blocks": "blocks",
        "result.solves": "solves",
        "result.differing": "that differ from the first",
        "median_us": "solve, us",
    }
    table = rows[list(columns)].rename(columns=columns).reset_index(drop=True)
    return Table(table, "Ten thousand solves, none of which hangs; every result compared.")
