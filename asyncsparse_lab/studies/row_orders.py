"""Rows of A in another order, measured: what a product gains, and when ordering has paid.

A case is a matrix on which the study ``reordering`` finds a floor that falls by more than its
``WINS``.  wcsr-pipelined is timed in each of its tiles with rows as stored and in each order,
beside csr-vector, cold; every C is held to the reference.  The gain is the best time with rows as
stored, p, over the best in an order, q.  With the time t of that order's preparation, ordering and
conversion, it has paid after t / (p - q) products: more than in a plan, which converts A anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from asyncsparse_lab.records import Record
from asyncsparse_lab.records.frame import geometric_mean
from asyncsparse_lab.spmm.builds import pipelined_builds
from asyncsparse_lab.spmm.orders import AS_STORED, ORDERS, orders_of
from asyncsparse_lab.spmm.variants import VARIANTS, Variant
from asyncsparse_lab.studies import reordering
from asyncsparse_lab.studies.base import Case, Table
from asyncsparse_lab.studies.reordering import WINS, N
from asyncsparse_lab.studies.suite import entries

if TYPE_CHECKING:
    import pandas as pd

    from asyncsparse_lab.gpu.compile import KernelBuild
    from asyncsparse_lab.spmm.product import Product

STUDY: Final = "row-orders"
GPU: Final = "nvidia-h200"
"""Whose measured rates the floors are by."""
DTYPE_OUT: Final = "bfloat16"
LARGEST: Final = 10_000_000
"""Non-zeros: what has more is ordered for seconds, three times a height."""
PIECE: Final = 512
"""Columns at which the first tile is cut, too: similar rows may leave a few long windows."""
SECONDS: Final = 0.01
REORDERED: Final = tuple(name for name, code in ORDERS.items() if code != AS_STORED)


def floors() -> pd.DataFrame:
    """Return the table of the study ``reordering``, from the committed records."""
    from asyncsparse_lab.records.frame import load_records
    from asyncsparse_lab.studies.planner_fit import ceiling_rates

    return reordering.floors_table(load_records(reordering.STUDY), ceiling_rates(GPU))


def cases() -> list[Case]:
    """Return a case for each matrix, not too large, on which an order could win."""
    sizes = {entry.name: entry.nnz for entry in entries()}
    found = floors().set_index("matrix")
    gains = found[[f"{name}, times" for name in REORDERED]].max(axis=1)
    return [
        Case(matrix, matrix, N, {}, seconds=1.0 + 1e-6 * sizes[matrix])
        for matrix in gains.index[gains > WINS]
        if sizes[matrix] <= LARGEST
    ]


def kernels(shape: tuple[int, int]) -> list[Variant]:
    """Return what is timed on a matrix of this shape."""
    tiles = pipelined_builds()
    cut = [tiles[0].with_options(max_cols_per_task=PIECE)]
    codes = (AS_STORED, *orders_of(shape).values())
    orders = [tile.with_options(row_order=code) for code in codes for tile in tiles + cut]
    return [VARIANTS["csr-vector"], *orders]


def kernel_builds() -> dict[str, list[KernelBuild]]:
    """Return the compilations behind the records, by variant."""
    from asyncsparse_lab.studies.spmm_common import kernel_build

    builds: dict[str, list[KernelBuild]] = {}
    for variant in (VARIANTS["csr-vector"], *pipelined_builds()):
        builds.setdefault(variant.name, []).append(kernel_build(variant, DTYPE_OUT))
    return builds


def measure(case: Case) -> list[Record]:
    """Time all tiles in all orders of one matrix, and put the planner's prediction beside."""
    import scipy.sparse.csgraph  # noqa: F401  # once a process: not what preparation takes

    from asyncsparse_lab.studies.spmm_cases import measure_case
    from asyncsparse_lab.studies.spmm_common import with_results

    shapes = {entry.name: (entry.rows, entry.cols) for entry in entries()}
    kernels_here = kernels(shapes[str(case.matrix)])
    measured = measure_case(
        STUDY, case, kernels_here, dtype_out=DTYPE_OUT, l2_states=("cold",), seconds=SECONDS
    )
    predicted = predictions(measured.product)
    return with_results(measured.records, lambda record: {"predicted_us": predicted[_key(record)]})


def predictions(product: Product) -> dict[tuple[str, int], float]:
    """Return the planner's least time of each kernel and order, over its configurations."""
    from asyncsparse_lab.spmm.planner import candidates

    many = 2**31 - 1  # products: every order is looked at
    found: dict[tuple[str, int], float] = {}
    for one in candidates(product.A, product.n, dtype_out=DTYPE_OUT, products=many):
        key = one.contender.variant, int(one.contender.params.get("row_order", AS_STORED))
        found[key] = min(one.predicted_us, found.get(key, one.predicted_us))
    return found


def _key(record: Record) -> tuple[str, int]:
    return record.variant, int(record.params.get("row_order", AS_STORED))


def draw(frame: pd.DataFrame, claims: pd.DataFrame) -> dict[str, Table]:
    """Tabulate what each order gains on each matrix, and on how many it wins."""
    gains = gains_table(frame, floors())
    return {
        "gained": Table(
            summary_table(gains),
            f"What wcsr-pipelined gains by rows in another order at n = {N}, cold L2, on the "
            "matrices whose floors promise it. Wins: at least "
            f"{WINS:g} times as fast as the best with rows as stored, csr-vector among them. "
            "Geometric means of the gain, and medians.",
        ),
        "gains": Table(
            gains,
            f"Rows as stored against rows in another order, the best tile of each, n = {N}, cold "
            "L2. In times: what the floors fall by, what the planner predicts and what was "
            "measured. Preparation is ordering on the host and conversion on the GPU; in a plan, "
            "which converts A anyway, ordering alone has paid sooner.",
        ),
    }


def gains_table(frame: pd.DataFrame, floors: pd.DataFrame) -> pd.DataFrame:
    """Return a line a matrix and order.

    Parameters
    ----------
    frame : DataFrame
        The records.
    floors : DataFrame
        Of :func:`~asyncsparse_lab.studies.reordering.floors_table`.
    """
    import pandas as pd

    rows = frame[frame["status"] == "passed"]
    rows = rows.assign(order=rows["params.row_order"].fillna(AS_STORED).astype(int))
    by_matrix = floors.set_index("matrix")
    lines: list[dict[str, Any]] = []
    for matrix, group in rows.groupby("matrix"):
        stored = group[group["order"] == AS_STORED]
        today = float(stored["median_us"].min())
        predicted = float(stored["result.predicted_us"].min())
        for name in REORDERED:
            timed = group[group["order"] == ORDERS[name]]
            if timed.empty or stored.empty:
                continue
            best = timed.sort_values("median_us").iloc[0]
            took, saved = float(best["preprocess_us"]), today - float(best["median_us"])
            lines.append(
                {
                    "matrix": matrix,
                    "order": name,
                    "as stored, us": today,
                    "reordered, us": best["median_us"],
                    "floor, times": by_matrix[f"{name}, times"].get(matrix),
                    "predicted, times": predicted / timed["result.predicted_us"].min(),
                    "measured, times": today / best["median_us"],
                    "preparation, us": took,
                    "paid after products": took / saved if saved > 0 else None,
                }
            )
    return pd.DataFrame(lines)


def summary_table(gains: pd.DataFrame) -> pd.DataFrame:
    """Return a line an order: on how many matrices it wins, by how much, when it has paid."""
    import pandas as pd

    lines = []
    for name, rows in gains.groupby("order", sort=False):
        wins = rows[rows["measured, times"] > WINS]
        lines.append(
            {
                "order": name,
                "matrices": len(rows),
                "wins on": len(wins),
                **{
                    f"{what}, times": geometric_mean(rows[f"{what}, times"].dropna())
                    for what in ("floor", "predicted", "measured")
                },
                "most, times": rows["measured, times"].max(),
                "wins: preparation, us": wins["preparation, us"].median(),
                "wins: paid after products": wins["paid after products"].median(),
            }
        )
    return pd.DataFrame(lines)
