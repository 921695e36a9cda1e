"""NVIDIA's compute-sanitizer over the small edge cases and solves, in a process for each variant.

So a kernel that a tool refuses does not keep it from looking at the others.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from asyncsparse_lab.errors import DeviceError

TOOLS: Final = ("memcheck", "synccheck", "racecheck")
LIMIT_SECONDS: Final = 600.0  # several may share the GPU

_KERNELS: Final = ("csr_", "convert_", "lsmr_", "update_")
"""Part of the name of every kernel of ours; CuPy's own are left out."""
_TOOLKIT: Final = Path("/usr/local/cuda/bin/compute-sanitizer")
_SUMMARY: Final = re.compile(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): (\d+) (?:error|hazard)")
_FINDING: Final = re.compile(r"^=+ ((?:Error|Warning|Invalid|Barrier|Program hit|Uninit)\b.*)$")
_MAX_FINDINGS: Final = 5


@dataclass(frozen=True, slots=True)
class SanitizerOutcome:
    """What one tool found.

    Attributes
    ----------
    tool : str
        ``memcheck``, ``synccheck`` or ``racecheck``.
    version : str
        Of compute-sanitizer.
    errors : int
        Errors, or hazards, that its summary counts.
    found : tuple of str
        Different findings, five at most.
    exit_code : int
        Of the verification that ran under it: 0 if every result was right.
    seconds : float
        Wall time.
    """

    tool: str
    version: str
    errors: int
    found: tuple[str, ...]
    exit_code: int
    seconds: float

    @property
    def reason(self) -> str | None:
        """What is wrong, in a line; None if nothing is."""
        if not self.errors and not self.exit_code:
            return None
        first = self.found[0] if self.found else "no finding was printed"
        return f"{self.errors} errors, exit code {self.exit_code}: {first}"

    def result(self, builds: int) -> dict[str, Any]:
        """Return what a record tells of it, with the number of builds that were looked at."""
        return {
            "tool": self.tool,
            "version": self.version,
            "builds": builds,
            "errors": self.errors,
            "found": self.found,
            "seconds": round(self.seconds, 1),
        }


def find_sanitizer() -> str | None:
    """Return the path of compute-sanitizer, on PATH or in the toolkit, or None."""
    return shutil.which("compute-sanitizer") or (str(_TOOLKIT) if _TOOLKIT.is_file() else None)


def run_sanitizer(tool: str, variant: str) -> SanitizerOutcome:
    """Run ``asyncsparse verify --small`` for a variant, by its name, under one tool.

    Raises
    ------
    DeviceError
        compute-sanitizer is not there, took too long, or ended without a summary.
    """
    program = find_sanitizer()
    if program is None:
        raise DeviceError("compute-sanitizer is missing: install the CUDA toolkit")
    # API errors are left to the launcher, which asks for a parameter that may not exist.
    command = [program, "--tool", tool, "--report-api-errors", "no"]
    for part in _KERNELS:
        command += ["--kernel-regex", f"kns={part}"]
    command += [sys.executable, "-m", "asyncsparse_lab", "verify", "--small", "--variant", variant]
    start = time.perf_counter()
    # A session of its own: the kernel that hangs is in a child of the tool.
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            shown, _ = process.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise DeviceError(f"{tool}: no end after {LIMIT_SECONDS:.0f} s") from None
    errors, found = parse_report(tool, shown)
    return SanitizerOutcome(
        tool=tool,
        version=_version(program),
        errors=errors,
        found=found,
        exit_code=process.returncode,
        seconds=time.perf_counter() - start,
    )


def parse_report(tool: str, text: str) -> tuple[int, tuple[str, ...]]:
    """Return the errors that the last summary counts, and up to five different findings.

    Raises
    ------
    DeviceError
        The text holds no summary: the tool did not run to its end.
    """
    summaries = _SUMMARY.findall(text)
    if not summaries:
        last = next((line for line in reversed(text.splitlines()) if line.strip()), "no output")
        raise DeviceError(f"{tool} ended without a summary: {last.strip()}")
    findings = (match[1] for line in text.splitlines() if (match := _FINDING.match(line.strip())))
    different = tuple(dict.fromkeys(findings))
    return int(summaries[-1]), different[:_MAX_FINDINGS]


def _version(program: str) -> str:
    shown = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    match = re.search(r"Version (\S+)", shown)
    return match[1] if match else "unknown"
