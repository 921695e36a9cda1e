"""LSMR: sparse least squares, on the CPU and in one persistent kernel on a GPU."""

import inspect
import sys
from types import ModuleType

from asyncsparse_lab.lsmr.interface import lsmr
from asyncsparse_lab.lsmr.result import LsmrResult, Progress, StopCode

__all__ = ["LsmrResult", "Progress", "StopCode", "lsmr"]


class _CallableModule(ModuleType):
    """Lets ``asyncsparse_lab.lsmr`` be this package and, called, the solver.

    The import system binds a subpackage as an attribute of its parent, over the function of
    the same name that the parent offers.
    """

    __call__ = staticmethod(lsmr)
    __signature__ = inspect.signature(lsmr)


sys.modules[__name__].__class__ = _CallableModule
