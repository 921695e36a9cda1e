"""One configuration of a probe, and what all probes need."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from asyncsparse_lab.gpu.compile import KernelBuild, compile_kernel
from asyncsparse_lab.gpu.launch import Kernel, load

ALIGNMENT: Final = 1024
"""More dynamic shared memory than the tiles take: 128-byte swizzle wants aligned ones."""
POINTER: Final = ctypes.c_uint64
INT32: Final = ctypes.c_int32


@dataclass
class Trial:
    """One configuration of a probe.

    Attributes
    ----------
    run : callable
        Enqueues it.
    params : dict
        The configuration.
    rates : callable
        From the median in microseconds to the result's numbers.
    fault : callable
        What was wrong with the result, in one line, or None.
    keep : tuple
        Arrays that the launch refers to.
    """

    run: Callable[[], None]
    params: dict[str, Any]
    rates: Callable[[float], dict[str, float]]
    fault: Callable[[], str | None]
    backend: str = "asyncsparse"
    kernel_hash: str | None = None
    compiler: str | None = None
    keep: tuple[Any, ...] = field(default=(), repr=False)


def structure(name: str, *fields: tuple[str, Any]) -> type[ctypes.Structure]:
    """Return the mirror of a probe's argument struct."""
    return type(name, (ctypes.Structure,), {"_fields_": fields})


def loaded(build: KernelBuild) -> Kernel:
    """Compile and load a probe."""
    return load(compile_kernel(build.source, build.entry, build.constants, build.arch))


def trial_of(kernel: Kernel, run: Callable[[], None], keep: tuple[Any, ...], **more: Any) -> Trial:
    """Return a trial of one of our kernels."""
    artifact = kernel.artifact
    return Trial(
        run, kernel_hash=artifact.kernel_hash, compiler=artifact.compiler, keep=keep, **more
    )


def per_second(count: float, key: str) -> Callable[[float], dict[str, float]]:
    """Return the rate in units of 1e12 a second from a time in microseconds."""
    return lambda median_us: {key: count / (median_us * 1e6)}
