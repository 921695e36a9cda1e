"""Which records were measured with a kernel that has changed since.

A record names the SHA-256 of its cubin.  The sources as they are now are compiled again (no GPU
needed, cached); a record whose hash is none of its variant's is stale.  Cubins of different
compilers differ for no fault of the source, so a record is judged only by its own compiler.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from asyncsparse_lab.errors import CompileError

if TYPE_CHECKING:
    import pandas as pd

    from asyncsparse_lab.gpu.compile import KernelBuild


def kernel_builds(study: str) -> dict[str, list[KernelBuild]]:
    """Return variant -> every compilation that may stand behind its records in a study.

    The table of kernels gives them; a study with kernels of its own (probes) adds them by a
    function ``kernel_builds()`` of its module.
    """
    from asyncsparse_lab.gpu.compile import KernelBuild
    from asyncsparse_lab.spmm.variants import all_builds
    from asyncsparse_lab.studies import load_study

    builds: dict[str, list[KernelBuild]] = {}
    for variant, dtype_out in all_builds():
        macros = variant.macros(dtype_out)
        build = KernelBuild(variant.path, variant.entry, macros, variant.arch)
        builds.setdefault(variant.name, []).append(build)
    module = load_study(study)
    if hasattr(module, "kernel_builds"):
        builds |= module.kernel_builds()
    return builds


def present_hashes(study: str, variants: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return variant -> kernel hashes that the sources give now; unknown variants are left out.

    Raises
    ------
    CompileError
        There is no compiler, or a kernel does not compile.
    """
    wanted = set(variants)
    if not wanted:
        return {}
    builds = kernel_builds(study)
    return {name: _hashes(study, name) for name in sorted(wanted) if name in builds}


@cache
def _hashes(study: str, variant: str) -> frozenset[str]:
    from asyncsparse_lab.gpu.compile import compile_many

    built = compile_many(kernel_builds(study)[variant])
    for item in built:
        if isinstance(item, CompileError):
            raise item
    return frozenset(item.kernel_hash for item in built if not isinstance(item, CompileError))


def compiler_here() -> str | None:
    """Return the compiler that would judge, None where there is none."""
    from asyncsparse_lab.gpu.nvrtc import compiler_version

    try:
        return compiler_version()
    except CompileError:
        return None


def stale_flags(study: str, made: Sequence[tuple[str, Any, Any]]) -> list[bool]:
    """Return for each (variant, kernel hash, compiler) whether that kernel has changed.

    A row without a hash, or of a compiler that is not the one here, is not stale as far as
    anybody can tell.

    Raises
    ------
    CompileError
        A kernel does not compile.
    """
    here = compiler_here()
    judged = [isinstance(kernel, str) and compiler == here for _, kernel, compiler in made]
    hashes = present_hashes(study, (row[0] for row, yes in zip(made, judged, strict=True) if yes))
    return [
        yes and kernel not in hashes.get(variant, frozenset())
        for (variant, kernel, _), yes in zip(made, judged, strict=True)
    ]


def mark_stale(study: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame of a study with a column ``stale``."""
    made = list(zip(frame["variant"], frame["kernel_hash"], frame["compiler"], strict=True))
    return frame.assign(stale=stale_flags(study, made))
