"""A variant of ours as a contender: compile, convert, launch."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from asyncsparse_lab.spmm import arguments as arguments_module
from asyncsparse_lab.spmm import layout as layout_module
from asyncsparse_lab.spmm import pairs as pairs_module
from asyncsparse_lab.spmm.layout import (
    DeviceBcsr,
    aligned_workspace,
    bcsr_arguments,
    is_aligned,
)
from asyncsparse_lab.spmm.product import Prepared
from asyncsparse_lab.spmm.variants import Variant

if TYPE_CHECKING:
    from asyncsparse_lab.gpu.compile import Artifact
    from asyncsparse_lab.spmm.product import Product


def compile_variant(variant: Variant, dtype_out: str) -> Artifact:
    """Compile a variant for an output type, or find it in the cache."""
    from asyncsparse_lab.gpu.compile import compile_kernel

    return compile_kernel(variant.path, variant.entry, variant.macros(dtype_out), variant.arch)


@cache
def _layout_digest() -> str:
    """Hash what the device layout's code does: its syntax trees, without comments."""
    digest = hashlib.sha256()
    for module in (arguments_module, layout_module, pairs_module):
        assert module.__file__ is not None
        with open(module.__file__, encoding="utf-8") as source:
            digest.update(ast.dump(_without_docstrings(ast.parse(source.read()))).encode())
    return digest.hexdigest()


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [s for s in node.body if not _is_string(s)] or [ast.Pass()]
    return tree


def _is_string(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def host_hash(variant: Variant) -> str:
    """Return the SHA-256 of the variant's entry and of the device layout."""
    geometry = variant.launch_geometry
    entry = [variant.name, variant.entry, dict(sorted(variant.constants.items())), repr(geometry)]
    return hashlib.sha256(f"{json.dumps(entry)}{_layout_digest()}".encode()).hexdigest()


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
        """The constants, in lower case."""
        return {name.lower(): value for name, value in sorted(self.kernel.constants.items())}

    def prepare(self, product: Product) -> Prepared:
        """Compile, convert A and fill the launch arguments.

        Raises
        ------
        CompileError, DeviceError, MemoryLimitError, UnsupportedError
            Before anything is launched.
        """
        artifact = compile_variant(self.kernel, product.dtype_out)
        A, preprocess_us = product.converted("bcsr64", DeviceBcsr.from_csr)
        if self.kernel.launch_geometry.pairs:
            _, matching_us = product.converted("bcsr64-pairs", lambda _: A.pairs)
            preprocess_us += matching_us
        output = product.new_output()
        return Prepared(
            run=self._launcher(artifact, A, product.B, output),
            output=output,
            preprocess_us=preprocess_us,
            params={**self.params, "padded": not self._reaches(product.B, output)},
            kernel_hash=artifact.kernel_hash,
            host_hash=host_hash(self.kernel),
            compiler=artifact.compiler,
        )

    def _reaches(self, B: Any, C: Any) -> bool:
        """Whether the kernel can read B and write C where they are."""
        return is_aligned(B) and (is_aligned(C) or not self.kernel.launch_geometry.stores_by_tma)

    def _launcher(self, artifact: Artifact, A: DeviceBcsr, B: Any, C: Any) -> Callable[[], None]:
        import cupy

        from asyncsparse_lab.gpu.device import device_facts
        from asyncsparse_lab.gpu.launch import load

        if not C.size:
            return lambda: None
        if not B.size:
            return lambda: C.fill(0)
        geometry = self.kernel.launch_geometry
        readable = B if is_aligned(B) else aligned_workspace(B)
        writable = C
        if geometry.stores_by_tma and not is_aligned(C):
            writable = aligned_workspace(C)
        counters = cupy.zeros(2, dtype=cupy.int32) if geometry.schedules else None
        arguments = bcsr_arguments(A, readable, writable, geometry)
        arguments.counters = counters.data.ptr if counters is not None else 0
        launch = load(artifact).prepare(
            geometry.grid(A.block_rows, B.shape[1], device_facts().sm_count),
            geometry.threads,
            geometry.shared_bytes,
            arguments,
        )
        keep = (A, B, C, readable, writable, counters)  # the arguments hold bare addresses

        def run(_alive: tuple[object, ...] = keep) -> None:
            if readable is not B:
                readable[...] = B
            launch()
            if writable is not C:
                C[...] = writable

        return run
