"""One conversion of CSR in device memory: what it allocates and launches.

The host does little here, and as much of it as it can while the kernel runs: small matrices are
converted in less time than a few lines of Python take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from asyncsparse_lab.errors import InputError, MemoryLimitError, UnsupportedError
from asyncsparse_lab.formats.arrays import INT32_LIMIT
from asyncsparse_lab.formats.layouts import K16
from asyncsparse_lab.spmm.convert_kernels import (
    CLEAR,
    COUNT,
    FILL,
    ConvertArguments,
    bits_bytes,
    columns_at_once,
    give_letter,
    meetings,
    ready,
    shared_limit,
    take_letter,
)
from asyncsparse_lab.spmm.geometry import BLOCK, WINDOW
from asyncsparse_lab.spmm.product import DeviceCsr, require_memory
from asyncsparse_lab.spmm.windows import LEADING, TASK

AT_ONCE_BYTES: Final = 64 << 20
"""Memory that may be allocated before it is known how much A takes, and stays A's.

The driver is not asked whether there is so much: that takes longer than to convert a small matrix.
"""
CLEAR_BYTES: Final = 4 << 20
"""Of which so much is filled with zeros before, in less time than the grid needs to meet again."""

_WHOLE: Final = 2**31 - K16  # a limit that no window reaches
_BLOCK_ROWS, _WINDOWS, _WINDOWS_IN_SLOTS = range(3)  # TaskKind
_INT32: Final = np.dtype(np.int32)
_BITS: Final = np.dtype(np.uint16)
_BYTE: Final = np.dtype(np.uint8)

Limit = Callable[[Any], int]
"""From ``window_row_ptr`` to the stored columns at which windows are cut."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A format, as the kernel sees it.

    Attributes
    ----------
    what : str
        For the message where A does not fit.
    height : int
        Rows of a window, or of a block.
    task_kind, task_bytes : int
        ``TaskKind``, and the size of such a task.
    column_shift : int
        log2 of the width of a stored column.
    padded_to : int
        Multiple of stored columns in a window.
    least_stored : int
        Columns for which there is memory, even where there are none.
    leading_bytes : int
        Of the leading indices beside a task.
    keeps_pointer : bool
        Whether the first stored column of each window stays on the device.
    """

    what: str
    height: int
    task_kind: int
    task_bytes: int
    column_shift: int = 0
    padded_to: int = K16
    least_stored: int = 0
    leading_bytes: int = 0
    keeps_pointer: bool = False

    @property
    def column_bytes(self) -> int:
        """Bytes of the values of a stored column."""
        return 2 * self.height << self.column_shift

    def most_stored(self, entries: int, windows: int, k: int) -> int:
        """Return how many columns are stored at most: one an entry, or all, each window padded."""
        all_columns = -(-k // (self.padded_to << self.column_shift)) * self.padded_to
        by_entry = entries + (self.padded_to - 1) * min(entries, windows)
        return min(by_entry, windows * all_columns)


BLOCKS: Final = Layout(
    "A in 64 x 64 blocks",
    height=BLOCK,
    task_kind=_BLOCK_ROWS,
    task_bytes=16,
    column_shift=BLOCK.bit_length() - 1,
    padded_to=1,
    least_stored=1,  # a tensor map needs a block to point to
    keeps_pointer=True,
)
WINDOWS: Final = Layout("A in windows of 64 rows", height=WINDOW, task_kind=_WINDOWS, task_bytes=16)
PIECES: Final = {
    height: Layout(
        f"A in windows of {height} rows",
        height=height,
        task_kind=_WINDOWS_IN_SLOTS,
        task_bytes=TASK.itemsize,
        leading_bytes=4 * LEADING,
    )
    for height in (64, 128, 256)
}
"""Windows of wcsr-pipelined, by their height."""


class TaskCounts(NamedTuple):
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


def can_convert(csr: DeviceCsr) -> bool:
    """Whether the kernels can read these arrays: CuPy, 32-bit offsets and indices."""
    indptr, indices = csr.indptr, csr.indices
    on_device = hasattr(indptr, "get") and hasattr(indices, "get")
    return on_device and indptr.dtype == _INT32 and indices.dtype == _INT32


class Conversion:
    """A conversion that has been begun.

    In one launch where the most that A can take is little: that much is allocated, and the host
    need not look at the sizes before the kernel goes on.  In two where it is much, or where windows
    are cut by what they store.

    Parameters
    ----------
    csr : DeviceCsr, m x k
    shape : (int, int)
    layout : Layout
    limit : callable, optional
        Where windows are cut; by default nowhere.
    deterministic : bool
        Whether each piece of a cut window has a slot.

    Attributes
    ----------
    counts : TaskCounts
    columns_per_task : int
        At which windows were cut; 0: nowhere.
    pointer : int64 array, windows + 1, or None
        First stored column of each window and the end, if the format keeps it on the device.

    Raises
    ------
    DeviceError, InputError, MemoryLimitError, UnsupportedError
        As the conversions of :mod:`asyncsparse_lab.spmm.convert`.
    """

    __slots__ = ("_arguments", "_index", "_leading", "_letter", "_memory", "_scratch", "_split",
                 "_starts", "_status", "_tasks", "columns_per_task", "counts",
                 "layout", "pointer")  # fmt: skip

    def __init__(
        self,
        csr: DeviceCsr,
        shape: tuple[int, int],
        layout: Layout,
        limit: Limit | None = None,
        deterministic: bool = True,
    ) -> None:
        if not can_convert(csr):
            raise UnsupportedError("CSR arrays are converted here as CuPy's with int32 offsets")
        import cupy

        self.layout = layout
        stream = cupy.cuda.get_current_stream()
        self._status = partial(cupy.cuda.runtime.streamQuery, stream.ptr)
        (m, k), entries, device = shape, csr.indices.size, cupy.cuda.runtime.getDevice()
        if max(m, k) >= INT32_LIMIT:
            raise UnsupportedError(f"a {m} x {k} matrix: rows and columns are counted in 32 bits")
        windows = -(-m // layout.height)
        columns = -(-k // (1 << layout.column_shift))
        self._scratch = _device_memory(8 * (windows + 1) + 4 * (3 * entries + windows), layout.what)
        first = self._scratch.ptr
        self.pointer = None
        if layout.keeps_pointer:
            self.pointer = cupy.empty(windows + 1, dtype=np.int64)
        ranks = first + 8 * (windows + 1)
        self._arguments = ConvertArguments(
            indptr=csr.indptr.data.ptr,
            indices=csr.indices.data.ptr,
            values=csr.values.data.ptr,
            pointer=first if self.pointer is None else self.pointer.data.ptr,
            ranks=ranks,
            columns=ranks + 4 * entries,
            rows=ranks + 8 * entries,
            counts=ranks + 12 * entries,
            meetings=meetings(device, stream),
            m=m,
            columns_of_a=columns,
            windows=windows,
            height=layout.height,
            column_shift=layout.column_shift,
            padded_to=layout.padded_to,
            columns_at_once=columns_at_once(columns, shared_limit(device)),
            task_limit=_WHOLE,
            task_kind=layout.task_kind,
            deterministic=deterministic,
        )
        self._starts: Any = None
        self.counts = TaskCounts(windows, 0, 0, 1)
        self.columns_per_task = 0
        most = max(layout.most_stored(entries, windows, k), layout.least_stored)
        if limit is None and (needed := self._place(most)) <= AT_ONCE_BYTES:
            self._allocate(needed)
            clears = most * layout.column_bytes <= CLEAR_BYTES
            self._arguments.most_values = most * layout.column_bytes // 2 if clears else 0
            self._launch(device, COUNT | FILL | CLEAR if clears else COUNT | FILL)
        else:
            self._launch(device, COUNT)
            self._cut_and_fill(device, limit)

    @property
    def starts(self) -> Any:
        """First stored column of each window and the end: int64, on the host."""
        if self._starts is None:
            self._starts = self._letter.read(self._arguments.windows, self._status)
            give_letter(self._letter)
        return self._starts

    @property
    def stored(self) -> int:
        """Stored columns, padding included."""
        return int(self.starts[-1])

    def values(self, *shape: int) -> Any:
        """Return the 16-bit patterns of the stored values."""
        return self._array(0, shape, _BITS)

    def column_index(self) -> Any:
        """Return the column of A of each stored column, -1 for padding."""
        return self._array(self._index, (self.stored,), _INT32)

    def tasks(self) -> Any:
        """Return the bytes of the tasks, longest first."""
        return self._array(self._tasks, (self.layout.task_bytes * self.counts.tasks,), _BYTE)

    def leading_indices(self) -> Any:
        """Return the columns of A of each task's first stored columns."""
        return self._array(self._leading, (self.counts.tasks, LEADING), _INT32)

    def split_windows(self) -> Any:
        """Return the windows of several tasks."""
        return self._array(self._split, (self.counts.split,), _INT32)

    def _array(self, place: int, shape: tuple[int, ...], dtype: Any) -> Any:
        import cupy

        return cupy.ndarray(shape, dtype, self._memory + place)

    def _place(self, stored: int) -> int:
        """Place all arrays in a chunk of memory, and return its size."""
        layout, tasks = self.layout, self.counts.tasks
        self._leading = stored * layout.column_bytes
        self._tasks = self._leading + layout.leading_bytes * tasks
        self._index = self._tasks + -(-layout.task_bytes * tasks // 256) * 256
        self._split = self._index + 4 * stored
        return self._split + 4 * self.counts.split

    def _allocate(self, size: int) -> None:
        self._memory = _device_memory(size, self.layout.what)
        arguments, first = self._arguments, self._memory.ptr
        arguments.stored = first
        arguments.leading_indices = first + self._leading
        arguments.tasks = first + self._tasks
        arguments.column_index = first + self._index
        arguments.split_windows = first + self._split

    def _cut_and_fill(self, device: int, limit: Limit | None) -> None:
        self.columns_per_task = limit(self.starts) if limit else 0
        self.counts = count_tasks(self.starts, self.columns_per_task)
        self._allocate(self._place(max(self.stored, self.layout.least_stored)))
        self._arguments.task_limit = self.columns_per_task or _WHOLE
        self._launch(device, FILL)

    def _launch(self, device: int, phases: int) -> None:
        arguments = self._arguments
        arguments.phases = phases
        kernel = ready(device, bits_bytes(arguments.columns_at_once, device))
        if phases & COUNT:
            letter = self._letter = take_letter(arguments.windows)
            arguments.letter, arguments.ticket = letter.address, letter.ticket
        kernel.launch(arguments)


def _device_memory(size: int, what: str) -> Any:
    """Return so much device memory; the driver is asked for what is free only where it is much.

    Raises
    ------
    MemoryLimitError
        There is not so much.
    """
    import cupy

    if size > AT_ONCE_BYTES:
        require_memory(size, what, cupy)
    try:
        return cupy.cuda.alloc(max(size, 1))
    except cupy.cuda.memory.OutOfMemoryError:
        raise MemoryLimitError(f"{what} needs {size:,} bytes: free some of the device's") from None
