"""What is inside a cubin: the SASS listing and its instruction counts.

nvdisasm reads a cubin without a GPU.  It comes from PyPI (``nvidia-cuda-nvdisasm``, which puts
it in ``site-packages/nvidia/cu13/bin``, not on PATH), from a CUDA toolkit, or with Triton.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from asyncsparse_lab.errors import CompileError
from asyncsparse_lab.gpu.compile import Artifact

SHOWN: Final = (
    "HGMMA",  # warpgroup matrix multiply-accumulate
    "UTMALDG",  # TMA load, global to shared
    "UTMASTG",  # TMA store, shared to global
    "SYNCS",  # mbarrier operations
    "LDGSTS",  # cp.async
    "USETMAXREG",  # setmaxnreg
    "BAR",  # block and named barriers
    "LDG",
    "STG",
    "LDS",
    "STS",
    "LDSM",  # ldmatrix
    "STSM",  # stmatrix
    "ATOMG",
    "RED",
    "FFMA",
    "DFMA",
    "NANOSLEEP",
    "LDL",  # local memory: spills or indexed local arrays
    "STL",
)
"""Mnemonics worth a column of their own."""

# An instruction: address, an optional predicate, then the mnemonic with its suffixes.
_INSTRUCTION: Final = re.compile(
    r"/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P[T0-9]+\s+)?([A-Z][A-Z0-9]*)"
)
_SECTION: Final = re.compile(r"^\s*\.section\s+\.text\.(\S+?),", re.MULTILINE)


def find_disassembler() -> Path | None:
    """Return the nvdisasm to use, or None.

    The order is ``NVDISASM_PATH``, the PyPI wheel, Triton's copy, ``PATH``, the toolkit.
    """
    return next((path for path in _candidates() if os.access(path, os.X_OK)), None)


def _candidates() -> Iterator[Path]:
    if configured := os.environ.get("NVDISASM_PATH"):
        path = Path(configured)
        yield path / "nvdisasm" if path.is_dir() else path
    for package, pattern in (
        ("nvidia", "cu*/bin/nvdisasm"),
        ("triton", "backends/nvidia/bin/nvdisasm"),
    ):
        spec = find_spec(package)
        for root in (spec.submodule_search_locations or ()) if spec else ():
            yield from sorted(Path(root).glob(pattern), reverse=True)
    if on_path := shutil.which("nvdisasm"):
        yield Path(on_path)
    toolkits = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    for toolkit in toolkits:
        if toolkit:
            yield Path(toolkit) / "bin" / "nvdisasm"


@cache
def _disassemble(cubin: Path, kernel_hash: str) -> str:
    tool = find_disassembler()
    if tool is None:
        raise CompileError(
            "nvdisasm is missing: pip install nvidia-cuda-nvdisasm, or set NVDISASM_PATH"
        )
    # Without the analysis of data flow: a third faster, and the listing is the same.
    command = [str(tool), "--print-code", "--no-dataflow", str(cubin)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if ran.returncode != 0:
        raise CompileError(f"{tool} cannot read {cubin}: {ran.stderr.strip() or ran.returncode}")
    return ran.stdout


def sass(artifact: Artifact) -> str:
    """Return the SASS listing of an artifact's kernel.

    Raises
    ------
    CompileError
        There is no disassembler, or it cannot read the cubin.
    """
    listing = _disassemble(artifact.cubin, artifact.kernel_hash)
    sections = list(_SECTION.finditer(listing))
    for position, section in enumerate(sections):
        if section.group(1) == artifact.entry:
            end = sections[position + 1].start() if position + 1 < len(sections) else None
            return listing[section.start() : end].strip("\n")
    raise CompileError(f"{artifact.cubin} holds no code of {artifact.entry!r}")


def sass_counts(artifact: Artifact) -> dict[str, int]:
    """Count the instructions of an artifact's kernel.

    Returns
    -------
    dict
        Mnemonic without its suffixes (``HGMMA`` for ``HGMMA.64x128x16.F32.BF16``) -> how often
        it stands in the code, most frequent first.

    Raises
    ------
    CompileError
        There is no disassembler, or it cannot read the cubin.
    """
    return dict(Counter(_INSTRUCTION.findall(sass(artifact))).most_common())
