"""The planner against the suite's measurements: predicted times, and what its choices cost.

Needs no GPU.  A case is one of the suite's: the record holds what the cost model, with the
committed coefficients, predicts for each contender that the suite measures there, what ``auto``
would take of all it knows, and how long planning took.  The figures set that beside the suite's
records, matrix by matrix; :mod:`asyncsparse_lab.studies.planner_fit` fits the coefficients.
"""

from __future__ import annotations

from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from asyncsparse_lab.formats.selection import choose_by_fill
from asyncsparse_lab.matrices import load_matrix
from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm.cost import predict
from asyncsparse_lab.spmm.plan_hash import plan_hash
from asyncsparse_lab.spmm.plan_models import MODELS, kernel_name, work_of
from asyncsparse_lab.spmm.plan_rates import load_rates
from asyncsparse_lab.spmm.plan_structure import structure_of
from asyncsparse_lab.spmm.plan_works import Problem
from asyncsparse_lab.spmm.planner import candidates, configuration
from asyncsparse_lab.spmm.product import ITEM_BYTES
from asyncsparse_lab.studies.base import Case, Drawing, Table

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import csr_array

    from asyncsparse_lab.records.files import Source
    from asyncsparse_lab.spmm.contender import Contender

STUDY: Final = "planner"
MEASURED: Final = "suite"
RULE: Final = {"bcsr": "bcsr-opt3", "wcsr": "wcsr-paper"}
"""The article's rule gives a format; its kernel for that."""


def cases() -> list[Case]:
    """Return the suite's cases with bf16 output, its search among them."""
    from asyncsparse_lab.studies import suite

    return [
        Case(case.name, case.matrix, case.n, case.params, seconds=0.3 + case.seconds / 20)
        for case in suite.cases()
        if case.params["dtype_out"] == "bfloat16"
    ]


def measure(case: Case) -> list[Record]:
    """Predict every contender of the suite's case, choose, and time the planning.

    ``host_hash`` is that of the planner.  ``preprocess_us`` is planning from CSR: counting the
    pattern, costing and sorting.  ``result`` holds ``predictions`` (kernel, configuration, us,
    what bounds it), ``chosen`` with its ``configuration``, ``predicted_us`` and ``bound_by``, and
    ``rule``: what the article's rule takes.
    """
    from asyncsparse_lab.studies import suite

    assert case.n is not None
    A = _matrix(case.params["source"])
    begin = perf_counter()
    structure = structure_of(A)
    best = candidates(structure, case.n)[0]
    planning_us = 1e6 * (perf_counter() - begin)
    problem = Problem(structure, case.n, ITEM_BYTES["bfloat16"], load_rates())
    predictions = [
        _prediction(contender, problem)
        for contender in suite.contenders(case)
        if kernel_name(contender) in MODELS
    ]
    return [
        Record(
            study=STUDY,
            case=case.name,
            op="format",
            role="planner",
            backend="asyncsparse",
            variant="auto",
            matrix=case.matrix,
            m=structure.m,
            k=structure.k,
            n=case.n,
            nnz=structure.nnz,
            dtype_in="bfloat16",
            dtype_out="bfloat16",
            layout="row-major",
            clock="wall",
            status="passed",
            host_hash=plan_hash(),
            preprocess_us=round(planning_us, 1),
            result={
                "predictions": predictions,
                "chosen": best.name,
                "configuration": configuration(best.contender),
                "predicted_us": round(best.predicted_us, 3),
                "bound_by": best.bound_by,
                "rule": RULE[choose_by_fill(structure.block_fill).format],
            },
        )
    ]


@lru_cache(maxsize=1)
def _matrix(source: str) -> csr_array[Any]:
    return load_matrix(source)


def _prediction(contender: Contender, problem: Problem) -> list[Any]:
    name = kernel_name(contender)
    work, _ = work_of(name, contender.params, problem)
    cost = predict(work, problem.rates.of(name), problem.rates.empty_us)
    return [name, configuration(contender), round(cost.us, 3), cost.bound_by]


def draw(
    frame: pd.DataFrame,
    claims: pd.DataFrame,
    *,
    records: Source = "recorded",
    gpu: str = "nvidia-h200",
    n: int = 0,
) -> dict[str, Drawing | Table]:
    """Draw predictions against measurements and the cost of choices; tabulate both.

    Parameters
    ----------
    records : {"recorded", "local"}
        Where the suite's measurements are.
    gpu : str
        Folder of the GPU that they are from.
    n : int
        Only this number of columns of B; all if 0.
    """
    from asyncsparse_lab.records.frame import load_records
    from asyncsparse_lab.studies import planner_figures as figures
    from asyncsparse_lab.studies.planner_frame import choices, predicted_rows
    from asyncsparse_lab.studies.spmm_common import rows_of_one_gpu

    measured = load_records(MEASURED, records)
    measured = rows_of_one_gpu(measured, gpu)
    if n:
        frame, measured = frame[frame["n"] == n], measured[measured["n"] == n]
    rows = predicted_rows(frame, measured)
    chosen = choices(frame, measured)
    return {
        "prediction": figures.prediction(rows),
        "regret": figures.regret(chosen),
        "planning": figures.planning(frame),
        "errors": figures.errors_table(rows, gpu),
        "choices": figures.choices_table(chosen),
        "misses": figures.misses_table(chosen),
        "planners": figures.planners_table(chosen),
    }
