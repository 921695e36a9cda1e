"""Pictures and tables of the study ``wcsr-beyond``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncsparse_lab.records.frame import geometric_mean, ratios
from asyncsparse_lab.spmm.orders import AS_STORED, NAMES
from asyncsparse_lab.spmm.windows import AUTO_LIMIT
from asyncsparse_lab.studies.base import Drawing, Table
from asyncsparse_lab.studies.bcsr_figures import plain_log
from asyncsparse_lab.studies.wcsr_beyond import DENSE_TFLOPS_THEN, SUITE, WANTED_TFLOPS

if TYPE_CHECKING:
    import pandas as pd

    from asyncsparse_lab.studies.ceilings import MeasuredCeilings

OURS: Final = "variant == 'wcsr-pipelined'"
STORED: Final = f"{OURS} and `params.row_order` == {AS_STORED}"
WANTED_BY_DENSE: Final = "wanted, scaled by dense cuBLAS"
_THEN: Final = (
    f"When {WANTED_TFLOPS:g} were set, dense cuBLAS was said to reach {DENSE_TFLOPS_THEN:g}; there "
    "is no record of that. The line scaled by it is that multiple of dense cuBLAS as measured. "
)
PAPER: Final = "variant == 'wcsr-paper'"
SPARSE: Final = "backend == 'cusparse'"
DENSE: Final = "backend == 'cublas'"
BEST: Final = "backend != 'asyncsparse'"
RIVALS: Final = (
    ("the article's WCSR kernel, best threshold", PAPER, 2.0),
    ("best algorithm of cuSPARSE on CSR", SPARSE, np.nan),
    ("dense cuBLAS", DENSE, np.nan),
    ("best of these libraries", BEST, np.nan),
)
"""Who is compared with, in words and as a query, and the mean that is wanted.  What is wanted over
the best of all libraries is told where all are measured: in the study ``suite``."""
BOUNDS: Final = {
    "gather": ("result.gathered_bytes", "gather_bytes_per_s"),
    "A": ("result.a_bytes", "tma_bytes_per_s"),
    "MMA": ("result.flops", "mma_flops_per_s"),
    "HBM": ("result.hbm_bytes", "hbm_bytes_per_s"),
}
"""What bounds a product of windows: the column of its amount, and of its rate."""
TILE: Final = ("window", "wgmma_n", "column_groups", "stages", "producers", "minimum_ctas")
"""Parameters that tell the pipelined kernel's tiles apart."""
LOADS: Final = ["matrix", "tile", "rows", "limit"]
"""Columns in which a configuration and the probe of its loads agree."""


def label(matrix: str) -> str:
    """Return the name of a matrix in a figure: a generator's short, marked as a stand-in."""
    from asyncsparse_lab.matrices import load_suite

    entries = {entry.name: entry for entry in load_suite("dense1").entries}
    entry = entries.get(matrix)
    if entry is not None and entry.stand_in_for:
        return f"like {entry.stand_in_for}"
    return matrix


def tile_name(params: dict[str, Any]) -> str:
    """Return a configuration in words, such as ``64 x 128, 4 stages, 4 producers, 2 blocks``."""
    height, wgmma_n, groups, stages, producers, ctas = (int(params[name]) for name in TILE)
    return f"{height} x {groups * wgmma_n}, {stages} stages, {producers} producers, {ctas} a SM"


def cut_name(limit: int, atomics: bool) -> str:
    """Return in words how windows are cut, such as ``at 768, atomics``."""
    cut = {0: "whole", AUTO_LIMIT: "by rule"}.get(limit, f"at {limit}")
    return f"{cut}, atomics" if atomics else cut


def merged(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows in which a configuration of ours that was timed under several names is one.

    A limit that no window reaches leaves them whole, by atomics or not.  The time is the mean of
    those medians, since their least would flatter us.
    """
    import pandas as pd

    ours = rows.query(OURS)
    cut = reached_limits(ours)
    by_atomics = ours["params.atomics"].astype(bool) & (cut > 0)
    keys = [
        *(ours[name] for name in ("case", "l2", "status", "params.row_order")),
        *(ours[f"params.{name}"] for name in TILE),
        cut.rename("cut"),
        by_atomics.rename("by atomics"),
    ]
    mean = ours.groupby(keys, dropna=False)["median_us"].transform("mean")
    faster = ours["median_us"] / mean
    ours = ours.assign(median_us=mean)
    ours["result.useful_tflops"] *= faster
    kept = ~pd.concat(keys, axis=1).duplicated()
    return pd.concat([ours[kept], rows.drop(ours.index)]).sort_index()


def reached_limits(ours: pd.DataFrame) -> pd.Series[int]:
    """Return the columns at which windows were cut, 0 where no window has so many."""
    limit = ours["params.columns_per_task"].fillna(0).astype(int)
    return limit.where(limit < ours["result.columns_max"], 0)


def _named(rows: pd.DataFrame) -> pd.DataFrame:
    """Return our rows with ``tile``, order of ``rows``, ``limit`` and ``cut`` of windows."""
    ours = rows.query(OURS).copy()
    ours["limit"] = reached_limits(ours)
    ours["tile"] = [
        tile_name({name: row[f"params.{name}"] for name in TILE})
        for row in ours.to_dict("records")
    ]  # fmt: skip
    ours["rows"] = ours["params.row_order"].astype(int).map(NAMES)
    limits, atomics = ours["params.max_cols_per_task"], ours["params.atomics"]
    ours["cut"] = [cut_name(int(a), bool(b)) for a, b in zip(limits, atomics, strict=True)]
    return ours


def _fastest(ours: pd.DataFrame) -> pd.DataFrame:
    """Return the fastest row of each matrix."""
    return ours.loc[ours.groupby("matrix", sort=False)["median_us"].idxmin()]


def speed(rows: pd.DataFrame) -> Drawing:
    """Draw the best configuration's speed over each rival, by matrix."""
    import pandas as pd
    from matplotlib import pyplot as plt

    from asyncsparse_lab.studies import style

    parts = []
    for name, condition, _ in RIVALS[:3]:
        found = ratios(rows, OURS, condition).reset_index()
        parts.append(found.assign(rival=name)[["matrix", "rival", "of", "over", "ratio"]])
    data = pd.concat(parts, ignore_index=True)
    order = data[data["rival"] == RIVALS[0][0]].sort_values("ratio")["matrix"].tolist()
    looks = [style.look("wcsr-paper"), style.look("cusparse csr-alg2"), style.look("cublas dense")]
    figure, axes = plt.subplots(figsize=(7.6, 0.24 * len(order) + 1.8))
    for (name, _, _), look in zip(RIVALS[:3], looks, strict=True):
        own = data[data["rival"] == name].set_index("matrix")["ratio"].reindex(order)
        axes.plot(own, range(len(order)), look.marker, color=look.color, label=name, markersize=5)
        axes.axvline(geometric_mean(own.dropna()), color=look.color, linewidth=0.9, linestyle=":")
    axes.axvline(1.0, color="#707070", linewidth=1, linestyle="--")
    axes.set_yticks(range(len(order)), [label(matrix) for matrix in order], fontsize=7)
    axes.set(xscale="log", xlabel="speed of our best WCSR over the rival (dotted: geometric mean)")
    plain_log(axes, "x")
    axes.set_ylim(-0.7, len(order) - 0.3)
    figure.legend(fontsize=7, ncols=3, loc="outside upper center")
    style.provenance(figure, rows)
    return Drawing(
        figure,
        data.sort_values(["matrix", "rival"], ignore_index=True),
        "Our best WCSR, the fastest configuration of the pipelined kernel on each matrix, over the "
        "article's kernel at its best threshold, the best algorithm of cuSPARSE and dense cuBLAS: "
        f"{_of(rows)}. "
        "Matrices called like another are generated stand-ins.",
    )


def means(rows: pd.DataFrame) -> Table:
    """Tabulate geometric means over the matrices, and the worst case, for each rival."""
    import pandas as pd

    lines = []
    for name, condition, wanted in RIVALS:
        found = ratios(rows, OURS, condition)["ratio"]
        stored = ratios(rows, STORED, condition)["ratio"]
        lines.append(
            {
                "over": name,
                "matrices": len(found),
                "wanted": wanted,
                "geometric mean": geometric_mean(found),
                "geometric mean, rows as stored": geometric_mean(stored),
                "least": found.min(),
                "most": found.max(),
                "wins, %": 100 * float((found > 1).mean()),
            }
        )
    return Table(
        pd.DataFrame(lines),
        "Speed of our best WCSR, the fastest configuration of the pipelined kernel on each matrix, "
        "over others; beside it the mean of the fastest that leaves rows as stored: "
        f"{_of(rows)}. All libraries are in the study suite.",
    )


def configurations(rows: pd.DataFrame) -> Table:
    """Tabulate the best configuration of each matrix, and the best with rows as stored."""
    import pandas as pd

    ours = _named(rows)
    best = _fastest(ours).set_index("matrix")
    stored = _fastest(ours.query(STORED)).set_index("matrix").reindex(best.index)
    gains = stored["median_us"] / best["median_us"]
    tried = ours.groupby("matrix")["params.row_order"].max()[best.index] != AS_STORED
    data = pd.DataFrame(
        {
            "matrix": [label(str(name)) for name in best.index],
            "configurations": ours.groupby("matrix").size()[best.index].to_numpy(),
            **_columns(best),
            **{
                f"as stored: {name}": values
                for name, values in _columns(stored).items()
                if name != "rows"
            },
            "reordering gains, times": gains.where(tried).to_numpy(),
        }
    )
    return Table(
        data.sort_values("reordering gains, times", ascending=False, ignore_index=True),
        "Our best WCSR of each matrix out of so many measured configurations of the pipelined "
        "kernel: its tile of C (rows x columns), the order of A's rows, how windows are cut (by "
        "rule, at a number of columns, or whole; pieces are added up in a fixed order, or by "
        "atomics), and what preparing A takes once, ordering and conversion; what was measured "
        "after another limit is cut again on the host, which is slower. Beside it the best "
        "with rows as stored. The fastest tiles, whatever their order, were cut in more ways than "
        f"others. Measured: {_of(rows)}.",
    )


def _columns(best: pd.DataFrame) -> dict[str, Any]:
    """Return what a table says of a matrix's best configuration, by column."""
    names = {
        "tile": "tile",
        "rows": "rows",
        "cut": "windows",
        "median_us": "median, us",
        "preprocess_us": "preparation, us",
    }
    return {shown: best[name].to_numpy() for name, shown in names.items()}


def tiles(rows: pd.DataFrame) -> Table:
    """Tabulate how near each tile and order of the rows comes to the best of each matrix."""
    import pandas as pd

    ours = _named(rows)
    best = ours.groupby("matrix")["median_us"].min()
    lines = []
    for (tile, order), own in ours.groupby(["tile", "rows"], sort=False):
        times = own.groupby("matrix")["median_us"].min()
        share = best[times.index] / times
        lines.append(
            {
                "tile": tile,
                "rows": order,
                "matrices": len(times),
                "best of all on": int((share == 1).sum()),
                "of the best's speed, geometric mean": geometric_mean(share),
                "least": share.min(),
            }
        )
    column = "of the best's speed, geometric mean"
    data = pd.DataFrame(lines).sort_values(column, ascending=False, ignore_index=True)
    return Table(
        data,
        "The tiles of the pipelined kernel (rows x columns of C) by order of A's rows, each over "
        "the best of all on every matrix. Windows are cut as was fastest; only the fastest tiles "
        f"of a matrix were tried at many limits. Measured: {_of(rows)}.",
    )


def floors(rows: pd.DataFrame, probes: pd.DataFrame, ceilings: MeasuredCeilings | None) -> Table:
    """Tabulate the best configuration of each matrix beside what bounds it."""
    data = _best(rows, probes, ceilings)
    shown = ["density", "tile", "rows", "cut", "median_us", "result.useful_tflops", "loads"]
    lines = data[shown].rename(
        columns={
            "cut": "windows",
            "median_us": "median, us",
            "result.useful_tflops": "useful TFLOPS",
            "loads": "its loads alone, us",
        }
    )
    lines.insert(0, "matrix", [label(str(name)) for name in data["matrix"]])
    lines["density, %"] = 100.0 * lines.pop("density")
    if ceilings:
        bounds = data[list(BOUNDS)]
        lines = lines.assign(**{f"{name}, us": bounds[name] for name in BOUNDS})
        lines["bound by"] = bounds.idxmax(axis=1)
        lines["floor / measured"] = bounds.max(axis=1) / data["median_us"]
    return Table(
        lines.sort_values("useful TFLOPS", ascending=False, ignore_index=True),
        "Our best WCSR of each matrix, and what its windows take at the measured rates: "
        "rows of B gathered from L2, A in bulk from L2, products with stored zeros, HBM once; and "
        "its loads alone, timed without products and stores on a cold L2. "
        f"Measured: {_of(rows)}.",
    )


def throughput(
    rows: pd.DataFrame, probes: pd.DataFrame, ceilings: MeasuredCeilings | None
) -> Table:
    """Tabulate useful TFLOPS on the shared matrices beside what floors would allow."""
    import pandas as pd

    from asyncsparse_lab.matrices import load_suite

    shared = {entry.name for entry in load_suite("shared").entries}
    data = _best(rows, probes, ceilings)
    data = data[data["matrix"].isin(shared)].set_index("matrix")
    flops = 2.0 * data["nnz"] * data["n"]
    dense = rows.query(DENSE).groupby("matrix")["median_us"].min().reindex(data.index)
    floors = {"dense cuBLAS": dense, "its loads alone": data["loads"]}
    if ceilings:
        least = ceilings.empty_us + data[list(BOUNDS)].max(axis=1)
        floors["an empty kernel, then what its windows take at the measured rates"] = least
    # What is wanted was set for all of them, on a cold L2.
    dense1 = {entry.name for entry in load_suite(SUITE).entries}
    is_as_wanted = set(data.index) == shared & dense1 and set(rows["l2"]) == {"cold"}
    by_dense = dense * DENSE_TFLOPS_THEN / WANTED_TFLOPS
    wanted = {"wanted": None, WANTED_BY_DENSE: by_dense} if is_as_wanted else {}
    lines = []
    for name, us in {**wanted, **floors}.items():
        known = data.index if us is None else us.dropna().index
        if known.empty:
            continue
        reached = _mean_tflops(flops, data.loc[known, "median_us"])
        allowed = WANTED_TFLOPS if us is None else _mean_tflops(flops, us[known])
        lines.append(
            {
                "what": name,
                "matrices": len(known),
                "useful TFLOPS": allowed,
                "best configuration": reached,
                "best configuration, % of it": 100.0 * reached / allowed,
            }
        )
    return Table(
        pd.DataFrame(lines),
        "Useful TFLOPS on the matrices that are in the suite `shared` too, geometric means: what "
        "is wanted, what dense cuBLAS reaches, and what a kernel would that took the floor's time. "
        f"{_THEN if is_as_wanted else ''}Each beside our best WCSR on the same matrices, the "
        f"fastest of each one's search: {_of(rows)}.",
    )


def _of(rows: pd.DataFrame) -> str:
    """Return on what was measured, in words: state of L2, type of C, n and density."""
    (n,), (l2,), (dtype_out,) = (rows[name].unique() for name in ("n", "l2", "dtype_out"))
    return f"{l2} L2, {dtype_out} in and out, n = {n}, matrices of density 1 % and more"


def _mean_tflops(flops: pd.Series[float], us: pd.Series[float]) -> float:
    return geometric_mean(flops[us.index] / us / 1e6)


def _best(
    rows: pd.DataFrame, probes: pd.DataFrame, ceilings: MeasuredCeilings | None
) -> pd.DataFrame:
    """Return our fastest row of each matrix, with ``loads`` and its bounds in us."""
    best = _fastest(_named(rows)).copy()
    alone = _named(probes).groupby(LOADS)["median_us"].min()
    best["loads"] = alone.reindex(best[LOADS].to_records(index=False).tolist()).to_numpy()
    if ceilings:
        for name, (column, rate) in BOUNDS.items():
            best[name] = 1e6 * best[column].astype(float) / getattr(ceilings, rate)
    return best
