"""One conversion of CSR in device memory: what it allocates and launches.

The host does little here, and as much of it as it can while the kernel runs: small matrices are
converted in less time than a few lines of Python take.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from asyncsparse_lab.errors import InputError, MemoryLimitError, UnsupportedError
from asyncsparse_lab.formats.arrays import INT32_LIMIT
from asyncsparse_lab.formats.layouts import K16
from asyncsparse_lab.spmm.convert_kernels import (
    CLEAR,
    CONVERT,
    CUT,
    MOST_ROWS,
    SHARED_FROM,
    ConvertArguments,
    bits_bytes,
    give_letter,
    meetings,
    processors,
    ready,
    take_letter,
    words_at_once,
    words_of,
)
from asyncsparse_lab.spmm.geometry import BLOCK, WINDOW
from asyncsparse_lab.spmm.product import DeviceCsr, require_memory
from asyncsparse_lab.spmm.windows import LEADING, TASK, Limit

AT_ONCE_BYTES: Final = 64 << 20
"""Memory that is allocated before it is known how much A takes, at most, and stays A's.

The driver is not asked whether there is so much: that takes longer than to convert a small matrix.
"""
CLEAR_BYTES: Final = 4 << 20
"""What is filled with zeros before that, in less time than the grid needs to meet again."""
SHARE_FROM: Final = 8192
"""Entries of a window from which thread blocks may share it: fewer are sooner done by one."""
SHARED_BYTES: Final = 16 << 20
"""Where sharing would take more, no window is shared."""

_WHOLE: Final = 2**31 - K16  # a limit that no window reaches
_NEVER: Final = 2**32 - 1  # entries that no window has
_WINDOW_COST: Final = 256  # of a window in entries, and one more for so many words of its bits:
_WORDS_AN_ENTRY: Final = 4
_BLOCK_ROWS, _WINDOWS, _WINDOWS_IN_SLOTS = range(3)  # TaskKind
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
    """

    what: str
    height: int
    task_kind: int
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
    task_kind=_BLOCK_ROWS,
    task_bytes=16,
    column_shift=BLOCK.bit_length() - 1,
    padded_to=1,
    least_stored=1,  # a tensor map needs a block to point to
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


class Conversion:
    """A conversion that has been begun.

    It is one launch, with memory for the most that A can take, or for :data:`AT_ONCE_BYTES` where
    that is more.  When it is settled another one may follow: with as much memory as A does take,
    or for the tasks of windows that are cut.

    Parameters
    ----------
    csr : DeviceCsr, m x k
    shape : (int, int)
    layout : Layout
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
                 "_small", "_split", "_status", "_task_memory", "_tasks", "columns_per_task",
                 "counts", "layout", "starts", "stored")  # fmt: skip

    def __init__(
        self,
        csr: DeviceCsr,
        shape: tuple[int, int],
        layout: Layout,
        deterministic: bool = True,
    ) -> None:
        if not can_convert(csr):
            raise UnsupportedError("CSR arrays are converted here as CuPy's with int32 offsets")
        import cupy

        self.layout = layout
        self._ndarray = cupy.ndarray
        stream = cupy.cuda.get_current_stream()
        self._status = partial(cupy.cuda.runtime.streamQuery, stream.ptr)
        (m, k), entries, device = shape, csr.indices.size, cupy.cuda.runtime.getDevice()
        if max(m, k) >= INT32_LIMIT:
            raise UnsupportedError(f"a {m} x {k} matrix: rows and columns are counted in 32 bits")
        windows = -(-m // layout.height)
        words = words_of(-(-k // (1 << layout.column_shift)))
        # Of the windows of a block, some being shorter, or of those that it looks at together.
        at_once = min(4 * (windows // processors(device) + 1), MOST_ROWS // layout.height)
        bits = bits_bytes(words * at_once, device)
        self._kernel = ready(device, bits)
        grid = self._kernel.grid
        shared = 4 * grid * (2 + words)
        if entries < SHARE_FROM or shared > SHARED_BYTES:
            shared = 0
        met = meetings(device, stream, shared)

        self.counts = TaskCounts(windows, 0, 0, 1)
        self.columns_per_task = 0
        counts_from = 8 * (windows + 1)
        self._small = self._task_memory = _device_memory(
            self._place_tasks(counts_from + 4 * windows), layout.what
        )
        most = max(layout.most_stored(entries, windows, k), layout.least_stored)
        at_most = AT_ONCE_BYTES // (layout.column_bytes + _INDEX_BYTES)
        capacity = max(min(most, at_most), layout.least_stored)
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
            task_limit=_WHOLE,
            task_kind=layout.task_kind,
            deterministic=deterministic,
        )
        self._pass_tasks()
        self._allocate(capacity)
        letter = self._letter = take_letter(windows)
        self._arguments.letter, self._arguments.ticket = letter.address, letter.ticket
        clears = capacity == most and most * layout.column_bytes <= CLEAR_BYTES
        self._launch(CONVERT | CLEAR if clears else CONVERT)

    def settle(self, limit: Limit | None = None) -> bool:
        """Wait for the sizes, and launch again what they ask for.

        Parameters
        ----------
        limit : callable, optional
            Where windows are cut; by default nowhere.

        Returns
        -------
        bool
            Whether there are other tasks than before.
        """
        self.starts = self._letter.read(self._arguments.windows, self._status)
        give_letter(self._letter)
        self.stored = int(self.starts[-1])
        columns = limit(self.starts) if limit else 0
        fits = self.stored <= self._arguments.capacity
        if fits and not columns:
            return False
        self.counts = count_tasks(self.starts, columns)
        if columns:
            self.columns_per_task = self._arguments.task_limit = columns
            self._task_memory = _device_memory(self._place_tasks(0), self.layout.what)
            self._pass_tasks()
        if not fits:
            self._allocate(self.stored)
            self._arguments.letter = 0
        self._launch(CUT if fits else CONVERT)
        return columns > 0

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

    def split_windows(self) -> Any:
        """Return the windows of several tasks."""
        return self._ndarray((self.counts.split,), _INT32, self._task_memory + self._split)

    def _place_tasks(self, behind: int) -> int:
        """Place what tasks take in a chunk of memory, and return its end."""
        layout, counts = self.layout, self.counts
        self._tasks = _aligned(behind)
        self._leading = self._tasks + layout.task_bytes * counts.tasks
        self._split = self._leading + layout.leading_bytes * counts.tasks
        return self._split + 4 * counts.split

    def _pass_tasks(self) -> None:
        arguments, first = self._arguments, self._task_memory.ptr
        arguments.tasks = first + self._tasks
        arguments.leading_indices = first + self._leading
        arguments.split_windows = first + self._split

    def _allocate(self, columns: int) -> None:
        """Allocate memory for so many stored columns."""
        layout, arguments = self.layout, self._arguments
        values = _aligned(columns * layout.column_bytes)
        self._memory = _device_memory(values + _INDEX_BYTES * columns, layout.what)
        self._index = self._memory + values
        arguments.capacity = columns
        arguments.stored = self._memory.ptr
        arguments.column_index = self._index.ptr

    def _launch(self, phases: int) -> None:
        self._arguments.phases = phases
        self._kernel.launch(self._arguments)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


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
