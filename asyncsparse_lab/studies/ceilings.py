"""What this GPU can do at most: every floor that is quoted elsewhere is one of these records.

Each case is one probe (``kernels/probe_*.cu``) in a few configurations; the best of them counts.
:func:`load_ceilings` reads them back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.gpu import timing
from asyncsparse_lab.records import Record
from asyncsparse_lab.studies.base import Case, Drawing, Table

if TYPE_CHECKING:
    import pandas as pd

    from asyncsparse_lab.gpu.compile import KernelBuild
    from asyncsparse_lab.records.files import Source

STUDY: Final = "ceilings"
PROBES: Final[dict[str, tuple[str, float]]] = {
    "copy": ("device to device, read + written", 8.0),
    "mma": ("wgmma m64n256k16, bf16, from shared memory", 5.0),
    "cublas": ("cuBLAS, bf16, 8192 x 8192 x 8192", 25.0),
    "fma": ("FP32 multiply-adds from registers", 5.0),
    "tma-l2": ("L2 to shared memory by TMA, 64 x 64 bf16 boxes", 20.0),
    "gather-l2": ("L2 to shared memory by gathering rows, 16-byte cp.async", 15.0),
    "empty": ("a kernel that does nothing", 3.0),
    "mbarrier": ("round trip of two warps over two mbarriers", 3.0),
    "grid-barrier": ("barrier over one block a SM by one atomic counter", 3.0),
}
"""Name of each probe, in words, and the seconds that its case takes."""


@dataclass(frozen=True, slots=True)
class MeasuredCeilings(timing.Ceilings):
    """The best that each probe reached.

    Attributes
    ----------
    hbm_bytes_per_s : float
        Device-to-device copy, bytes read and written.
    mma_flops_per_s : float
        bf16 tensor-core rate: the better of the wgmma probe and cuBLAS.
    cublas_flops_per_s : float
        cuBLAS on 8192 x 8192 x 8192, random bf16.
    fma_flops_per_s : float
        FP32 multiply-adds, two operations each.
    tma_bytes_per_s : float
        L2 to shared memory by TMA boxes, every block reading in an order of its own, from the
        largest working set.
    tma_shared_bytes_per_s : float
        The same where all blocks read the same boxes together: copies that L2 serves once for
        several SMs count for each, so this is no rate of independent reads.
    gather_bytes_per_s : float
        L2 to shared memory by gathered rows.
    empty_us : float
        An empty kernel, timed as products are.
    mbarrier_cycles : float
        Round trip of two warps.
    grid_barrier_us : float
        One barrier over all SMs.
    """

    cublas_flops_per_s: float
    fma_flops_per_s: float
    tma_bytes_per_s: float
    tma_shared_bytes_per_s: float
    gather_bytes_per_s: float
    empty_us: float
    mbarrier_cycles: float
    grid_barrier_us: float


def cases() -> list[Case]:
    """Return a case for each probe."""
    return [Case(name, seconds=seconds) for name, (_, seconds) in PROBES.items()]


def measure(case: Case) -> list[Record]:
    """Run one probe in all its configurations; its result is checked, too."""
    from asyncsparse_lab.studies import probes

    trials = probes.PREPARE[case.name]()
    times = timing.time_interleaved([trial.run for trial in trials], "warm", seconds=0.2)
    return [_record(case, trial, time) for trial, time in zip(trials, times, strict=True)]


def kernel_builds() -> dict[str, list[KernelBuild]]:
    """Return the compilations behind the records of each probe."""
    from asyncsparse_lab.studies.probes import BUILDS

    return dict(BUILDS)


def _record(case: Case, trial: Any, time: timing.Timing) -> Record:
    fault = trial.fault()
    known: dict[str, Any] = {
        "study": STUDY,
        "case": case.name,
        "op": "spmm",
        "role": "probe",
        "backend": trial.backend,
        "variant": case.name,
        "l2": "warm",
        "clock": "events",
        "kernel_hash": trial.kernel_hash,
        "compiler": trial.compiler,
        "params": trial.params,
    }
    if fault:
        return Record(**known, status="wrong", reason=fault)
    clock_mhz = (time.clock_before_mhz + time.clock_after_mhz) / 2
    return Record(
        **known,
        status="passed",
        **time.record_fields(),
        result={**trial.rates(time.median_us), "clock_mhz": round(clock_mhz, 1)},
    )


def load_ceilings(gpu: str, source: Source = "recorded") -> MeasuredCeilings:
    """Return the measured ceilings of a GPU.

    Parameters
    ----------
    gpu : str
        Folder of its records, such as ``"nvidia-h200"``.
    source : {"recorded", "local"}
        The committed records, or one's own.

    Raises
    ------
    InputError
        Not every probe has a passed record for this GPU.
    """
    from asyncsparse_lab.records.frame import load_records

    frame = load_records(STUDY, source)
    return ceilings_of(frame[frame["gpu"] == gpu], gpu)


def ceilings_of(frame: pd.DataFrame, gpu: str) -> MeasuredCeilings:
    """Return the ceilings in the records of one GPU; raises as :func:`load_ceilings`."""
    passed = frame[frame["status"] == "passed"]
    missing = [name for name in PROBES if name not in set(passed["variant"])]
    if missing:
        raise InputError(
            f"no ceiling of {', '.join(missing)} is recorded for {gpu}: run "
            "'asyncsparse measure ceilings' there"
        )

    def best(probe: str, column: str) -> float:
        return float(passed.loc[passed["variant"] == probe, f"result.{column}"].max())

    independent, shared = tma_reads(passed)

    def least(probe: str, column: str) -> float:
        return float(passed.loc[passed["variant"] == probe, column].min())

    return MeasuredCeilings(
        hbm_bytes_per_s=1e12 * best("copy", "tb_per_s"),
        mma_flops_per_s=1e12 * max(best("mma", "tflops"), best("cublas", "tflops")),
        cublas_flops_per_s=1e12 * best("cublas", "tflops"),
        fma_flops_per_s=1e12 * best("fma", "tflops"),
        tma_bytes_per_s=1e12 * float(independent["result.tb_per_s"].max()),
        tma_shared_bytes_per_s=1e12 * float(shared["result.tb_per_s"].max()),
        gather_bytes_per_s=1e12 * best("gather-l2", "tb_per_s"),
        empty_us=least("empty", "median_us"),
        mbarrier_cycles=least("mbarrier", "result.cycles"),
        grid_barrier_us=least("grid-barrier", "result.us"),
    )


def tma_reads(passed: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the TMA probe's rows of independent reads, and those of reads that blocks share.

    Independent ones are taken from the largest working set: of a small one, several SMs read the
    same boxes at a time by chance.
    """
    rows = passed[passed["variant"] == "tma-l2"]
    alone = rows[rows["params.together"] == 0]
    size = alone["params.working_set_bytes"]
    return alone[size == size.max()], rows[rows["params.together"] == 1]


_COLUMNS: Final = (
    ("result.tb_per_s", "TB/s", "max"),
    ("result.tflops", "TFLOP/s", "max"),
    ("result.cycles", "cycles", "min"),
    ("result.us", "us", "min"),
    ("median_us", "us", "min"),
)


def draw(
    frame: pd.DataFrame, claims: pd.DataFrame, *, gpu: str = "nvidia-h200"
) -> dict[str, Drawing | Table]:
    """Return the table of ceilings: the best configuration of each probe, and the worst."""
    import pandas as pd

    rows = frame[(frame["gpu"] == gpu) & (frame["status"] == "passed")]
    lines = []
    for probe, (words, _) in PROBES.items():
        found = rows[rows["variant"] == probe]
        parts = [(words, found)]
        if probe == "tma-l2" and len(found):
            independent, shared = tma_reads(rows)
            parts = [
                (f"{words}, each block on its own", independent),
                (f"{words}, all blocks the same ones", shared),
            ]
        lines += [_line(probe, named, part) for named, part in parts if len(part)]
    caption = (
        "Ceilings of this GPU. Bytes are read + written for the copy, and bytes that arrive in "
        "shared memory for the two L2 probes; times are medians, L2 warm. The ceiling of TMA that "
        "other figures quote is that of independent reads from a working set that just fits L2; "
        "where all blocks read the same boxes together, one read of L2 serves several SMs."
    )
    return {"ceilings": Table(pd.DataFrame(lines), caption)}


def _line(probe: str, words: str, found: pd.DataFrame) -> dict[str, Any]:
    column, unit, better = next(
        entry for entry in _COLUMNS if entry[0] in found and found[entry[0]].notna().any()
    )
    values = found[column]
    best = found.sort_values(column).iloc[-1 if better == "max" else 0]
    return {
        "probe": probe,
        "what": words,
        "best": float(best[column]),
        "unit": unit,
        "worst configuration": values.min() if better == "max" else values.max(),
        "configurations": len(found),
        "best configuration": _configuration(best),
        "SM clock, MHz": best["result.clock_mhz"],
    }


def _configuration(row: pd.Series[Any]) -> str:
    import pandas as pd

    parts = []
    for name, value in row.items():
        if str(name).startswith("params.") and not pd.isna(value):
            shown = int(value) if isinstance(value, float) and value.is_integer() else value
            parts.append(f"{str(name).removeprefix('params.')}={shown}")
    return ", ".join(parts)
