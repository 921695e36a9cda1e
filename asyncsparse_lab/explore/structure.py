"""A matrix with its facts, and what a chosen block size and window height add to them.

Everything is counted by :mod:`asyncsparse_lab.matrices.facts` and :mod:`asyncsparse_lab.formats`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from asyncsparse_lab.formats import BCSR, WCSR, FormatChoice, choose_by_fill
from asyncsparse_lab.matrices import LoadedMatrix
from asyncsparse_lab.matrices.facts import MatrixFacts, describe


@dataclass(frozen=True, eq=False)
class Structure:
    """What the formats make of one matrix.

    Attributes
    ----------
    matrix : csr_array
        Canonical, m x k.
    facts : MatrixFacts
        The same that ``asyncsparse matrices info`` prints.
    """

    matrix: csr_array[Any]
    facts: MatrixFacts

    @classmethod
    def of(cls, loaded: LoadedMatrix) -> Structure:
        """Gather the facts of a matrix; about half a second for a million non-zeros."""
        return cls(loaded.matrix, describe(loaded))

    def choice(self, block: int) -> FormatChoice:
        """Return what the article's rule picks for that block size, and why."""
        return choose_by_fill(self.facts.block_fill[block])

    def window_columns(self, height: int) -> NDArray[np.int64]:
        """Count the columns with a non-zero in each window of that many rows."""
        columns: NDArray[np.int64] = WCSR.count_columns(self.matrix, height)
        return columns

    def format_bytes(self, block: int, height: int) -> dict[str, int]:
        """Return the bytes of the matrix in CSR, BCSR, WCSR and dense, by label."""
        facts = self.facts
        return {
            "CSR": facts.format_bytes["csr"],
            f"BCSR {block} × {block}": BCSR.predict(
                self.matrix, (block, block), facts.value_bytes
            ).bytes,
            f"WCSR {height}": WCSR.predict(
                self.matrix, height, value_bytes=facts.value_bytes
            ).bytes,
            "dense": facts.format_bytes["dense"],
        }
