"""One conversion of CSR in device memory: what it allocates and launches.

The host does little here, and as much of it as it can while the kernel runs: small matrices are
converted in less time than a few lines of Python take.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from asyncsparse_lab.errors import InputError, UnsupportedError
from asyncsparse_lab.formats.arrays import INT32_LIMIT
from asyncsparse_lab.formats.layouts import K16
from asyncsparse_lab.spmm.convert_kernels import (
    MOST_ROWS,
    SHARED_FROM,
    WHOLE,
    ConvertArguments,
    bits_bytes,
    device_memory,
    facts_of,
    give_letter,
    meetings,
    ready,
    take_letter,
    words_at_once,
    words_of,
)
from asyncsparse_lab.spmm.geometry import BLOCK
from asyncsparse_lab.spmm.product import DeviceCsr
from asyncsparse_lab.spmm.windows import AUTO_LIMIT, LEADING, LEAST_PIECE, TASK, CutRule

AT_ONCE_BYTES: Final = 64 << 20
"""Memory that is allocated before it is known how much A takes, at most, and stays A's.
"""
CLEAR_BYTES: Final = 4 << 20
"""What is filled with zeros before that, in less time than the grid needs to meet again."""
SMALL: Final = 4096
"""Rows and entries for each thread block, up to which few threads are sooner done than many."""
SHARE_FROM: Final = 8192
"""Entries of a window from which thread blocks may share it: fewer are sooner done by one."""
SHARED_BYTES: Final = 16 << 20
"""Where sharing would take more, no window is shared."""

_NEVER: Final = 2**32 - 1  # entries that no window has
_WINDOW_COST: Final = 256  # of a window in entries, and one more for so many words of its bits:
_WORDS_AN_ENTRY: Final = 4
_ALIGNED: Final = 256
_INDEX_BYTES: Final = 4
_INT32: Final = np.dtype(np.int32)
_INT64: Final = np.dtype(np.int64)
_BITS: Final = np.dtype(np.uint16)
_BYTE: Final = np.dtype(np.uint8)


@dataclass(frozen=True, slots=True)
class Layout:
    """A format, as the kernel sees it.

    Attributes
    ----------
    what : str
        For the message where A does not fit.
    height : int
        Rows of a window, or of a block.
    task_bytes : int
        Of a task, its leading indices not among them.
    column_shift : int
        log2 of the width of a stored column.
    padded_to : int
        Multiple of stored columns in a window.
    least_stored : int
        Columns for which there is memory, even where there are none.
    leading_bytes : int
        Of the leading indices beside a task.
    """

    what: str
    height: int
    task_bytes: int
    column_shift: int = 0
    padded_to: int = K16
    least_stored: int = 0
    leading_bytes: int = 0

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
    task_bytes=16,
    column_shift=BLOCK.bit_length() - 1,
    padded_to=1,
    least_stored=1,  # a tensor map needs a block to point to
)
PIECES: Final = {
    height: Layout(
        f"A in windows of {height} rows",
        height=height,
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
    """Count what :func:`asyncsparse_lab.formats.window_tasks` would give; NumPy."""
    windows = len(window_row_ptr) - 1
    if not max_cols_per_task:
        return TaskCounts(windows, 0, 0, 1)
    columns = np.diff(window_row_ptr)
    # Few are split, and each operation of NumPy takes as long as the conversion of many entries.
    split = columns[columns > max_cols_per_task].tolist()
    pieces = [-(-count // max_cols_per_task) for count in split]
    of_split = sum(pieces)
    return TaskCounts(windows - len(split) + of_split, len(split), of_split, max(pieces, default=1))


def can_convert(csr: DeviceCsr) -> bool:
    """Whether the kernels can read these arrays: CuPy, 32-bit offsets and indices."""
    indptr, indices = csr.indptr, csr.indices
    on_device = hasattr(indptr, "get") and hasattr(indices, "get")
    return on_device and indptr.dtype == _INT32 and indices.dtype == _INT32


def is_small(m: int, entries: int, thread_blocks: int) -> bool:
    """Whether so many rows and entries are converted by few threads a block."""
    return m + entries <= SMALL * thread_blocks


class Conversion:
    """A conversion that has been begun.

    It is one launch, with memory for the most that A can take, or for :data:`AT_ONCE_BYTES` where
    that is more.  When it is settled another one may follow, with as much memory as A does take.

    Parameters
    ----------
    csr : DeviceCsr, m x k
    shape : (int, int)
    layout : Layout
    rule : CutRule
        Where windows are cut.
    deterministic : bool
        Whether each piece of a cut window has a slot.

    Attributes
    ----------
    counts : TaskCounts
    columns_per_task : int
        At which windows were cut; 0: nowhere.
    starts : int64 array, windows + 1
        First stored column of each window and the end, on the host, once it is settled.
    stored : int
        Stored columns, padding included.

    Raises
    ------
    DeviceError, InputError, MemoryLimitError, UnsupportedError
        As the conversions of :mod:`asyncsparse_lab.spmm.convert`.
    """

    __slots__ = ("_arguments", "_index", "_kernel", "_leading", "_letter", "_memory", "_ndarray",
                 "_small", "_status", "_task_memory", "_tasks", "columns_per_task", "counts",
                 "layout", "starts", "stored")  # fmt: skip

    def __init__(
        self,
        csr: DeviceCsr,
        shape: tuple[int, int],
        layout: Layout,
        rule: CutRule,
        deterministic: bool = True,
    ) -> None:
        least_piece = _least_piece(rule)
        if not can_convert(csr):
            raise UnsupportedError("CSR arrays are converted here as CuPy's with int32 offsets")
        import cupy

        self.layout = layout
        self._ndarray = cupy.ndarray
        stream = cupy.cuda.get_current_stream()
        self._status = partial(cupy.cuda.runtime.streamQuery, stream.ptr)
        (m, k), entries, device = shape, csr.indices.size, cupy.cuda.runtime.getDevice()
        if max(m, k) >= WHOLE:
            raise UnsupportedError(f"a {m} x {k} matrix: rows and columns are counted in 32 bits")
        windows = -(-m // layout.height)
        words = words_of(-(-k // (1 << layout.column_shift)))
        grid = facts_of(device).sm_count
        # Of the windows of a block, some being shorter, or of those that it looks at together.
        at_once = min(4 * (windows // grid + 1), MOST_ROWS // layout.height)
        bits = bits_bytes(words * at_once, device)
        self._kernel = ready(device, bits, is_small(m, entries, grid))
        shared = 4 * grid * (2 + words)
        if entries < SHARE_FROM or shared > SHARED_BYTES:
            shared = 0
        met = meetings(device, stream, shared)

        self.counts = TaskCounts(windows, 0, 0, 1)
        self.columns_per_task = 0
        most = max(layout.most_stored(entries, windows, k), layout.least_stored)
        at_most = AT_ONCE_BYTES // (layout.column_bytes + _INDEX_BYTES)
        capacity = max(min(most, at_most), layout.least_stored)
        counts_from = 8 * (windows + 1)
        tasks_from = counts_from + 4 * (windows + 1)
        tasks = windows + capacity // least_piece
        small_bytes = self._place_tasks(tasks_from, tasks)
        self._small = self._task_memory = device_memory(small_bytes, layout.what)
        window_cost = _WINDOW_COST + words // _WORDS_AN_ENTRY
        self._arguments = ConvertArguments(
            indptr=csr.indptr.data.ptr,
            indices=csr.indices.data.ptr,
            values=csr.values.data.ptr,
            pointer=self._small.ptr,
            counts=self._small.ptr + counts_from,
            meetings=met,
            shared=met + SHARED_FROM,
            share=-(-(windows * window_cost + entries) // grid),
            m=m,
            words=words,
            windows=windows,
            height=layout.height,
            column_shift=layout.column_shift,
            padded_to=layout.padded_to,
            words_at_once=words_at_once(bits),
            window_cost=window_cost,
            share_from=SHARE_FROM if shared else _NEVER,
            least_piece=least_piece,
            column_tiles=max(rule.column_tiles, 1) if rule.max_cols_per_task == AUTO_LIMIT else 0,
            places=rule.places,
            deterministic=deterministic,
            is_cleared=capacity == most and most * layout.column_bytes <= CLEAR_BYTES,
        )
        self._pass_tasks()
        self._allocate(capacity)
        letter = self._letter = take_letter(windows)
        self._arguments.letter, self._arguments.ticket = letter.address, letter.ticket
        self._kernel.launch(self._arguments)

    def settle(self) -> None:
        """Wait for the sizes, and launch again where there was not enough memory."""
        limit, self.starts = self._letter.read(self._arguments.windows, self._status)
        give_letter(self._letter)
        self.stored = int(self.starts[-1])
        if limit != WHOLE:
            self.columns_per_task = limit
            self.counts = count_tasks(self.starts, limit)
        if self.stored <= self._arguments.capacity:
            return
        if self.stored >= INT32_LIMIT:
            raise InputError(f"{self.stored} columns, but tasks count them in 32 bits")
        if self.columns_per_task:
            task_bytes = self._place_tasks(0, self.counts.tasks)
            self._task_memory = device_memory(task_bytes, self.layout.what)
            self._pass_tasks()
        self._allocate(self.stored)
        self._arguments.letter = self._arguments.is_cleared = 0
        self._kernel.launch(self._arguments)

    def pointer(self) -> Any:
        """Return the first stored column of each window and the end, on the device."""
        return self._ndarray((len(self.starts),), _INT64, self._small)

    def values(self, *shape: int) -> Any:
        """Return the 16-bit patterns of the stored values."""
        return self._ndarray(shape, _BITS, self._memory)

    def column_index(self) -> Any:
        """Return the column of A of each stored column, -1 for padding."""
        return self._ndarray((self.stored,), _INT32, self._index)

    def tasks(self) -> Any:
        """Return the bytes of the tasks, longest first."""
        size = self.layout.task_bytes * self.counts.tasks
        return self._ndarray((size,), _BYTE, self._task_memory + self._tasks)

    def leading_indices(self) -> Any:
        """Return the columns of A of each task's first stored columns."""
        shape = (self.counts.tasks, LEADING)
        return self._ndarray(shape, _INT32, self._task_memory + self._leading)

    def _place_tasks(self, behind: int, tasks: int) -> int:
        """Place what so many tasks take in a chunk of memory, and return its end."""
        self._tasks = _aligned(behind)
        self._leading = self._tasks + self.layout.task_bytes * tasks
        return self._leading + self.layout.leading_bytes * tasks

    def _pass_tasks(self) -> None:
        arguments, first = self._arguments, self._task_memory.ptr
        arguments.tasks = first + self._tasks
        arguments.leading_indices = first + self._leading

    def _allocate(self, columns: int) -> None:
        """Allocate memory for so many stored columns."""
        layout, arguments = self.layout, self._arguments
        values = _aligned(columns * layout.column_bytes)
        self._memory = device_memory(values + _INDEX_BYTES * columns, layout.what)
        self._index = self._memory + values
        arguments.capacity = columns
        arguments.stored = self._memory.ptr
        arguments.column_index = self._index.ptr


def _least_piece(rule: CutRule) -> int:
    """Return how many columns all pieces of a window have, but for the last.

    Raises
    ------
    InputError
        They are no multiple of 16.
    """
    columns = rule.max_cols_per_task
    if columns == AUTO_LIMIT:
        return LEAST_PIECE
    if not 0 <= columns < WHOLE or columns % K16:
        raise InputError(
            f"max_cols_per_task is {columns}, but must be a positive multiple of {K16}, "
            "or 0 for none"
        )
    return columns or WHOLE


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
