"""Recorded peers: what public SpMM codes took on an H200, from ``data/peers``.

They were measured in another run than any record, so no ratio between a record and a peer is taken
unless libraries that were measured both times agree (:func:`agreement`).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from asyncsparse_lab.errors import RecordError
from asyncsparse_lab.resources import resource_path

if TYPE_CHECKING:
    import pandas as pd

AGREEMENT: Final = 0.05
"""How far live libraries may be from their recorded times, on the geometric mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A peer as it is shown: the best of some kernels of one code.

    Attributes
    ----------
    name : str
    peer : str
    kernels : list of str
        Shell patterns.
    version : str
        Repository and commit, or the library's version.
    types : str
        What it reads, accumulates in and writes.
    output : str
        Type of C, as in a record.
    live : str
        ``backend variant`` of the contender that is measured live too; empty if none.
    remark : str
    """

    name: str
    peer: str
    kernels: list[str]
    version: str
    types: str
    output: str
    live: str = ""
    remark: str = ""

    def has(self, peer: str, kernel: str) -> bool:
        """Return whether a line of the file belongs to this series."""
        return peer == self.peer and any(fnmatchcase(kernel, one) for one in self.kernels)

    @property
    def is_library(self) -> bool:
        """Whether it is NVIDIA's, measured live too, and no research code."""
        return self.peer in ("cuBLAS", "cuSPARSE")


@cache
def read_series() -> tuple[Series, ...]:
    """Return the series, in the file's order.

    Raises
    ------
    RecordError
        The file does not follow its own head.
    """
    with (resource_path("peers") / "peers.toml").open("rb") as stream:
        try:
            return tuple(Series(**entry) for entry in tomllib.load(stream)["series"])
        except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
            raise RecordError(f"peers.toml cannot be read: {error}") from None


def run_facts() -> dict[str, str]:
    """Return GPU, date, driver and CUDA version of the recorded run."""
    with (resource_path("peers") / "peers.toml").open("rb") as stream:
        facts: dict[str, str] = tomllib.load(stream)["run"]
    return facts


def load_peers() -> pd.DataFrame:
    """Return every recorded time, a row for each kernel, matrix and n.

    Returns
    -------
    DataFrame
        The columns of ``h200.csv`` and ``matrices.csv``, and

        ``series``
            name of its :class:`Series`;
        ``product_us``
            time of a whole product: with the zeroing of C where the kernel needs one;
        ``useful_tflops``
            2 nnz n / ``product_us``;
        ``density``
            nnz / (rows cols).

        What did not run is left out.
    """
    import pandas as pd

    folder = resource_path("peers")
    rows = pd.read_csv(folder / "h200.csv").dropna(subset=["median_us"])
    rows = rows.merge(pd.read_csv(folder / "matrices.csv"), on="matrix", how="left")
    keys = rows[["peer", "kernel"]].drop_duplicates().itertuples(index=False)
    names = {(peer, kernel): _series_of(peer, kernel) for peer, kernel in keys}
    product_us = rows["with_zeroing_us"].fillna(rows["median_us"])
    return rows.assign(
        series=[names[key] for key in zip(rows["peer"], rows["kernel"], strict=True)],
        product_us=product_us,
        useful_tflops=2.0 * rows["nnz"] * rows["n"] / product_us / 1e6,
        density=rows["nnz"] / (rows["rows"] * rows["cols"]),
    ).reset_index(drop=True)


def _series_of(peer: str, kernel: str) -> str:
    found = [series.name for series in read_series() if series.has(peer, kernel)]
    if len(found) != 1:
        raise RecordError(f"{peer} {kernel} belongs to {len(found)} series of peers.toml, not one")
    return found[0]


def best_of_series(peers: pd.DataFrame) -> pd.DataFrame:
    """Return of each series, matrix and n the row of the fastest kernel."""
    order = peers.sort_values("product_us", kind="stable")
    return order.drop_duplicates(["series", "matrix", "n"]).sort_index()


def agreement(live: pd.DataFrame, peers: pd.DataFrame) -> pd.DataFrame:
    """Return how libraries that are measured live stand to their recorded times, by n.

    Parameters
    ----------
    live : DataFrame
        Records of one GPU, as from :func:`asyncsparse_lab.load_records`.
    peers : DataFrame
        As from :func:`load_peers`.

    Returns
    -------
    DataFrame
        Columns ``series``, ``live``, ``n``, ``matrices``, ``ratio`` (geometric mean of the live
        time over the recorded one, cold L2, the recorded output type) and ``agrees``.
    """
    import pandas as pd

    from asyncsparse_lab.records.frame import geometric_mean

    cold = live[(live["status"] == "passed") & (live["l2"] == "cold")]
    recorded = best_of_series(peers)
    lines: list[dict[str, Any]] = []
    for series in (one for one in read_series() if one.live):
        backend, _, variant = series.live.partition(" ")
        own = cold[
            (cold["backend"] == backend)
            & (cold["variant"] == variant)
            & (cold["dtype_out"] == series.output)
        ]
        both = own.merge(
            recorded[recorded["series"] == series.name], on=["matrix", "n"], suffixes=("", "_then")
        )
        for n, rows in both.groupby("n"):
            ratio = geometric_mean(rows["median_us"] / rows["product_us"])
            lines.append(
                {
                    "series": series.name,
                    "live": series.live,
                    "n": n,
                    "matrices": rows["matrix"].nunique(),
                    "ratio": ratio,
                    "agrees": bool(abs(ratio - 1.0) <= AGREEMENT),
                }
            )
    return pd.DataFrame(lines, columns=["series", "live", "n", "matrices", "ratio", "agrees"])


def may_compare(found: pd.DataFrame, n: int) -> bool:
    """Return whether every library of :func:`agreement` was measured and agrees at this n."""
    rows = found[found["n"] == n]
    wanted = {series.name for series in read_series() if series.live}
    return set(rows["series"]) == wanted and bool(rows["agrees"].all())
