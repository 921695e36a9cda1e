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
from typing import Any, Final

import numpy as np

from asyncsparse_lab.errors import DeviceError, UnsupportedError
from asyncsparse_lab.gpu.compile import KernelBuild

SOURCE: Final = "convert.cu"
ENTRY: Final = "convert_csr"
THREADS: Final = 1024
COUNT: Final = 1
FILL: Final = 2
CLEAR: Final = 4
"""The phases of a launch, mirror of ``Phase``."""

_WORD: Final = 32
_STATIC_BYTES: Final = 6144  # of shared memory, that the kernel needs beside its bits
_BYTES_A_WORD: Final = 8  # the bits, and how many columns come before
_LOOKS: Final = 1000  # at a letter, before the stream is asked whether all is well
_NOT_READY: Final = 600  # cudaErrorNotReady
_PER_THREAD: Final = 2  # cudaStreamPerThread: a stream of each thread under one name
_LETTER_WINDOWS: Final = 4096


class ConvertArguments(ctypes.Structure):
    """Mirror of ``ConvertArguments`` in ``kernels/include/convert_arguments.cuh`` (176 bytes)."""

    _fields_ = (
        *((name, ctypes.c_uint64)
          for name in ("indptr", "indices", "values", "pointer", "ranks", "columns", "counts",
                       "rows", "letter")),
        ("ticket", ctypes.c_int64),
        *((name, ctypes.c_uint64)
          for name in ("meetings", "stored", "column_index", "tasks", "leading_indices",
                       "split_windows")),
        *((name, ctypes.c_int32)
          for name in ("m", "columns_of_a", "windows", "height", "column_shift", "padded_to",
                       "columns_at_once", "task_limit", "task_kind", "deterministic", "phases",
                       "most_values")),
    )  # fmt: skip


def kernel_builds(arch: str = "sm_90") -> list[KernelBuild]:
    """Return the compilations that a conversion needs."""
    return [KernelBuild(SOURCE, ENTRY, {}, arch)]


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
    return Ready(arguments, enqueue, Lock())


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


# What the thread blocks of a stream's conversions meet by, and the stream: as long as its handle is
# a key here, no other stream may have it.
_MEETINGS: Final[dict[tuple[int, int, int], tuple[Any, Any]]] = {}


def meetings(device: int, stream: Any) -> int:
    """Return the address at which a stream's conversions meet: of a zero, and of a count.

    Raises
    ------
    UnsupportedError
        The stream records a CUDA graph, and was not converted on before.
    """
    pointer = stream.ptr
    key = (device, pointer, get_ident() if pointer == _PER_THREAD else 0)
    found = _MEETINGS.get(key)
    if found is None:
        import cupy

        if stream.is_capturing():
            raise UnsupportedError("a CUDA graph is recorded: convert A before")
        # Of two threads that come here at once one is first; what the other made is dropped.
        found = _MEETINGS.setdefault(key, (cupy.zeros(2, dtype=cupy.int32), stream))
    return int(found[0].data.ptr)


def bits_bytes(columns: int, device: int) -> int:
    """Return the dynamic shared memory for the bits of so many columns.

    A power of two, or all there is: few launches are made ready for many matrices.
    """
    needed = _BYTES_A_WORD * columns // _WORD
    return min(1 << (needed - 1).bit_length(), shared_limit(device) - _STATIC_BYTES)


@cache
def shared_limit(device: int) -> int:
    """Return the bytes of shared memory that a thread block may use."""
    from asyncsparse_lab.gpu.device import device_facts

    return device_facts().shared_bytes_per_block


def columns_at_once(columns: int, shared_bytes: int) -> int:
    """Return how many of a window's columns are counted in one pass: what fits, in whole words.

    Parameters
    ----------
    columns : int
        Of A, in units of the format's columns.
    shared_bytes : int
        That a thread block may use.
    """
    fits = (shared_bytes - _STATIC_BYTES) // _BYTES_A_WORD * _WORD
    return min(max(-(-columns // _WORD), 1) * _WORD, fits)
