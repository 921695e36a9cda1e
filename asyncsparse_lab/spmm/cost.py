r"""How long a product takes: bytes and flops over measured rates, and list scheduling.

A kernel cuts C = A B into tasks: a window's piece, a block row, a row, times the tiles along N.
Task i moves ``b_i`` bytes from L2 into SMs (and C's tile back) and makes ``f_i`` operations.  With
the measured rates ``R`` (bytes) and ``F`` (operations) of the whole GPU, shared by ``S`` slots
(SMs times thread blocks per SM), it keeps its slot busy for

    d_i = max(b_i S / R, f_i S / F)     where loads and products overlap,
    d_i = b_i S / R + f_i S / F         where the kernel does one after the other.

Tasks are list scheduled on the slots, longest first
(:func:`asyncsparse_lab.spmm.plan_schedule.makespan`):

    M = makespan_i(d_i / e + t1 s_i + t2 g_i + t3 l_i),

    H = (bytes of A, touched rows of B, C) / R_HBM,

    T = t0 + (M^p + H^p)^(1/p).

Fitted to each kernel's records are the fixed time t0 (launch, prologue, end), the efficiency e
with which it reaches its bound, t1 for a task (prologue and epilogue; s_i grows with its tile of
C) and, where tasks differ in them, t2 for each of its g_i stages (latency that the ring does not
hide) and t3 for each of the l_i times that it meets another piece: levels of a cut window's tree,
partial sums of a long row.

The exponent p says how far the design hides HBM behind other work: 1, one after the other, where
thread blocks load, multiply and store in turn (the first touch of a byte in a cold L2, and the
write of C, then wait for nobody else's work); 1.5 where loads, products and stores of different
tiles overlap in one thread block; infinity, the larger of the two, for a dense product, which
reads each byte many times.

The parts of a prediction add up to it: launch (t0), the busier of L2 and the arithmetic and the
steps, both as an average over the slots, imbalance (M less these), and HBM (T - t0 - M).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from asyncsparse_lab.spmm.plan_rates import Coefficients
from asyncsparse_lab.spmm.plan_schedule import makespan

FloatArray = npt.NDArray[np.float64]

FIXED: Final = "launch"
STEPS: Final = "task overhead"
IMBALANCE: Final = "imbalance"
HBM: Final = "HBM"
L2: Final = "L2"

IN_TURN: Final = 1.0
OVERLAPPING: Final = 1.5
HIDDEN: Final = float("inf")


@dataclass(frozen=True, eq=False)
class Work:
    """What a kernel does for one product.

    Attributes
    ----------
    moved_us : float array, tasks
        Bytes between L2 and SMs of each task, over the measured rate of the whole GPU, in us.
    computed_us : float array, tasks
        Operations of each task over the measured rate, in us.
    engine : str
        What computes: ``"tensor cores"`` or ``"FP32 units"``.
    slots : int
        Tasks that run at a time.
    hbm_us : float
        Bytes that must pass HBM over the measured rate, in us.
    repeats : int
        How often each task occurs: tiles along N.
    steps : float or float array
        Of each task, each taking ``task_us``.
    stages : float or float array
        Of each task, each taking ``stage_us``.
    merges : float or float array
        How often a task's piece meets others, each taking ``merge_us``.
    overlapped : bool
        Whether loads run while the task before is multiplied.
    hbm_exponent : float
        How far HBM is hidden behind tasks: p of the model.
    launches : int
        Kernels, one after the other.
    """

    moved_us: npt.NDArray[Any]
    computed_us: npt.NDArray[Any]
    engine: str
    slots: int
    hbm_us: float
    repeats: int = 1
    steps: Any = 1.0
    stages: Any = 0.0
    merges: Any = 0.0
    overlapped: bool = True
    hbm_exponent: float = IN_TURN
    launches: int = 1


@dataclass(frozen=True, slots=True)
class Cost:
    """A predicted time and what it consists of.

    Attributes
    ----------
    us : float
        The sum of the parts.
    parts : dict
        Part to microseconds.
    bound_by : str
        The largest part.
    """

    us: float
    parts: dict[str, float]
    bound_by: str


def predict(work: Work, coefficients: Coefficients, empty_us: float) -> Cost:
    """Return the predicted time of a product.

    Parameters
    ----------
    work : Work
    coefficients : Coefficients
        The kernel's.
    empty_us : float
        Each launch after the first takes that much.
    """
    fixed = coefficients.fixed_us + empty_us * (work.launches - 1)
    moved, computed = work.moved_us, work.computed_us
    busy = np.maximum(moved, computed) if work.overlapped else moved + computed
    busy = busy * (work.slots / coefficients.efficiency)
    overhead = (
        coefficients.task_us * np.broadcast_to(work.steps, busy.shape)
        + coefficients.stage_us * work.stages
        + coefficients.merge_us * work.merges
    )
    share = work.repeats / work.slots
    span = makespan(busy + overhead, work.slots, work.repeats)
    average = {"busy": float(busy.sum()) * share, STEPS: float(overhead.sum()) * share}
    imbalance = max(0.0, span - sum(average.values()))
    hbm = float(np.linalg.norm((span, work.hbm_us), work.hbm_exponent)) - span
    engine = L2 if moved.sum() > computed.sum() else work.engine
    parts = {
        FIXED: fixed,
        engine: average["busy"],
        HBM: hbm,
        STEPS: average[STEPS],
        IMBALANCE: imbalance,
    }
    return Cost(sum(parts.values()), parts, max(parts, key=lambda name: parts[name]))
