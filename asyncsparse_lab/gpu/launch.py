"""A compiled kernel on the device: load, check, launch.

Kernels take one argument, a struct by value, whose mirror is a :class:`ctypes.Structure`.  They
run in CuPy's context (the device's primary one), on CuPy's current stream unless another is
given.  What the driver would answer with "invalid value", or with a result of a different
launch, is refused before.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

from asyncsparse_lab.errors import DeviceError, InputError
from asyncsparse_lab.gpu.compile import Artifact
from asyncsparse_lab.gpu.device import DeviceFacts, device_facts

MAX_THREADS: Final = 1024
_MAX_GRID: Final = (2**31 - 1, 65_535, 65_535)
_DEFAULT_DYNAMIC_SHARED: Final = 48 * 1024
NO_CONTEXT: Final = 201  # CUDA_ERROR_INVALID_CONTEXT
_PORTABLE_CLUSTER: Final = 8  # blocks of a cluster; more only where a kernel asks for it

# (kernel hash, entry, device) -> kernel; a module stays loaded as long as the process lives.
_LOADED: Final[dict[tuple[str, str, int], Kernel]] = {}

Grid = int | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LaunchLimits:
    """What one kernel on one device can be launched with.

    Attributes
    ----------
    shared_bytes : int
        Dynamic shared memory a block: the device's limit less what the kernel declares itself.
    threads : int
        Threads a block: 1024, or less by launch bounds and registers.
    cluster : tuple of int
        Thread blocks a cluster in x, y, z, fixed in the source; ones without a cluster.
    """

    shared_bytes: int
    threads: int = MAX_THREADS
    cluster: tuple[int, int, int] = (1, 1, 1)


def check_geometry(
    name: str, grid: Grid, threads: int, shared_bytes: int, limits: LaunchLimits
) -> tuple[int, int, int]:
    """Refuse a launch that cannot run; touches no device.

    Parameters
    ----------
    name : str
        The kernel, for the message.
    grid : int or tuple of int
        Thread blocks (not clusters) in x, y, z; missing ones count as 1.
    threads : int
        Threads a block.
    shared_bytes : int
        Dynamic shared memory a block.
    limits : LaunchLimits
        Of the kernel.

    Returns
    -------
    tuple of int
        The grid with all three extents.

    Raises
    ------
    InputError
        A limit is broken.
    """
    extents = (grid,) if isinstance(grid, int) else tuple(int(extent) for extent in grid)
    if not 1 <= len(extents) <= 3:
        raise InputError(f"{name}: grid {grid} has {len(extents)} extents, not 1 to 3")
    x, y, z = (*extents, 1, 1)[:3]
    for axis, extent, limit, blocks in zip(
        "xyz", (x, y, z), _MAX_GRID, limits.cluster, strict=True
    ):
        if extent < 1:
            raise InputError(f"{name}: grid.{axis} = {extent}: there is nothing to launch")
        if extent > limit:
            remedy = "put the long extent on grid.x" if axis != "x" else "loop inside the kernel"
            raise InputError(f"{name}: grid.{axis} = {extent} exceeds {limit}: {remedy}")
        if extent % blocks:
            raise InputError(
                f"{name}: grid.{axis} = {extent} is no multiple of the {blocks} blocks of a "
                "cluster: round it up and let the kernel skip the rest"
            )
    if not 1 <= threads <= limits.threads:
        why = "the hardware's" if limits.threads == MAX_THREADS else "the kernel's launch bounds'"
        raise InputError(f"{name}: {threads} threads a block; {why} limit is {limits.threads}")
    if not 0 <= shared_bytes <= limits.shared_bytes:
        raise InputError(
            f"{name}: {shared_bytes} bytes of dynamic shared memory; at most "
            f"{limits.shared_bytes} fit: use fewer stages or a smaller tile"
        )
    return x, y, z


class Kernel:
    """A kernel in the current context; made by :func:`load`.

    Attributes
    ----------
    artifact : Artifact
        What was loaded.
    limits : LaunchLimits
        What it can be launched with.
    parameter_bytes : int or None
        Size of its argument struct; None if the driver is too old to tell (before 12.4).
    """

    def __init__(self, artifact: Artifact, facts: DeviceFacts) -> None:
        from cuda.bindings import driver

        self.artifact = artifact
        self._driver: Any = driver
        self._facts = facts
        image = artifact.cubin.read_bytes()
        (module,) = self._call("cuModuleLoadData", image)
        self._module = module  # unloading it would invalidate the function
        (self._function,) = self._call("cuModuleGetFunction", module, artifact.entry.encode())
        self.limits = LaunchLimits(
            shared_bytes=facts.shared_bytes_per_block - self._attribute("SHARED_SIZE_BYTES"),
            threads=self._attribute("MAX_THREADS_PER_BLOCK"),
            cluster=self._cluster(),
        )
        self.parameter_bytes = self._parameter_bytes()
        self._dynamic_shared = _DEFAULT_DYNAMIC_SHARED
        self._lock = Lock()
        width, height, depth = self.limits.cluster
        if width * height * depth > _PORTABLE_CLUSTER:
            name = "CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED"
            attribute = getattr(self._driver.CUfunction_attribute, name)
            self._call("cuFuncSetAttribute", self._function, attribute, 1)

    def prepare(
        self,
        grid: Grid,
        threads: int,
        shared_bytes: int,
        arguments: ctypes.Structure,
        stream: Any = None,
        cooperative: bool = False,
    ) -> Callable[[], None]:
        """Check a launch once, and return it as a function that costs a few microseconds.

        Parameters
        ----------
        grid : int or tuple of int
            Thread blocks, also with clusters.
        threads : int
            Threads a block.
        shared_bytes : int
            Dynamic shared memory a block.
        arguments : ctypes.Structure
            The kernel's argument.  It is kept and read anew at every launch.
        stream : cupy.cuda.Stream or int, optional
            By default CuPy's current stream at the time of each launch.
        cooperative : bool
            All blocks run at the same time (needed for barriers over the grid).

        Raises
        ------
        InputError
            A limit is broken, or the struct's size is not the kernel's.
        DeviceError
            The driver refuses; raised by the returned function too.
        """
        name = self.artifact.entry
        x, y, z = check_geometry(name, grid, threads, shared_bytes, self.limits)
        size = ctypes.sizeof(arguments)
        if self.parameter_bytes not in (None, size):
            raise InputError(
                f"{name} takes {self.parameter_bytes} bytes of arguments, "
                f"{type(arguments).__name__} has {size}: make the struct and its mirror equal"
            )
        self._allow_shared(shared_bytes)
        if cooperative:
            resident = self.blocks_per_sm(threads, shared_bytes) * self._facts.sm_count
            if x * y * z > resident:
                raise InputError(
                    f"{name}: {x * y * z} blocks cannot run at once, a cooperative launch "
                    f"takes {resident} at most"
                )
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))
        address = ctypes.addressof(pointers)
        driver = self._driver
        geometry = (self._function, x, y, z, threads, 1, 1, shared_bytes)
        enqueue = driver.cuLaunchCooperativeKernel if cooperative else driver.cuLaunchKernel
        rest = (address,) if cooperative else (address, 0)
        if stream is None:
            from cupy.cuda import get_current_stream

            def current() -> int:
                return int(get_current_stream().ptr)
        else:
            fixed = int(getattr(stream, "ptr", stream))

            def current() -> int:
                return fixed

        # The driver gets addresses only; the default argument keeps what they point to.
        def launch(_alive: tuple[object, ...] = (pointers, arguments, self)) -> None:
            (status,) = enqueue(*geometry, current(), *rest)
            if int(status) == NO_CONTEXT:  # the first call of a host thread to CUDA
                bind_context()
                (status,) = enqueue(*geometry, current(), *rest)
            if int(status):
                raise DeviceError(f"launch of {name}: {self._explain(status)}")

        return launch

    def launch(
        self,
        grid: Grid,
        threads: int,
        shared_bytes: int,
        arguments: ctypes.Structure,
        stream: Any = None,
        cooperative: bool = False,
    ) -> None:
        """Check and enqueue one launch; the parameters are those of :meth:`prepare`."""
        self.prepare(grid, threads, shared_bytes, arguments, stream, cooperative)()

    def blocks_per_sm(self, threads: int, shared_bytes: int) -> int:
        """Return how many blocks of this size one SM holds at the same time (its occupancy)."""
        check_geometry(self.artifact.entry, self.limits.cluster, threads, shared_bytes, self.limits)
        self._allow_shared(shared_bytes)
        (blocks,) = self._call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor", self._function, threads, shared_bytes
        )
        return int(blocks)

    def _allow_shared(self, shared_bytes: int) -> None:
        with self._lock:  # of two threads, the one that needs less may not be the last
            if shared_bytes > self._dynamic_shared:
                name = "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
                attribute = getattr(self._driver.CUfunction_attribute, name)
                self._call("cuFuncSetAttribute", self._function, attribute, shared_bytes)
                self._dynamic_shared = shared_bytes

    def _attribute(self, name: str) -> int:
        attribute = getattr(self._driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        (value,) = self._call("cuFuncGetAttribute", attribute, self._function)
        return int(value)

    def _cluster(self) -> tuple[int, int, int]:
        if self._facts.capability < (9, 0):
            return (1, 1, 1)
        width, height, depth = (
            max(1, self._attribute(f"REQUIRED_CLUSTER_{axis}"))
            for axis in ("WIDTH", "HEIGHT", "DEPTH")
        )
        return width, height, depth

    def _parameter_bytes(self) -> int | None:
        query = getattr(self._driver, "cuFuncGetParamInfo", None)
        if query is None or self._driver.cuDriverGetVersion()[1] < 12_040:
            return None
        if int(query(self._function, 1)[0]) == 0:
            raise InputError(
                f"{self.artifact.entry} takes several parameters: make them one struct by value"
            )
        status, _, size = query(self._function, 0)
        return int(size) if int(status) == 0 else 0

    def _call(self, function: str, *arguments: Any) -> tuple[Any, ...]:
        status, *results = getattr(self._driver, function)(*arguments)
        if int(status):
            raise DeviceError(f"{function} of {self.artifact.entry}: {self._explain(status)}")
        return tuple(results)

    def _explain(self, status: Any) -> str:
        failed, text = self._driver.cuGetErrorString(status)
        return status.name if int(failed) else f"{status.name} ({text.decode()})"


def load(artifact: Artifact) -> Kernel:
    """Load a compiled kernel onto the current device; each is loaded once.

    Raises
    ------
    DeviceError
        No GPU can be used, it is not the one that the kernel was compiled for, or the driver
        refuses the cubin.
    """
    facts = device_facts()
    check_arch(artifact, facts)
    import cupy

    bind_context()
    key = (artifact.kernel_hash, artifact.entry, int(cupy.cuda.Device().id))
    if key not in _LOADED:
        _LOADED[key] = Kernel(artifact, facts)
    return _LOADED[key]


def check_arch(artifact: Artifact, facts: DeviceFacts) -> None:
    """Refuse a cubin that the device cannot run; touches no device.

    A cubin runs on its own generation from its minor version on; one for ``sm_..a`` on exactly
    its architecture.

    Raises
    ------
    DeviceError
        It was compiled for another architecture.
    """
    found = re.fullmatch(r"sm_(\d+)(\d)([af]?)", artifact.arch)
    if found is None:
        raise InputError(f"{artifact.entry}: architecture {artifact.arch!r} is not understood")
    target = (int(found.group(1)), int(found.group(2)))
    runs = (
        facts.capability == target
        if found.group(3)
        else facts.capability[0] == target[0] and facts.capability[1] >= target[1]
    )
    if not runs:
        raise DeviceError(
            f"{artifact.entry} was compiled for {artifact.arch}; {facts.name} is {facts.arch}: "
            "compile it for this device"
        )


def bind_context() -> None:
    """Make the current device's primary context if need be, and bind it to this thread."""
    import cupy

    cupy.cuda.runtime.free(0)
