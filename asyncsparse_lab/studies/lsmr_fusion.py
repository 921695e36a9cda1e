"""What fusing the updates of hbar and x buys: launches, bytes, time; CuPy's statements beside.

Four ways to the same vectors: the statements of CuPy's solver as they stand (hbar in FP64, as it
has it, whatever the type of x0), two kernels, the fused kernel, and the fused kernel with four
elements a thread.  Each is timed for hbar and x alone and with the update of h.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncsparse_lab.errors import DeviceError
from asyncsparse_lab.records import Record
from asyncsparse_lab.studies.base import Case, Drawing, Table
from asyncsparse_lab.studies.lsmr_common import times
from asyncsparse_lab.studies.lsmr_counters import count_launches

if TYPE_CHECKING:
    import pandas as pd

    from asyncsparse_lab.gpu.compile import KernelBuild

STUDY: Final = "lsmr-fusion"
SIZES: Final = (6_177, 23_394, 1_000_000, 10_000_000)
COUNTED_SIZES: Final = (23_394, 10_000_000)
"""Whose bytes the profiler counts."""
CUPY: Final = "statements"
VARIANTS: Final[dict[str, tuple[tuple[str, ...], int]]] = {
    "update-unfused": (("update_hbar", "update_x"), 1),
    "update-fused": (("update_hbar_and_x",), 1),
    "update-fused-float4": (("update_hbar_and_x",), 4),
}
"""Kernels of hbar and x, and elements a thread."""
WAYS: Final = tuple((name, with_h) for with_h in (False, True) for name in (CUPY, *VARIANTS))
"""What is timed: a variant, and whether it updates h too."""
KERNELS: Final = "^(update_|cupy_(add|multiply))"
"""What ncu counts: ours, and those of CuPy's statements."""
COUNTED_BYTES: Final = {"update-unfused": 24, "update-fused": 20, "update-fused-float4": 20}
"""Bytes an element that the updates of hbar and x must move, in FP32."""
_CUPY_BYTES: Final = 8 + 8 + (8 + 4 + 8) + (8 + 8) + (4 + 8 + 4)
# hbar *= c (FP64 read, written); hbar += h; s * hbar (into a new array); x += that.
_H_BYTES: Final = 12
_FACTORS: Final = (0.3, 0.7, 0.2)  # of hbar, x and h; the values do not matter


def cases() -> list[Case]:
    """Return a case for each length."""
    return [
        Case(f"n{n}", params={"n": n}, seconds=10.0 if n in COUNTED_SIZES else 2.0) for n in SIZES
    ]


def kernel_builds() -> dict[str, list[KernelBuild]]:
    """Return the compilations behind the records of this study, by variant."""
    from asyncsparse_lab.gpu.compile import KernelBuild
    from asyncsparse_lab.lsmr.updates import UPDATE_SOURCE

    return {
        name: [KernelBuild(UPDATE_SOURCE, entries[0], {"WIDTH": width}, "sm_90")]
        for name, (entries, width) in VARIANTS.items()
    }


def measure(case: Case) -> list[Record]:
    """Time all ways, cold and warm, and read the bytes from the profiler where it can."""
    import cupy

    from asyncsparse_lab.gpu.timing import L2State, time_interleaved

    n = int(case.params["n"])
    vectors = Vectors(n)
    runs = [vectors.run(name, with_h) for name, with_h in WAYS]
    faults = {name: vectors.fault(name) for name in (CUPY, *VARIANTS)}
    counters = read_counters(n) if n in COUNTED_SIZES else {"failure": "not asked for"}
    records = []
    states: tuple[L2State, ...] = ("cold", "warm")
    for l2 in states:
        timings = time_interleaved(runs, l2, 0.05)
        for (name, with_h), timing in zip(WAYS, timings, strict=True):
            records.append(
                _record(case, name, with_h, l2, list(timing.samples_us), faults[name], counters)
            )
    compiler = f"CuPy {cupy.__version__}"
    return [replace(r, compiler=compiler) if r.variant == CUPY else r for r in records]


def _record(
    case: Case,
    name: str,
    with_h: bool,
    l2: str,
    samples: list[float],
    fault: str,
    counters: dict[Any, Any],
) -> Record:
    n = int(case.params["n"])
    ours = name != CUPY
    counted = n * (COUNTED_BYTES.get(name, _CUPY_BYTES) + with_h * (_H_BYTES if ours else 20))
    result = {
        "launches": launches_of(name, with_h),
        "counted_bytes": counted,
        "bytes_an_element": counted / n,
        "elements_a_thread": VARIANTS[name][1] if ours else None,
    }
    if l2 == "cold":
        result |= counters.get((name, with_h), {"counters": counters.get("failure", "not read")})
    artifact = _artifact(name) if ours else None
    known = (
        {"status": "wrong", "reason": fault} if fault else {"status": "passed", **times(samples)}
    )
    return Record(
        study=STUDY,
        case=case.name,
        op="lsmr",
        role="paper" if ours else "library",
        backend="asyncsparse" if ours else "cupy",
        variant=name,
        k=n,
        n=1,
        dtype_in="float32",
        dtype_out="float32",
        l2=l2,
        clock="events",
        kernel_hash=None if artifact is None else artifact.kernel_hash,
        compiler=None if artifact is None else artifact.compiler,
        params={"with_h": with_h},
        result=result,
        **known,
    )


def launches_of(name: str, with_h: bool) -> int:
    """Return how many kernels a way launches; ``x += s * hbar`` of CuPy's are two."""
    return 4 + 2 * with_h if name == CUPY else len(VARIANTS[name][0]) + with_h


def _artifact(name: str) -> Any:
    from asyncsparse_lab.gpu.compile import compile_kernel
    from asyncsparse_lab.gpu.device import device_facts
    from asyncsparse_lab.lsmr.updates import UPDATE_SOURCE

    entries, width = VARIANTS[name]
    return compile_kernel(UPDATE_SOURCE, entries[0], {"WIDTH": width}, device_facts().arch)


class Vectors:
    """h, hbar, x and v on the device, and every way to update them."""

    def __init__(self, n: int) -> None:
        import cupy

        from asyncsparse_lab.lsmr.updates import UpdateArguments

        rng = cupy.random.default_rng(0)
        self.start = {
            name: rng.standard_normal(n, dtype=cupy.float32) for name in ("hbar", "h", "x", "v")
        }
        self.now = {name: array.copy() for name, array in self.start.items()}
        self.wide_hbar = self.start["hbar"].astype(cupy.float64)
        pointers = {name: array.data.ptr for name, array in self.now.items()}
        self.arguments = UpdateArguments(
            **pointers, hbar_factor=_FACTORS[0], step=_FACTORS[1], h_factor=_FACTORS[2], size=n
        )

    def run(self, name: str, with_h: bool) -> Callable[[], None]:
        """Return a call that enqueues one update."""
        if name == CUPY:
            return self._statements_with_h if with_h else self._statements
        from asyncsparse_lab.gpu.device import device_facts
        from asyncsparse_lab.lsmr.updates import prepare_updates

        entries, width = VARIANTS[name]
        if with_h:
            entries = (*entries, "update_h")
        calls = prepare_updates(entries, self.arguments, width, device_facts().arch, None)

        def launch() -> None:
            for call in calls:
                call()

        return launch

    def _statements(self) -> None:
        """Run the statements of CuPy's solver for hbar and x."""
        hbar, h, x = self.wide_hbar, self.now["h"], self.now["x"]
        hbar *= -_FACTORS[0]
        hbar += h
        x += _FACTORS[1] * hbar

    def _statements_with_h(self) -> None:
        """Run all five."""
        self._statements()
        h, v = self.now["h"], self.now["v"]
        h *= -_FACTORS[2]
        h += v

    def fault(self, name: str) -> str:
        """Update once from the start and compare with FP64; empty where all is well."""
        for key, array in self.start.items():
            self.now[key][...] = array
        self.wide_hbar[...] = self.start["hbar"]
        self.run(name, True)()
        hbar, h, x, v = (
            self.start[key].get().astype(np.float64) for key in ("hbar", "h", "x", "v")
        )
        wanted = {"hbar": h - _FACTORS[0] * hbar}
        wanted["x"] = x + _FACTORS[1] * wanted["hbar"]
        wanted["h"] = v - _FACTORS[2] * h
        found = {key: self.now[key].get() for key in wanted}
        if name == CUPY:
            found["hbar"] = self.wide_hbar.get()
        worst = max(float(np.abs(found[key] - wanted[key]).max()) for key in wanted)
        return "" if worst < 1e-5 else f"{name} is off by {worst:.1e}"


def read_counters(n: int) -> dict[Any, Any]:
    """Return by way what the profiler counted of one update: sums over the way's kernels.

    Where nothing can be counted, ``{"failure": why}``.
    """
    expected = [way for way in WAYS for _ in range(launches_of(*way))]
    try:
        launches = count_launches("lsmr_fusion", {"n": n}, KERNELS, len(expected))
    except DeviceError as error:
        return {"failure": str(error)}
    found: dict[Any, Any] = {}
    for way, launch in zip(expected, launches, strict=True):
        sums = found.setdefault(way, dict.fromkeys(launch, 0.0))
        for name, value in launch.items():
            sums[name] += value
    return found


def draw(
    frame: pd.DataFrame, claims: pd.DataFrame, *, l2: str = "warm", gpu: str = ""
) -> dict[str, Drawing | Table]:
    """Draw the data flow and the times; tabulate launches and bytes.

    Parameters
    ----------
    l2 : {"cold", "warm"}
        State of L2 before each sample.
    gpu : str
        Folder of the GPU's records; the only one there is if empty.
    """
    from asyncsparse_lab.studies import lsmr_fusion_figures
    from asyncsparse_lab.studies.spmm_common import rows_of_one_gpu

    return lsmr_fusion_figures.draw_fusion(rows_of_one_gpu(frame, gpu), claims, l2)


if __name__ == "__main__":
    vectors = Vectors(int(json.loads(sys.argv[1])["n"]))
    for way in WAYS:
        vectors.run(*way)()
