"""Hardware counters of the LSMR studies: Nsight Compute watches a study's module as a program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from asyncsparse_lab.errors import DeviceError
from asyncsparse_lab.spmm.counters import SECTOR_BYTES, watch

METRICS: Final[Mapping[str, str]] = {
    "l2_read": "lts__t_sectors_srcunit_tex_op_read.sum",
    "l2_write": "lts__t_sectors_srcunit_tex_op_write.sum",
    "dram_read": "dram__bytes_read.sum",
    "dram_write": "dram__bytes_write.sum",
}


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
    launches, _ = watch(f"asyncsparse_lab.studies.{study}", job, kernels, METRICS, seconds)
    if len(launches) != expected:
        raise DeviceError(f"ncu counted {len(launches)} launches of {expected}")
    return [
        {
            "l2_bytes": SECTOR_BYTES * (launch["l2_read"] + launch["l2_write"]),
            "dram_bytes": launch["dram_read"] + launch["dram_write"],
        }
        for launch in launches
    ]
