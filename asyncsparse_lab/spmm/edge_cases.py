"""The edge-case suite: small products that have broken sparse kernels, as data.

Every B is a view into a larger buffer of NaN, so that a kernel which reads past a row, past the
last row, or a row that it has no business with, spoils its result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from asyncsparse_lab.formats import in_type, round_to_bfloat16
from asyncsparse_lab.spmm.product import BFLOAT16_NAN

TILE: Final = 64
INFINITY_BITS: Final = 0x7F80

Storage = Literal["contiguous", "aligned", "odd"]


@dataclass(frozen=True, slots=True)
class EdgeCase:
    """One product of the suite.

    Attributes
    ----------
    name : str
        Unique in the suite.
    make : callable
        Returns A: canonical CSR, float32 values that bf16 represents exactly.
    n : int
        Columns of B.
    storage : {"contiguous", "aligned", "odd"}
        Row stride and first element of B: n and 0, a multiple of 16 bytes above n, or odd ones
        that no tensor map accepts.
    poison : bool
        NaN and Inf in every row of B that no stored 64 x 64 block of A covers.
    scope : {"small", "full", "named"}
        ``small`` cases run under the sanitizer too; ``named`` ones are large, so they run for
        the named variants but not for each of their builds.
    """

    name: str
    make: Callable[[], csr_array] = field(repr=False)
    n: int
    storage: Storage = "contiguous"
    poison: bool = False
    scope: Literal["small", "full", "named"] = "full"


def make_b(
    xp: Any,
    A: csr_array,
    case: EdgeCase,
    seed: int = 1,
    dtype_in: str = "bfloat16",
    layout: str = "row-major",
) -> Any:
    """Return B of a case, k x n, a view into a larger buffer of NaN.

    Parameters
    ----------
    xp : module
        NumPy or CuPy.
    dtype_in : {"bfloat16", "float16"}
        bf16 as bits.
    layout : {"row-major", "column-major"}
        Of B; what a case says of the storage of rows holds for columns then.
    """
    k, n = A.shape[1], case.n
    nan, infinity = (BFLOAT16_NAN, INFINITY_BITS) if dtype_in == "bfloat16" else (np.nan, np.inf)
    offset, gap = {"contiguous": (0, 0), "aligned": (8, 16), "odd": (3, 5)}[case.storage]
    lines, length = (k, n) if layout == "row-major" else (n, k)
    stride = length + gap
    if case.storage == "aligned":
        stride += -stride % 8
    dtype = np.uint16 if dtype_in == "bfloat16" else np.float16
    buffer = xp.full((lines + TILE, stride), nan, dtype=dtype)
    view = buffer[:lines, offset : offset + length]
    B = view if layout == "row-major" else view.T
    rng = xp.random.default_rng(seed)
    step = max(1, (1 << 26) // case.n)  # rows at a time: bounds the float32 temporaries
    for start in range(0, k, step):
        stop = min(start + step, k)
        values = rng.standard_normal((stop - start, case.n), dtype=xp.float32)
        B[start:stop] = in_type(values, dtype_in)
    if case.poison:
        rows = xp.asarray(uncovered_rows(A))
        B[rows[0::2]] = nan
        B[rows[1::2]] = infinity
    return B


def uncovered_rows(A: csr_array) -> NDArray[np.int64]:
    """Return the rows of B that no stored 64 x 64 block of A covers (nor any window column)."""
    rows = np.arange(A.shape[1])
    return rows[~np.isin(rows // TILE, A.indices // TILE)]


def _values(count: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Random signs and magnitudes over twelve binades, exact in bf16 and never zero."""
    magnitude = (1.0 + rng.random(count)) * 2.0 ** rng.integers(-6, 6, count)
    signed = np.where(rng.random(count) < 0.5, -magnitude, magnitude)
    return np.asarray(round_to_bfloat16(signed.astype(np.float32)))


def _from_mask(mask: NDArray[np.bool_], seed: int) -> csr_array:
    rows, columns = np.nonzero(mask)
    values = _values(rows.size, np.random.default_rng(seed))
    return csr_array((values, (rows, columns)), shape=mask.shape)


def random_matrix(m: int, k: int, density: float, seed: int = 0) -> csr_array:
    """Uniformly random positions."""
    return _from_mask(np.random.default_rng(seed).random((m, k)) < density, seed)


def random_blocks(m: int, k: int, density: float, seed: int = 0) -> csr_array:
    """Full 64 x 64 blocks at random places; those at the edges are cut off."""
    rng = np.random.default_rng(seed)
    blocks = rng.random((-(-m // TILE), -(-k // TILE))) < density
    mask = np.repeat(np.repeat(blocks, TILE, axis=0), TILE, axis=1)[:m, :k]
    return _from_mask(mask, seed)


def empty_rows() -> csr_array:
    """Rows and whole block rows without non-zeros: the first, some in the middle, the last."""
    mask = np.random.default_rng(2).random((530, 200)) < 0.1
    mask[0:64] = False
    mask[192:320] = False
    mask[448:] = False
    mask[1::3] = False
    return _from_mask(mask, 2)


def one_dense_row() -> csr_array:
    """One row of 3000 non-zeros among nearly empty ones: 47 blocks through a ring of a few."""
    mask = np.random.default_rng(3).random((300, 3000)) < 0.0005
    mask[137] = True
    return _from_mask(mask, 3)


def skipped_block_columns() -> csr_array:
    """Nothing in block columns 0, 1, 4 and in the ragged last one: their rows of B are free."""
    mask = np.random.default_rng(4).random((200, 410)) < 0.2
    for block in (0, 1, 4, 6):
        mask[:, block * TILE : (block + 1) * TILE] = False
    return _from_mask(mask, 4)


def tall(m: int) -> csr_array:
    """Return a few thousand rows that are not empty, spread over m, the last one among them."""
    rng = np.random.default_rng(5)
    rows = np.append(np.arange(17, m, 1031), m - 1)
    columns = rng.integers(0, 192, rows.size)
    return csr_array((_values(rows.size, rng), (rows, columns)), shape=(m, 192))


def wide(k: int) -> csr_array:
    """130 rows of some non-zeros each, spread over k columns, the last one among them."""
    rng = np.random.default_rng(6)
    mask_columns = np.unique(np.append(rng.integers(0, k, 300), k - 1))
    columns = np.tile(mask_columns, 2)
    rows = np.repeat([3, 129], mask_columns.size)
    return csr_array((_values(rows.size, rng), (rows, columns)), shape=(130, k))


def _ragged() -> csr_array:
    return random_matrix(201, 330, 0.15, seed=7)


# 2**21 + 77 rows by 1024 columns: the last rows of C begin past element 2**31. The same for B.
_LONG: Final = (1 << 21) + 77

EDGE_CASES: Final[tuple[EdgeCase, ...]] = (
    EdgeCase("whole-tiles", lambda: random_blocks(256, 320, 0.5), 512, scope="small"),
    *(EdgeCase(f"ragged-n{n}", _ragged, n) for n in (1, 8, 100, 200, 1000, 1024)),
    EdgeCase("ragged-n143", _ragged, 143, scope="small"),
    EdgeCase("one-element", lambda: random_matrix(1, 1, 1.1), 1, scope="small"),
    EdgeCase("no-nonzeros", lambda: random_matrix(200, 150, 0.0), 143, scope="small"),
    EdgeCase("empty-rows", empty_rows, 143, scope="small"),
    EdgeCase("one-dense-row", one_dense_row, 200),
    EdgeCase("poisoned-b", skipped_block_columns, 200, poison=True, scope="small"),
    EdgeCase("poisoned-b-padded", skipped_block_columns, 143, poison=True),
    EdgeCase("aligned-b", _ragged, 200, storage="aligned"),
    EdgeCase("odd-b", _ragged, 143, storage="odd", scope="small"),
    EdgeCase("odd-b-even-n", _ragged, 256, storage="odd"),
    EdgeCase("many-tiles", lambda: random_blocks(2500, 1300, 0.3), 1000),
    EdgeCase("c-past-2**31", lambda: tall(_LONG), 1024, scope="named"),
    EdgeCase("b-past-2**31", lambda: wide(_LONG), 1024, scope="named"),
)
