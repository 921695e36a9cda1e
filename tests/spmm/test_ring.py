"""Tiles and steps of the ring kernels: followed as the kernel does, they are the product."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.spmm.ring import (
    BEGINS,
    EMPTY_ROW,
    ENDS,
    MULTIPLIES,
    NO_ROW,
    RingArguments,
    TileSchedule,
    ring_maps,
    tile_schedule,
)
from asyncsparse_lab.spmm.variants import VARIANTS

patterns = st.lists(st.sets(st.integers(0, 12)), max_size=15)


def pattern_of(rows: list[set[int]]) -> tuple[np.ndarray, np.ndarray]:
    pointer = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    columns = np.array([c for row in rows for c in sorted(row)], dtype=np.int32)
    return pointer, columns


def follow(schedule: TileSchedule, paired: bool, block_rows: int) -> dict[int, list[int]]:
    """Do what the kernel does; return the block columns that each block row was summed over."""
    stored: dict[int, list[int]] = {}
    for tile in schedule.rows:
        members = tile["block_rows"]
        for member in members[: 1 + paired]:
            if member <= EMPTY_ROW:
                assert EMPTY_ROW - member not in stored
                stored[EMPTY_ROW - member] = []
        sums: list[list[int]] = [[-1], [-1]]  # what accumulators hold before the first product
        for step in schedule.steps[tile["begin"] : tile["begin"] + tile["steps"]]:
            for consumer in (0, 1):
                control = step["control"] >> consumer
                has_block = step["blocks"][consumer] >= 0
                assert bool(control & MULTIPLIES) == has_block
                assert has_block or not control & BEGINS
                if control & BEGINS:
                    sums[consumer] = []
                if has_block:
                    sums[consumer].append(int(step["block_column"]))
                if control & ENDS:
                    # C is laid down over the slot's B, which the other row must not need.
                    assert not paired or step["blocks"][1 - consumer] < 0
                    sums[consumer].sort()
                    row = int(members[consumer if paired else 0])
                    assert 0 <= row < block_rows
                    if paired or consumer == 0:
                        assert row not in stored
                        stored[row] = sums[consumer]
                    else:
                        assert stored[row] == sums[consumer]
    return stored


@pytest.mark.parametrize("paired", [False, True])
@given(rows=patterns)
def test_the_steps_of_all_tiles_are_the_product(rows: list[set[int]], paired: bool) -> None:
    schedule = tile_schedule(*pattern_of(rows), paired)
    stored = follow(schedule, paired, len(rows))
    assert stored == {row: sorted(columns) for row, columns in enumerate(rows)}
    assert (np.diff(schedule.rows["steps"]) <= 0).all(), "longest first"


def test_a_pair_of_empty_rows_has_no_steps_and_two_rows_to_zero() -> None:
    schedule = tile_schedule(*pattern_of([set(), {3}, set(), set()]), True)
    assert sorted(schedule.rows["steps"]) == [0, 1]
    empty = [member for tile in schedule.rows for member in tile["block_rows"] if member < NO_ROW]
    assert sorted(EMPTY_ROW - member for member in empty) == [0, 2, 3]


def test_the_argument_is_as_large_as_the_kernel_says() -> None:
    assert ctypes.sizeof(RingArguments) == 448


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
        ("row-major", 2, ((64, 32), (32, 64), (64, 64))),
        ("row-major", 4, ((64, 32), (32, 64), (64, 32))),
        ("column-major", 2, ((64, 32), (256, 32), (64, 64))),
        ("column-major", 4, ((64, 32), (256, 32), (64, 32))),
    ],
)
def test_boxes_of_the_tensor_maps(layout: str, itemsize: int, boxes: Any) -> None:
    kernel = VARIANTS["bcsr-overlap"].with_constants(STAGE_K=32, STAGES=6)
    blocks = memory((64, 64), np.uint16)
    C = memory((512, 512), np.uint16 if itemsize == 2 else np.float32)
    B = memory((512, 512), np.uint16)
    maps = ring_maps(kernel, blocks, B, C, "bfloat16", layout)
    assert tuple(described.box for described in maps) == boxes
    assert [described.swizzle for described in maps] == [
        64,
        128 if layout == "row-major" else 64,
        128,
    ]


def test_slots_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="bytes of shared memory exceed"):
        VARIANTS["bcsr-overlap"].with_constants(STAGES=5)
