"""A variant of ours as a contender: compile, convert, launch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from asyncsparse_lab.spmm import arguments as arguments_module
from asyncsparse_lab.spmm import csr as csr_module
from asyncsparse_lab.spmm import layout as layout_module
from asyncsparse_lab.spmm import pairs as pairs_module
from asyncsparse_lab.spmm import ring as ring_module
from asyncsparse_lab.spmm import wcsr as wcsr_module
from asyncsparse_lab.spmm import windows as windows_module
from asyncsparse_lab.spmm.code_hash import code_digest
from asyncsparse_lab.spmm.contender import Prepared
from asyncsparse_lab.spmm.csr import launch_csr
from asyncsparse_lab.spmm.instrument import Launch, open_launch
from asyncsparse_lab.spmm.layout import (
    DeviceBcsr,
    aligned_workspace,
    bcsr_arguments,
    is_aligned,
)
from asyncsparse_lab.spmm.ring import launch_ring
from asyncsparse_lab.spmm.variants import Variant
from asyncsparse_lab.spmm.wcsr import launch_wcsr
from asyncsparse_lab.spmm.windows import launch_windows

if TYPE_CHECKING:
    from asyncsparse_lab.gpu.compile import Artifact
    from asyncsparse_lab.spmm.product import Product


def compile_variant(
    variant: Variant, dtype_out: str, dtype_in: str = "bfloat16", layout: str = "row-major"
) -> Artifact:
    """Compile a variant for the types and layout of a product, or find it in the cache."""
    from asyncsparse_lab.gpu.compile import compile_kernel

    macros = variant.macros(dtype_out, dtype_in, layout)
    return compile_kernel(variant.path, variant.entry, macros, _arch_for(variant))


def _arch_for(variant: Variant) -> str:
    """Return the variant's architecture; a portable one's is that of the GPU at hand."""
    from asyncsparse_lab.gpu.device import device_facts, driver_is_loadable

    is_portable = variant.arch[-1].isdigit()
    return device_facts().arch if is_portable and driver_is_loadable() else variant.arch


@cache
def _layout_digest(family: str) -> str:
    """Hash what the device layout's code does."""
    files = [module.__file__ for module in FAMILIES[family].modules]
    return code_digest(Path(file) for file in files if file is not None)


def host_hash(variant: Variant) -> str:
    """Return the SHA-256 of the variant's entry and of the device layout."""
    geometry = variant.launch_geometry
    entry = [variant.name, variant.entry, variant.params, repr(geometry)]
    digest = _layout_digest(variant.family)
    return hashlib.sha256(f"{json.dumps(entry)}{digest}".encode()).hexdigest()


@dataclass(frozen=True)
class Ours:
    """A variant as a contender.

    Attributes
    ----------
    kernel : Variant
        What is launched.
    """

    kernel: Variant
    backend = "asyncsparse"

    @property
    def role(self) -> str:
        """As in the record."""
        return self.kernel.role

    @property
    def variant(self) -> str:
        """Name in the table of variants."""
        return self.kernel.name

    @property
    def params(self) -> dict[str, Any]:
        """The constants, in lower case, and the host's options."""
        return self.kernel.params

    def prepare(self, product: Product) -> Prepared:
        """Compile, convert A and fill the launch arguments.

        Raises
        ------
        CompileError, DeviceError, MemoryLimitError, UnsupportedError
            Before anything is launched.
        """
        artifact = compile_variant(self.kernel, product.dtype_out, product.dtype_in, product.layout)
        output = product.new_output()
        launch = FAMILIES[self.kernel.family].launch(self.kernel, artifact, product, output)
        return Prepared(
            run=launch.run,
            output=output,
            preprocess_us=launch.preprocess_us,
            params={**self.params, **launch.params},
            measurements=launch.measurements,
            kernel_hash=artifact.kernel_hash,
            host_hash=host_hash(self.kernel),
            compiler=artifact.compiler,
        )


def _launch_bcsr(kernel: Variant, artifact: Artifact, product: Product, output: Any) -> Launch:
    A, preprocess_us = product.converted("bcsr64", DeviceBcsr.from_csr)
    if kernel.launch_geometry.pairs:
        _, matching_us = product.converted("bcsr64-pairs", lambda _: A.pairs)
        preprocess_us += matching_us
    launch = _open_bcsr(kernel, artifact, A, product.B, output)
    stores_by_tma = kernel.launch_geometry.stores_by_tma
    reaches = is_aligned(product.B) and (is_aligned(output) or not stores_by_tma)
    return replace(launch, preprocess_us=preprocess_us, params={"padded": not reaches})


def _open_bcsr(kernel: Variant, artifact: Artifact, A: DeviceBcsr, B: Any, C: Any) -> Launch:
    import cupy

    if not C.size:
        return Launch(lambda: None)
    if not B.size:
        return Launch(lambda: C.fill(0))
    geometry = kernel.launch_geometry
    readable = B if is_aligned(B) else aligned_workspace(B)
    writable = C
    if geometry.stores_by_tma and not is_aligned(C):
        writable = aligned_workspace(C)
    counters = cupy.zeros(2, dtype=cupy.int32) if geometry.schedules else None
    arguments = bcsr_arguments(A, readable, writable, geometry)
    arguments.counters = counters.data.ptr if counters is not None else 0
    launch, measurements = open_launch(
        artifact, kernel, A.block_rows, B.shape[1], arguments, roles=3
    )
    keep = (A, B, C, readable, writable, counters)  # the arguments hold bare addresses

    def run(_alive: tuple[object, ...] = keep) -> None:
        if readable is not B:
            readable[...] = B
        launch()
        if writable is not C:
            C[...] = writable

    return Launch(run, measurements=measurements)


class Family(NamedTuple):
    """How the kernels of a family are launched, and the modules whose code decides it.

    ``launch`` converts A (through :meth:`Product.converted`) and makes the product a function.
    """

    launch: Callable[[Variant, Artifact, Product, Any], Launch]
    modules: tuple[ModuleType, ...]


FAMILIES: Final[dict[str, Family]] = {
    "bcsr": Family(_launch_bcsr, (arguments_module, layout_module, pairs_module)),
    "ring": Family(launch_ring, (arguments_module, ring_module, layout_module, pairs_module)),
    "wcsr": Family(launch_wcsr, (arguments_module, wcsr_module)),
    "pipelined": Family(launch_windows, (windows_module,)),
    "csr": Family(launch_csr, (csr_module,)),
}
