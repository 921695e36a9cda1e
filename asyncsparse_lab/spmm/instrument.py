"""Builds that count their own cycles: the rows that they fill, and how they are launched.

Such a build (``INSTRUMENT`` 1 or 2) is a probe: what it counts explains the time of the kernel,
which is measured without it.  ``kernels/include/role_clock.cuh`` fills the rows of BCSR's ring
kernels, ``instrument.cuh`` those of WCSR's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asyncsparse_lab.gpu.compile import Artifact
from asyncsparse_lab.spmm.arguments import BcsrArguments, WcsrArguments
from asyncsparse_lab.spmm.variants import Variant

ROW: Final = np.dtype(
    [(name, np.uint64) for name in ("begin_ns", "end_ns", "begin_clock", "end_clock")]
    + [
        (name, np.uint32)
        for name in (
            "sm", "tiles", "setup", "waits", "wait", "first_wait", "remote_wait", "gather",
            "multiply", "reset", "epilogue", "leave",
        )
    ]
)  # fmt: skip
"""Mirror of ``InstrumentRow``: one thread block of WCSR; cycles unless named otherwise."""

ROLE_ROW: Final = np.dtype(
    [(name, np.uint64) for name in ("begin_clock", "end_clock", "read_clock", "read_ns")]
    + [
        (name, np.uint32)
        for name in (
            "sm", "tiles", "blocks", "waits", "setup", "fetch", "reset", "first_wait", "wait",
            "multiply", "release", "drain", "epilogue", "leave", "remote_wait", "unused",
        )
    ]
)  # fmt: skip
"""Mirror of ``RoleRow``: one role of one thread block of a ring kernel; cycles likewise."""


class MeasuredBcsrArguments(BcsrArguments):
    """Mirror of ``ClockedArguments<BcsrArguments>``, aligned like its tensor maps."""

    _fields_ = (  # type: ignore[assignment]  # ctypes appends them to the base's
        ("measurements", ctypes.c_uint64),
        ("padding", ctypes.c_uint64 * 7),
    )


class MeasuredWcsrArguments(WcsrArguments):
    """Mirror of ``MeasuredArguments<WcsrArguments>``."""

    _fields_ = (("measurements", ctypes.c_uint64),)


@dataclass
class Launch:
    """A product of one of our kernels, ready to be enqueued.

    Attributes
    ----------
    run : callable
        Enqueues it on the current CuPy stream.
    preprocess_us : float
        Conversion of A and what else was derived from it.
    params : dict
        What was chosen.
    measurements : array or None
        Of an instrumented build, the rows of its last run; see :func:`read_rows`.
    """

    run: Callable[[], None]
    preprocess_us: float = 0.0
    params: dict[str, Any] = field(default_factory=dict)
    measurements: Any = None


def open_launch(
    artifact: Artifact,
    kernel: Variant,
    row_tiles: int,
    n: int,
    arguments: BcsrArguments | WcsrArguments,
    roles: int,
) -> tuple[Callable[[], None], Any]:
    """Return the launch of a kernel, and the rows that it fills, None if it fills none.

    Parameters
    ----------
    row_tiles : int
        Block rows, or tasks.
    roles : int
        Warpgroups that fill a row each.
    """
    from asyncsparse_lab.gpu.device import device_facts
    from asyncsparse_lab.gpu.launch import load

    geometry = kernel.launch_geometry
    grid = geometry.grid(row_tiles, n, device_facts().sm_count)
    taken: ctypes.Structure = arguments
    measurements = None
    if kernel.is_instrumented:
        import cupy

        row = row_type(kernel)
        measurements = cupy.zeros((grid, roles, row.itemsize), dtype=cupy.uint8)
        taken = with_measurements(arguments, int(measurements.data.ptr))
    launch = load(artifact).prepare(grid, geometry.threads, geometry.shared_bytes, taken)
    if measurements is None or kernel.format == "bcsr":  # a ring kernel writes its rows anew
        return launch, measurements

    def run() -> None:
        import cupy

        stream = cupy.cuda.get_current_stream()
        measurements.data.memset_async(0, measurements.nbytes, stream)
        launch()

    return run, measurements


def with_measurements(arguments: BcsrArguments | WcsrArguments, address: int) -> ctypes.Structure:
    """Return the argument of an instrumented build: the same, and where its rows are."""
    is_bcsr = isinstance(arguments, BcsrArguments)
    measured = MeasuredBcsrArguments() if is_bcsr else MeasuredWcsrArguments()
    ctypes.memmove(
        ctypes.addressof(measured), ctypes.addressof(arguments), ctypes.sizeof(arguments)
    )
    measured.measurements = address
    return measured


def row_type(kernel: Variant) -> np.dtype[Any]:
    """Return what a row of an instrumented build holds."""
    return ROLE_ROW if kernel.format == "bcsr" else ROW


def read_rows(measurements: Any) -> NDArray[Any]:
    """Return the rows of an instrumented build's last run, thread blocks x roles.

    Their size tells their type: :data:`ROLE_ROW` or :data:`ROW`.
    """
    host = measurements.get() if hasattr(measurements, "get") else measurements
    row = ROLE_ROW if host.shape[-1] == ROLE_ROW.itemsize else ROW
    return np.ascontiguousarray(host).view(row)[:, :, 0]
