"""Hardware counters of our kernels, read by Nsight Compute from a process of their own.

``read_counters`` starts ``ncu`` on this module, which launches each variant once on one product.
Caches are flushed before each pass, so the counts are those of a cold L2.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from asyncsparse_lab.errors import DeviceError
from asyncsparse_lab.spmm.variants import Variant, find_variant

LIMIT_SECONDS: Final = 90.0
SECTOR_BYTES: Final = 32

_MODULE: Final = "asyncsparse_lab.spmm.counters"
_TOOLKIT: Final = Path("/usr/local/cuda/bin/ncu")
# Reads that come from SMs alone, where ncu knows them; else all reads of L2.
_METRIC_SETS: Final[tuple[Mapping[str, str], ...]] = tuple(
    {
        "l2_sectors": f"lts__t_sectors{source}_op_read.sum",
        "l2_hits": f"lts__t_sectors{source}_op_read_lookup_hit.sum",
        "dram_read_bytes": "dram__bytes_read.sum",
        "dram_write_bytes": "dram__bytes_write.sum",
    }
    for source in ("_srcunit_tex", "")
)


def read_counters(
    variants: Sequence[Variant], matrix: str, n: int, dtype_out: str
) -> list[dict[str, float]]:
    """Return for each variant its bytes from L2 and from DRAM, and L2's hit rate.

    Returns
    -------
    list of dict
        ``l2_bytes`` (read), ``l2_hit_rate`` (of them, 0 to 1), ``dram_bytes`` (read + written).

    Raises
    ------
    DeviceError
        ncu is not there, may not read counters here, or took too long.
    """
    job = {
        "matrix": matrix,
        "n": n,
        "dtype_out": dtype_out,
        "variants": [
            {"name": v.name, "constants": dict(v.constants), "options": dict(v.options)}
            for v in variants
        ],
    }
    entries = sorted({variant.entry for variant in variants})
    failure = ""
    for metrics in _METRIC_SETS:
        launches, printed = watch(_MODULE, job, f"^({'|'.join(entries)})$", metrics)
        if len(launches) == len(variants):
            return [summarise(launch) for launch in launches]
        failure = _failure(printed, len(launches), len(variants))
        if "metric" not in failure:
            break
    raise DeviceError(failure)


def watch(
    module: str,
    job: Mapping[str, Any],
    kernels: str,
    metrics: Mapping[str, str],
    seconds: float = LIMIT_SECONDS,
) -> tuple[list[dict[str, float]], str]:
    """Run a module under ncu, and return the counts of each launch and all that was printed.

    Parameters
    ----------
    module : str
        Runs as a program whose argument is ``job`` as JSON.
    kernels : str
        Regular expression of the kernels that count.
    metrics : mapping
        Our name to ncu's.

    Raises
    ------
    DeviceError
        ncu is not there or does not start, or took too long.
    """
    program = shutil.which("ncu") or (str(_TOOLKIT) if _TOOLKIT.is_file() else None)
    if program is None:
        raise DeviceError("ncu is missing: install Nsight Compute")
    command = [
        program, "--csv", "--print-units", "base", "--clock-control", "none",
        "--kernel-name", f"regex:{kernels}", "--metrics", ",".join(metrics.values()),
        sys.executable, "-m", module, json.dumps(job),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise DeviceError(f"ncu: no end after {seconds:.0f} s") from None
    except OSError as error:
        raise DeviceError(f"ncu: {error}") from None
    return parse_counters(done.stdout, metrics), done.stdout + done.stderr


def parse_counters(text: str, metrics: Mapping[str, str]) -> list[dict[str, float]]:
    """Return the counts of each profiled launch from ncu's CSV, those that have all metrics.

    Parameters
    ----------
    text : str
        What ncu printed: its own messages, the program's, and the table.
    metrics : mapping
        Our name to ncu's.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    names = {name: ours for ours, name in metrics.items()}
    found: dict[int, dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        ours = names.get(row.get("Metric Name") or "")
        value = (row.get("Metric Value") or "").replace(",", "")
        if ours and value.replace(".", "", 1).isdigit():
            found.setdefault(int(row["ID"]), {})[ours] = float(value)
    return [found[number] for number in sorted(found) if len(found[number]) == len(metrics)]


def summarise(launch: Mapping[str, float]) -> dict[str, float]:
    """Return bytes and the hit rate from a launch's counts."""
    sectors = launch["l2_sectors"]
    return {
        "l2_bytes": SECTOR_BYTES * sectors,
        "l2_hit_rate": launch["l2_hits"] / sectors if sectors else 0.0,
        "dram_bytes": launch["dram_read_bytes"] + launch["dram_write_bytes"],
    }


def _failure(text: str, got: int, wanted: int) -> str:
    """Return ncu's first complaint in one line."""
    complaints = [line.strip() for line in text.splitlines() if "ERR" in line.upper()]
    first = complaints[0] if complaints else f"{got} launches of {wanted} were counted"
    return f"ncu: {first}"


def _launch_each(job: Mapping[str, Any]) -> None:
    """Launch each variant of a job once; what ncu watches."""
    from asyncsparse_lab.matrices import load_matrix
    from asyncsparse_lab.spmm.product import Product
    from asyncsparse_lab.spmm.run import Ours

    product = Product.random(load_matrix(job["matrix"]), job["n"], dtype_out=job["dtype_out"])
    for entry in job["variants"]:
        variant = find_variant(entry["name"]).with_constants(**entry["constants"])
        prepared = Ours(variant.with_options(**entry["options"])).prepare(product)
        prepared.run()
        product.xp.cuda.get_current_stream().synchronize()


if __name__ == "__main__":
    _launch_each(json.loads(sys.argv[1]))
