"""Records that look like measurements, made up here and never written anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

from asyncsparse_lab.records import Record
from asyncsparse_lab.records.frame import frame_of
from asyncsparse_lab.spmm.instrument import ROLE_ROW
from asyncsparse_lab.studies import bcsr_ablation, ceilings, registers
from asyncsparse_lab.studies.base import Case

SHAPES = {
    "gate_proj-keep10-uniform-s0": (18944, 3584, 6791168, 1658),
    "bcsstk16": (4884, 4884, 290378, 465),
    "bcsstk13": (2003, 2003, 83883, 298),
    "mycielskian13": (6143, 6143, 1227742, 3332),
    "mycielskian14": (12287, 12287, 3695512, 11000),
    "elasticity_tank": (13500, 13500, 977706, 4619),
    "dlmc_rn50_magnitude90_proj4": (2048, 1024, 209715, 512),
    "qp_ship12l_P": (5427, 5427, 122433, 473),
    "navier_stokes_jac": (15444, 15444, 371554, 1722),
}
RATES = {
    "bcsr-opt0": 20.0,
    "bcsr-opt1": 90.0,
    "bcsr-opt2": 260.0,
    "bcsr-opt3": 430.0,
    "my_kernel": 410.0,
    "blocked-ell": 130.0,
    "csr-alg2": 9.0,
    "csr-alg3": 12.0,
    "bsr": 160.0,
    "dense": 700.0,
}


def timed(us: float) -> dict[str, Any]:
    samples = tuple(us * factor for factor in (0.98, 1.0, 1.0, 1.03))
    return {
        "status": "passed",
        "median_us": us,
        "q1_us": 0.99 * us,
        "q3_us": 1.01 * us,
        "sample_count": 4,
        "samples_us": samples,
    }


def _row(case: Case, contender: Any, l2: str, rng: np.random.Generator) -> Record:
    assert case.matrix is not None
    assert case.n is not None
    m, k, nnz, blocks = SHAPES[case.matrix]
    dense = contender.variant == "dense"
    flops = 2.0 * m * k * case.n if dense else 2.0 * 4096 * blocks * case.n
    us = flops / RATES[contender.variant] / 1e6 * float(rng.uniform(0.8, 1.25)) + 4.0
    outcome: dict[str, Any] = timed(us)
    outcome["result"] = {"useful_tflops": 2.0 * nnz * case.n / us / 1e6}
    if contender.backend == "asyncsparse":
        outcome["result"] |= {"blocks": blocks, "fill_ratio": nnz / blocks / 4096}
    if contender.variant == "blocked-ell" and case.matrix == "qp_ship12l_P":
        outcome = {"status": "oom", "reason": "predicted bytes exceed what is there"}
    if contender.backend == "cusparse" and contender.variant == "bsr":
        outcome = {"status": "unsupported", "reason": "no bf16"}
    return Record(
        study="bcsr-ablation",
        case=case.name,
        run="20260101T000000Z-0000",
        op="spmm",
        role=contender.role,
        backend=contender.backend,
        variant=contender.variant,
        matrix=case.matrix,
        m=m,
        k=k,
        n=case.n,
        nnz=nnz,
        dtype_in="bfloat16",
        dtype_out=case.params["dtype_out"],
        layout="row-major",
        l2=l2,
        clock="events",
        rel_err=1e-3,
        err_bound=4e-3,
        params=contender.params,
        **outcome,
    )


@pytest.fixture(scope="session")
def ablation_frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    records = [
        _row(case, contender, l2, rng)
        for case in bcsr_ablation.cases()
        for contender in bcsr_ablation.contenders(case)
        for l2 in ("cold", "warm")
    ]
    return frame_of(records, gpu="nvidia-h200", gpu_name="NVIDIA H200 (made up)")


PROBE_RESULTS: dict[str, list[dict[str, float]]] = {
    "copy": [{"tb_per_s": 4.1}, {"tb_per_s": 4.3}],
    "mma": [{"tflops": 760.0}],
    "cublas": [{"tflops": 790.0}],
    "fma": [{"tflops": 58.0}, {"tflops": 60.0}],
    "tma-l2": [{"tb_per_s": 9.5}, {"tb_per_s": 8.5}, {"tb_per_s": 8.0}, {"tb_per_s": 22.0}],
    "gather-l2": [{"tb_per_s": 5.0}],
    "empty": [{}],
    "mbarrier": [{"cycles": 80.0}],
    "grid-barrier": [{"us": 1.3}],
}


TMA_READS = ((0, 8 << 20), (0, 32 << 20), (0, 32 << 20), (1, 8 << 20))
"""Of each result of the TMA probe: whether blocks read together, and of how many bytes."""


def _configuration(probe: str, number: int) -> dict[str, Any]:
    if probe != "tma-l2":
        return {"configuration": number}
    together, size = TMA_READS[number]
    return {"together": together, "working_set_bytes": size}


@pytest.fixture(scope="session")
def ceilings_frame() -> pd.DataFrame:
    records = [
        Record(
            study="ceilings",
            case=probe,
            run="20260101T000000Z-0000",
            op="spmm",
            role="probe",
            backend="cublas" if probe == "cublas" else "asyncsparse",
            variant=probe,
            l2="warm",
            clock="events",
            params=_configuration(probe, number),
            **(timed(3.5 + number) | {"result": {**result, "clock_mhz": 1755.0}}),
        )
        for probe in ceilings.PROBES
        for number, result in enumerate(PROBE_RESULTS[probe])
    ]
    return frame_of(records, gpu="nvidia-h200", gpu_name="NVIDIA H200 (made up)")


@pytest.fixture
def registers_frame() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    records = []
    for case in registers.cases():
        for variant in registers.builds(case):
            for l2 in ("cold", "warm"):
                uses = variant.constants.get("SETMAXNREG", 0)
                us = 0.06 * (case.n or 0) * float(rng.uniform(0.95, 1.05))
                result = {
                    "registers": 168 if uses else 90,
                    "shared_bytes": variant.launch_geometry.shared_bytes,
                    "blocks_per_sm": 1 if uses or variant.constants["WGMMA_N"] > 64 else 2,
                }
                records.append(
                    Record(
                        study="registers",
                        case=case.name,
                        run="20260101T000000Z-0000",
                        op="spmm",
                        role="paper",
                        backend="asyncsparse",
                        variant=variant.name,
                        matrix=case.matrix,
                        m=18944,
                        k=3584,
                        n=case.n,
                        nnz=6791168,
                        dtype_in="bfloat16",
                        dtype_out="bfloat16",
                        layout="row-major",
                        l2=l2,
                        clock="events",
                        params={key.lower(): value for key, value in variant.constants.items()},
                        result=result,
                        **timed(us),
                    )
                )
    return frame_of(records, gpu="nvidia-h200", gpu_name="NVIDIA H200 (made up)")


@pytest.fixture(scope="session")
def draw_in_theme() -> Callable[..., dict[str, Any]]:
    """Draw as a notebook would, and close what was drawn."""
    from matplotlib import pyplot as plt

    from asyncsparse_lab.studies import style

    def draw(module: Any, *arguments: Any, **parameters: Any) -> dict[str, Any]:
        with style.theme():
            items: dict[str, Any] = module.draw(*arguments, **parameters)
        plt.close("all")
        return items

    return draw


class MadeUpLaunches:
    """Launches of a ring kernel whose parts are known: the rows that a probe would write."""

    GHZ = 2.0
    PHASES: ClassVar = {
        "setup": 200,
        "fetch": 150,
        "reset": 60,
        "first_wait": 900,
        "wait": 2000,
        "multiply": 1000,
        "release": 80,
        "drain": 70,
        "epilogue": 1500,
        "leave": 40,
    }
    """Cycles of a thread block; ``wait`` is without the first."""
    REST, GAP, BLOCKS = 130, 500, 7
    LENGTH = sum(PHASES.values()) + REST

    def __call__(
        self, blocks_of_sm: list[int], starts_ns: list[int], slower: float = 1.0, level: int = 2
    ) -> np.ndarray:
        """Return the rows of a launch on SMs that run so many thread blocks of one tile in turn."""
        rows = []
        for sm, (count, start) in enumerate(zip(blocks_of_sm, starts_ns, strict=True)):
            first = 10_000_000 * (sm + 1)  # the clocks of different SMs have nothing in common
            length = int(slower * self.LENGTH)
            for number in range(count):
                clock = first + number * (length + self.GAP)
                block = np.zeros(3, dtype=ROLE_ROW)
                block["sm"] = sm
                block["begin_clock"], block["end_clock"] = clock, clock + length
                for role, at in ((0, clock + length - 600), (1, clock + 300)):
                    since = int((at - first) / self.GHZ)
                    block["read_clock"][role] = at
                    block["read_ns"][role] = 1_800_000_000_000_000_000 + start + since
                for name, cycles in self.PHASES.items():
                    block[name][1:] = slower * cycles
                block["wait"][1:] += block["first_wait"][1:]
                block["tiles"][1:], block["blocks"][1:] = 1, self.BLOCKS
                block["waits"][0], block["wait"][0] = 10, 700
                block["remote_wait"][0] = 300 if level == 2 else 0
                if level == 1:  # it counts the release with the products
                    block["multiply"] += block["release"]
                    block["release"] = 0
                rows.append(block)
        return np.array(rows)


@pytest.fixture
def launch() -> MadeUpLaunches:
    """Makes launches of a ring kernel whose parts are known."""
    return MadeUpLaunches()
