"""The conversion kernel of a device, made ready once; a launch of it takes a few microseconds.

A small matrix is converted in less time than most launches are checked in, so the grid is always
the same, and the kernel goes through what there is in strides.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from threading import Lock, get_ident
from typing import Any, Final, NamedTuple

import numpy as np

from asyncsparse_lab.errors import DeviceError, UnsupportedError
from asyncsparse_lab.gpu.compile import KernelBuild

SOURCE: Final = "convert.cu"
ENTRY: Final = "convert_csr"
THREADS: Final = 1024
CONVERT: Final = 1
CLEAR: Final = 2
CUT: Final = 4
"""The phases of a launch, mirror of ``Phase``."""
MOST_ROWS: Final = 1024
"""Rows of the windows whose bits are in shared memory together."""

_WORD: Final = 32
_STATIC_BYTES: Final = 10240  # of shared memory, that the kernel needs beside its bits
_BYTES_A_WORD: Final = 8  # the bits, and how many columns come before
_BYTES_BEHIND: Final = 4  # how many columns there are
_LOOKS: Final = 1000  # at a letter, before the stream is asked whether all is well
_NOT_READY: Final = 600  # cudaErrorNotReady
_PER_THREAD: Final = 2  # cudaStreamPerThread: a stream of each thread under one name
_LETTER_WINDOWS: Final = 4096


class ConvertArguments(ctypes.Structure):
    """Mirror of ``ConvertArguments`` in ``kernels/include/convert_arguments.cuh`` (184 bytes)."""

    _fields_ = (
        *((name, ctypes.c_uint64)
          for name in ("indptr", "indices", "values", "pointer", "counts", "letter")),
        ("ticket", ctypes.c_int64),
        *((name, ctypes.c_uint64)
          for name in ("meetings", "shared", "stored", "column_index", "tasks",
                       "leading_indices", "split_windows")),
        ("capacity", ctypes.c_int64),
        ("share", ctypes.c_int64),
        *((name, ctypes.c_int32)
          for name in ("m", "words", "windows", "height", "column_shift", "padded_to",
                       "words_at_once", "window_cost")),
        ("share_from", ctypes.c_uint32),
        *((name, ctypes.c_int32)
          for name in ("task_limit", "task_kind", "deterministic", "phases")),
    )  # fmt: skip


def kernel_builds(arch: str = "sm_90") -> list[KernelBuild]:
    """Return the compilations that a conversion needs."""
    return [KernelBuild(SOURCE, ENTRY, {}, arch)]


@dataclass(frozen=True)
class Ready:
    """The kernel on a device, checked once: its launch reads the one struct that is kept for it."""

    grid: int
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
def ready(device: int, shared_bytes: int) -> Ready:
    """Compile the kernel for the current device; as many thread blocks as run at once there."""
    from asyncsparse_lab.gpu.compile import compile_kernel
    from asyncsparse_lab.gpu.device import device_facts
    from asyncsparse_lab.gpu.launch import load

    facts = device_facts()
    (build,) = kernel_builds(facts.arch)
    kernel = load(compile_kernel(build.source, build.entry, build.constants, build.arch))
    arguments = ConvertArguments()
    grid = facts.sm_count * kernel.blocks_per_sm(THREADS, shared_bytes)
    enqueue = kernel.prepare(grid, THREADS, shared_bytes, arguments, cooperative=True)
    return Ready(grid, arguments, enqueue, Lock())


class Letter:
    """By which a conversion tells the host how much memory A takes.

    The kernel writes a ticket and the sums of the windows' columns into memory of the host, which
    looks there until the ticket is its own: sooner than a copy, and while the kernel goes on.

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

        memory = cupy.cuda.alloc_pinned_memory(8 * (windows + 2))
        self.address = int(memory.ptr)
        self.windows = windows
        self.ticket = 0
        self._values: Any = np.frombuffer(memory, np.int64, windows + 2)
        self._values[0] = 0
        _ALL.append(self)

    def read(self, windows: int, status: Callable[[], int]) -> Any:
        """Wait for it, and return the first stored column of each window and the end.

        Parameters
        ----------
        windows : int
        status : callable
            What cudaStreamQuery says of the conversion's stream.

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
        return values[1 : windows + 2].copy()


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
    stream : cupy.cuda.Stream
        As long as its handle is a key here, no other stream may have it.
    """

    memory: Any
    stream: Any


SHARED_FROM: Final = 16
"""Bytes from the beginning of a meeting's memory to what is shared."""
_MEETINGS: Final[dict[tuple[int, int, int], Meeting]] = {}
# All that were made stay: a thread that comes here at once may be about to launch with another.
_MEETING_PLACES: Final[list[Meeting]] = []


def meetings(device: int, stream: Any, shared_bytes: int) -> int:
    """Return the address at which a stream's conversions meet, and share so many bytes.

    Raises
    ------
    UnsupportedError
        The stream records a CUDA graph, and was not converted on before.
    """
    pointer = stream.ptr
    key = (device, pointer, get_ident() if pointer == _PER_THREAD else 0)
    found = _MEETINGS.get(key)
    if found is None or found.memory.nbytes < SHARED_FROM + shared_bytes:
        import cupy

        if stream.is_capturing():
            raise UnsupportedError("a CUDA graph is recorded: convert A before")
        words = 1 << (-(-(SHARED_FROM + shared_bytes) // 4) - 1).bit_length()
        found = _MEETINGS[key] = Meeting(cupy.zeros(words, dtype=cupy.int32), stream)
        _MEETING_PLACES.append(found)
    return int(found.memory.data.ptr)


def bits_bytes(words: int, device: int) -> int:
    """Return the dynamic shared memory for so many words of bits.

    A power of two, or all there is: few launches are made ready for many matrices.
    """
    needed = _BYTES_A_WORD * words + _BYTES_BEHIND
    return min(1 << (needed - 1).bit_length(), shared_limit(device) - _STATIC_BYTES)


def words_at_once(shared_bytes: int) -> int:
    """Return how many words of bits so much dynamic shared memory holds."""
    return (shared_bytes - _BYTES_BEHIND) // _BYTES_A_WORD


def words_of(columns: int) -> int:
    """Return how many words hold a bit for each of so many columns."""
    return max(-(-columns // _WORD), 1)


@cache
def shared_limit(device: int) -> int:
    """Return the bytes of shared memory that a thread block may use."""
    from asyncsparse_lab.gpu.device import device_facts

    return device_facts().shared_bytes_per_block


@cache
def processors(device: int) -> int:
    """Return the multiprocessors of the current device."""
    from asyncsparse_lab.gpu.device import device_facts

    return device_facts().sm_count
