"""Tables of the study ``formats``."""

from __future__ import annotations

from typing import Final

import pandas as pd

from asyncsparse_lab.studies.base import Table
from asyncsparse_lab.studies.formats import CONVERSION_LIMIT
from asyncsparse_lab.studies.kernel_cells import measured_cells

SIZE: Final = 64
"""Block size and window height of the article's kernels."""
NOT_YET: Final = "not yet measured"

# Feature; what the article's BCSR and WCSR kernels do; the study that measures it.
_FEATURES: Final = (
    ("Unit of storage", "dense 64 x 64 block", "column of a window of 64 rows", "formats"),
    ("Stored bytes", "every value of a block", "every value of a column", "formats"),
    ("Conversion from CSR", "entries to blocks", "entries to columns", "formats"),
    (
        "Loads of A",
        "TMA, one block a stage",
        "bulk copy of compressed columns",
        "bcsr-ablation, wcsr-ablation",
    ),
    (
        "Loads of B",
        "TMA, 64 consecutive rows",
        "gather, one row a column",
        "bcsr-ablation, wcsr-ablation",
    ),
    (
        "Overlap",
        "producer and consumer warpgroups, ring of stages",
        "none: one warpgroup loads, then computes",
        "bcsr-ablation, wcsr-ablation",
    ),
    (
        "Registers",
        "moved from producer to consumers (setmaxnreg)",
        "as compiled",
        "registers, wcsr-ablation",
    ),
    (
        "Balance",
        "one thread block a block row and column tile",
        "windows cut at MAX_COLS_PER_TASK, partial sums added atomically",
        "persistent, wcsr-ablation",
    ),
    ("Chosen by the rule", "high block fill", "otherwise", "selection"),
)


def matrices(rows: pd.DataFrame) -> Table:
    """Return a line a matrix, at the block size and window height of the article's kernels."""
    chosen = rows[rows["size"] == SIZE]
    bcsr = chosen[chosen["variant"] == "bcsr"].set_index("case")
    wcsr = chosen[chosen["variant"] == "wcsr"].set_index("case")
    data = pd.DataFrame(
        {
            "suite": bcsr["suite"],
            "matrix": bcsr["matrix"],
            "rows": bcsr["m"].astype(int),
            "columns": bcsr["k"].astype(int),
            "non-zeros": bcsr["nnz"].astype(int),
            "density (%)": 100 * bcsr["nnz"] / (bcsr["m"] * bcsr["k"]),
            "BCSR fill (%)": 100 * bcsr["result.fill_ratio"],
            "WCSR fill (%)": 100 * wcsr["result.fill_ratio"],
            "BCSR (MB)": bcsr["result.bytes"] / 1e6,
            "WCSR (MB)": wcsr["result.bytes"] / 1e6,
            "columns per window, median": wcsr["result.columns_median"],
            "columns per window, most": wcsr["result.columns_max"].astype(int),
            "rule picks": bcsr["result.picks"].str.upper(),
            "to BCSR (ms)": bcsr["preprocess_us"] / 1e3,
            "to WCSR (ms)": wcsr["preprocess_us"] / 1e3,
        }
    ).reset_index(drop=True)
    limit = CONVERSION_LIMIT // 2**30
    return Table(
        data,
        f"The matrices in BCSR with blocks of {SIZE} x {SIZE} and WCSR with windows of {SIZE} "
        "rows; bytes with bfloat16 values; conversion of float32 CSR on one CPU core, not "
        f"carried out where it would take more than {limit} GiB.",
    )


def kernels(rows: pd.DataFrame) -> Table:
    """Return the article's comparison of its two kernels, with what was measured of each."""
    measured = measured_cells() | _measured(rows)
    data = pd.DataFrame(
        [
            {
                "feature": feature,
                "BCSR kernel": bcsr,
                "BCSR measured": measured.get((feature, "bcsr"), NOT_YET),
                "WCSR kernel": wcsr,
                "WCSR measured": measured.get((feature, "wcsr"), NOT_YET),
                "study": study,
            }
            for feature, bcsr, wcsr, study in _FEATURES
        ]
    )
    count = rows["case"].nunique()
    return Table(
        data,
        "The article's two kernels side by side, with the measured figure of each feature where "
        f"there is one: medians over the {count} matrices of this study, and of the other studies "
        "named what their records hold (L2 cold).",
    )


def _measured(rows: pd.DataFrame) -> dict[tuple[str, str], str]:
    cells = {}
    for variant, part in rows[rows["size"] == SIZE].groupby("variant"):
        name = str(variant)
        fill = part["result.fill_ratio"].median()
        cells["Unit of storage", name] = f"{fill:.1%} of it non-zero"
        size = (part["result.bytes"] / part["nnz"]).median()
        cells["Stored bytes", name] = f"{size:.0f} bytes a non-zero"
        speed = (part["nnz"] / part["preprocess_us"]).median()
        cells["Conversion from CSR", name] = f"{speed:.0f} million non-zeros a second"
        if name == "bcsr":
            picked = part["result.picks"].value_counts()
            for kind in ("bcsr", "wcsr"):
                number = int(picked.get(kind, 0))
                cells["Chosen by the rule", kind] = f"{number} of {len(part)} matrices"
    return cells
