"""Which conversion on the GPU it was: a hash of the host's code around the kernel.

The host counts, allocates and launches within the time of a conversion, so that records of
conversions hold this hash beside the kernel's and are stale as soon as it changes.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from asyncsparse_lab.spmm.code_hash import code_digest

MODULES: Final = ("convert", "convert_kernels", "convert_run")
"""Whose code runs within a conversion."""


@cache
def conversion_hash() -> str:
    """Return the SHA-256 of the modules that convert on the GPU."""
    folder = Path(__file__).parent
    return code_digest(folder / f"{name}.py" for name in MODULES)
