"""WCSR for the pipelined kernel: windows of 64, 128 or 256 rows, their tasks, and the launch.

Part of the ``host_hash`` of every record of the family: a change here makes them stale.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from asyncsparse_lab.errors import UnsupportedError
from asyncsparse_lab.formats.rounding import in_type
from asyncsparse_lab.gpu.compile import Artifact
from asyncsparse_lab.spmm.instrument import Launch
from asyncsparse_lab.spmm.layout import aligned_workspace, is_aligned
from asyncsparse_lab.spmm.product import Product, require_memory
from asyncsparse_lab.spmm.variants import Variant

AUTO_LIMIT: Final = -1
"""``max_cols_per_task``: windows are cut where one would keep the others waiting."""
TASK: Final = np.dtype(
    [("first_column", np.int64)]
    + [(name, np.int32) for name in ("window", "columns", "pieces", "piece", "slot", "unused")]
)
"""Mirror of ``WindowTask``."""

LEADING: Final = 128
"""Stored columns whose index comes beside the task: ``LEADING`` of ``window_arguments.cuh``."""

LEAST_PIECE: Final = 1024
"""Columns: fewer take no longer than to write and read a partial tile."""


class WindowArguments(ctypes.Structure):
    """Mirror of ``WindowArguments`` in ``kernels/include/window_arguments.cuh`` (112 bytes)."""

    _fields_ = (
        *((name, ctypes.c_uint64)
          for name in ("a", "window_col_idx", "tasks", "leading_indices", "b", "c", "rows",
                       "partials", "arrivals")),
        *((name, ctypes.c_int64) for name in ("m", "n", "ldc")),
        *((name, ctypes.c_uint32) for name in ("b_row_bytes", "task_count", "column_tiles")),
        ("deterministic", ctypes.c_int32),
    )  # fmt: skip


@dataclass(frozen=True)
class DeviceWindows:
    """WCSR in device memory, columns padded to 16.

    ``window_row_ptr`` is int64 on the host, ``window_col_idx`` int32 with -1 for padding,
    ``values`` the 16-bit patterns as core matrices
    (:func:`asyncsparse_lab.formats.layouts.core_matrices`).  ``rows`` is int32, the row of C to
    which each row of the windows belongs; None where they are in order.
    """

    shape: tuple[int, int]
    height: int
    window_row_ptr: Any
    window_col_idx: Any
    values: Any
    rows: Any = None

    @classmethod
    def from_csr(cls, A: Any, height: int, dtype_in: str = "bfloat16") -> DeviceWindows:
        """Convert on the host and copy to the current device.

        Parameters
        ----------
        A : scipy.sparse.csr_array, m x k
            float32, values exact in ``dtype_in``.
        height : {64, 128, 256}
            Rows of a window.
        dtype_in : {"bfloat16", "float16"}

        Raises
        ------
        MemoryLimitError
            If the columns would not fit into device memory.
        """
        import cupy

        from asyncsparse_lab.formats import WCSR
        from asyncsparse_lab.formats.layouts import K16, core_matrices

        # float32 columns on the way to 16 bits in another order: 4 + 2 + 2 bytes a value.
        size = WCSR.predict(A, height, K16)
        require_memory(8 * size.values, f"A in windows of {height} rows", cupy)
        host = WCSR.from_csr(A, height, K16)
        return cls(
            shape=host.shape,
            height=height,
            window_row_ptr=host.window_row_ptr,
            window_col_idx=cupy.asarray(host.window_col_idx),
            values=core_matrices(in_type(cupy.asarray(host.values), dtype_in).view(np.uint16)),
        )


@dataclass(frozen=True)
class WindowPieces:
    """The tasks that windows are cut into, longest first.

    Attributes
    ----------
    tasks : array of :data:`TASK`
        Their bytes, where they are in device memory.
    leading_indices : int32 array, tasks x LEADING, or None
        In device memory: the columns of A of each task's first stored columns, -1 beyond them.
    count : int
        Tasks.
    limit : int
        Columns at which windows were cut; 0 where they are whole.
    slots : int
        Partial tiles that are kept of each column tile: of all pieces of cut windows if they are
        added up in a fixed order, one of each cut window if by atomics.
    most_pieces : int
        Tasks of the window that has most.
    """

    tasks: Any
    count: int
    limit: int
    slots: int
    most_pieces: int
    leading_indices: Any = None

    @classmethod
    def of(cls, window_row_ptr: Any, limit: int, deterministic: bool) -> WindowPieces:
        """Cut windows at so many columns; 0 leaves them whole.  NumPy arrays, on the host.

        Raises
        ------
        InputError
            The limit is no multiple of 16, or there are 2**31 columns.
        """
        from asyncsparse_lab.formats.tasks import window_tasks

        window, first, columns, pieces = window_tasks(window_row_ptr, limit or None).T
        tasks = np.zeros(len(window), dtype=TASK)
        tasks["window"], tasks["first_column"] = window, first
        tasks["columns"], tasks["pieces"] = columns, pieces
        tasks["piece"] = (first - window_row_ptr[window]) // limit if limit else 0
        slots = np.zeros(len(window_row_ptr) - 1, dtype=np.int64)
        slots[window] = np.where(pieces > 1, pieces if deterministic else 1, 0)
        starts = np.cumsum(slots) - slots
        tasks["slot"] = np.where(pieces > 1, starts[window], -1)
        return cls(tasks, len(tasks), limit, int(slots.sum()), int(pieces.max(initial=1)))

    def on_device(self, window_col_idx: Any) -> WindowPieces:
        """Return the same in device memory, with the leading indices of each task.

        Parameters
        ----------
        window_col_idx : int32 array
            CuPy.
        """
        import cupy

        first, columns = (cupy.asarray(self.tasks[name]) for name in ("first_column", "columns"))
        ahead = cupy.arange(LEADING)
        beyond = cupy.full(LEADING, -1, dtype=cupy.int32)
        indices = cupy.concatenate([window_col_idx, beyond])[first[:, None] + ahead]
        return replace(
            self,
            tasks=cupy.asarray(self.tasks.view(np.uint8)),
            leading_indices=cupy.where(ahead < columns[:, None], indices, beyond),
        )


def choose_limit(window_row_ptr: Any, column_tiles: int, places: int) -> int:
    """Return at how many columns windows are cut, 0 for not at all.

    Thread blocks are handed out longest first, so only a window much longer than the average load
    of a place keeps others waiting.  Shorter ones stay whole, since a cut is not for nothing.

    Parameters
    ----------
    window_row_ptr : int64 array
        NumPy.
    column_tiles : int
        Tiles of C along N: each window is computed for each of them.
    places : int
        Thread blocks that the device runs at once.
    """
    stored = int(window_row_ptr[-1])
    fair = stored * column_tiles // places
    limit = -(-max(fair, LEAST_PIECE) // 16) * 16
    longest_whole = 3 * limit // 2
    if stored <= longest_whole:  # all windows together
        return 0
    return limit if int(np.diff(window_row_ptr).max()) > longest_whole else 0


@dataclass(frozen=True, slots=True)
class CutRule:
    """At how many columns windows are cut.

    The conversion on the GPU follows it in its kernel, as soon as the columns are counted.

    Attributes
    ----------
    max_cols_per_task : int
        The same for all matrices, a multiple of 16, 0 for nowhere; or :data:`AUTO_LIMIT`:
        :func:`choose_limit`.
    column_tiles, places : int
        As there.
    """

    max_cols_per_task: int = 0
    column_tiles: int = 1
    places: int = 1

    @classmethod
    def of(cls, kernel: Variant, n: int) -> CutRule:
        """Return that of a kernel for a product with n columns on the current GPU."""
        from asyncsparse_lab.gpu.device import device_facts

        column_tiles = max(1, -(-n // kernel.launch_geometry.tile_columns))
        places = device_facts().sm_count * kernel.constants["MINIMUM_CTAS"]
        return cls(kernel.options["max_cols_per_task"], column_tiles, places)

    def limit(self, window_row_ptr: Any) -> int:
        """Return the stored columns at which these windows are cut; 0: nowhere."""
        if self.max_cols_per_task != AUTO_LIMIT:
            return self.max_cols_per_task
        return choose_limit(window_row_ptr, self.column_tiles, self.places)


def cut_windows(
    product: Product, height: int, row_order: int, rule: CutRule, deterministic: bool
) -> tuple[DeviceWindows, WindowPieces]:
    """Convert a product's A and cut its windows: on the GPU, or where offsets need 64 bits here.

    Rows are put into another order than the stored one on the host.
    """
    from asyncsparse_lab.spmm.convert import can_convert, windows_from_csr

    if row_order:
        import cupy

        from asyncsparse_lab.spmm import orders

        order = orders.row_order(product.A, row_order)
        ordered = product.with_matrix(product.A[order])
        windows, pieces = cut_windows(ordered, height, 0, rule, deterministic)
        return replace(windows, rows=cupy.asarray(order.astype(np.int32))), pieces
    csr = product.device_csr
    if can_convert(csr):
        return windows_from_csr(csr, product.A.shape, height, rule, deterministic=deterministic)
    windows = DeviceWindows.from_csr(product.A, height, product.dtype_in)
    pointer = windows.window_row_ptr
    pieces = WindowPieces.of(pointer, rule.limit(pointer), deterministic)
    return windows, pieces.on_device(windows.window_col_idx)


def window_arguments(
    A: DeviceWindows,
    pieces: WindowPieces,
    B: Any,
    C: Any,
    column_tiles: int,
    deterministic: bool,
) -> WindowArguments:
    """Fill the argument struct for C = A B, but for the memory of partial tiles.

    Parameters
    ----------
    A : DeviceWindows, m x k
    pieces : WindowPieces
        With CuPy arrays.
    B : cupy.ndarray of uint16 or float16, k x n
        Row-major, rows aligned to 16 bytes.
    C : cupy.ndarray, m x n
        Row-major, any row stride.

    Raises
    ------
    UnsupportedError
        If C's columns are not contiguous, or a row of B has 4 GiB or more.
    """
    n = B.shape[1]
    if n > 1 and C.strides[1] != C.itemsize:
        raise UnsupportedError(f"C has strides {C.strides}: pass a row-major out")
    if not 0 <= B.strides[0] < 2**32:
        raise UnsupportedError(f"B has strides {B.strides}: pass rows of less than 4 GiB, in order")
    return WindowArguments(
        a=A.values.data.ptr,
        window_col_idx=A.window_col_idx.data.ptr,
        tasks=pieces.tasks.data.ptr,
        leading_indices=pieces.leading_indices.data.ptr,
        b=B.data.ptr,
        c=C.data.ptr,
        rows=0 if A.rows is None else A.rows.data.ptr,
        m=A.shape[0],
        n=n,
        ldc=C.strides[0] // C.itemsize,
        b_row_bytes=B.strides[0],
        task_count=pieces.count,
        column_tiles=column_tiles,
        deterministic=deterministic,
    )


def launch_windows(kernel: Variant, artifact: Artifact, product: Product, output: Any) -> Launch:
    """Convert A, cut its windows, and make the product a function to be called: one launch.

    Raises
    ------
    DeviceError, InputError, MemoryLimitError, UnsupportedError
        Before anything is launched.
    """
    product.require(kernel.name, kernel.dtypes_in)
    if kernel.is_instrumented:
        raise UnsupportedError(f"{kernel.name} has no instruments: leave INSTRUMENT out")
    constants, options = kernel.constants, kernel.options
    height, deterministic = constants["HEIGHT"], bool(options["deterministic"])
    row_order = options["row_order"]
    name = f"windows{height}-order{row_order}" if row_order else f"windows{height}"
    rule = CutRule.of(kernel, product.n)

    def pieces_name(limit: int) -> str:
        return f"{name}-pieces{limit}-{deterministic}"

    def convert(_: object) -> DeviceWindows:
        windows, pieces = cut_windows(product, height, row_order, rule, deterministic)
        product.conversions.keep(pieces_name(pieces.limit), pieces)
        return windows

    A, convert_us = product.converted(name, convert)
    limit = rule.limit(A.window_row_ptr)
    # Made with the windows, unless these were converted for another width or kernel.
    pieces, cut_us = product.converted(
        pieces_name(limit),
        lambda _: WindowPieces.of(A.window_row_ptr, limit, deterministic).on_device(
            A.window_col_idx
        ),
    )
    launch = _open(kernel, artifact, A, pieces, product.B, output)
    params = {
        "padded": not is_aligned(product.B),
        "deterministic": deterministic or pieces.most_pieces < 3,
        "atomics": not deterministic,
        "columns_per_task": limit,
    }
    return replace(launch, preprocess_us=convert_us + cut_us, params=params)


def _open(
    kernel: Variant, artifact: Artifact, A: DeviceWindows, pieces: WindowPieces, B: Any, C: Any
) -> Launch:
    import cupy

    from asyncsparse_lab.gpu.launch import load

    if not C.size:
        return Launch(lambda: None)
    if not B.size:
        return Launch(lambda: C.fill(0))
    geometry = kernel.launch_geometry
    column_tiles = -(-B.shape[1] // geometry.tile_columns)
    readable = B if is_aligned(B) else aligned_workspace(B)
    deterministic = bool(kernel.options["deterministic"])
    arguments = window_arguments(A, pieces, readable, C, column_tiles, deterministic)
    tiles = pieces.slots * column_tiles
    values = tiles * A.height * geometry.tile_columns
    require_memory(4 * values, "float32 partial tiles of cut windows", cupy)
    partials = cupy.empty(values, dtype=cupy.float32)
    if not deterministic:  # what is added to; who takes the sum leaves zeros
        partials.fill(0)
    warps = geometry.threads // 32 - kernel.constants["PRODUCERS"]  # each meets others by itself
    arrivals = cupy.zeros(tiles * warps, dtype=cupy.int32)
    arguments.partials, arguments.arrivals = partials.data.ptr, arrivals.data.ptr
    grid = pieces.count * column_tiles
    enqueue = load(artifact).prepare(grid, geometry.threads, geometry.shared_bytes, arguments)

    def run(_alive: tuple[object, ...] = (A, pieces, B, C, readable, partials, arrivals)) -> None:
        if readable is not B:
            readable[...] = B
        enqueue()

    return Launch(run)
