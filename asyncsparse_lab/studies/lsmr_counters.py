"""Hardware counters of the LSMR studies: Nsight Compute watches a study's module as a program."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

from asyncsparse_lab.errors import DeviceError

METRICS: Final[Mapping[str, str]] = {
    "l2_read": "lts__t_sectors_srcunit_tex_op_read.sum",
    "l2_write": "lts__t_sectors_srcunit_tex_op_write.sum",
    "dram_read": "dram__bytes_read.sum",
    "dram_write": "dram__bytes_write.sum",
}
SECTOR_BYTES: Final = 32
TOOLKIT: Final = "/usr/local/cuda/bin"


def count_launches(
    study: str, job: Mapping[str, Any], kernels: str, expected: int, seconds: float = 60.0
) -> list[dict[str, float]]:
    """Return for each launch, in order, ``l2_bytes`` between SMs and L2, and ``dram_bytes``.

    Parameters
    ----------
    study : str
        Module of ``studies`` that ncu watches: a program whose argument is ``job`` as JSON.
    kernels : str
        Regular expression of the kernels that count; L2 is cold before each.
    expected : int
        How many launches there must be.

    Raises
    ------
    DeviceError
        ncu is not there, took too long, or counted another number of launches.
    """
    from asyncsparse_lab.spmm.counters import parse_counters

    program = shutil.which("ncu", path=f"{os.environ.get('PATH', '')}:{TOOLKIT}")
    if program is None:
        raise DeviceError("ncu is missing")
    command = [
        program, "--csv", "--print-units", "base", "--clock-control", "none",
        "--kernel-name", f"regex:{kernels}", "--metrics", ",".join(METRICS.values()),
        sys.executable, "-m", f"asyncsparse_lab.studies.{study}", json.dumps(job),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(str(error).splitlines()[0]) from None
    launches = parse_counters(done.stdout, METRICS)
    if len(launches) != expected:
        raise DeviceError(f"ncu counted {len(launches)} launches of {expected}")
    return [
        {
            "l2_bytes": SECTOR_BYTES * (launch["l2_read"] + launch["l2_write"]),
            "dram_bytes": launch["dram_read"] + launch["dram_write"],
        }
        for launch in launches
    ]
