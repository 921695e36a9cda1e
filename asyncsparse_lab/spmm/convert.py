"""CSR to BCSR and WCSR in device memory.

The arrays are those that the conversions on the host give, bit for bit; these remain for CSR whose
offsets need 64 bits, and where there is no GPU.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.formats.layouts import K16
from asyncsparse_lab.spmm.convert_run import BLOCKS, PIECES, Conversion
from asyncsparse_lab.spmm.convert_run import can_convert as can_convert
from asyncsparse_lab.spmm.geometry import BLOCK, WINDOW
from asyncsparse_lab.spmm.layout import DeviceBcsr
from asyncsparse_lab.spmm.product import DeviceCsr
from asyncsparse_lab.spmm.ring import blocks_from_host
from asyncsparse_lab.spmm.wcsr import DeviceWcsr
from asyncsparse_lab.spmm.windows import CutRule, DeviceWindows, WindowPieces

HEIGHTS: Final = tuple(PIECES)
"""Heights of windows that the kernels read."""
WHOLE: Final = CutRule()


def blocks_from_csr(csr: DeviceCsr, shape: tuple[int, int]) -> DeviceBcsr:
    """Convert to BCSR with blocks of 64 x 64 and its tasks.

    Parameters
    ----------
    csr : DeviceCsr, m x k
        Canonical, on the current device, 16-bit values; zeros among them are dropped.
    shape : (int, int)

    Raises
    ------
    DeviceError
        The stream has failed before.
    InputError
        2**31 blocks.
    UnsupportedError
        The arrays are not CuPy's, or not 32-bit.
    MemoryLimitError
        The blocks would not fit into device memory.
    """
    made = Conversion(csr, shape, BLOCKS, WHOLE)
    tasks = made.tasks()  # while the kernel runs
    made.settle()
    blocks = made.values(max(made.stored, 1), BLOCK, BLOCK)
    return DeviceBcsr(shape, made.pointer(), made.column_index(), blocks, tasks)


def wcsr_from_csr(csr: DeviceCsr, shape: tuple[int, int]) -> DeviceWcsr:
    """Convert to WCSR with windows of 64 rows for the article's kernel.

    It is converted once for all thresholds of that kernel, which cuts its tasks on the host.

    Parameters
    ----------
    csr : DeviceCsr, m x k
        Canonical, on the current device, 16-bit values; zeros among them are dropped.
    shape : (int, int)

    Raises
    ------
    DeviceError, InputError, MemoryLimitError, UnsupportedError
        As :func:`windows_from_csr`.
    """
    windows, _ = windows_from_csr(csr, shape, WINDOW)
    return DeviceWcsr(shape, windows.window_row_ptr, windows.window_col_idx, windows.values)


def windows_from_csr(
    csr: DeviceCsr,
    shape: tuple[int, int],
    height: int,
    rule: CutRule = WHOLE,
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
    rule : CutRule, optional
        At how many stored columns windows are cut; by default they stay whole.
    deterministic : bool
        Whether the pieces of a window are added up in a fixed order.

    Raises
    ------
    DeviceError
        The stream has failed before.
    InputError
        Another height or limit, or 2**31 stored columns.
    UnsupportedError
        The arrays are not CuPy's, or not 32-bit.
    MemoryLimitError
        The columns would not fit into device memory.
    """
    layout = PIECES.get(height)
    if layout is None:
        raise InputError(f"windows of {height} rows: the kernels read {HEIGHTS}")
    made = Conversion(csr, shape, layout, rule, deterministic)
    pieces = _pieces(made, deterministic)  # while the kernel runs, for windows that stay whole
    made.settle()
    if made.columns_per_task:
        pieces = _pieces(made, deterministic)
    values = made.values(made.stored // K16, height // 64, 2, 8, 8, 8)
    return DeviceWindows(shape, height, made.starts, made.column_index(), values), pieces


def _pieces(made: Conversion, deterministic: bool) -> WindowPieces:
    counts = made.counts
    slots = counts.pieces_of_split if deterministic else counts.split
    return WindowPieces(
        made.tasks(),
        counts.tasks,
        made.columns_per_task,
        slots,
        counts.most_pieces,
        made.leading_indices(),
    )


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
