"""The probes of what L2 delivers to shared memory: TMA boxes, and gathered rows."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from asyncsparse_lab.formats import swizzled_tiles
from asyncsparse_lab.gpu.compile import KernelBuild
from asyncsparse_lab.gpu.describe import TensorMap
from asyncsparse_lab.gpu.device import require_gpu
from asyncsparse_lab.studies.trial import (
    ALIGNMENT,
    INT32,
    POINTER,
    Trial,
    loaded,
    per_second,
    structure,
    trial_of,
)

BOX_BYTES: Final = 64 * 64 * 2

TmaArguments = structure(
    "TmaArguments",
    ("map", ctypes.c_uint8 * 128),
    ("landed", POINTER),
    ("row_tiles", INT32),
    ("column_tiles", INT32),
    ("loads", INT32),
    ("padding", ctypes.c_uint8 * 44),  # the map makes the struct's size a multiple of 64
)
GatherArguments = structure(
    "GatherArguments",
    ("rows", POINTER),
    ("indices", POINTER),
    ("landed", POINTER),
    ("index_count", INT32),
    ("loads", INT32),
)

TMA_SHAPES: Final = ((5, 4, 1), (9, 3, 1), (5, 2, 2), (3, 4, 2))
"""Boxes a stage, stages, blocks an SM: BN = 256 and 512 with one block, 256 and 128 with two."""


def tma_build(boxes: int, stages: int, together: int) -> KernelBuild:
    """Return the compilation of one TMA probe."""
    constants = {"BOXES": boxes, "STAGES": stages, "TOGETHER": together}
    return KernelBuild("probe_tma.cu", "probe_tma", constants)


def prepare_tma() -> list[Trial]:
    """Boxes of a matrix in L2, in the shapes that the BCSR kernels load."""
    import cupy

    sm_count, loads = require_gpu().sm_count, 1000
    trials = []
    for tiles in (32, 64):  # 8 MiB, which either half of L2 may hold, and 32 MiB
        rng = cupy.random.default_rng(0)
        matrix = rng.integers(0, 1 << 16, (64 * tiles, 64 * tiles)).astype(cupy.uint16)
        encoded = TensorMap.over(matrix, (64, 64), "bfloat16").encode()
        for boxes, stages, per_sm in TMA_SHAPES:
            for together in (0, 1):
                kernel = loaded(tma_build(boxes, stages, together))
                blocks = per_sm * sm_count
                landed = cupy.zeros((blocks, 64 * 64), dtype=cupy.uint16)
                arguments = TmaArguments(
                    landed=landed.data.ptr, row_tiles=tiles, column_tiles=tiles, loads=loads
                )
                ctypes.memmove(arguments.map, encoded.ctypes.data, 128)
                shared = stages * boxes * BOX_BYTES + ALIGNMENT
                trials.append(
                    trial_of(
                        kernel,
                        kernel.prepare(blocks, 128, shared, arguments),
                        (matrix, landed),
                        params={
                            "boxes": boxes,
                            "stages": stages,
                            "blocks_per_sm": per_sm,
                            "together": together,
                            "working_set_bytes": int(matrix.nbytes),
                        },
                        rates=per_second(blocks * loads * boxes * BOX_BYTES, "tb_per_s"),
                        fault=_tma_check(matrix, landed, boxes, loads, together),
                    )
                )
    return trials


def _tma_check(
    matrix: Any, landed: Any, boxes: int, loads: int, together: int
) -> Callable[[], str | None]:
    """Check that each block's last box is the matrix's tile, swizzled; mirrors ``row_tile``."""

    def fault() -> str | None:
        tiles = matrix.shape[0] // 64
        blocks = np.arange(landed.shape[0])
        start = 0 if together else (blocks * 2654435761 & 0xFFFFFFFF) >> 8
        rows = (start + (loads - 1) * 89) & (tiles - 1)
        columns = blocks * boxes % tiles
        cut = matrix.reshape(tiles, 64, tiles, 64).transpose(0, 2, 1, 3)
        import cupy

        wanted = swizzled_tiles(cut[cupy.asarray(rows + 0 * blocks), cupy.asarray(columns)])
        wrong = int((wanted.reshape(landed.shape) != landed).any(axis=1).sum())
        return f"{wrong} blocks ended with another box" if wrong else None

    return fault


GATHER_SHAPES: Final = ((512, 16, 4, 2), (512, 16, 4, 4), (2048, 8, 4, 2), (2048, 8, 4, 3))
"""Bytes a row, rows a stage, stages, blocks an SM."""


def gather_build(row_bytes: int, stage_rows: int, stages: int) -> KernelBuild:
    """Return the compilation of one gather probe."""
    constants = {"ROW_BYTES": row_bytes, "STAGE_ROWS": stage_rows, "STAGES": stages}
    return KernelBuild("probe_gather.cu", "probe_gather", constants)


def prepare_gather() -> list[Trial]:
    """Random rows of a matrix in L2: 512 bytes as for N = 256 in bf16, 2 KiB as for N = 1024."""
    import cupy

    sm_count, loads, index_count = require_gpu().sm_count, 1000, 1 << 18
    rng = cupy.random.default_rng(0)
    memory = rng.integers(0, 1 << 16, 1 << 24).astype(cupy.uint16)  # 32 MiB
    trials = []
    for set_bytes in (8 << 20, 32 << 20):
        for row_bytes, stage_rows, stages, per_sm in GATHER_SHAPES:
            rows = memory[: set_bytes // 2].reshape(-1, row_bytes // 2)
            indices = rng.integers(0, rows.shape[0], index_count).astype(cupy.int32)
            kernel = loaded(gather_build(row_bytes, stage_rows, stages))
            blocks = per_sm * sm_count
            landed = cupy.zeros((blocks, stage_rows, row_bytes // 2), dtype=cupy.uint16)
            arguments = GatherArguments(
                rows.data.ptr, indices.data.ptr, landed.data.ptr, index_count, loads
            )
            stage_bytes = stage_rows * row_bytes
            trials.append(
                trial_of(
                    kernel,
                    kernel.prepare(blocks, 256, stages * stage_bytes, arguments),
                    (rows, indices, landed),
                    params={
                        "row_bytes": row_bytes,
                        "stage_rows": stage_rows,
                        "stages": stages,
                        "blocks_per_sm": per_sm,
                        "working_set_bytes": set_bytes,
                    },
                    rates=per_second(blocks * loads * stage_bytes, "tb_per_s"),
                    fault=_gather_check(rows, indices, landed, loads),
                )
            )
    return trials


def _gather_check(rows: Any, indices: Any, landed: Any, loads: int) -> Callable[[], str | None]:
    """Check that each block's last stage holds the rows that its indices name."""

    def fault() -> str | None:
        import cupy

        blocks, stage_rows = landed.shape[:2]
        first = (cupy.arange(blocks) * loads + loads - 1) * stage_rows
        places = (first[:, None] + cupy.arange(stage_rows)) % indices.size
        wrong = int((rows[indices[places]] != landed).any(axis=(1, 2)).sum())
        return f"{wrong} blocks ended with other rows" if wrong else None

    return fault


def kernel_builds() -> dict[str, list[KernelBuild]]:
    """Return the compilations behind both probes."""
    return {
        "tma-l2": [tma_build(*shape[:2], together) for shape in TMA_SHAPES for together in (0, 1)],
        "gather-l2": [gather_build(*shape[:3]) for shape in GATHER_SHAPES],
    }
