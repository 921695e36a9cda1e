"""The planner's predictions beside the suite's measurements, row by row and case by case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.spmm.plan_models import MODELS, variant_of
from asyncsparse_lab.spmm.variants import VARIANTS
from asyncsparse_lab.studies.planner_fit import kernel_of, params_of

if TYPE_CHECKING:
    import pandas as pd

STRATEGIES: Final = {
    "auto": "auto, as measured",
    "model": "the committed model's choice",
    "rule": "the article's rule",
    "cublas": "always dense cuBLAS",
}
"""Ways to choose a kernel, in words."""


def predicted_rows(frame: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    """Return the suite's cold, passed rows that were predicted, with columns for both times.

    Parameters
    ----------
    frame : DataFrame
        The planner's records.
    measured : DataFrame
        The suite's, of one GPU.

    Returns
    -------
    DataFrame
        The suite's columns, ``kernel``, ``predicted_us``, ``bound_by`` and ``ratio``, predicted
        over measured.

    Raises
    ------
    InputError
        No row was predicted.
    """
    rows = _cold(measured)
    rows = rows.assign(
        kernel=[kernel_of(row) for _, row in rows.iterrows()],
        configuration=[_configuration_of(row) for _, row in rows.iterrows()],
    )
    predictions = _predictions(frame)
    found = rows.merge(predictions, on=["case", "kernel", "configuration"], how="inner")
    if found.empty:
        raise InputError(
            "the suite has no record that was predicted: measure it, then "
            "'asyncsparse measure planner'"
        )
    return found.assign(ratio=found["predicted_us"] / found["median_us"])


def choices(frame: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    """Return a row a case: the best measured time, and what each way to choose takes.

    Returns
    -------
    DataFrame
        ``case``, ``matrix``, ``n``, ``nnz``, ``density``, ``search`` (whether it is one of the
        search), ``best``, ``best_us``, ``chosen`` (by ``auto``), and for each of :data:`STRATEGIES`
        its time over the best one's; NaN where that was not measured. ``auto`` competes too: its
        time may be the best one. ``planner`` is the hash of the one that chose, ``differs`` whether
        that of the records chooses another kernel or configuration, and ``loss`` what the latter
        predicts of the choice over its own.
    """
    import pandas as pd

    rows = _cold(measured)
    plans = {str(row["case"]): row for _, row in frame.iterrows()}
    found = []
    for case, group in rows.groupby("case", sort=False):
        plan = plans.get(str(case))
        if plan is None or not (group["variant"] == "auto").any():
            continue
        group = group.assign(kernel=[kernel_of(row) for _, row in group.iterrows()])
        times = group.groupby("kernel")["median_us"].min()
        best = str(times.idxmin())
        auto = group[group["variant"] == "auto"].iloc[0]
        line = {name: auto[name] for name in ("case", "matrix", "n", "nnz", "density", "gpu_name",
                                              "utc", "l2")}  # fmt: skip
        line |= {"best": best, "best_us": times[best], "auto_us": auto["median_us"]}
        line["search"] = str(case).startswith("search-")
        line["chosen"] = auto.get("params.chosen")
        line["auto"] = auto["median_us"] / times[best]
        line["rule"] = times.get(plan["result.rule"], float("nan")) / times[best]
        line["cublas"] = times.get("cublas-dense", float("nan")) / times[best]
        line["model"] = _model_choice(plan, group) / times[best]
        line["planner"] = auto.get("params.planner")
        line |= _drift(plan, auto)
        found.append(line)
    if not found:
        raise InputError("the suite has no record of auto: measure it first")
    return pd.DataFrame(found)


def _cold(measured: pd.DataFrame) -> pd.DataFrame:
    return measured[
        (measured["status"] == "passed")
        & (measured["l2"] == "cold")
        & (measured["dtype_out"] == "bfloat16")
        & measured["role"].isin(["paper", "ours", "library", "planner"])
    ]


def _predictions(frame: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    names = ["case", "kernel", "configuration", "predicted_us", "bound_by"]
    lines = [
        (row["case"], *prediction)
        for _, row in frame.iterrows()
        for prediction in row["result.predictions"]
    ]
    return pd.DataFrame(lines, columns=names)


def _configuration_of(row: pd.Series[Any]) -> str:
    """Return a record's configuration in the words of the prediction."""
    return _words(kernel_of(row), params_of(row))


def _words(kernel: str, params: dict[str, Any]) -> str:
    if kernel not in MODELS:
        return ""
    if kernel not in VARIANTS:
        from asyncsparse_lab.baselines import BASELINES

        fixed = BASELINES[kernel].params
    else:
        try:
            fixed = variant_of(kernel, params).params
        except InputError:  # constants that the kernel no longer takes
            return ""
    return ", ".join(f"{name}={value}" for name, value in fixed.items())


def _drift(plan: pd.Series[Any], auto: pd.Series[Any]) -> dict[str, Any]:
    """Return whether a plan differs from what auto chose, and by what predicted factor."""
    kernel = str(auto.get("params.chosen"))
    params = {key: value for key, value in params_of(auto).items() if value == value}
    was = kernel, _words(kernel, params)
    now = plan["result.chosen"], plan["result.configuration"]
    predicted = {
        (name, configuration): us for name, configuration, us, _ in plan["result.predictions"]
    }
    before = predicted.get(was, float("nan"))
    return {"differs": was != now, "loss": before / plan["result.predicted_us"]}


def _model_choice(plan: pd.Series[Any], group: pd.DataFrame) -> float:
    """Return the measured time of what is predicted to be fastest among what was measured."""
    predicted = {
        (kernel, configuration): us
        for kernel, configuration, us, _ in plan["result.predictions"]
        if not kernel.startswith("wcsr-paper")
    }
    times = {
        (row["kernel"], _configuration_of(row)): float(row["median_us"])
        for _, row in group.iterrows()
    }
    known = [key for key in predicted if key in times]
    return times[min(known, key=lambda key: predicted[key])] if known else float("nan")
