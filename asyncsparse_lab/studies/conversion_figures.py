"""Figures and tables of the study ``conversion``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from asyncsparse_lab.records.peers import best_of_series, load_peers, read_series, run_facts
from asyncsparse_lab.studies import style
from asyncsparse_lab.studies.base import Drawing, Missing, Table
from asyncsparse_lab.studies.conversion import (
    BLOCKS_KERNEL,
    CSR_KERNELS,
    MOMENTS,
    PRODUCTS,
    REPEATS,
    WINDOWS_KERNEL,
    N,
)
from asyncsparse_lab.studies.conversion_clocks import DELAY_NS
from asyncsparse_lab.studies.rooflines import ceilings_for
from asyncsparse_lab.studies.spmm_common import rows_of_one_gpu

REACHED: Final = 0.9
"""Share of a floor's speed that counts as reaching it."""
SLOWEST: Final = 15
"""How many of the slowest conversions are told, at most."""
WAYS: Final = {
    ("gpu", "events"): "GPU",
    ("gpu", "wall"): "GPU, host's clock",
    ("host", "wall"): "host",
}
"""Where a conversion runs and the clock it is timed by, to its name; one on the GPU is timed on the
stream unless its name says otherwise, since the products are too."""
FORMATS: Final = {"bcsr": "BCSR", "wcsr": "WCSR"}
ON_THE_STREAM: Final = (
    "by events with cold L2 as the product: the conversion's kernels, and what the GPU waits for "
    f"the host between them and until the call has returned; a delay of {DELAY_NS // 1000} us "
    "before hides allocations and launch latency up to the first kernel"
)
BY_THE_HOST: Final = (
    "all that a caller waits for, from the call until the GPU is idle, with allocations and launch "
    "latency; L2 as the call before left it"
)
"""What the two clocks include, for captions."""
THE_FLOOR: Final = (
    "the least that a matrix with one entry takes by that clock, or the bytes of CSR and of the "
    "format at the measured rate of HBM where these take longer"
)
ONE_ENTRY_SHARE: Final = (
    f"share within {PRODUCTS} products or near one entry by the host's clock, %"
)
PRODUCTS_BY_THE_HOST: Final = f"{PRODUCTS} products by the host's clock, us (median)"
BOTH_BY_THE_HOST: Final = f"share within {PRODUCTS} products, both by the host's clock, %"
FLOOR_SHARE: Final = "floor, % of the time on the stream (median)"
_CSR_ENTRY_BYTES: Final = 6  # a column and a 16-bit value
_CSR_ROW_BYTES: Final = 4
_QUARTILES: Final = ("least", "q1", "median", "q3", "most")
_HOST_MARKERS: Final = {"bcsr": "x", "wcsr": "+"}


def conversions(frame: pd.DataFrame, matrices: Sequence[str], gpu: str) -> pd.DataFrame:
    """Return a row a conversion and a clock, with the product that it is for and the best on CSR.

    Columns, beside those of the records, of which ``clock`` is one: ``where``, ``size``, ``name``
    (for figures), ``product_us``, ``csr_us`` (NaN where there is none), ``csr`` (who that is),
    ``products``, the conversion in units of the product, ``five_products_us`` by the host's clock
    (NaN in old records), and ``floor_us``, the larger of the least that one entry takes and of the
    bytes of CSR and of the format at the rate of HBM (NaN where that was not measured).
    """
    rows = rows_of_one_gpu(frame, gpu)
    rows = rows[rows["status"] == "passed"]
    products = rows[(rows["op"] == "spmm") & (rows["l2"] == "cold")]
    found = rows[rows["op"] == "convert"].copy()
    size = found["params.block"].where(found["variant"] == "bcsr", found["params.window"])
    found["size"] = size.astype(int)
    found["where"] = found["params.where"]
    found["name"] = [
        f"{FORMATS[variant]} {height}, {WAYS[where, clock]}"
        for variant, height, where, clock in zip(
            found["variant"], found["size"], found["where"], found["clock"], strict=True
        )
    ]
    times = {
        (case, variant, height): us
        for case, variant, height, us in zip(
            products["case"], products["variant"], _heights(products), products["median_us"],
            strict=True,
        )
    }  # fmt: skip
    kernel = {"bcsr": BLOCKS_KERNEL, "wcsr": WINDOWS_KERNEL}
    found["product_us"] = [
        times.get((case, kernel[variant], height if variant == "wcsr" else 0), np.nan)
        for case, variant, height in zip(
            found["case"], found["variant"], found["size"], strict=True
        )
    ]
    on_csr = products[products["variant"].isin(CSR_KERNELS)].sort_values("median_us")
    best = on_csr.drop_duplicates("case").set_index("case")
    found["csr_us"] = found["case"].map(best["median_us"])
    names = [
        style.contender_name(backend, variant)
        for backend, variant in zip(best["backend"], best["variant"], strict=True)
    ]
    found["csr"] = found["case"].map(dict(zip(best.index, names, strict=True)))
    found["products"] = found["median_us"] / found["product_us"]
    found["five_products_us"] = found.get("result.five_products_us", np.nan)
    ceilings = ceilings_for(rows)
    csr_bytes = _CSR_ENTRY_BYTES * found["nnz"] + _CSR_ROW_BYTES * (found["m"] + 1)
    moved_bytes = (csr_bytes + found["result.bytes"]).astype(float)
    hbm_bytes_per_us = 1e-6 * ceilings.hbm_bytes_per_s if ceilings else np.nan
    one_entry_us = found.groupby(["where", "clock", "variant", "size"])["result.one_entry_us"]
    found["floor_us"] = np.maximum(one_entry_us.transform("min"), moved_bytes / hbm_bytes_per_us)
    if matrices:  # now, since the least of one entry is of all
        found = found[found["matrix"].isin(list(matrices))]
    # On the GPU before the host, and there on the stream before the host's clock.
    order = ["where", "clock", "variant", "size", "nnz"]
    return found.sort_values(order).reset_index(drop=True)


def _heights(products: pd.DataFrame) -> list[int]:
    """Return the window height of each product's kernel, 0 where it reads another format."""
    windows = products["params.window"].where(products["variant"] == WINDOWS_KERNEL)
    return [int(height) for height in windows.fillna(0)]


def cost(rows: pd.DataFrame) -> Drawing:
    """Draw how many products each code's conversion takes, over the matrices."""
    from matplotlib import pyplot as plt

    data = pd.concat([_spread(rows, "name", "ours"), _peers(rows)], ignore_index=True)
    figure, axes = plt.subplots(figsize=(8.6, 0.32 * len(data) + 1.5))
    for place, line in enumerate(data.to_dict("records")):
        colour = _colour(line["kind"], line["code"])
        axes.plot([line["least"], line["most"]], [place, place], color=colour, linewidth=1)
        axes.plot([line["q1"], line["q3"]], [place, place], color=colour, linewidth=6, alpha=0.55,
                  solid_capstyle="butt")  # fmt: skip
        axes.plot(line["median"], place, "|", color=colour, markersize=12, markeredgewidth=2)
        axes.annotate(f"{line['median']:.3g}", (line["median"], place), (0, 8),
                      textcoords="offset points", ha="center", fontsize=7)  # fmt: skip
    axes.axvline(PRODUCTS, color="#707070", linewidth=1, linestyle="--")
    axes.set_xscale("log")
    axes.set_yticks(range(len(data)), data["code"])
    axes.invert_yaxis()
    axes.set_xlabel(f"conversion in units of the code's own product at N = {N}")
    axes.grid(axis="y", visible=False)
    style.provenance(figure, rows)
    facts = run_facts()
    style.footnote(figure, f"grey: recorded on an {facts['gpu']}, {facts['date']}, by each code")
    return Drawing(
        figure,
        data,
        "Conversion from CSR in units of a product of the kernel that reads the format (events, "
        "cold L2): median, quartiles and extremes over the matrices; windows are cut into tasks, "
        f"and that is in the time; dashed: {PRODUCTS} products. 'GPU': {ON_THE_STREAM}. 'GPU, "
        f"host's clock' and 'host': {BY_THE_HOST}. Public codes by their own preprocessing and "
        "their own product, each in the types that it has, on those of the matrices that it was "
        "run on.",
    )


def _spread(rows: pd.DataFrame, by: str, kind: str) -> pd.DataFrame:
    """Return quartiles of ``products`` for each code, in the order of the rows."""
    lines: list[dict[str, Any]] = []
    for name, part in rows.dropna(subset=["products"]).groupby(by, sort=False):
        values = np.percentile(part["products"], [0, 25, 50, 75, 100])
        lines.append(
            {"code": name, "kind": kind, "matrices": part["matrix"].nunique()}
            | dict(zip(_QUARTILES, values.tolist(), strict=True))
        )
    return pd.DataFrame(lines, columns=["code", "kind", "matrices", *_QUARTILES])


def _peers(ours: pd.DataFrame) -> pd.DataFrame:
    """Return the same of public codes on our matrices, from their recorded conversions."""
    peers = best_of_series(load_peers())
    libraries = {series.name for series in read_series() if series.is_library}
    rows = peers[(peers["n"] == N) & ~peers["series"].isin(libraries)]
    rows = rows[rows["matrix"].isin(ours["matrix"])].dropna(subset=["preprocess_ms"])
    rows = rows.assign(products=1e3 * rows["preprocess_ms"] / rows["product_us"])
    return _spread(rows[rows["products"] > 0], "series", "peer")


def _colour(kind: str, code: str) -> Any:
    return "#808080" if kind == "peer" else style.look(code.split()[0].lower()).color


def scaling(rows: pd.DataFrame) -> Drawing:
    """Draw the time of a conversion against the entries: GPU by both clocks, and host."""
    from matplotlib import pyplot as plt

    chosen = rows[(rows["variant"] == "bcsr") | (rows["size"] == 64)]
    figure, axes = plt.subplots(figsize=(7.2, 4.8))
    for name, part in chosen.groupby("name", sort=False):
        variant, where, clock = part[["variant", "where", "clock"]].iloc[0]
        look = style.look(variant)
        marker = look.marker if where == "gpu" else _HOST_MARKERS[variant]
        axes.plot(part["nnz"], part["median_us"], marker, color=look.color, markersize=5,
                  markerfacecolor=look.color if clock == "events" else "none",
                  label=name)  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("non-zeros")
    axes.set_ylabel("time of the conversion, us")
    axes.legend(fontsize=8)
    style.provenance(figure, chosen)
    data = chosen[["matrix", "name", "nnz", "median_us", "result.bytes"]]
    return Drawing(
        figure,
        data.sort_values(["name", "nnz", "matrix"]).reset_index(drop=True),
        "Time of a conversion against the non-zeros of the matrix: on the GPU on the stream with "
        "cold L2 (full marks) and by the host's clock (hollow), and on the host with the copy to "
        "the GPU (crosses). By the host's clock a small matrix takes on the GPU what a launch, the "
        "allocations and one look at the sizes take; on the stream the allocations and most of the "
        "launch are hidden.",
    )


def formats(rows: pd.DataFrame) -> Table:
    """Return how many products a conversion takes and how much faster the GPU is, by format."""
    within = f"share within {PRODUCTS} products"
    lines = []
    for (variant, size), part in rows.dropna(subset=["products"]).groupby(["variant", "size"]):
        stream, gpu, host = _on_common_matrices(part)
        if gpu.empty:
            continue
        speedup = host["median_us"] / gpu["median_us"]
        beside = gpu.dropna(subset=["five_products_us"])  # old records have none
        near = REACHED * gpu["median_us"] <= gpu["result.one_entry_us"]
        lines.append(
            {
                "format": FORMATS[str(variant)],
                "block or height": size,
                "matrices": len(gpu),
                "GPU on the stream, us (median)": stream["median_us"].median(),
                "GPU by the host's clock, us (median)": gpu["median_us"].median(),
                "host, us (median)": host["median_us"].median(),
                "host / GPU (geometric mean)": float(np.exp(np.log(speedup).mean())),
                FLOOR_SHARE: 100 * (stream["floor_us"] / stream["median_us"]).median(),
                "products on the stream (median)": stream["products"].median(),
                "products on the stream (most)": stream["products"].max(),
                f"{within} on the stream, %": _percent(stream["products"] <= PRODUCTS),
                "products by the host's clock (median)": gpu["products"].median(),
                "products by the host's clock (most)": gpu["products"].max(),
                f"{within} by the host's clock, %": _percent(gpu["products"] <= PRODUCTS),
                PRODUCTS_BY_THE_HOST: beside["five_products_us"].median(),
                BOTH_BY_THE_HOST: _percent(beside["median_us"] <= beside["five_products_us"]),
                "GPU by the host's clock, one entry, us": gpu["result.one_entry_us"].median(),
                ONE_ENTRY_SHARE: _percent((gpu["products"] <= PRODUCTS) | near),
                "products, host (median)": host["products"].median(),
            }
        )
    return Table(
        pd.DataFrame(lines),
        f"Conversions by format, also in units of a product at N = {N} of the kernel that reads "
        f"the format (events, cold L2). On the stream: {ON_THE_STREAM}. Its floor: {THE_FLOOR}. "
        f"By the host's clock, as those on the host and both of host / GPU: {BY_THE_HOST}; so are "
        f"timed {PRODUCTS} products that are launched one after the other. 'Near one entry' is "
        f"what takes by the host's clock at most 1 / {REACHED:g} of what a matrix with one entry "
        f"took, timed beside it. Each time on the GPU is the median of {REPEATS * MOMENTS} calls.",
    )


def _on_common_matrices(part: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the rows of one format for each of :data:`WAYS`, by matrix, the same ones in each.

    Nothing on the stream, as in old records, leaves the others whole.
    """
    by_way = [
        part[(part["where"] == where) & (part["clock"] == clock)].set_index("matrix")
        for where, clock in WAYS
    ]
    stream, gpu, host = by_way
    common = gpu.index.intersection(host.index)
    if len(stream):
        common = common.intersection(stream.index)
    return [rows[rows.index.isin(common)] for rows in by_way]


def _percent(is_so: pd.Series[bool]) -> float:
    return 100 * float(is_so.mean())


def slowest(rows: pd.DataFrame) -> Table | Missing:
    """Return the conversions on the stream that take most products, with what they store."""
    on_gpu = rows[rows["where"] == "gpu"].dropna(subset=["products"])
    key = ["matrix", "variant", "size"]
    by_the_host = on_gpu[on_gpu["clock"] == "wall"].set_index(key)["median_us"]
    found = on_gpu[on_gpu["clock"] == "events"]
    if found.empty:
        return Missing("asyncsparse measure conversion")
    found = found.join(by_the_host.rename("waited_us"), on=key)
    found = found.sort_values(["products", *key], ascending=[False, True, True, True]).head(SLOWEST)
    data = pd.DataFrame(
        {
            "matrix": found["matrix"],
            "format": found["variant"].map(FORMATS),
            "block or height": found["size"],
            "non-zeros": found["nnz"].astype(int),
            "stored bytes": found["result.bytes"].astype(int),
            "GPU on the stream, us": found["median_us"],
            "GPU by the host's clock, us": found["waited_us"],
            "floor on the stream, us": found["floor_us"],
            "product, us": found["product_us"],
            "products": found["products"],
        }
    )
    return Table(
        data.reset_index(drop=True),
        f"The {len(data)} conversions on the stream that take most products at N = {N} of the "
        "kernel that reads the format, both by events with cold L2. "
        f"The floor: {THE_FLOOR}.",
    )


def break_even(rows: pd.DataFrame) -> Table:
    """Return, for each matrix, the format that pays first, and after how many products."""
    by_the_host = rows[rows["clock"] == "wall"]  # all that a caller waits for
    on_gpu = by_the_host[by_the_host["where"] == "gpu"].dropna(subset=["product_us", "csr_us"])
    lines = []
    for matrix, part in on_gpu.groupby("matrix", sort=False):
        saved = part["csr_us"] - part["product_us"]
        after = (part["median_us"] / saved).where(saved > 0, np.inf).to_numpy()
        first = int(after.argmin())
        best = part.iloc[first] if np.isfinite(after[first]) else None
        host = by_the_host[(by_the_host["where"] == "host") & (by_the_host["matrix"] == matrix)]
        line = {
            "matrix": matrix,
            "non-zeros": int(part["nnz"].iloc[0]),
            "best on CSR": part["csr"].iloc[0],
            "on CSR, us": part["csr_us"].iloc[0],
            "format": None if best is None else f"{FORMATS[best['variant']]} {best['size']}",
        }
        if best is not None:
            same = host[(host["variant"] == best["variant"]) & (host["size"] == best["size"])]
            on_host = same["median_us"].iloc[0] if len(same) else np.nan
            line |= {
                "product, us": best["product_us"],
                "GPU conversion, us": best["median_us"],
                "products until paid, GPU": np.ceil(after[first]),
                "products until paid, host": np.ceil(on_host / saved.iloc[first]),
            }
        lines.append(line)
    data = pd.DataFrame(lines).sort_values(["non-zeros", "matrix"]).reset_index(drop=True)
    return Table(
        data,
        f"After how many products at N = {N} a conversion has paid against the best product on CSR "
        "as it is (cuSPARSE's or csr-vector): the format that pays first when it is converted on "
        "the GPU; none where CSR is fastest. Conversions by the host's clock, since a caller waits "
        "that long; products by events.",
    )
