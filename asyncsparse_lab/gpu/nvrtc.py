"""One call to NVRTC: source text in, cubin and log out.

The compiler sees only the texts that it is handed: the source and the headers that it
includes go in by name, so nothing on this machine (toolkit headers, the working directory,
the place of the checkout) can reach the cubin.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from asyncsparse_lab.errors import CompileError

_TOOL_VERSION = re.compile(rb"Cuda compilation tools, release [0-9.]+, V([0-9.]+)")


@dataclass(frozen=True, slots=True)
class Compilation:
    """What one compilation returned.

    Attributes
    ----------
    cubin : bytes or None
        The ELF image, None if the source did not compile.
    log : str
        What the compiler and ptxas said.
    """

    cubin: bytes | None
    log: str


@cache
def _nvrtc() -> ModuleType:
    """Import the bindings and make sure that the library behind them loads."""
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise CompileError(
            "the compiler's bindings are missing: pip install 'cuda-bindings>=13,<14' "
            "nvidia-cuda-nvrtc==13.0.88 (or 'asyncsparse-lab[compile]')"
        ) from error
    # The bindings load the library at the first call and say so by classes that differ between
    # their versions (RuntimeError, DynamicLibNotFoundError).
    try:
        nvrtc.nvrtcVersion()
    except (RuntimeError, OSError, ImportError) as error:
        import cuda.bindings

        major = int(str(cuda.bindings.__version__).split(".", maxsplit=1)[0])
        wheel = "nvidia-cuda-nvrtc==13.0.88" if major >= 13 else "'nvidia-cuda-nvrtc-cu12==12.9.*'"
        raise CompileError(f"the NVRTC library is missing: pip install {wheel}") from error
    return nvrtc  # type: ignore[no-any-return]


def compile_text(
    name: str, source: str, headers: Mapping[str, str], options: Sequence[str]
) -> Compilation:
    """Compile one translation unit to a cubin.

    Parameters
    ----------
    name : str
        Name of the source in messages.
    source : str
        CUDA C++.
    headers : mapping
        Name as written in ``#include`` -> text.
    options : sequence of str
        NVRTC's options; ``-arch`` must name a real architecture (``sm_...``).

    Raises
    ------
    CompileError
        NVRTC is missing.  A source that does not compile is no error here.
    """
    nvrtc = _nvrtc()
    success = nvrtc.nvrtcResult.NVRTC_SUCCESS
    status, program = nvrtc.nvrtcCreateProgram(
        source.encode(),
        name.encode(),
        len(headers),
        [text.encode() for text in headers.values()],
        [header.encode() for header in headers],
    )
    if status != success:
        raise CompileError(f"NVRTC refused {name}: {status.name}")
    try:
        (status,) = nvrtc.nvrtcCompileProgram(
            program, len(options), [option.encode() for option in options]
        )
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = bytearray(size)
        nvrtc.nvrtcGetProgramLog(program, log)
        text = log.rstrip(b"\0").decode(errors="replace").rstrip()
        if status != success:
            return Compilation(None, text or str(status.name))
        _, size = nvrtc.nvrtcGetCUBINSize(program)
        cubin = bytearray(size)
        nvrtc.nvrtcGetCUBIN(program, cubin)
        return Compilation(bytes(cubin), text)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


@cache
def compiler_version() -> str:
    """Return the compiler in words, such as ``"nvrtc 13.0.88"``.

    NVRTC itself tells only major and minor.  From 13 on the third number stands in every cubin
    that it makes, so a one-line kernel is compiled (0.05 s, once a process); before, it is the
    wheel's.

    Raises
    ------
    CompileError
        NVRTC is missing or cannot compile one line.
    """
    probe = compile_text(
        "probe.cu", 'extern "C" __global__ void probe() {}', {}, ["-std=c++17", "-arch=sm_80"]
    )
    if probe.cubin is None:
        raise CompileError(f"NVRTC cannot compile an empty kernel: {probe.log.splitlines()[0]}")
    found = _TOOL_VERSION.search(probe.cubin)
    if found is not None:
        return f"nvrtc {found.group(1).decode()}"
    _, major, minor = _nvrtc().nvrtcVersion()
    for wheel in ("nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc"):
        with suppress(PackageNotFoundError):
            if version(wheel).startswith(f"{major}.{minor}."):
                return f"nvrtc {version(wheel)}"
    return f"nvrtc {major}.{minor}"
