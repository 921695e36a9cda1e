"""Kernel source to cubin, ahead of time, without a GPU, cached.

The key of a cached kernel is the SHA-256 of exactly what the compiler was given: the source, the
headers that it includes (transitively), the options and the compiler's version.  The hash of a
*kernel* is that of its cubin: comments and the place of the checkout do not change it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from asyncsparse_lab.errors import CompileError, InputError
from asyncsparse_lab.gpu import cache
from asyncsparse_lab.gpu.nvrtc import compile_text, compiler_version
from asyncsparse_lab.gpu.ptxas import Resources, check_gate
from asyncsparse_lab.resources import resource_path

_INCLUDE: Final = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.MULTILINE)
_ARCH: Final = re.compile(r"sm_\d{2,3}[af]?")


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled kernel.

    Attributes
    ----------
    folder : Path
        The cache folder that holds all of it.
    entry : str
        The ``extern "C"`` kernel in it.
    arch : str
        Such as ``"sm_90a"``.
    kernel_hash : str
        SHA-256 of the cubin, in hexadecimal.
    compiler : str
        Such as ``"nvrtc 13.0.88"``.
    resources : Resources
        Of `entry`.
    """

    folder: Path
    entry: str
    arch: str
    kernel_hash: str
    compiler: str
    resources: Resources

    @property
    def cubin(self) -> Path:
        """The ELF image that the driver loads."""
        return self.folder / "kernel.cubin"

    @property
    def log(self) -> str:
        """What the compiler and ptxas said."""
        return (self.folder / "compile.log").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class KernelBuild:
    """One compilation to be done: the arguments of :func:`compile_kernel`."""

    source: str | Path
    entry: str
    constants: Mapping[str, int]
    arch: str = "sm_90a"
    gate: bool = True


def compile_kernel(
    source: str | Path,
    entry: str,
    constants: Mapping[str, int],
    arch: str = "sm_90a",
    *,
    gate: bool = True,
) -> Artifact:
    """Compile a kernel, or find it in the cache.

    Parameters
    ----------
    source : str or Path
        A path, or a file below ``kernels/``.
    entry : str
        Name of an ``extern "C" __global__`` function in it.
    constants : mapping of str to int
        Preprocessor macros.
    arch : str
        A real architecture; WGMMA and setmaxnreg exist on ``sm_90a`` alone.
    gate : bool
        Refuse register spills and what ptxas calls a potential performance loss.

    Raises
    ------
    InputError
        The source is not there, or a constant or the architecture is malformed.
    CompileError
        NVRTC is missing, the source does not compile (the message holds the compiler's log), has
        no such entry, or the gate refused it.
    """
    path = _resolve_source(source)
    if not _ARCH.fullmatch(arch):
        raise InputError(f"architecture {arch!r}: give a real one, such as 'sm_90a' or 'sm_80'")
    name, text, headers = _read_sources(path)
    macros = [f"-D{key}={_integer(key, value)}" for key, value in sorted(constants.items())]
    options = (
        "-std=c++17",
        f"-arch={arch}",
        "--ptxas-options=-v",
        "--no-source-include",
        "--no-cache",  # a hit in the driver's cache would leave the log, and so the gate, empty
        *macros,
    )
    compiler = compiler_version()
    key = _digest_parts([path.name, text, *_flatten(headers), *options, compiler])
    folder = cache.cache_root() / f"{path.stem}.{key}"
    report = cache.read(folder)
    if report is None:
        result = compile_text(name, text, headers, options)
        if result.cubin is None:
            raise CompileError(f"{name} does not compile for {arch} ({compiler}):\n{result.log}")
        report = cache.store(
            folder,
            name=name,
            source=text,
            headers=headers,
            options=options,
            compiler=compiler,
            cubin=result.cubin,
            log=result.log,
        )
    if entry not in report.entries:
        raise CompileError(
            f"{name} has no kernel {entry!r}; its entries are "
            f'{", ".join(report.entries) or "none"} (declare it extern "C" __global__)'
        )
    artifact = Artifact(
        folder=folder,
        entry=entry,
        arch=arch,
        kernel_hash=report.cubin_sha256,
        compiler=compiler,
        resources=report.functions[entry],
    )
    if gate:
        check_gate(name, artifact.log, report.functions)
    return artifact


def compile_many(
    builds: Iterable[KernelBuild],
    workers: int | None = None,
    on_done: Callable[[KernelBuild, Artifact | CompileError], None] | None = None,
) -> list[Artifact | CompileError]:
    """Compile several kernels at once.

    NVRTC runs without Python's lock, so threads use all cores (measured: two threads are as fast
    as two processes) and nothing has to be pickled.

    Parameters
    ----------
    builds : iterable of KernelBuild
    workers : int, optional
        Threads; by default one a core.
    on_done : callable, optional
        Called in this thread as each ends.

    Returns
    -------
    list
        In the order of `builds`: the artifact, or why there is none.
    """
    wanted = list(builds)
    compiler_version()  # once, before the threads ask for it all together
    results: dict[int, Artifact | CompileError] = {}
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        futures = {
            pool.submit(
                compile_kernel, b.source, b.entry, b.constants, b.arch, gate=b.gate
            ): position
            for position, b in enumerate(wanted)
        }
        for future in as_completed(futures):
            position = futures[future]
            try:
                results[position] = future.result()
            except CompileError as error:
                results[position] = error
            if on_done is not None:
                on_done(wanted[position], results[position])
    return [results[position] for position in range(len(wanted))]


def _resolve_source(source: str | Path) -> Path:
    path = Path(source)
    if not path.is_absolute():
        below_kernels = resource_path("kernels") / path
        path = below_kernels if below_kernels.is_file() else path
    if not path.is_file():
        raise InputError(f"no kernel source {source}: neither below kernels/ nor a path")
    return path.resolve()


def _read_sources(path: Path) -> tuple[str, str, dict[str, str]]:
    """Return the source's name in messages, its text, and the text of every header it reaches.

    Headers are looked for beside the file that includes them, then in ``kernels/include``;
    what is not found is left for the compiler to complain about, with file and line.
    """
    kernels = resource_path("kernels").resolve()
    name = path.relative_to(kernels).as_posix() if path.is_relative_to(kernels) else str(path)
    text = path.read_text(encoding="utf-8")
    found: dict[str, Path] = {}
    pending = [(path, text)]
    headers: dict[str, str] = {}
    while pending:
        includer, content = pending.pop()
        for written in _INCLUDE.findall(content):
            places = (includer.parent / written, kernels / "include" / written)
            place = next((p.resolve() for p in places if p.is_file()), None)
            if place is None or found.get(written) == place:
                continue
            if written in found or ".." in Path(written).parts or Path(written).is_absolute():
                raise InputError(
                    f"{includer.name} includes {written!r}: name each header once, relative to "
                    "the folder of the kernel or kernels/include"
                )
            found[written] = place
            headers[written] = place.read_text(encoding="utf-8")
            pending.append((place, headers[written]))
    return name, text, dict(sorted(headers.items()))


def _integer(key: str, value: object) -> int:
    if not key.isidentifier():
        raise InputError(f"constant {key!r} is not a macro name")
    # NumPy integers are fine; a bool or a float would reach the preprocessor as another token.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InputError(f"constant {key}={value!r} is not an integer")
    return int(value.__index__())


def _flatten(headers: Mapping[str, str]) -> Iterable[str]:
    for name, text in headers.items():
        yield name
        yield text


def _digest_parts(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()
