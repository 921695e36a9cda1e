"""Maps and shared memory of the ring kernels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.spmm.ring import ring_maps
from asyncsparse_lab.spmm.variants import VARIANTS


def memory(shape: tuple[int, int], dtype: Any) -> Any:
    """What a tensor map looks at, without memory."""
    itemsize = np.dtype(dtype).itemsize
    array = SimpleNamespace(shape=shape, dtype=np.dtype(dtype), itemsize=itemsize)
    array.strides = (shape[1] * itemsize, itemsize)
    array.data = SimpleNamespace(ptr=1 << 20)
    array.reshape = lambda *_: array
    return array


@pytest.mark.parametrize(
    ("layout", "itemsize", "boxes"),
    [
        ("row-major", 2, ((64, 64), (64, 64), (64, 64))),
        ("row-major", 4, ((64, 64), (64, 64), (64, 32))),
        ("column-major", 2, ((64, 64), (128, 64), (64, 64))),
        ("column-major", 4, ((64, 64), (128, 64), (64, 32))),
    ],
)
@pytest.mark.parametrize("name", ["bcsr-overlap", "bcsr-paired"])
def test_boxes_of_the_tensor_maps(name: str, layout: str, itemsize: int, boxes: Any) -> None:
    kernel = VARIANTS[name].with_constants(WGMMA_N=128)
    blocks = memory((64, 64), np.uint16)
    C = memory((512, 512), np.uint16 if itemsize == 2 else np.float32)
    B = memory((512, 512), np.uint16)
    maps = ring_maps(kernel, blocks, B, C, "bfloat16", layout)
    assert tuple(described.box for described in maps) == boxes
    assert {described.swizzle for described in maps} == {128}


@pytest.mark.parametrize(
    ("name", "slots_bytes", "tile_columns"),
    [
        ("bcsr-overlap", 4 * 8192 + 3 * 64 * 512 * 2, 512),
        ("bcsr-overlap-narrow", 6 * 8192 + 5 * 64 * 256 * 2, 256),
        ("bcsr-paired", 8 * 8192 + 5 * 64 * 256 * 2, 256),
    ],
)
def test_the_ring_fills_shared_memory(name: str, slots_bytes: int, tile_columns: int) -> None:
    kernel = VARIANTS[name]
    geometry = kernel.launch_geometry
    assert geometry.tile_columns == tile_columns
    assert geometry.shared_bytes == slots_bytes + 1024
    with pytest.raises(InputError, match="bytes of shared memory exceed"):
        kernel.with_constants(STAGES=kernel.constants["STAGES"] + 1)
