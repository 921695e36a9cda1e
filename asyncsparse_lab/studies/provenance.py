"""Where and how a run was made: machine, packages, source, command; no user, host or path."""

from __future__ import annotations

import os
import platform
import secrets
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from asyncsparse_lab.resources import checkout_root
from asyncsparse_lab.studies.base import Study

PACKAGES = (
    "numpy", "scipy", "pandas", "cupy-cuda12x", "cupy-cuda13x", "cuda-bindings",
    "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "torch", "triton",
)  # fmt: skip


def new_run_name() -> str:
    """Return a name that sorts by time: UTC to the second, and four random digits."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that measuring uses, where they are installed."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def source_state(commit: str | None = None) -> dict[str, Any]:
    """Return the commit that runs and whether the tree is clean; null where nobody knows.

    ``commit`` names it on a machine that has the tree without its history.
    """
    if commit is not None:
        return {"commit": commit.removesuffix("+dirty"), "clean": not commit.endswith("+dirty")}
    root = checkout_root()
    if root is None or not (root / ".git").exists():
        return {"commit": None, "clean": None}

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout.strip()

    # Records and figures change while measuring; what runs is the rest.
    changes = git("status", "--porcelain", "--", ".", ":!data/recorded", ":!figures")
    return {"commit": git("rev-parse", "HEAD"), "clean": None if changes is None else not changes}


def command_line(arguments: Sequence[str]) -> str:
    """Return the command as typed, with paths outside the checkout cut to their last part."""
    shown = [Path(text).name if os.path.isabs(text) else text for text in arguments]
    return " ".join(["asyncsparse", *shown])


def processor_name() -> str | None:
    """Return the CPU's model name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, None)


def describe_run(run: str, *, study: str, seed: int, commit: str | None) -> dict[str, Any]:
    """Return what is known of a run before it starts."""
    return {
        "schema": 1,
        "run": run,
        "study": study,
        "utc": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        **source_state(commit),
        "command": command_line(sys.argv[1:]),
        "seed": seed,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor_name(),
        "packages": package_versions(),
        "gpu": None,
        "before": None,
        "after": None,
    }


def device_folder(study: Study) -> str:
    """Return the folder name of the device that a study is measured on: a GPU's slug, or "cpu".

    Raises
    ------
    DeviceError
        The study needs a GPU and there is none.
    """
    if study.device == "cpu":
        return "cpu"
    return str(gpu_facts()["slug"])


def gpu_facts() -> dict[str, Any]:
    """Return name, driver, CUDA version and the like of the GPU in use."""
    from asyncsparse_lab.gpu.device import device_facts

    return asdict(device_facts())


def gpu_state() -> dict[str, Any]:
    """Return clocks, throttle reasons and the time of an empty kernel, as they are now."""
    from asyncsparse_lab.gpu import device, timing

    return {**device.clock_state(), "empty_kernel_us": timing.empty_kernel_us()}
