"""The conversion kernels of a device, made ready once; a launch of one takes a few microseconds.

A small matrix is converted in less time than most launches are checked in, so the grid is always
the same, and the kernels go through what there is in strides.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any, Final

from asyncsparse_lab.gpu.compile import KernelBuild

SOURCE: Final = "convert.cu"
COUNT_ENTRY: Final = "convert_count"
FILL_ENTRY: Final = "convert_fill"
COUNT_THREADS: Final = 512
FILL_THREADS: Final = 256

_WORD: Final = 32
_STATIC_BYTES: Final = 2048  # of shared memory, that the counting kernel needs beside its bits
_BYTES_A_WORD: Final = 8  # the bits, and how many columns come before
_THREADS_OF_AN_SM: Final = 2048


class ConvertArguments(ctypes.Structure):
    """Mirror of ``ConvertArguments`` in ``kernels/include/convert_arguments.cuh`` (160 bytes)."""

    _fields_ = (
        *((name, ctypes.c_uint64)
          for name in ("indptr", "indices", "values", "ranks", "rows", "columns", "counts",
                       "pointer", "finished", "column_index", "stored", "tasks", "leading_indices",
                       "split_windows")),
        *((name, ctypes.c_int32)
          for name in ("m", "columns_of_a", "windows", "height", "column_shift", "padded_to",
                       "columns_at_once", "task_limit", "entry_blocks", "column_blocks",
                       "task_kind", "deterministic")),
    )  # fmt: skip


def kernel_builds(arch: str = "sm_90") -> list[KernelBuild]:
    """Return the compilations that a conversion needs."""
    return [KernelBuild(SOURCE, entry, {}, arch) for entry in (COUNT_ENTRY, FILL_ENTRY)]


@dataclass(frozen=True)
class Ready:
    """A kernel on a device, checked once: its launch reads the one struct that is kept for it."""

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
def ready(entry: str, device: int, shared_bytes: int) -> Ready:
    """Compile a kernel for the current device; as many thread blocks as it holds, or nearly so."""
    from asyncsparse_lab.gpu.compile import compile_kernel
    from asyncsparse_lab.gpu.device import device_facts
    from asyncsparse_lab.gpu.launch import load

    facts = device_facts()
    build = next(b for b in kernel_builds(facts.arch) if b.entry == entry)
    kernel = load(compile_kernel(build.source, build.entry, build.constants, build.arch))
    threads = COUNT_THREADS if entry == COUNT_ENTRY else FILL_THREADS
    arguments = ConvertArguments()
    grid = facts.sm_count * _THREADS_OF_AN_SM // threads
    enqueue = kernel.prepare(grid, threads, shared_bytes, arguments)
    return Ready(arguments, enqueue, Lock())


@cache
def counter(device: int, stream: int) -> Any:
    """Return a zero in device memory, which the kernel leaves zero; one a stream."""
    import cupy

    return cupy.zeros(1, dtype=cupy.int32)


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
