"""The small kernels of the document's design: the vector updates and a sparse right-hand side."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

from asyncsparse_lab.gpu.compile import KernelBuild, compile_kernel

UPDATE_SOURCE: Final = "lsmr_update.cu"
FUSED: Final = ("update_hbar_and_x", "update_h")
UNFUSED: Final = ("update_hbar", "update_x", "update_h")
THREADS: Final = 256
WIDE: Final = 4  # elements of 4 bytes in a load of 16


class UpdateArguments(ctypes.Structure):
    """``LsmrUpdateArguments`` of ``kernels/lsmr_update.cu``."""

    _fields_ = (
        ("hbar", ctypes.c_void_p),
        ("h", ctypes.c_void_p),
        ("x", ctypes.c_void_p),
        ("v", ctypes.c_void_p),
        ("hbar_factor", ctypes.c_float),
        ("step", ctypes.c_float),
        ("h_factor", ctypes.c_float),
        ("size", ctypes.c_int64),
    )


class ScatterArguments(ctypes.Structure):
    """``ScatterArguments`` of ``kernels/lsmr_scatter.cu``."""

    _fields_ = (
        ("y", ctypes.c_void_p),
        ("index", ctypes.c_void_p),
        ("value", ctypes.c_void_p),
        ("count", ctypes.c_int64),
    )


def update_builds(arch: str = "sm_90") -> list[KernelBuild]:
    """Return every compilation of the update kernels and of the scatter."""
    entries = dict.fromkeys((*FUSED, *UNFUSED))
    builds = [
        KernelBuild(UPDATE_SOURCE, entry, {"WIDTH": width}, arch)
        for entry in entries
        for width in (1, WIDE)
    ]
    return [*builds, KernelBuild("lsmr_scatter.cu", "lsmr_scatter", {}, arch)]


def choose_width(*addresses: int) -> int:
    """Return how many elements a thread updates: 4 where all arrays begin at whole 16 bytes."""
    return WIDE if all(address % (4 * WIDE) == 0 for address in addresses) else 1


def prepare_updates(
    entries: tuple[str, ...], arguments: UpdateArguments, width: int, arch: str, stream: Any
) -> list[Callable[[], None]]:
    """Return launches of update kernels; each reads ``arguments`` anew."""
    from asyncsparse_lab.gpu.launch import load

    blocks = -(-int(arguments.size) // (THREADS * width))
    return [
        load(compile_kernel(UPDATE_SOURCE, entry, {"WIDTH": width}, arch)).prepare(
            blocks, THREADS, 0, arguments, stream
        )
        for entry in entries
    ]


def scatter(y: Any, index: Any, value: Any, arch: str, stream: Any) -> None:
    """Enqueue ``y[index] = value`` on the device; every index occurs once."""
    from asyncsparse_lab.gpu.launch import load

    if not index.size:
        return
    kernel = load(compile_kernel("lsmr_scatter.cu", "lsmr_scatter", {}, arch))
    arguments = ScatterArguments(y.data.ptr, index.data.ptr, value.data.ptr, index.size)
    kernel.launch(-(-index.size // THREADS), THREADS, 0, arguments, stream)
