"""The conversion kernel of a device, made ready once; a launch of it takes a few microseconds.

A small matrix is converted in less time than most launches are checked in, so the grid is always
the same, and the kernel goes through what there is in strides.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any, Final, NamedTuple

import numpy as np

from asyncsparse_lab.errors import DeviceError, MemoryLimitError, UnsupportedError
from asyncsparse_lab.gpu.compile import KernelBuild
from asyncsparse_lab.gpu.device import DeviceFacts
from asyncsparse_lab.gpu.launch import NO_CONTEXT, bind_context, load
from asyncsparse_lab.spmm.product import require_memory

SOURCE: Final = "convert.cu"
ENTRY: Final = "convert_csr"
THREADS: Final = (512, 1024)
"""Of a thread block: for small matrices, and for others."""
WHOLE: Final = 2**31 - 16
"""Columns at which no window is cut, and more than any has."""
MOST_ROWS: Final = 1024
"""Rows of the windows whose bits are in shared memory together."""

_WORD: Final = 32
_STATIC_BYTES: Final = 10240  # of shared memory, that the kernel needs beside its bits
_BYTES_A_WORD: Final = 8  # the bits, and how many columns come before
_BYTES_BEHIND: Final = 4  # how many columns there are
_LOOKS: Final = 1000  # at a letter, before the stream is asked whether all is well
_NOT_READY: Final = 600  # cudaErrorNotReady
_LETTER_WINDOWS: Final = 4096
_HEADING: Final = 2  # the ticket, and the columns at which windows are cut
_MUCH_BYTES: Final = 64 << 20


class ConvertArguments(ctypes.Structure):
    """Mirror of ``ConvertArguments`` in ``kernels/include/convert_arguments.cuh`` (176 bytes)."""

    _fields_ = (
        *((name, ctypes.c_uint64)
          for name in ("indptr", "indices", "values", "pointer", "counts", "letter")),
        ("ticket", ctypes.c_int64),
        *((name, ctypes.c_uint64)
          for name in ("meetings", "shared", "stored", "column_index", "tasks",
                       "leading_indices")),
        ("capacity", ctypes.c_int64),
        ("share", ctypes.c_int64),
        *((name, ctypes.c_int32)
          for name in ("m", "words", "windows", "height", "column_shift", "padded_to",
                       "words_at_once", "window_cost")),
        ("share_from", ctypes.c_uint32),
        *((name, ctypes.c_int32)
          for name in ("least_piece", "column_tiles", "places", "deterministic", "is_cleared")),
    )  # fmt: skip


def kernel_builds(arch: str = "sm_90") -> list[KernelBuild]:
    """Return the compilations that a conversion needs."""
    return [KernelBuild(SOURCE, ENTRY, {"THREADS": threads}, arch) for threads in THREADS]


def kernel_build(is_small: bool, arch: str = "sm_90") -> KernelBuild:
    """Return the compilation for small matrices, or for others."""
    return kernel_builds(arch)[0 if is_small else 1]


@dataclass(frozen=True)
class Ready:
    """The kernel on a device, checked once: its launch reads the one struct that is kept for it."""

    arguments: ConvertArguments
    enqueue: Callable[[], None]
    lock: Any

    def launch(self, arguments: ConvertArguments) -> None:
        """Enqueue it on the current stream."""
        with self.lock:
            ctypes.memmove(
                ctypes.addressof(self.arguments),
                ctypes.addressof(arguments),
                ctypes.sizeof(arguments),
            )
            self.enqueue()


@cache
def ready(device: int, shared_bytes: int, is_small: bool) -> Ready:
    """Compile the kernel for the current device; a thread block on each multiprocessor."""
    from asyncsparse_lab.gpu.compile import compile_kernel

    facts = facts_of(device)
    build = kernel_build(is_small, facts.arch)
    kernel = load(compile_kernel(build.source, build.entry, build.constants, build.arch))
    arguments = ConvertArguments()
    threads = build.constants["THREADS"]
    enqueue = kernel.prepare(facts.sm_count, threads, shared_bytes, arguments, cooperative=True)
    return Ready(arguments, enqueue, Lock())


class Letter:
    """By which a conversion tells the host how much memory A takes.

    The kernel writes a ticket, the columns at which windows are cut and the sums of the windows'
    columns into memory of the host, which looks there until the ticket is its own: sooner than a
    copy, and while the kernel goes on.

    Attributes
    ----------
    address : int
        Of the memory, for the kernel.
    windows : int
        For how many there is room.
    ticket : int
        Of the letter that is expected.
    """

    def __init__(self, windows: int) -> None:
        import cupy

        words = _HEADING + windows + 1
        memory = cupy.cuda.alloc_pinned_memory(8 * words)
        self.address = int(memory.ptr)
        self.windows = windows
        self.ticket = 0
        self._values: Any = np.frombuffer(memory, np.int64, words)
        self._values[0] = 0
        _ALL.append(self)

    def read(self, windows: int, status: Callable[[], int]) -> tuple[int, Any]:
        """Wait for it.

        Parameters
        ----------
        windows : int
        status : callable
            What cudaStreamQuery says of the conversion's stream.

        Returns
        -------
        int
            The columns at which windows are cut, or :data:`WHOLE`.
        int64 array, windows + 1
            The first stored column of each window and the end.

        Raises
        ------
        DeviceError
            None comes: the kernel failed, or one before it, or the stream only records.
        """
        values, ticket = self._values, self.ticket
        looks = 0
        while values.item(0) != ticket:
            looks += 1
            if looks % _LOOKS == 0 and (code := status()) != _NOT_READY:
                if values.item(0) == ticket:  # it came between the two looks
                    break
                raise DeviceError(
                    f"{ENTRY} told no sizes, and its stream has status {code}: synchronise before "
                    "it to see whether an earlier kernel failed, and record no CUDA graph"
                )
        return values.item(1), values[_HEADING : _HEADING + windows + 1].copy()


# All that were made stay: a kernel whose host was interrupted may still write.
_ALL: Final[list[Letter]] = []
_FREE: Final[list[Letter]] = []


def take_letter(windows: int) -> Letter:
    """Return one with room for so many windows, and a ticket that it never had."""
    try:
        letter = _FREE.pop()
    except IndexError:
        letter = None
    if letter is None or letter.windows < windows:
        letter = Letter(max(2 * windows, _LETTER_WINDOWS))
    letter.ticket += 1
    return letter


def give_letter(letter: Letter) -> None:
    """Leave it to another conversion; it has been read."""
    _FREE.append(letter)


class Meeting(NamedTuple):
    """What the thread blocks of a stream's conversions meet by.

    Attributes
    ----------
    memory : int32 array
        Of the device: a zero, a count, and from ``SHARED_FROM`` on zeros for windows that blocks
        share.
    address, bytes : int
        Of the memory.
    """

    memory: Any
    address: int
    bytes: int


SHARED_FROM: Final = 16
"""Bytes from the beginning of a meeting's memory to what is shared."""
_MEETINGS: Final[dict[tuple[int, int], Meeting]] = {}
# All that were made stay: a thread that comes here at once may be about to launch with another.
_MEETING_PLACES: Final[list[Meeting]] = []


def meetings(device: int, stream: Any, shared_bytes: int) -> int:
    """Return the address at which a stream's conversions meet, and share so many bytes.

    Raises
    ------
    MemoryLimitError
        There is not so much memory.
    UnsupportedError
        The stream records a CUDA graph, and was not converted on before.
    """
    key = device, stream_id(stream)
    found = _MEETINGS.get(key)
    if found is None or found.bytes < SHARED_FROM + shared_bytes:
        import cupy

        if stream.is_capturing():
            raise UnsupportedError("a CUDA graph is recorded: convert A before")
        words = 1 << (-(-(SHARED_FROM + shared_bytes) // 4) - 1).bit_length()
        memory = device_memory(4 * words, "what thread blocks share of A")
        zeros = cupy.ndarray((words,), np.int32, memory)
        zeros.fill(0)
        found = _MEETINGS[key] = Meeting(zeros, int(memory.ptr), 4 * words)
        _MEETING_PLACES.append(found)
    return found.address


def stream_id(stream: Any) -> int:
    """Return the number of a stream, which no other one ever has, as its handle may be given again.

    The stream that each thread has under the same handle has a number for each.
    """
    from cuda.bindings import driver

    status, number = driver.cuStreamGetId(stream.ptr)
    if int(status) == NO_CONTEXT:  # the first call of a host thread to CUDA
        bind_context()
        status, number = driver.cuStreamGetId(stream.ptr)
    if int(status):
        raise DeviceError(f"cuStreamGetId of stream {stream.ptr:#x}: {status.name}")
    return int(number)


def device_memory(size: int, what: str) -> Any:
    """Return so much device memory.

    The driver is asked for what is free only where it is much, since that takes longer than to
    convert a small matrix.

    Raises
    ------
    MemoryLimitError
        There is not so much.
    """
    import cupy

    if size > _MUCH_BYTES:
        require_memory(size, what, cupy)
    try:
        return cupy.cuda.alloc(max(size, 1))
    except cupy.cuda.memory.OutOfMemoryError:
        raise MemoryLimitError(f"{what} needs {size:,} bytes: free some of the device's") from None


def bits_bytes(words: int, device: int) -> int:
    """Return the dynamic shared memory for so many words of bits.

    A power of two, or all there is: few launches are made ready for many matrices.
    """
    needed = _BYTES_A_WORD * words + _BYTES_BEHIND
    return min(
        1 << (needed - 1).bit_length(), facts_of(device).shared_bytes_per_block - _STATIC_BYTES
    )


def words_at_once(shared_bytes: int) -> int:
    """Return how many words of bits so much dynamic shared memory holds."""
    return (shared_bytes - _BYTES_BEHIND) // _BYTES_A_WORD


def words_of(columns: int) -> int:
    """Return how many words hold a bit for each of so many columns."""
    return max(-(-columns // _WORD), 1)


@cache
def facts_of(device: int) -> DeviceFacts:
    """Return the facts of the current device, sooner than to ask again whether there is one."""
    from asyncsparse_lab.gpu.device import device_facts

    return device_facts()
