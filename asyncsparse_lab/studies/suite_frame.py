"""The evaluation's records as times by matrix: who is compared with whom, on which matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.matrices import load_suite
from asyncsparse_lab.records.peers import (
    agreement,
    best_of_series,
    load_peers,
    may_compare,
    read_series,
)
from asyncsparse_lab.studies.spmm_common import rows_of_one_gpu
from asyncsparse_lab.studies.suite import SUITES

if TYPE_CHECKING:
    import pandas as pd

AUTO: Final = "auto"
BCSR: Final = "BCSR (article)"
WCSR: Final = "WCSR (article)"
BEST_OURS: Final = "best of our kernels"
OUR_WCSR: Final = "our WCSR"
BEST_SPARSE: Final = "best sparse library"
BEST_LIVE: Final = "best live library"
BEST_OF_ALL: Final = "best of all, peers too"
CSR_VECTOR: Final = "csr-vector"
OURS: Final = (AUTO, BCSR, WCSR, BEST_OURS, OUR_WCSR)
BESTS: Final = (BEST_SPARSE, BEST_LIVE, BEST_OF_ALL)

CLASSES: Final[dict[str, tuple[float, float]]] = {
    "all": (0.0, 2.0),
    ">= 0.1 %": (0.001, 2.0),
    ">= 1 %": (0.01, 2.0),
    "0.1 to 1 %": (0.001, 0.01),
    "< 0.1 %": (0.0, 0.001),
}
"""Classes of density, from and below, as fractions: the document's three, then their parts."""
PARTS: Final = (">= 1 %", "0.1 to 1 %", "< 0.1 %")
DOCUMENT_CLASSES: Final = ("all", ">= 0.1 %", ">= 1 %")

LIBRARY_NAMES: Final = {
    "cublas dense": "cuBLAS dense",
    "cusparse csr-alg1": "cuSPARSE CSR ALG1",
    "cusparse csr-alg2": "cuSPARSE CSR ALG2",
    "cusparse csr-alg3": "cuSPARSE CSR ALG3",
    "cusparse blocked-ell": "cuSPARSE Blocked-ELL",
    "cusparse bsr": "cuSPARSE BSR",
    "torch bsr": "PyTorch BSR",
}
DENSE: Final = "cuBLAS dense"


@dataclass(frozen=True)
class Evaluation:
    """What the figures of one n are drawn from.

    Attributes
    ----------
    rows : DataFrame
        Every record of the comparison on one GPU, with column ``who``; no search.  Empty where
        only the search was measured.
    search : DataFrame
        The records of the configuration search that passed.
    n : int
    peers : DataFrame
        The fastest kernel of each series, matrix and n.
    found : DataFrame
        How live libraries stand to their recorded times.
    """

    rows: pd.DataFrame
    search: pd.DataFrame
    n: int
    peers: pd.DataFrame
    found: pd.DataFrame

    @classmethod
    def of(
        cls, frame: pd.DataFrame, *, n: int, matrices: Sequence[str] = (), gpu: str = ""
    ) -> Evaluation:
        """Sort a study's records.

        Raises
        ------
        InputError
            Nothing was measured at this n.
        """
        rows = rows_of_one_gpu(frame, gpu)
        if matrices:
            rows = rows[rows["matrix"].isin(list(matrices))]
        searched = rows["case"].str.startswith("search-")
        main = rows[~searched]
        passed = main[main["status"] == "passed"]
        if not (passed["n"] == n).any() and not main.empty:
            there = ", ".join(str(value) for value in sorted(set(passed["n"])))
            raise InputError(f"n={n}: the suite was measured at {there or 'none'}; choose of these")
        peers = load_peers()
        return cls(
            main.assign(who=_names(main)),
            rows[searched & (rows["status"] == "passed")],
            n,
            best_of_series(peers),
            agreement(main, peers),
        )

    @property
    def peers_agree(self) -> bool:
        """Whether recorded peers may stand beside what was measured live, at this n."""
        return self.peers_agree_at(self.n)

    def peers_agree_at(self, n: int) -> bool:
        """Whether they may at another n."""
        return may_compare(self.found, n)

    @cached_property
    def drawn_everywhere(self) -> pd.DataFrame:
        """The rows that figures of every n show: cold, bf16 out, passed."""
        rows = self.rows
        return rows[
            (rows["status"] == "passed")
            & (rows["l2"] == "cold")
            & (rows["dtype_out"] == "bfloat16")
        ]

    @cached_property
    def drawn(self) -> pd.DataFrame:
        """Those of this n."""
        return self.drawn_everywhere[self.drawn_everywhere["n"] == self.n]

    @cached_property
    def drawn_sizes(self) -> list[int]:
        """Every n at which something passed, the smallest first."""
        return sorted(set(self.rows.loc[self.rows["status"] == "passed", "n"].astype(int)))

    @cached_property
    def facts(self) -> pd.DataFrame:
        """Of each matrix, by name: m, k, nnz, density, label, and whether it is in which suite."""
        first = self.rows.drop_duplicates("matrix").set_index("matrix")
        facts = first[["m", "k", "nnz", "density"]].copy()
        labels = labels_of()
        facts["label"] = [labels.get(name, name) for name in facts.index]
        for suite in SUITES:
            names = {entry.name for entry in load_suite(suite)}
            facts[suite] = [name in names for name in facts.index]
        return facts.sort_values("density", ascending=False)

    def times(self, n: int = 0, dtype_out: str = "bfloat16", l2: str = "cold") -> pd.DataFrame:
        """Return microseconds, a row for each matrix, a column for each contender measured live.

        The rows of a matrix are of one case, so of one run.  Beside the contenders stand the
        article's kernels (WCSR at its better threshold), the best of ours, and the best library.
        """
        rows = self.rows[
            (self.rows["n"] == (n or self.n))
            & (self.rows["dtype_out"] == dtype_out)
            & (self.rows["l2"] == l2)
            & (self.rows["status"] == "passed")
        ]
        table = rows.pivot_table(index="matrix", columns="who", values="median_us", aggfunc="min")
        kernels = rows[rows["role"].isin(["paper", "ours"])]
        table[BEST_OURS] = kernels.groupby("matrix")["median_us"].min()
        wcsr = kernels[kernels["variant"].str.startswith("wcsr") & (kernels["role"] == "ours")]
        table[OUR_WCSR] = wcsr.groupby("matrix")["median_us"].min()
        libraries = self.libraries(table)
        table[BEST_LIVE] = table[libraries].min(axis=1)
        table[BEST_SPARSE] = table[[name for name in libraries if name != DENSE]].min(axis=1)
        return table.reindex([name for name in self.facts.index if name in table.index])

    def peer_times(self, n: int = 0) -> pd.DataFrame:
        """Return microseconds of recorded research codes, a row for each matrix."""
        rows = self.peers[(self.peers["n"] == (n or self.n)) & self.peers["series"].isin(codes())]
        return rows.pivot_table(index="matrix", columns="series", values="product_us")

    def compared(self, n: int = 0) -> pd.DataFrame:
        """Return :meth:`times` with the recorded peers and the best of all, where they agree."""
        table = self.times(n)
        if not self.peers_agree_at(n or self.n):
            return table
        peers = self.peer_times(n).reindex(table.index)
        both = table.join(peers)
        rivals = both[[*self.libraries(table), *peers.columns]]
        # Without a recorded peer, the best live library is not the best of all that there is.
        both[BEST_OF_ALL] = rivals.min(axis=1).where(peers.notna().any(axis=1))
        return both

    @staticmethod
    def libraries(table: pd.DataFrame) -> list[str]:
        """Return the columns that are libraries measured live."""
        return [name for name in LIBRARY_NAMES.values() if name in table]

    def in_class(self, name: str, table: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of a table by matrix that are in a class of density."""
        low, high = CLASSES[name]
        density = self.facts["density"].reindex(table.index)
        return table[(density >= low) & (density < high)]


def codes() -> list[str]:
    """Return the names of the recorded research codes."""
    return [series.name for series in read_series() if not series.is_library]


def labels_of() -> dict[str, str]:
    """Return the short names of the matrices of all suites measured here."""
    return {entry.name: entry.label for suite in SUITES for entry in load_suite(suite)}


def _names(rows: pd.DataFrame) -> list[str]:
    """Return what each record's contender is called in figures."""
    names = []
    for role, backend, variant in zip(rows["role"], rows["backend"], rows["variant"], strict=True):
        if role == "library":
            names.append(LIBRARY_NAMES.get(f"{backend} {variant}", f"{backend} {variant}"))
        elif role == "paper":
            names.append(BCSR if variant.startswith("bcsr") else WCSR)
        else:
            names.append(variant)
    return names
