r"""What shorter windows and reordered rows could win, before any kernel is written for them.

Let window w of height H have :math:`c_w` columns with a non-zero, :math:`p_w` of them padded to 16,
A have m rows and z non-zeros, t be the touched rows of B, and C have N columns.  No kernel with
these windows is faster than an empty one and the longest of, each over its measured rate,

* gather: :math:`2 N \sum_w c_w` bytes of B from L2
* A: :math:`2 H \lceil N / 128 \rceil \sum_w p_w` bytes from L2
* MMA: :math:`2 H N \sum_w p_w` operations
* HBM: :math:`2 H \sum_w c_w + 2 N t + 2 N m` bytes

and none on CSR than :math:`2 N z` bytes gathered, :math:`2 N z` FMA operations, and
:math:`6 z + 2 N t + 2 N m` bytes of HBM.  Heights 8, 16 and 32 would be WGMMA's N side
(``wcsr-swapped``), which has the full rate at most; rows would be put into the orders of
:mod:`asyncsparse_lab.spmm.orders`.

A window of 128 or 256 rows is multiplied as groups of 64 rows that share the gathered rows of B, 16
columns a step.  A group could leave out a step whose 64 x 16 values are all zeros, and not load
these: with :math:`\tau` tiles that are not empty, A takes
:math:`2 \cdot 1024 \lceil N / 128 \rceil \tau` bytes and MMA :math:`2 \cdot 1024 N \tau`
operations.  The order of a window's columns decides :math:`\tau`: ascending as now, or by the set
of groups that touch a column, neighbouring sets differing in one group (a Gray code).  It leaves
the bytes of B as they are: a window gathers each of its columns once, in whatever order.  These
floors promise much, so it was built (commit ac67b2c) and taken back (a6850fa): loads of one tile
and products committed one by one cost more than what is left out saves.

Needs no GPU; the study ``row-orders`` measures what reordered rows do win.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from asyncsparse_lab.formats import WCSR
from asyncsparse_lab.formats.layouts import K16
from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm.orders import AS_STORED, ORDERS, order_rows, orders_of
from asyncsparse_lab.studies.base import Case, Table
from asyncsparse_lab.studies.suite import entries

if TYPE_CHECKING:
    import pandas as pd

    from asyncsparse_lab.spmm.plan_rates import Rates

STUDY: Final = "reordering"
N: Final = 1024
TALL: Final = (64, 128, 256)
"""Windows of the kernels that there are."""
SWAPPED: Final = (8, 16, 32)
GROUP: Final = 64
"""Rows of a window that are multiplied together."""
GROUPED: Final = (128, 256)
"""Windows of several groups."""
TILES: Final = {"sorted": "empty tiles left out", "grouped": "columns by groups, too"}
"""Order of a window's columns to the idea that its tiles are counted for."""
TILE_COLUMNS: Final = 128
REPEATS: Final = 3
"""How often rows are ordered: the least time is that of a host with nothing else to do."""
WINS: Final = 1.1
"""Gain of a floor from which an idea could win on a matrix."""
WORTH_IT: Final = 5
"""Matrices on which an idea has to win before a kernel is written."""

IntArray = npt.NDArray[np.int64]


def cases() -> list[Case]:
    """Return a case for each matrix of the evaluation."""
    return [
        Case(entry.name, entry.name, N, {}, seconds=0.1 + 2e-7 * entry.nnz) for entry in entries()
    ]


def measure(case: Case) -> list[Record]:
    """Count columns and tiles of all windows in each order of the rows, and time the ordering."""
    entry = next(entry for entry in entries() if entry.name == case.matrix)
    A = entry.load()
    return [_record(case, A, name) for name in ("as-stored", *orders_of(A.shape))]


def _record(case: Case, A: csr_array, name: str) -> Record:
    took = []
    for _ in range(REPEATS):
        ordered, us = order_rows(A, ORDERS[name])
        took.append(us)
    counts: dict[str, int] = {"touched": len(np.unique(A.indices))}
    if ORDERS[name] == AS_STORED:
        for height in GROUPED:
            found = count_tiles(A, height)
            counts |= {f"tiles_{order}_{height}": count for order, count in found.items()}
    for height in (*SWAPPED, *TALL):
        columns = WCSR.count_columns(ordered, height)
        counts[f"columns_{height}"] = int(columns.sum())
        counts[f"padded_{height}"] = int((-(-columns // K16) * K16).sum())
    return Record(
        study=STUDY,
        case=case.name,
        op="format",
        role="probe",
        backend="scipy",
        variant=name,
        matrix=case.matrix,
        m=A.shape[0],
        k=A.shape[1],
        n=N,
        nnz=int(A.nnz),
        clock="wall",
        status="passed",
        preprocess_us=round(min(took), 1),
        result=counts,
    )


def count_tiles(A: csr_array, height: int) -> dict[str, int]:
    """Count the 64 x 16 tiles of windows that are not empty, for each order of their columns.

    Parameters
    ----------
    A : scipy.sparse.csr_array, m x k
        Canonical.
    height : int
        Rows of a window, a multiple of 64.
    """
    m, k = A.shape
    groups = height // GROUP
    rows = np.repeat(np.arange(m), np.diff(A.indptr))
    keys = np.unique((rows // height * k + A.indices) * groups + rows // GROUP % groups)
    if not len(keys):
        return dict.fromkeys(TILES, 0)
    columns = keys // groups
    first = np.flatnonzero(np.diff(columns, prepend=-1))
    masks = np.bitwise_or.reduceat(1 << keys % groups, first)
    windows = columns[first] // k
    code = np.arange(1 << groups)
    place = np.argsort(code ^ code >> 1)  # in the Gray code
    grouped = np.lexsort((place[masks], windows))
    return {"sorted": _tiles(windows, masks), "grouped": _tiles(windows, masks[grouped])}


def _tiles(windows: IntArray, masks: IntArray) -> int:
    """Return the tiles of columns in this order, from their windows and the groups of each."""
    places = np.arange(len(windows)) - np.searchsorted(windows, windows)
    first = np.flatnonzero(places % K16 == 0)  # of each step
    return int(np.bitwise_count(np.bitwise_or.reduceat(masks, first)).sum())


def window_floor_us(
    row: pd.Series[Any], height: int, rates: Rates, tiles: float | None = None
) -> float:
    """Return the floor of windows of a height, from a record; of so many tiles, or of all."""
    columns, padded = row[f"result.columns_{height}"], row[f"result.padded_{height}"]
    values = height * padded if tiles is None else GROUP * K16 * tiles
    dense = 2 * N * (row["result.touched"] + row["m"])
    bound = max(
        2 * N * columns / rates.gather_bytes_per_us,
        2 * values * -(-N // TILE_COLUMNS) / rates.tma_bytes_per_us,
        2 * values * N / rates.mma_flops_per_us,
        (2 * min(height * columns, values) + dense) / rates.hbm_bytes_per_us,
    )
    return rates.empty_us + float(bound)


def csr_floor_us(row: pd.Series[Any], rates: Rates) -> float:
    """Return the floor of kernels on CSR, from a record."""
    dense = 2 * N * (row["result.touched"] + row["m"])
    bound = max(
        2 * N * row["nnz"] / rates.gather_bytes_per_us,
        2 * N * row["nnz"] / rates.fma_flops_per_us,
        (6 * row["nnz"] + dense) / rates.hbm_bytes_per_us,
    )
    return rates.empty_us + float(bound)


def draw(
    frame: pd.DataFrame, claims: pd.DataFrame, *, gpu: str = "nvidia-h200"
) -> dict[str, Table]:
    """Tabulate the floors of each matrix, and on how many an idea could win.

    Parameters
    ----------
    gpu : str
        Folder of the GPU whose measured rates are used.
    """
    from asyncsparse_lab.studies.planner_fit import ceiling_rates

    floors = floors_table(frame, ceiling_rates(gpu))
    return {
        "ideas": Table(
            ideas_table(floors),
            f"On how many of the {len(floors)} matrices of the evaluation an idea could win: "
            "today's formats, the better of windows of 64 to 256 rows and CSR, have a floor of at "
            f"least {WINS:g} times its floor, n = {N}. The time of ordering is the host's; it "
            "has paid after as many products at the least as it takes over what the floors differ "
            "by (medians of the matrices on which it could win).",
        ),
        "floors": Table(
            floors,
            f"Floors in us at n = {N}, by the measured rates of {gpu}: as stored, with windows "
            "of 8 to 32 rows, without the empty tiles of taller ones, and with reordered rows.",
        ),
    }


def floors_table(frame: pd.DataFrame, rates: Rates) -> pd.DataFrame:
    """Return a line a matrix: floors, what each idea gains, what ordering takes."""
    import pandas as pd

    lines = []
    for matrix, rows in frame.groupby("matrix"):
        orders = {row["variant"]: row for _, row in rows.iterrows()}
        stored = orders["as-stored"]
        csr = csr_floor_us(stored, rates)
        floor = min(csr, *(window_floor_us(stored, height, rates) for height in TALL))
        line: dict[str, Any] = {
            "matrix": matrix,
            "density, %": 100.0 * stored["density"],
            "today, us": floor,
            **{f"{height} rows, us": window_floor_us(stored, height, rates) for height in SWAPPED},
        }
        line["swapped, times"] = floor / min(line[f"{height} rows, us"] for height in SWAPPED)
        for order, name in TILES.items():
            after = min(
                window_floor_us(stored, height, rates, stored[f"result.tiles_{order}_{height}"])
                for height in GROUPED
            )
            line[f"{name}, us"], line[f"{name}, times"] = after, floor / after
        for name in list(ORDERS)[1:]:
            if name in orders:
                after = min(window_floor_us(orders[name], height, rates) for height in TALL)
                line[f"{name}, us"] = after
                line[f"{name}, times"] = floor / after
                line[f"{name}, ordering, us"] = float(orders[name]["preprocess_us"])
        lines.append(line)
    return pd.DataFrame(lines).sort_values("density, %", ascending=False, ignore_index=True)


def ideas_table(floors: pd.DataFrame) -> pd.DataFrame:
    """Return a line an idea: on how many matrices it could win, by how much, when it has paid."""
    import pandas as pd

    lines = []
    for name in ("swapped", *TILES.values(), *list(ORDERS)[1:]):
        gains = floors[f"{name}, times"].dropna()
        wins = gains[gains > WINS]
        line = {
            "idea": name,
            "matrices": len(gains),
            "could win on": len(wins),
            "most, times": gains.max(),
            f"{WORTH_IT} or more": "yes" if len(wins) >= WORTH_IT else "no",
        }
        if name in ORDERS:
            winners = floors.loc[wins.index]
            saved = winners["today, us"] - winners[f"{name}, us"]
            line["ordering, us"] = winners[f"{name}, ordering, us"].median()
            line["paid after products"] = (winners[f"{name}, ordering, us"] / saved).median()
        lines.append(line)
    return pd.DataFrame(lines)
