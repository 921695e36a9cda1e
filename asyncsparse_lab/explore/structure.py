"""How well a matrix suits the formats, swept over block sizes and window heights.

Everything is counted by :mod:`asyncsparse_lab.formats`; this module only keeps the answers, so
that moving a control costs a drawing and no counting.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from asyncsparse_lab.formats import BCSR, WCSR, FormatChoice, FormatSize, choose_by_fill

#: Block sizes and window heights of the sweeps, in rows (and columns).
SIZES = (8, 16, 32, 64, 128)

#: Bytes of a stored value: the kernels read bfloat16.
VALUE_BYTES = 2


@dataclass(frozen=True, eq=False)
class Structure:
    """The sweeps of one matrix; each is counted when first asked for.

    Attributes
    ----------
    matrix : csr_array
        Canonical, m x k.
    """

    matrix: csr_array[Any]

    @cached_property
    def blocks(self) -> dict[int, FormatSize]:
        """Size in BCSR with s x s blocks, for each s of :data:`SIZES`."""
        return {s: BCSR.predict(self.matrix, (s, s), VALUE_BYTES) for s in SIZES}

    @cached_property
    def window_columns(self) -> dict[int, NDArray[np.int64]]:
        """Columns with a non-zero in each window of s rows, for each s of :data:`SIZES`."""
        return {s: WCSR.count_columns(self.matrix, s) for s in SIZES}

    @cached_property
    def windows(self) -> dict[int, FormatSize]:
        """Size in WCSR with windows of s rows, for each s of :data:`SIZES`."""
        return {s: WCSR.predict(self.matrix, s, value_bytes=VALUE_BYTES) for s in SIZES}

    def choice(self, block: int) -> FormatChoice:
        """Return what the article's rule picks for that block size, and why."""
        return choose_by_fill(self.blocks[block].fill_ratio)

    def bytes(self, block: int, height: int) -> dict[str, int]:
        """Return the bytes of the matrix in each format, values as bfloat16.

        CSR has 4 bytes a column index and 8 a row pointer, as BCSR and WCSR have.
        """
        m, k = self.matrix.shape
        return {
            "CSR": self.matrix.nnz * (VALUE_BYTES + 4) + 8 * (m + 1),
            f"BCSR {block} × {block}": self.blocks[block].bytes,
            f"WCSR {height}": self.windows[height].bytes,
            "dense": m * k * VALUE_BYTES,
        }
