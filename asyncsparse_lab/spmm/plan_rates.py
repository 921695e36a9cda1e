"""The measured rates that costs are predicted from, and each kernel's fitted coefficients.

They are read from ``data/rates/<gpu>.toml``, which ``asyncsparse plan --fit`` writes from the
committed records, with its provenance inside; nobody types them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.resources import resource_path

DEFAULT_GPU: Final = "nvidia-h200"

OTHER_TILES: Final = {"bcsr-overlap-narrow": "bcsr-overlap"}
"""Kernels that are another's source in other tiles, and share its coefficients."""


@dataclass(frozen=True, slots=True)
class Coefficients:
    """What is fitted of one kernel; without records the design's: an empty kernel, efficiency 1.

    Attributes
    ----------
    fixed_us : float
        Launch, prologue and end of a product, in us.
    efficiency : float
        Rate that the kernel reaches of its tasks' bound, over the measured rate.
    task_us : float
        What a task takes besides, in us; of cuBLAS, 64 columns of A.
    stage_us, merge_us : float
        What each stage of a task takes besides, and each level at which its piece of a cut window
        meets others; 0 for kernels without.
    records : int
        Cold measurements behind them; 0: not fitted.
    median_error : float
        Median of abs(predicted / measured - 1) over these.
    """

    fixed_us: float
    efficiency: float = 1.0
    task_us: float = 0.0
    stage_us: float = 0.0
    merge_us: float = 0.0
    records: int = 0
    median_error: float = 0.0


@dataclass(frozen=True, slots=True)
class Rates:
    """Ceilings of one GPU, from the records of the study ``ceilings``, and the coefficients.

    Attributes
    ----------
    gpu : str
        Folder of the records, such as ``"nvidia-h200"``.
    sm_count : int
        Streaming multiprocessors.
    memory_bytes, l2_bytes, shared_bytes : int
        Of the device, of its L2 cache, and of one SM for thread blocks.
    hbm_bytes_per_us, tma_bytes_per_us, gather_bytes_per_us : float
        Copy through HBM; L2 to shared memory by TMA boxes and by gathered rows.
    gather_latency_us : float
        From a gather to its bytes under load: bytes in flight on all SMs over the rate that they
        reach, where more in flight would be faster.
    mma_flops_per_us, cublas_flops_per_us, fma_flops_per_us : float
        bf16 tensor cores at their best, cuBLAS on a large square product, FP32 multiply-adds.
    empty_us : float
        An empty kernel, timed as products are.
    kernels : mapping
        Name of a kernel to its coefficients.
    provenance : mapping
        Which records these numbers come from.
    """

    gpu: str
    sm_count: int
    memory_bytes: int
    l2_bytes: int
    shared_bytes: int
    hbm_bytes_per_us: float
    tma_bytes_per_us: float
    gather_bytes_per_us: float
    gather_latency_us: float
    mma_flops_per_us: float
    cublas_flops_per_us: float
    fma_flops_per_us: float
    empty_us: float
    kernels: Mapping[str, Coefficients] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def gather_rate(self, bytes_in_flight: float) -> float:
        """Return the bytes per us of a gather with so many bytes in flight on each SM.

        Little's law: what is in flight over its latency, up to the measured ceiling.
        """
        reached = self.sm_count * bytes_in_flight / self.gather_latency_us
        return min(self.gather_bytes_per_us, reached)

    def of(self, kernel: str) -> Coefficients:
        """Return a kernel's coefficients: fitted, or else the design's."""
        return self.kernels.get(OTHER_TILES.get(kernel, kernel), Coefficients(self.empty_us))


@cache
def load_rates(gpu: str = DEFAULT_GPU) -> Rates:
    """Return the rates of a GPU.

    Raises
    ------
    InputError
        None are there for this GPU, or the file is not one that :func:`rates_text` wrote.
    """
    path = rates_path(gpu)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(
            f"no rates of {gpu} in {path.parent.name}/: measure its ceilings, merge the records, "
            f"and run 'asyncsparse plan --fit --gpu {gpu}'"
        ) from None
    return read_rates(text, path.name)


def rates_path(gpu: str) -> Path:
    """Return where the rates of a GPU are kept."""
    return resource_path("data") / "rates" / f"{gpu}.toml"


def read_rates(text: str, name: str = "rates") -> Rates:
    """Return the rates that a TOML text holds; raises as :func:`load_rates`."""
    try:
        held = tomllib.loads(text)
        kernels = {key: Coefficients(**value) for key, value in held.pop("kernels").items()}
        return Rates(**held.pop("rates"), kernels=kernels, provenance=held.pop("provenance"))
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{name} holds no rates ({error}): run 'asyncsparse plan --fit'") from None


def rates_text(rates: Rates) -> str:
    """Return rates as TOML."""
    values = asdict(rates)
    kernels, provenance = values.pop("kernels"), values.pop("provenance")
    tables = {"rates": values, "provenance": provenance}
    tables |= {f'kernels."{name}"': kernels[name] for name in sorted(kernels)}
    head = "# Written by 'asyncsparse plan --fit' from the committed records; do not edit.\n"
    return head + "".join(
        f"\n[{table}]\n" + "".join(f"{key} = {_toml(entry)}\n" for key, entry in entries.items())
        for table, entries in tables.items()
    )


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
