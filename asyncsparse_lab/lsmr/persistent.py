r"""LSMR in one persistent kernel: a matrix on the device, laid out once for many solves.

``kernels/lsmr_persistent.cu`` has the algorithm: no host in the loop, two exchanges over the
grid an iteration.  :mod:`asyncsparse_lab.lsmr.geometry` says what an iteration takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncsparse_lab.errors import DeviceError, InputError
from asyncsparse_lab.gpu.compile import Artifact, compile_kernel
from asyncsparse_lab.lsmr.arguments import OUTCOME_FIELDS, MatrixArguments, SolveArguments
from asyncsparse_lab.lsmr.geometry import Geometry, check_geometry, choose_geometry
from asyncsparse_lab.lsmr.host import largest, power_of_two
from asyncsparse_lab.lsmr.layout import SlicedMatrix
from asyncsparse_lab.lsmr.plan import Plan, build_plan
from asyncsparse_lab.lsmr.problem import PreparedMatrix, check_matrix, check_scales

SPIN_LIMIT = 1 << 24  # polls; some ten seconds
SAFE = {4: 2.0**32, 8: 2.0**400}
"""How much larger or smaller than 1 the entries of A may be, by their bytes: the products A A'u of
the kernel are as large as their square."""


@dataclass(slots=True)
class Group:
    """Buffers and the prepared launch for a number of right-hand sides solved together."""

    rhs: int
    geometry: Geometry
    artifact: Artifact
    arguments: SolveArguments
    launch: Callable[[], None]
    outcomes: Any  # host array that the kernel writes
    slots: Any
    buffers: list[Any]

    def start(self, stream: Any) -> None:
        """Empty the slots and launch on a CuPy stream, which is the current one."""
        self.slots.data.memset_async(0xFF, self.slots.nbytes, stream)
        self.launch()


class PersistentMatrix(PreparedMatrix):
    """A matrix laid out on the device, with the buffers of its solves; reusable.

    Made by :func:`prepare`; :func:`asyncsparse_lab.lsmr.lsmr` takes it in place of A.  Not for
    use by two threads at a time.

    Attributes
    ----------
    shape : (int, int)
        m and n.
    dtype : numpy.dtype
        float32 or float64.
    scaled : bool
        Whether its columns are scaled.
    plan : Plan
        The layout.
    magnitude : float
        A power of two, nearly always 1: what is laid out is A divided by it.
    """

    backend = "persistent"

    def __init__(
        self, plan: Plan, geometry: Geometry | None = None, magnitude: float = 1.0
    ) -> None:
        from asyncsparse_lab.gpu.device import device_facts

        self.facts = device_facts()
        if self.facts.capability < (8, 0):
            raise DeviceError(
                f"{self.facts.name} has compute capability {self.facts.capability}: the "
                "persistent kernel needs 8.0; use backend='host'"
            )
        if geometry is not None:
            check_geometry(geometry)
        self.plan, self.magnitude = plan, magnitude
        self.shape, self.dtype = plan.shape, plan.dtype
        self.scaled = plan.scales is not None
        self._geometry = geometry
        self._groups: dict[int, Group] = {}
        self._nbytes = plan.nbytes  # counted once: a solve has no time for it

    @property
    def nbytes(self) -> int:
        """Device memory of the layout and all buffers, in bytes."""
        return self._nbytes

    def geometry(self, rhs: int = 1) -> Geometry:
        """Return the geometry of a solve with ``rhs`` right-hand sides."""
        if self._geometry is not None:
            return self._geometry
        facts = self.facts
        return choose_geometry(
            self.plan,
            facts.sm_count,
            facts.shared_bytes_per_block - 4096,
            rhs,
            capability=facts.capability,
        )

    def group(self, rhs: int) -> Group:
        """Return the buffers and the launch for ``rhs`` right-hand sides, made once."""
        if rhs not in self._groups:
            self._groups[rhs] = self._make_group(rhs)
            self._nbytes += sum(buffer.nbytes for buffer in self._groups[rhs].buffers)
        return self._groups[rhs]

    def _make_group(self, rhs: int) -> Group:
        import cupy

        from asyncsparse_lab.gpu.launch import load

        geometry = self.geometry(rhs)
        build = geometry.build(self.dtype, rhs, self.facts.arch)
        artifact = compile_kernel(build.source, build.entry, build.constants, build.arch)
        kernel = load(artifact)
        plan, (m, n) = self.plan, self.shape
        bounds = geometry.bounds(plan)
        shared = geometry.shared_bytes(plan, rhs)
        arguments = SolveArguments()
        buffers: list[Any] = list(bounds)

        def allocate(count: int, dtype: Any) -> Any:
            buffers.append(cupy.empty(max(count, 1), dtype=dtype))
            return buffers[-1]

        parts = geometry.block_parts
        arguments.forward = matrix_arguments(plan.forward, bounds[0], parts, _device_pointer)
        arguments.adjoint = matrix_arguments(plan.adjoint, bounds[1], parts, _device_pointer)
        arguments.row_order = plan.row_order.data.ptr
        arguments.column_order = plan.column_order.data.ptr
        arguments.scales = None if plan.scales is None else plan.scales.data.ptr
        length_u = (m + plan.adjoint.pieces) * rhs
        length_v = (n + plan.forward.pieces) * rhs
        arguments.u = allocate(length_u, self.dtype).data.ptr
        arguments.v = allocate(length_v, self.dtype).data.ptr
        arguments.state = allocate(0 if geometry.staged else 3 * n * rhs, self.dtype).data.ptr
        arguments.wide_x = allocate(length_v, np.float64).data.ptr
        arguments.wide_r = allocate(length_u, np.float64).data.ptr
        count = 3 * rhs * geometry.blocks
        slots = allocate(count * (geometry.copies + 1), np.float64)
        arguments.slots = slots.data.ptr
        arguments.slots_x = slots.data.ptr + 8 * count * geometry.copies
        outcomes = host_array((rhs, len(OUTCOME_FIELDS)))
        arguments.outcomes = outcomes.ctypes.data
        arguments.spin_limit = SPIN_LIMIT
        # A cluster's blocks run at the same time anyway.
        together = not geometry.cluster
        launch = kernel.prepare(
            geometry.blocks, geometry.threads, shared, arguments, cooperative=together
        )
        return Group(rhs, geometry, artifact, arguments, launch, outcomes, slots, buffers)


def prepare(
    matrix: Any,
    dtype: Any = None,
    *,
    precondition: Any | None = None,
    geometry: Geometry | None = None,
    lane_steps: int | None = None,
) -> PersistentMatrix:
    """Lay out a real sparse matrix on the GPU, once for many solves.

    Parameters
    ----------
    matrix : sparse array
        A of SciPy or CuPy.
    dtype : dtype, optional
        float32 or float64; by default that of A.
    precondition : "columns", ndarray or None
        Column scaling, as in :func:`asyncsparse_lab.lsmr.lsmr`.
    geometry : Geometry, optional
        Grid and block; chosen by default.
    lane_steps : int, optional
        How many entries of a row a lane takes before the row gets more lanes; by default
        :data:`asyncsparse_lab.lsmr.plan.LANE_STEPS`.

    Raises
    ------
    InputError
        A that is not real and finite, or a geometry that the kernel cannot have.
    DeviceError
        No GPU of compute capability 8.0 or later.
    """
    matrix, kind, shape, found = check_matrix(matrix)
    if kind != "sparse" or found is None or found.kind == "c":
        raise InputError(f"A is {kind} of type {found}: prepare takes a real sparse matrix")
    dtype = np.dtype(dtype) if dtype is not None else np.result_type(found, np.float32)
    if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise InputError(f"dtype={dtype}: give float32 or float64")
    scales = check_scales(matrix, kind, shape[1], precondition)
    return lay_out(matrix, dtype, scales, geometry, lane_steps)


def lay_out(
    matrix: Any,
    dtype: np.dtype[Any],
    scales: Any | None,
    geometry: Geometry | None = None,
    lane_steps: int | None = None,
) -> PersistentMatrix:
    """Lay out a matrix that was checked; the parameters are those of :func:`prepare`."""
    import cupy

    matrix = matrix.tocsr()
    if isinstance(matrix.data, np.ndarray):
        from cupyx.scipy.sparse import csr_matrix

        if matrix.dtype.char not in "fd":  # CuPy has sparse matrices of no other real type
            matrix = matrix.astype(dtype)
        matrix = csr_matrix(matrix)
    scales = None if scales is None else cupy.asarray(scales)
    magnitude = magnitude_of(matrix.data, dtype)
    if magnitude != 1:
        matrix = matrix.copy()
        matrix.data = matrix.data / magnitude
        scales = None if scales is None else scales * magnitude
    return PersistentMatrix(build_plan(matrix, dtype, scales, lane_steps), geometry, magnitude)


def magnitude_of(values: Any, dtype: np.dtype[Any]) -> float:
    """Return what A must be divided by so that no product over- or underflows; mostly 1."""
    top = largest(values) if values.size else 0.0
    safe = SAFE[dtype.itemsize]
    return 1.0 if top == 0 or 1 / safe < top < safe else power_of_two(top)


def matrix_arguments(
    matrix: SlicedMatrix, bounds: Any, block_parts: int, pointer: Callable[[Any], int]
) -> MatrixArguments:
    """Fill ``LsmrMatrix``; ``pointer`` gives an array's address."""
    return MatrixArguments(
        slices=pointer(matrix.slices),
        block_slices=pointer(bounds),
        columns=pointer(matrix.columns),
        values=pointer(matrix.values),
        true_values=pointer(matrix.true_values),
        rows=matrix.rows,
        first_piece=matrix.gathered,
        piece_begin=matrix.row_slices,
        piece_end=matrix.row_slices + matrix.pieces,
        block_parts=block_parts,
    )


def _device_pointer(array: Any) -> int:
    return int(array.data.ptr)


def host_array(shape: tuple[int, ...]) -> Any:
    """Return a float64 array of zeros in page-locked memory, which kernels can write."""
    import cupy

    count = int(np.prod(shape))
    memory = cupy.cuda.alloc_pinned_memory(count * 8)
    array = np.frombuffer(memory, dtype=np.float64, count=count).reshape(shape)
    array[...] = 0
    return array
