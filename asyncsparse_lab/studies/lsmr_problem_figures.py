"""Pictures and tables of study ``lsmr-problems``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from matplotlib import pyplot as plt

from asyncsparse_lab.studies import style
from asyncsparse_lab.studies.base import Drawing, Table

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS: Final = 3
_COLORS: Final = {"float32": "C1", "float64": "C0"}  # orange and blue; scaled columns are dashed


def draw_problems(rows: pd.DataFrame) -> dict[str, Drawing | Table]:
    """Return the convergence curves, what was reached, and what column scaling changes."""
    passed = rows[rows["status"] == "passed"]
    return {
        "convergence": convergence(passed),
        "reached": reached(rows),
        "scaling": scaling(passed),
    }


def convergence(rows: pd.DataFrame) -> Drawing:
    """Draw the estimate of the gradient's norm against iterations, a panel a problem."""
    import pandas as pd

    ours = rows[rows["variant"] == "persistent"]
    # Of FP64, the solves with the smaller tolerance hold the others.
    least = ours.groupby(["case", "dtype_in"])["params.atol"].transform("min")
    ours = ours[ours["params.atol"] == least]
    cases = list(dict.fromkeys(ours["case"]))
    height = max(1, -(-len(cases) // _COLUMNS))
    figure, panels = plt.subplots(
        height, _COLUMNS, figsize=(3.1 * _COLUMNS, 2.2 * height), squeeze=False
    )
    lines = []
    for axes, case in zip(panels.flat, cases, strict=False):
        for _, row in ours[ours["case"] == case].iterrows():
            scaled = row["params.precondition"] == "columns"
            iterations, values = row["result.curve_iterations"], row["result.curve_normar"]
            if not len(iterations):
                continue
            axes.plot(
                iterations,
                [value / values[0] for value in values],
                color=_COLORS[row["dtype_in"]],
                linestyle="--" if scaled else "-",
                label=f"{row['dtype_in']}{', columns scaled' if scaled else ''}",
                lw=1.2,
            )
            lines.append(
                {
                    "case": case,
                    "variant": row["variant"],
                    "dtype": row["dtype_in"],
                    "scaled": scaled,
                    "iterations": int(iterations[-1]),
                    "last": values[-1] / values[0],
                }
            )
        axes.set_yscale("log")
        # A generator's call is longer than a panel: its arguments go below its name.
        axes.set_title(case.replace("(", "\n(", 1).replace(", ", " "), fontsize=6.5)
        axes.tick_params(labelsize=6)
    for axes in panels.flat[len(cases) :]:
        axes.axis("off")
    if not cases:
        panels[0, 0].text(0, 0.5, "no curve: only the persistent kernel's is recorded", fontsize=7)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=7)
    figure.supxlabel("iterations", fontsize=8)
    figure.supylabel("|A'r|, of the first", fontsize=8)
    style.provenance(figure, ours)
    return Drawing(
        figure,
        pd.DataFrame(lines),
        "Convergence of the persistent kernel: the recurrence's estimate of |A'r| (of |D A'r| with "
        "scaled columns), relative to the first iteration's.",
    )


def reached(rows: pd.DataFrame) -> Table:
    """Tabulate stop code, iterations and norms of every solve."""
    import pandas as pd

    lines: list[dict[str, Any]] = []
    for _, row in rows.iterrows():
        if row["status"] == "unsupported":
            lines.append(
                {"problem": row["case"], "solver": row["variant"], "remark": row["reason"]}
            )
            continue
        lines.append(
            {
                "problem": row["case"],
                "m": row["m"],
                "n": row["k"],
                "solver": style.contender_name(row["backend"], row["variant"]),
                "dtype": row["dtype_in"],
                "tolerance": row["params.atol"],
                "columns scaled": row["params.precondition"] == "columns",
                "stop code": row["result.stop_code"],
                "iterations": row["result.iterations"],
                "|r|, true": row["result.true_normr"],
                "|r| above the least": row.get("result.excess_residual"),
                "|A'r|, estimate": row["result.normar"],
                "|A'r|, true": row["result.true_normar"],
                "confirmed": row.get("result.confirmed"),
                "x against the dense solution": row.get("result.x_error"),
                "us": row["median_us"],
                "remark": "",
            }
        )
    table = pd.DataFrame(lines)
    whole = [name for name in ("m", "n", "stop code", "iterations") if name in table]
    return Table(
        table.astype(dict.fromkeys(whole, "Int64")),
        "What each solve reached. The estimates are the recurrence's, the true norms recomputed in "
        "FP64; 'confirmed' says whether these pass the test that the solver stopped at. Where A "
        "has no full rank, x is compared with the shortest solution.",
    )


def scaling(rows: pd.DataFrame) -> Table:
    """Tabulate iterations without and with scaled columns."""
    ours = rows[rows["variant"] == "persistent"].copy()
    ours["scaled"] = ours["params.precondition"].eq("columns")
    table = (
        ours.pivot_table(
            index=["case", "dtype_in", "params.atol"],
            columns="scaled",
            values="result.iterations",
            aggfunc="min",
        )
        .reindex(columns=[False, True])
        .reset_index()
    )
    table.columns = ["problem", "dtype", "tolerance", "iterations", "with columns scaled"]
    table["of the iterations"] = table["with columns scaled"] / table["iterations"]
    return Table(table, "What scaling the columns to norm 1 does to the iterations.")
