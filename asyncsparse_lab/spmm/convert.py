"""CSR to BCSR and WCSR in device memory: two launches, and one look of the host at the sizes.

The arrays are those that the conversions on the host give, bit for bit; these remain for CSR whose
offsets need 64 bits, and where there is no GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from asyncsparse_lab.errors import InputError, UnsupportedError
from asyncsparse_lab.formats.arrays import INT32_LIMIT
from asyncsparse_lab.formats.layouts import K16
from asyncsparse_lab.spmm.convert_kernels import (
    COUNT_ENTRY,
    FILL_ENTRY,
    FILL_THREADS,
    ConvertArguments,
    bits_bytes,
    columns_at_once,
    counter,
    ready,
    shared_limit,
)
from asyncsparse_lab.spmm.geometry import BLOCK, WINDOW
from asyncsparse_lab.spmm.layout import DeviceBcsr
from asyncsparse_lab.spmm.product import DeviceCsr, require_memory
from asyncsparse_lab.spmm.ring import blocks_from_host
from asyncsparse_lab.spmm.wcsr import DeviceWcsr, WindowTasks
from asyncsparse_lab.spmm.windows import LEADING, TASK, DeviceWindows, WindowPieces

HEIGHTS: Final = (64, 128, 256)
"""Heights of windows that the kernels read."""

_WHOLE: Final = 2**31 - K16  # a limit that no window reaches
_BLOCK_ROWS, _WINDOWS, _WINDOWS_IN_SLOTS = range(3)  # TaskKind
_BLOCK_TASK_BYTES: Final = 16
_SMALL_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class DeviceSlices:
    """A cut into windows of rows, in device memory; what the two formats have in common.

    Attributes
    ----------
    csr : DeviceCsr
    shape : (int, int)
    starts : int64 array, windows + 1
        First stored column of each window and the end, on the host.
    pointer : array
        The same on the device.
    arguments : ConvertArguments
        Of the kernel that fills; its addresses are in `workspace` and `pointer`.
    workspace : array of bytes
    """

    csr: DeviceCsr
    shape: tuple[int, int]
    starts: Any
    pointer: Any
    arguments: ConvertArguments
    workspace: Any

    @property
    def stored(self) -> int:
        """Stored columns, padding included."""
        return int(self.starts[-1])


def can_convert(csr: DeviceCsr) -> bool:
    """Whether the kernels can read these arrays: CuPy, 32-bit offsets and indices."""
    arrays = (csr.indptr, csr.indices)
    on_device = all(hasattr(array, "get") for array in arrays)
    return on_device and all(array.dtype == np.int32 for array in arrays)


def blocks_from_csr(csr: DeviceCsr, shape: tuple[int, int]) -> DeviceBcsr:
    """Convert to BCSR with blocks of 64 x 64 and its tasks.

    Parameters
    ----------
    csr : DeviceCsr, m x k
        Canonical, on the current device, 16-bit values; zeros among them are dropped.
    shape : (int, int)

    Raises
    ------
    UnsupportedError
        The arrays are not CuPy's, or not 32-bit.
    MemoryLimitError
        The blocks would not fit into device memory.
    """
    import cupy

    cut = _cut(csr, shape, BLOCK, BLOCK.bit_length() - 1, 1)
    _require(2 * BLOCK * BLOCK * cut.stored, "A in 64 x 64 blocks")
    # A tensor map needs memory to point to, even where there is no block.
    blocks = cupy.zeros((max(cut.stored, 1), BLOCK, BLOCK), dtype=cupy.uint16)
    block_col_idx = cupy.empty(cut.stored, dtype=cupy.int32)
    row_tasks = cupy.empty(_BLOCK_TASK_BYTES * (len(cut.starts) - 1), dtype=cupy.uint8)
    _fill(cut, block_col_idx, blocks, row_tasks, _BLOCK_ROWS)
    return DeviceBcsr(shape, cut.pointer, block_col_idx, blocks, row_tasks)


def wcsr_from_csr(
    csr: DeviceCsr, shape: tuple[int, int], max_cols_per_task: int
) -> tuple[DeviceWcsr, WindowTasks]:
    """Convert to WCSR with windows of 64 rows, and cut the tasks of the article's kernel.

    Parameters
    ----------
    csr : DeviceCsr, m x k
        Canonical, on the current device, 16-bit values; zeros among them are dropped.
    shape : (int, int)
    max_cols_per_task : int
        A multiple of 16; windows with more stored columns become several tasks.  0: none does.

    Raises
    ------
    InputError
        Another limit, or 2**31 stored columns.
    UnsupportedError
        The arrays are not CuPy's, or not 32-bit.
    MemoryLimitError
        The columns would not fit into device memory.
    """
    import cupy

    cut = _cut(csr, shape, WINDOW, 0, K16)
    counts = count_tasks(cut.starts, max_cols_per_task)
    window_col_idx, values = _empty_windows(cut, WINDOW)
    tasks = cupy.empty((counts.tasks, 4), dtype=cupy.int32)
    split = cupy.empty(counts.split, dtype=cupy.int32)
    cut.arguments.task_limit = max_cols_per_task or _WHOLE
    _fill(cut, window_col_idx, values, tasks, _WINDOWS, split)
    A = DeviceWcsr(shape, cut.starts, window_col_idx, values)
    return A, WindowTasks(tasks, split, counts.most_pieces)


def windows_from_csr(
    csr: DeviceCsr,
    shape: tuple[int, int],
    height: int,
    limit: Callable[[Any], int] | None = None,
    *,
    deterministic: bool = True,
) -> tuple[DeviceWindows, WindowPieces]:
    """Convert to WCSR with windows of 64, 128 or 256 rows, and cut the tasks of wcsr-pipelined.

    Parameters
    ----------
    csr : DeviceCsr, m x k
        Canonical, on the current device, 16-bit values; zeros among them are dropped.
    shape : (int, int)
    height : int
        Rows of a window.
    limit : callable, optional
        From ``window_row_ptr`` to the stored columns at which windows are cut, a multiple of 16;
        0: nowhere, which is the default.
    deterministic : bool
        Whether the pieces of a window are added up in a fixed order.

    Raises
    ------
    InputError
        Another height or limit, or 2**31 stored columns.
    UnsupportedError
        The arrays are not CuPy's, or not 32-bit.
    MemoryLimitError
        The columns would not fit into device memory.
    """
    import cupy

    if height not in HEIGHTS:
        raise InputError(f"windows of {height} rows: the kernels read {HEIGHTS}")
    cut = _cut(csr, shape, height, 0, K16)
    columns = limit(cut.starts) if limit else 0
    counts = count_tasks(cut.starts, columns)
    window_col_idx, values = _empty_windows(cut, height)
    tasks = cupy.empty(TASK.itemsize * counts.tasks, dtype=cupy.uint8)
    leading = cupy.empty((counts.tasks, LEADING), dtype=cupy.int32)
    cut.arguments.leading_indices = leading.data.ptr
    cut.arguments.task_limit = columns or _WHOLE
    cut.arguments.deterministic = deterministic
    _fill(cut, window_col_idx, values, tasks, _WINDOWS_IN_SLOTS)
    slots = counts.pieces_of_split if deterministic else counts.split
    return (
        DeviceWindows(shape, height, cut.starts, window_col_idx, values),
        WindowPieces(tasks, counts.tasks, columns, slots, counts.most_pieces, leading),
    )


def _empty_windows(cut: DeviceSlices, height: int) -> tuple[Any, Any]:
    """Return memory for the index of the stored columns, and for their values, full of zeros."""
    import cupy

    _require(cut.stored * (2 * height + 4), f"A in windows of {height} rows")
    values = cupy.zeros((cut.stored // K16, height // 64, 2, 8, 8, 8), dtype=cupy.uint16)
    return cupy.empty(cut.stored, dtype=cupy.int32), values


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """What a cut gives: tasks, windows that are split, their pieces, the most of a window."""

    tasks: int
    split: int
    pieces_of_split: int
    most_pieces: int


def count_tasks(window_row_ptr: Any, max_cols_per_task: int) -> TaskCounts:
    """Count what :func:`asyncsparse_lab.formats.window_tasks` would give; NumPy.

    Raises
    ------
    InputError
        The limit is no multiple of 16, or there are 2**31 stored columns.
    """
    if max_cols_per_task < 0 or max_cols_per_task % K16:
        raise InputError(
            f"max_cols_per_task is {max_cols_per_task}, but must be a positive multiple of {K16}, "
            "or 0 for none"
        )
    if int(window_row_ptr[-1]) >= INT32_LIMIT:
        raise InputError(f"{int(window_row_ptr[-1])} columns, but tasks count them in 32 bits")
    windows = len(window_row_ptr) - 1
    if not max_cols_per_task:
        return TaskCounts(windows, 0, 0, 1)
    pieces = np.maximum(-(-np.diff(window_row_ptr) // max_cols_per_task), 1)
    split = pieces[pieces > 1]
    whole = windows - len(split)
    of_split = int(split.sum())
    return TaskCounts(whole + of_split, len(split), of_split, int(pieces.max(initial=1)))


def _cut(
    csr: DeviceCsr, shape: tuple[int, int], height: int, column_shift: int, padded_to: int
) -> DeviceSlices:
    """Find the columns of every window, and bring their number to the host."""
    import cupy

    if not can_convert(csr):
        raise UnsupportedError("CSR arrays are converted here as CuPy's with int32 offsets")
    (m, k), entries, device = shape, len(csr.indices), cupy.cuda.Device().id
    windows = -(-m // height)
    pointer = cupy.empty(windows + 1, dtype=cupy.int64)
    parts = (("ranks", 4 * entries), ("columns", 4 * entries), ("counts", 4 * windows),
             ("rows", entries))  # fmt: skip
    workspace = cupy.empty(sum(size for _, size in parts), dtype=cupy.uint8)
    columns = -(-k // (1 << column_shift))
    arguments = ConvertArguments(
        indptr=csr.indptr.data.ptr,
        indices=csr.indices.data.ptr,
        values=csr.values.data.ptr,
        pointer=pointer.data.ptr,
        finished=counter(device, cupy.cuda.get_current_stream().ptr).data.ptr,
        m=m,
        columns_of_a=columns,
        windows=windows,
        height=height,
        column_shift=column_shift,
        padded_to=padded_to,
        columns_at_once=columns_at_once(columns, shared_limit(device)),
        task_limit=_WHOLE,
    )
    address = workspace.data.ptr
    for name, size in parts:
        setattr(arguments, name, address)
        address += size
    if windows:
        shared_bytes = bits_bytes(arguments.columns_at_once, device)
        ready(COUNT_ENTRY, device, shared_bytes).launch(arguments)
    else:
        pointer.fill(0)
    return DeviceSlices(csr, shape, pointer.get(), pointer, arguments, workspace)


def _fill(
    cut: DeviceSlices,
    column_index: Any,
    stored: Any,
    tasks: Any,
    task_kind: int,
    split_windows: Any = None,
) -> None:
    """Write the stored columns, their index and the tasks; `stored` is full of zeros."""
    arguments = cut.arguments
    arguments.column_index = column_index.data.ptr
    arguments.stored = stored.data.ptr
    arguments.tasks = tasks.data.ptr
    arguments.task_kind = task_kind
    arguments.split_windows = 0 if split_windows is None else split_windows.data.ptr
    arguments.entry_blocks = -(-len(cut.csr.indices) // FILL_THREADS)
    arguments.column_blocks = -(-cut.stored // FILL_THREADS)
    if arguments.windows:
        import cupy

        ready(FILL_ENTRY, cupy.cuda.Device().id, 0).launch(arguments)


def _require(needed: int, what: str) -> None:
    """Refuse what would not fit; to ask the driver takes longer than to convert a small matrix."""
    if needed > _SMALL_BYTES:
        import cupy

        require_memory(needed, what, cupy)


def device_blocks(csr: DeviceCsr, A: Any) -> DeviceBcsr:
    """Convert to BCSR where the data is if the kernels can, else on the host.

    Parameters
    ----------
    csr : DeviceCsr
        A on the device.
    A : scipy.sparse.csr_array, m x k
        float32, values exact in the type of `csr`.
    """
    if can_convert(csr):
        return blocks_from_csr(csr, A.shape)
    return blocks_from_host(A, "float16" if csr.values.dtype == np.float16 else "bfloat16")
