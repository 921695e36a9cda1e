r"""Fitting the cost model's coefficients to committed records.

Of each kernel with a model, all cold, passed records are taken, and (t0, e, t1) minimise

    sum_i rho(log T_i(t0, e, t1) - log t_i),    rho(x) = 2 s^2 (sqrt(1 + (x / s)^2) - 1),

with measured times t_i and s = 0.1: relative errors count, and single records that the model
cannot explain count less.  Ceilings come from the study ``ceilings`` as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.matrices import load_matrix
from asyncsparse_lab.spmm.cost import Work, predict
from asyncsparse_lab.spmm.orders import AS_STORED
from asyncsparse_lab.spmm.plan_models import MODELS, work_of
from asyncsparse_lab.spmm.plan_rates import OTHER_TILES, Coefficients, Rates
from asyncsparse_lab.spmm.plan_structure import Structure, structure_of
from asyncsparse_lab.spmm.plan_works import Problem
from asyncsparse_lab.spmm.product import ITEM_BYTES
from asyncsparse_lab.studies.ceilings import load_ceilings

if TYPE_CHECKING:
    import pandas as pd

    from asyncsparse_lab.records.files import Source

STUDIES_FITTED: Final = ("suite", "wcsr-beyond", "bcsr-ablation", "wcsr-ablation", "bcsr-beyond")
"""Studies whose records are fitted, those of them that there are."""
FEWEST_RECORDS: Final = 6
"""A kernel with fewer records keeps the design's coefficients."""

_SOFTNESS: Final = 0.1
# fixed_us (but for the lowest and the start), efficiency, task_us, stage_us, merge_us
_LOWEST: Final = (0.02, 0.0, 0.0, 0.0)
_START: Final = (0.8, 0.5, 0.1, 1.0)
_HIGHEST: Final = (200.0, 20.0, 200.0, 20.0, 200.0)
_SCALE: Final = (5.0, 0.5, 1.0, 0.2, 2.0)
_MICROSECONDS: Final = 1e-6


@dataclass(frozen=True)
class Observation:
    """A measured time and what was computed in it."""

    kernel: str
    work: Work
    measured_us: float


def fitted_rates(
    gpu: str, source: Source = "recorded", report: Callable[[str], None] = lambda text: None
) -> Rates:
    """Return the rates of a GPU with coefficients fitted to its records.

    Records of a kernel that has changed since are left out, where a compiler is here to tell.

    Parameters
    ----------
    gpu : str
        Folder of the records.
    source : {"recorded", "local"}
    report : callable
        Gets a line for each kernel.

    Raises
    ------
    InputError
        The ceilings of this GPU are not recorded.
    """
    from asyncsparse_lab.records.frame import load_records
    from asyncsparse_lab.studies import STUDIES

    rates = ceiling_rates(gpu, source)
    runs: set[str] = set()
    found: dict[str, list[Observation]] = {}
    for name in STUDIES_FITTED:
        if name not in STUDIES:
            continue
        frame = load_records(name, source, judge_kernels=True)
        rows = _usable(frame[(frame["gpu"] == gpu) & ~frame["stale"].astype(bool)])
        for observation in observations(rows, rates):
            kernel = OTHER_TILES.get(observation.kernel, observation.kernel)
            found.setdefault(kernel, []).append(observation)
        runs |= set(rows["run"].dropna())
    kernels = {}
    for kernel, seen in sorted(found.items()):
        if len(seen) >= FEWEST_RECORDS:
            kernels[kernel] = fit(seen, rates.empty_us)
            report(f"{kernel}: {_words(kernels[kernel])}")
    provenance = {**rates.provenance, "fitted_runs": sorted(runs)}
    return replace(rates, kernels=kernels, provenance=provenance)


def _words(fitted: Coefficients) -> str:
    us = [f"{name} {value:.2f} us" for name, value in (
        ("fixed", fitted.fixed_us), ("task", fitted.task_us), ("stage", fitted.stage_us),
        ("merge", fitted.merge_us),
    ) if value]  # fmt: skip
    return (
        f"{', '.join(us)}, efficiency {fitted.efficiency:.2f}; median error "
        f"{fitted.median_error:.1%} of {fitted.records} records"
    )


def ceiling_rates(gpu: str, source: Source = "recorded") -> Rates:
    """Return the measured ceilings of a GPU as rates, no kernel fitted.

    Raises
    ------
    InputError
        Not every ceiling of this GPU is recorded.
    """
    from asyncsparse_lab.records.files import read_runs, record_folders

    ceilings = load_ceilings(gpu, source)
    folder = next(folder for folder in record_folders(source) if folder.name == gpu)
    runs = [run for run in read_runs(folder).values() if run["study"] == "ceilings"]
    facts = runs[-1]["gpu"]
    return Rates(
        gpu=gpu,
        sm_count=int(facts["sm_count"]),
        memory_bytes=int(facts["memory_bytes"]),
        l2_bytes=int(facts["l2_bytes"]),
        shared_bytes=int(facts["shared_bytes_per_block"]),
        hbm_bytes_per_us=_MICROSECONDS * ceilings.hbm_bytes_per_s,
        tma_bytes_per_us=_MICROSECONDS * ceilings.tma_bytes_per_s,
        gather_bytes_per_us=_MICROSECONDS * ceilings.gather_bytes_per_s,
        gather_latency_us=gather_latency_us(gpu, int(facts["sm_count"]), source),
        mma_flops_per_us=_MICROSECONDS * ceilings.mma_flops_per_s,
        cublas_flops_per_us=_MICROSECONDS * ceilings.cublas_flops_per_s,
        fma_flops_per_us=_MICROSECONDS * ceilings.fma_flops_per_s,
        empty_us=ceilings.empty_us,
        provenance={"ceilings_runs": sorted(run["run"] for run in runs)},
    )


def gather_latency_us(gpu: str, sm_count: int, source: Source = "recorded") -> float:
    """Return bytes in flight over rate, of the gather probe with the fewest bytes in flight.

    Of the largest working set, which SMs do not find in each other's tracks.
    """
    from asyncsparse_lab.records.frame import load_records

    frame = load_records("ceilings", source)
    rows = frame[
        (frame["gpu"] == gpu) & (frame["variant"] == "gather-l2") & (frame["status"] == "passed")
    ]
    size = rows["params.working_set_bytes"]
    rows = rows[size == size.max()]
    counts = ("row_bytes", "stage_rows", "stages", "blocks_per_sm")
    in_flight = rows[[f"params.{name}" for name in counts]].prod(axis=1)
    slowest = in_flight.idxmin()
    rate = 1e6 * float(rows.loc[slowest, "result.tb_per_s"])
    return sm_count * float(in_flight[slowest]) / rate


def fit(seen: Sequence[Observation], empty_us: float) -> Coefficients:
    """Return the coefficients that explain the observations of one kernel best."""
    from scipy.optimize import least_squares

    measured = np.log([one.measured_us for one in seen])
    # What no task has cannot be fitted.
    there = [True, True, True, *(_occurs(seen, name) for name in ("stages", "merges"))]

    def coefficients(x: npt.NDArray[np.float64]) -> Coefficients:
        values = np.zeros(len(there))
        values[there] = x
        fixed_us, efficiency, task_us, stage_us, merge_us = map(float, values)
        return Coefficients(fixed_us, efficiency, task_us, stage_us, merge_us)

    def residuals(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        found = coefficients(x)
        times = [predict(one.work, found, empty_us).us for one in seen]
        return np.asarray(np.log(times) - measured)

    lowest = np.array((empty_us, *_LOWEST))[there]  # no product is faster than an empty kernel
    # The makespan has kinks, at which a very small step sees nothing.
    found = least_squares(
        residuals,
        np.array((2 * empty_us, *_START))[there],
        bounds=(lowest, np.array(_HIGHEST)[there]),
        x_scale=np.array(_SCALE)[there],
        diff_step=np.full(len(lowest), 1e-3),
        loss="soft_l1",
        f_scale=_SOFTNESS,
    )
    errors = np.abs(np.expm1(residuals(found.x)))
    return replace(coefficients(found.x), records=len(seen), median_error=float(np.median(errors)))


def _occurs(seen: Sequence[Observation], name: str) -> bool:
    return any(bool(np.any(getattr(one.work, name))) for one in seen)


def observations(rows: pd.DataFrame, rates: Rates) -> Iterable[Observation]:
    """Yield the rows of kernels that have a model, with their work; others are left out."""
    for _, row in rows.iterrows():
        kernel, params = kernel_of(row), params_of(row)
        structure = structure_by_name(row["matrix"])
        if structure is None or params.get("row_order", AS_STORED) != AS_STORED:
            continue  # the structure is that of the rows as stored
        problem = Problem(structure, int(row["n"]), ITEM_BYTES[row["dtype_out"]], rates)
        try:
            work, _ = work_of(kernel, params, problem)
        except InputError:  # constants that the kernel no longer takes
            continue
        yield Observation(kernel, work, float(row["median_us"]))


def kernel_of(row: pd.Series[Any]) -> str:
    """Return the model's name of a record's contender."""
    name = str(row["variant"])
    return name if row["backend"] == "asyncsparse" else f"{row['backend']}-{name}"


def params_of(row: pd.Series[Any]) -> dict[str, Any]:
    """Return the params of a record that are there."""
    import pandas as pd

    return {
        str(name).removeprefix("params."): value
        for name, value in row.items()
        if str(name).startswith("params.") and not pd.isna(value)
    }


@lru_cache(maxsize=512)
def structure_by_name(matrix: str) -> Structure | None:
    """Return the structure of a matrix; None if this machine does not have it."""
    try:
        return structure_of(load_matrix(matrix))
    except InputError:
        return None


def _usable(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the cold, passed products of kernels and libraries with a model."""
    rows = rows[
        (rows["status"] == "passed")
        & (rows["l2"] == "cold")
        & (rows["op"] == "spmm")
        & rows["role"].isin(["paper", "ours", "library"])
        & (rows["layout"] == "row-major")
        & rows["median_us"].notna()
    ]
    return rows[np.array([kernel_of(row) in MODELS for _, row in rows.iterrows()], dtype=bool)]
