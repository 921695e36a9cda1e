"""Which records were measured with code that has changed since.

A record names the SHA-256 of its cubin, and of what the host did for it.  The sources as they are
now are compiled again (no GPU needed, cached); a record whose hash is none of its variant's is
stale.  Cubins of different compilers differ for no fault of the source, so a record is judged only
by its own compiler.

A time of ``auto`` is judged as that of the kernel it chose.  What the planner chooses without a
GPU is stale when the planner's code or rates have changed.  A conversion on the GPU is judged by
the modules that make it, and one that names no hash of theirs is older than that hash.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from asyncsparse_lab.errors import CompileError, InputError
from asyncsparse_lab.records.record import Record

if TYPE_CHECKING:
    from asyncsparse_lab.gpu.compile import KernelBuild


def stale_flags(study: str, records: Sequence[Record]) -> list[bool]:
    """Return for each record of a study whether its kernel, host code or planner has changed.

    A record without a kernel's hash, or of a compiler that is not the one here, is not stale as
    far as anybody can tell.

    Raises
    ------
    CompileError
        A kernel does not compile.
    """
    here = compiler_here()
    return [
        _planner_changed(record)
        or (
            record.kernel_hash is not None
            and record.compiler == here
            and (
                record.kernel_hash not in kernel_hashes(study, record.variant)
                or _host_changed(record)
            )
        )
        for record in records
    ]


def compiler_here() -> str | None:
    """Return the compiler that would judge, None where there is none."""
    from asyncsparse_lab.gpu.nvrtc import compiler_version

    try:
        return compiler_version()
    except CompileError:
        return None


@cache
def kernel_builds(study: str) -> dict[str, list[KernelBuild]]:
    """Return variant -> every compilation that may stand behind its records in a study.

    The table of kernels gives them; a study that builds others (probes, a sweep) names them by a
    function ``kernel_builds()`` of its module.
    """
    from asyncsparse_lab.gpu.compile import KernelBuild
    from asyncsparse_lab.spmm.builds import all_builds
    from asyncsparse_lab.studies import load_study

    builds: dict[str, list[KernelBuild]] = {}
    for variant, *product in all_builds():
        macros = variant.macros(*product)
        build = KernelBuild(variant.path, variant.entry, macros, variant.arch)
        builds.setdefault(variant.name, []).append(build)
    module = load_study(study)
    if hasattr(module, "kernel_builds"):
        builds |= module.kernel_builds()
    return builds


@cache
def kernel_hashes(study: str, variant: str) -> frozenset[str]:
    """Return the hashes that a variant's sources give now; none for a variant that is gone.

    Raises
    ------
    CompileError
        A kernel does not compile.
    """
    from asyncsparse_lab.gpu.compile import compile_many

    hashes = set()
    for built in compile_many(kernel_builds(study).get(variant, [])):
        if isinstance(built, CompileError):
            raise built
        hashes.add(built.kernel_hash)
    return frozenset(hashes)


def _planner_changed(record: Record) -> bool:
    """Return whether a plan that was made without a GPU is of another planner."""
    from asyncsparse_lab.spmm.plan_hash import plan_hash

    is_plan = record.role == "planner" and record.kernel_hash is None
    return is_plan and record.host_hash is not None and record.host_hash != plan_hash()


def _host_changed(record: Record) -> bool:
    """Return whether the table's entry or the layout differs from what the record was made with."""
    from asyncsparse_lab.spmm.conversion_hash import conversion_hash
    from asyncsparse_lab.spmm.run import host_hash
    from asyncsparse_lab.spmm.variants import PROBE_CONSTANTS, VARIANTS

    if record.op == "convert":
        return record.host_hash != conversion_hash()
    name = record.params.get("chosen", record.variant)  # of auto, what it chose
    if record.host_hash is None or name not in VARIANTS:
        return False
    variant = VARIANTS[name]
    chosen = {
        name: record.params[name.lower()]
        for name in (*variant.constants, *PROBE_CONSTANTS)
        if name.lower() in record.params
    }
    # A record says True or False of what came out: the option asked for either.
    values = {
        name: (0, 1) if isinstance(value := record.params[name], bool) else (value,)
        for name in variant.options
        if name in record.params
    }
    try:
        made = [
            variant.with_constants(**chosen).with_options(**dict(zip(values, asked, strict=True)))
            for asked in itertools.product(*values.values())
        ]
        return record.host_hash not in map(host_hash, made)
    except InputError:  # these constants are no longer accepted
        return True
