"""Every compilation that LSMR's backends can need, by backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncsparse_lab.lsmr.geometry import persistent_builds
from asyncsparse_lab.lsmr.updates import update_builds

if TYPE_CHECKING:
    from asyncsparse_lab.gpu.compile import KernelBuild


def kernel_builds(arch: str = "sm_90") -> dict[str, list[KernelBuild]]:
    """Return backend -> its compilations for an architecture."""
    return {"persistent": persistent_builds(arch), "document": update_builds(arch)}
