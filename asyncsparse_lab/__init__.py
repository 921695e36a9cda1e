"""A reproducible workbench for sparse kernels on asynchronous GPUs.

Importing this loads nothing heavy: each public name is resolved on its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from asyncsparse_lab import report
    from asyncsparse_lab.formats import BCSR, WCSR
    from asyncsparse_lab.lsmr import lsmr
    from asyncsparse_lab.matrices import load_matrix, load_suite
    from asyncsparse_lab.records.frame import load_records
    from asyncsparse_lab.spmm import Variant
    from asyncsparse_lab.spmm.api import plan, spmm
    from asyncsparse_lab.spmm.plan_object import Plan

_PLACES: Final[dict[str, str]] = {
    "BCSR": "asyncsparse_lab.formats",
    "Plan": "asyncsparse_lab.spmm.plan_object",
    "Variant": "asyncsparse_lab.spmm",
    "WCSR": "asyncsparse_lab.formats",
    "load_matrix": "asyncsparse_lab.matrices",
    "load_records": "asyncsparse_lab.records.frame",
    "load_suite": "asyncsparse_lab.matrices",
    "lsmr": "asyncsparse_lab.lsmr",
    "plan": "asyncsparse_lab.spmm.api",
    "report": "asyncsparse_lab",
    "spmm": "asyncsparse_lab",
}

__all__ = [
    "BCSR",
    "WCSR",
    "Plan",
    "Variant",
    "load_matrix",
    "load_records",
    "load_suite",
    "lsmr",
    "plan",
    "report",
    "spmm",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("asyncsparse-lab")
        except PackageNotFoundError:
            return "0+checkout"
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = _PLACES[name]
    if place == __name__:
        return import_module(f"{place}.{name}")
    value = getattr(import_module(place), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
