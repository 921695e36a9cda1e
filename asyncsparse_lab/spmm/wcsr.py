"""The device layout of WCSR that the kernels read, its tasks, and how a product is launched.

Part of the ``host_hash`` of every WCSR record: a change here makes them stale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from asyncsparse_lab.errors import UnsupportedError
from asyncsparse_lab.gpu.compile import Artifact
from asyncsparse_lab.spmm.arguments import WcsrArguments
from asyncsparse_lab.spmm.instrument import Launch, open_launch
from asyncsparse_lab.spmm.layout import aligned_workspace, is_aligned
from asyncsparse_lab.spmm.product import Product, require_memory
from asyncsparse_lab.spmm.variants import WINDOW, Variant

_ROW_THREADS: Final = 256  # of the kernels that clear and round rows of split windows


@dataclass(frozen=True)
class DeviceWcsr:
    """WCSR with windows of 64 rows, columns padded to 16, in device memory.

    ``window_row_ptr`` is int64 on the host, ``window_col_idx`` int32 with -1 for padding,
    ``values`` the bf16 bits as core matrices
    (:func:`asyncsparse_lab.formats.layouts.core_matrices`).
    """

    shape: tuple[int, int]
    window_row_ptr: Any
    window_col_idx: Any
    values: Any

    @classmethod
    def from_csr(cls, A: Any) -> DeviceWcsr:
        """Convert on the host and copy to the current device.

        Parameters
        ----------
        A : scipy.sparse.csr_array, m x k
            float32, values exact in bf16.

        Raises
        ------
        MemoryLimitError
            If the columns would not fit into device memory.
        """
        import cupy

        from asyncsparse_lab.formats import WCSR, bfloat16_bits
        from asyncsparse_lab.formats.layouts import K16, core_matrices

        # float32 columns on the way to bf16 bits in another order: 4 + 2 + 2 bytes a value.
        size = WCSR.predict(A, WINDOW, K16)
        require_memory(8 * size.values, f"A in windows of {WINDOW} rows", cupy)
        host = WCSR.from_csr(A, WINDOW, K16)
        return cls(
            shape=host.shape,
            window_row_ptr=host.window_row_ptr,
            window_col_idx=cupy.asarray(host.window_col_idx),
            values=core_matrices(bfloat16_bits(cupy.asarray(host.values))),
        )


@dataclass(frozen=True)
class WindowTasks:
    """The pieces that windows are cut into.

    Attributes
    ----------
    tasks : array of int32, tasks x 4
        As :func:`asyncsparse_lab.formats.tasks.window_tasks` gives them.
    split_windows : array of int32
        Windows of several tasks, whose partial results are added up.
    most_pieces : int
        Tasks of the window that has most; with three or more, sums depend on their order.
    """

    tasks: Any
    split_windows: Any
    most_pieces: int

    @classmethod
    def of(cls, window_row_ptr: Any, max_cols_per_task: int) -> WindowTasks:
        """Cut windows at so many columns; 0 leaves them whole.  NumPy arrays, on the host."""
        from asyncsparse_lab.formats.tasks import window_tasks

        tasks = window_tasks(window_row_ptr, max_cols_per_task or None)
        split = np.unique(tasks[tasks[:, 3] > 1, 0]).astype(np.int32)
        return cls(tasks, split, int(tasks[:, 3].max(initial=1)))

    def on_device(self) -> WindowTasks:
        """Return the same with CuPy arrays."""
        import cupy

        return WindowTasks(
            cupy.asarray(self.tasks), cupy.asarray(self.split_windows), self.most_pieces
        )


def wcsr_arguments(A: DeviceWcsr, tasks: WindowTasks, B: Any, C: Any, sums: Any) -> WcsrArguments:
    """Fill the argument struct for C = A B.

    Parameters
    ----------
    A : DeviceWcsr, m x k
    tasks : WindowTasks
        With CuPy arrays.
    B : cupy.ndarray of uint16, k x n
        Row-major, rows aligned to 16 bytes.
    C : cupy.ndarray, m x n
        Row-major, any row stride.
    sums : cupy.ndarray of float32, m x n, or None
        Where split windows are added up; C itself where it is float32.

    Raises
    ------
    UnsupportedError
        If C's columns are not contiguous.
    """
    (m, k), n = A.shape, B.shape[1]
    if n > 1 and C.strides[1] != C.itemsize:
        raise UnsupportedError(f"C has strides {C.strides}: pass a row-major out")
    return WcsrArguments(
        a=A.values.data.ptr,
        window_col_idx=A.window_col_idx.data.ptr,
        tasks=tasks.tasks.data.ptr,
        split_windows=tasks.split_windows.data.ptr,
        b=B.data.ptr,
        c=C.data.ptr,
        sums=0 if sums is None else sums.data.ptr,
        task_count=len(tasks.tasks),
        split_count=len(tasks.split_windows),
        m=m,
        k=k,
        n=n,
        ldb=B.strides[0] // B.itemsize,
        ldc=C.strides[0] // C.itemsize,
        ldsums=0 if sums is None else sums.strides[0] // sums.itemsize,
    )


def launch_wcsr(kernel: Variant, artifact: Artifact, product: Product, output: Any) -> Launch:
    """Convert A, cut its windows, and make the product a function to be called.

    One launch where no window is cut; else the rows of cut windows are cleared before, and after
    rounded into C where that is bf16.

    Raises
    ------
    DeviceError, MemoryLimitError, UnsupportedError
        Before anything is launched.
    """
    limit = kernel.options["max_cols_per_task"]
    A, convert_us = product.converted("wcsr64", DeviceWcsr.from_csr)
    tasks, cut_us = product.converted(
        f"wcsr64-tasks{limit}", lambda _: WindowTasks.of(A.window_row_ptr, limit).on_device()
    )
    params = {"padded": not is_aligned(product.B), "deterministic": tasks.most_pieces < 3}
    launch = _open(kernel, artifact, A, tasks, product.B, output)
    return replace(launch, preprocess_us=convert_us + cut_us, params=params)


def _open(
    kernel: Variant, artifact: Artifact, A: DeviceWcsr, tasks: WindowTasks, B: Any, C: Any
) -> Launch:
    if not C.size:
        return Launch(lambda: None)
    if not B.size:
        return Launch(lambda: C.fill(0))
    readable = B if is_aligned(B) else aligned_workspace(B)
    sums = _sums(tasks, C)
    arguments = wcsr_arguments(A, tasks, readable, C, sums)
    multiply, measurements = open_launch(
        artifact, kernel, len(tasks.tasks), B.shape[1], arguments, roles=1
    )
    before, after = _row_launches(kernel, artifact, tasks, arguments, rounds=sums is not C)

    def run(_alive: tuple[object, ...] = (A, tasks, B, C, readable, sums)) -> None:
        if readable is not B:
            readable[...] = B
        for launch in (*before, multiply, *after):
            launch()

    return Launch(run, measurements=measurements)


def _sums(tasks: WindowTasks, C: Any) -> Any:
    """Return where split windows are added up: C if it is float32; None if none is split."""
    if not len(tasks.split_windows):
        return None
    if C.itemsize == 4:
        return C
    import cupy

    require_memory(4 * C.size, "float32 sums of split windows", cupy)
    return cupy.empty(C.shape, dtype=cupy.float32)


def _row_launches(
    kernel: Variant, artifact: Artifact, tasks: WindowTasks, arguments: WcsrArguments, rounds: bool
) -> tuple[list[Callable[[], None]], list[Callable[[], None]]]:
    """Return what is launched before and after the tasks, for the rows of split windows."""
    from asyncsparse_lab.gpu.launch import load

    rows = len(tasks.split_windows) * WINDOW
    if not rows:
        return [], []

    def launch(entry: str) -> Callable[[], None]:
        return load(replace(artifact, entry=entry)).prepare(rows, _ROW_THREADS, 0, arguments)

    return [launch("wcsr_clear")], [launch("wcsr_round")] if rounds else []
