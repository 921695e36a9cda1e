"""The configuration search of the study ``suite``: how far each configuration is behind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncsparse_lab.records.frame import geometric_mean
from asyncsparse_lab.studies.base import Table
from asyncsparse_lab.studies.suite_frame import Evaluation

if TYPE_CHECKING:
    import pandas as pd


def search_table(evaluation: Evaluation) -> Table:
    """Return of each configuration searched how far it is behind the best, and the best few."""
    import pandas as pd

    rows = evaluation.search
    rows = rows[rows["role"].isin(["paper", "ours"]) & (rows["l2"] == "cold")]
    names = [
        configuration_name(variant, params) for variant, params in zip(
            rows["variant"], rows.filter(like="params.").to_dict("records"), strict=True
        )
    ]  # fmt: skip
    times = rows.assign(configuration=names).pivot_table(
        index="configuration", columns="matrix", values="median_us", aggfunc="min"
    )
    behind = times / times.min()
    order = greedy(behind)
    auto = evaluation.search[evaluation.search["role"] == "planner"].set_index("matrix")
    lines = pd.DataFrame(
        {
            "configuration": behind.index,
            "fastest on": (behind == 1.0).sum(axis=1).to_numpy(),
            "behind the best, mean": [geometric_mean(row.dropna()) for _, row in behind.iterrows()],
            "chosen as number": [order.get(name, math.nan) for name in behind.index],
        }
    ).sort_values(["chosen as number", "behind the best, mean"], ignore_index=True)
    lag = (auto["median_us"] / times.min()).dropna()
    return Table(
        lines,
        f"Every configuration of our kernels on {times.shape[1]} matrices, n = 1024, cold L2: how "
        "many times slower than the best one of each matrix, and the order in which a growing set "
        "of configurations comes closest to it. There auto takes "
        f"{geometric_mean(lag):.3f} times the time of the best of ours; the study planner compares "
        "it with libraries too.",
    )


def configuration_name(variant: str, params: Mapping[Any, Any]) -> str:
    """Return a variant with its constants and options that are whole numbers."""
    from asyncsparse_lab.spmm.variants import VARIANTS

    known = VARIANTS[variant].params if variant in VARIANTS else {}
    parts = [
        f"{key}={int(value)}"
        for key in known
        if (value := params.get(f"params.{key}")) is not None and value == value
    ]
    return f"{variant} {' '.join(parts)}".strip()


def greedy(behind: pd.DataFrame, count: int = 8) -> dict[str, int]:
    """Return the configurations that one by one bring a set closest to the best of each matrix.

    Parameters
    ----------
    behind : DataFrame
        Times over the best time, configurations by matrices; NaN where one did not run.
    """
    logs = np.log(behind.fillna(np.inf).to_numpy())
    best = np.full(logs.shape[1], np.inf)
    order: dict[str, int] = {}
    while len(order) < min(count, len(logs)):
        reached = np.minimum(logs, best)
        place = int(reached.clip(max=10.0).mean(axis=1).argmin())
        if str(behind.index[place]) in order:  # nothing brings the set any closer
            break
        order[str(behind.index[place])] = len(order) + 1
        best = reached[place]
    return order
