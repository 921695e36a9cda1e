"""Python mirrors of the structs that kernels take by value."""

from __future__ import annotations

import ctypes


class BcsrArguments(ctypes.Structure):
    """Mirror of ``BcsrArguments`` in ``kernels/include/bcsr_arguments.cuh`` (512 bytes).

    Tensor maps are the 128 bytes that the driver encoded; pointers are device addresses; sizes
    and strides count elements.
    """

    _fields_ = (
        ("a_map", ctypes.c_uint8 * 128),
        ("b_map", ctypes.c_uint8 * 128),
        ("c_map", ctypes.c_uint8 * 128),
        ("block_row_ptr", ctypes.c_uint64),
        ("block_col_idx", ctypes.c_uint64),
        ("blocks", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
        ("c", ctypes.c_uint64),
        ("row_tasks", ctypes.c_uint64),
        ("counters", ctypes.c_uint64),
        ("block_rows", ctypes.c_int64),
        ("m", ctypes.c_int64),
        ("k", ctypes.c_int64),
        ("n", ctypes.c_int64),
        ("ldb", ctypes.c_int64),
        ("ldc", ctypes.c_int64),
        ("pair_tasks", ctypes.c_uint64),
        ("pair_steps", ctypes.c_uint64),
        ("pair_count", ctypes.c_int64),
    )


class WcsrArguments(ctypes.Structure):
    """Mirror of ``WcsrArguments`` in ``kernels/include/wcsr_arguments.cuh`` (120 bytes).

    Pointers are device addresses; sizes and strides count elements.
    """

    _fields_ = (
        *((name, ctypes.c_uint64)
          for name in ("a", "window_col_idx", "tasks", "split_windows", "b", "c", "sums")),
        *((name, ctypes.c_int64)
          for name in ("task_count", "split_count", "m", "k", "n", "ldb", "ldc", "ldsums")),
    )  # fmt: skip
