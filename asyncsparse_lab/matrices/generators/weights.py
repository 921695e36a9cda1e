"""Weights of neural networks: random block masks, and pruned weights."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.matrices.generators.base import SEED, Generator, Parameter
from asyncsparse_lab.matrices.generators.sampling import from_flat

LAYERS: Final = {
    "gate_proj": (18944, 3584),
    "up_proj": (18944, 3584),
    "down_proj": (3584, 18944),
}
"""Rows and columns of the weights of Qwen2.5-7B's feed-forward layers."""

# One alternative a layer; "keep10" keeps 10 % of the blocks.
_CASE = re.compile(r"(gate_proj|up_proj|down_proj)-keep(\d+(?:\.\d+)?)-uniform-s(\d+)")


@dataclass(frozen=True, slots=True)
class BlockMatrix:
    """The non-zero blocks of a matrix, in block-row order: what BCSR stores.

    Attributes
    ----------
    shape : (int, int)
        A multiple of ``block`` both ways.
    block : int
        Side of a block.
    block_row_ptr : int64 array of length ``shape[0] / block + 1``
    block_col_idx : int32 array
        Ascending within a block row.
    blocks : float32 array of shape (count, block, block)
    """

    shape: tuple[int, int]
    block: int
    block_row_ptr: NDArray[np.int64]
    block_col_idx: NDArray[np.int32]
    blocks: NDArray[np.float32]

    def to_csr(self) -> csr_array[Any]:
        """Return the same matrix as canonical CSR in float64."""
        side, counts = self.block, np.diff(self.block_row_ptr)
        row_counts = np.repeat(counts * side, side)
        offsets = np.zeros(self.shape[0] + 1, dtype=np.int64)
        np.cumsum(row_counts, out=offsets[1:])
        index = np.int32 if offsets[-1] < 2**31 else np.int64
        cols = np.empty(int(offsets[-1]), dtype=index)
        values = np.empty(int(offsets[-1]), dtype=np.float64)
        inside: Any = np.arange(side, dtype=index)
        first = self.block_col_idx.astype(index)[:, None] * side + inside
        for block_row, (start, stop) in enumerate(
            zip(self.block_row_ptr[:-1], self.block_row_ptr[1:], strict=True)
        ):
            here = slice(offsets[block_row * side], offsets[(block_row + 1) * side])
            cols[here] = np.tile(first[start:stop].ravel(), side)
            values[here] = self.blocks[start:stop].transpose(1, 0, 2).ravel()
        return csr_array((values, cols, offsets.astype(index)), shape=self.shape)


def random_blocks(rows: int, cols: int, block: int, keep: float, seed: int) -> BlockMatrix:
    """Keep exactly ``round(keep * blocks)`` blocks, uniform without replacement.

    ``numpy.random.default_rng(seed)`` first chooses the blocks, then draws standard normal values
    in float32, block by block in block-row order.  No value is zero.

    Raises
    ------
    InputError
        ``rows`` or ``cols`` is not a multiple of ``block``.
    """
    if rows % block or cols % block:
        raise InputError(f"blocks: {rows} x {cols} is not a multiple of block={block}")
    rng = np.random.default_rng(seed)
    block_rows, block_cols = rows // block, cols // block
    total = block_rows * block_cols
    chosen = np.sort(rng.choice(total, round(keep * total), replace=False))
    values = rng.standard_normal((chosen.size, block, block), dtype=np.float32)
    values[values == 0] = 1.0
    pointer = np.zeros(block_rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(chosen // block_cols, minlength=block_rows), out=pointer[1:])
    return BlockMatrix((rows, cols), block, pointer, (chosen % block_cols).astype(np.int32), values)


def blocks(rows: int, cols: int, block: int, keep: float, seed: int) -> csr_array[Any]:
    """Random dense blocks as CSR; see :func:`random_blocks`."""
    return random_blocks(rows, cols, block, keep, seed).to_csr()


def thinned_blocks(
    rows: int, cols: int, block: int, keep: float, fill: float, seed: int
) -> csr_array[Any]:
    """Random blocks of :func:`random_blocks`, each with ``round(fill block**2)`` values left.

    Which ones is uniform without replacement, drawn by ``default_rng([seed, 1])``; the values and
    the places of the blocks do not depend on ``fill``.
    """
    dense = random_blocks(rows, cols, block, keep, seed)
    left = round(fill * block * block)
    score = np.random.default_rng([seed, 1]).random(
        (len(dense.blocks), block * block), dtype=np.float32
    )
    chosen = np.argpartition(score, max(left - 1, 0), axis=1)[:, :left]
    is_left = np.zeros(score.shape, dtype=bool)
    np.put_along_axis(is_left, chosen, True, axis=1)
    thinned = replace(dense, blocks=np.where(is_left.reshape(dense.blocks.shape), dense.blocks, 0))
    matrix = thinned.to_csr()
    matrix.eliminate_zeros()
    return matrix


def block_case_arguments(name: str) -> dict[str, int | float] | None:
    """Return the arguments of ``blocks`` that a case name stands for, or None.

    ``gate_proj-keep10-uniform-s0``: the layer's shape, 64 x 64 blocks of which 10 % are kept,
    uniformly, seed 0.
    """
    match = _CASE.fullmatch(name)
    if match is None:
        return None
    rows, cols = LAYERS[match[1]]
    return {
        "rows": rows,
        "cols": cols,
        "block": 64,
        "keep": float(match[2]) / 100,
        "seed": int(match[3]),
    }


def load_blocks(name: str) -> BlockMatrix:
    """Return the blocks of a case such as ``gate_proj-keep10-uniform-s0``, without a CSR detour.

    Raises
    ------
    InputError
        The name is not that of a block case.
    """
    arguments = block_case_arguments(name)
    if arguments is None:
        raise InputError(f"{name!r} is no block case; one is gate_proj-keep10-uniform-s0")
    from asyncsparse_lab.matrices.generators import GENERATORS as table

    call = table["blocks"].call(arguments)
    return random_blocks(**call.values)  # type: ignore[arg-type]  # checked by call()


def pruned(
    rows: int, cols: int, sparsity: float, method: str, spread: float, seed: int
) -> csr_array[Any]:
    r"""Pruned weights: exactly ``round((1 - sparsity) rows cols)`` are left.

    Weights are :math:`w_{ij} = r_i c_j g_{ij}` with normal g and log-normal row and column
    scales of standard deviation ``spread``, as trained layers have.  ``magnitude`` keeps the
    largest of the layer, so row lengths vary; ``random`` keeps any; ``row`` keeps the
    largest of each row, so all rows are equally long up to one.
    """
    rng = np.random.default_rng(seed)
    scale_rows = np.exp(spread * rng.standard_normal(rows))
    scale_cols = np.exp(spread * rng.standard_normal(cols))
    weights = rng.standard_normal((rows, cols)) * scale_rows[:, None] * scale_cols
    kept = round((1 - sparsity) * rows * cols)
    if method == "random":
        score = rng.random((rows, cols)).ravel()
    elif method == "magnitude":
        score = np.abs(weights).ravel()
    else:
        # The rank within the row decides first, so rows fill up evenly.
        rank = np.argsort(np.argsort(-np.abs(weights), axis=1), axis=1).ravel()
        score = -rank - rng.permutation(rows).repeat(cols) / rows
    chosen = (
        np.sort(np.argpartition(score, rows * cols - kept)[rows * cols - kept :])
        if kept
        else (np.empty(0, dtype=np.int64))
    )
    return from_flat(chosen, (rows, cols), weights.ravel()[chosen])


_SHAPE = (
    Parameter("rows", 1024, "of the layer", 1, 1_000_000),
    Parameter("cols", 1024, "of the layer", 1, 1_000_000),
)

GENERATORS = (
    Generator(
        "blocks",
        "random dense blocks, exactly round(keep * blocks) of them",
        blocks,
        (
            *_SHAPE,
            Parameter("block", 64, "side of a block", 1, 1024),
            Parameter("keep", 0.1, "part of the blocks that is kept", 0.0, 1.0),
            SEED,
        ),
        lambda rows, cols, block, keep, seed: keep * rows * cols + block**2,
    ),
    Generator(
        "thinned_blocks",
        "random blocks, each filled to the same part",
        thinned_blocks,
        (
            *_SHAPE,
            Parameter("block", 64, "side of a block", 1, 1024),
            Parameter("keep", 0.1, "part of the blocks that is kept", 0.0, 1.0),
            Parameter("fill", 0.5, "part of a block's values that is left", 0.0, 1.0),
            SEED,
        ),
        lambda rows, cols, keep, **_: 2 * keep * rows * cols,
    ),
    Generator(
        "pruned",
        "pruned weights of a network layer",
        pruned,
        (
            *_SHAPE,
            Parameter("sparsity", 0.9, "part of the weights that is zero", 0.0, 1.0),
            Parameter(
                "method",
                "magnitude",
                "largest of the layer, largest of each row, or any",
                choices=("magnitude", "row", "random"),
            ),
            Parameter("spread", 0.3, "of the log-normal row and column scales", 0.0, 3.0),
            SEED,
        ),
        lambda rows, cols, **_: 2 * rows * cols,
    ),
)
