"""Sparse times dense: the table of kernels, how one of them runs on a matrix, and the public call.

``asyncsparse_lab.spmm(A, B)`` multiplies: see :func:`asyncsparse_lab.spmm.api.spmm`.
"""

import inspect
import sys
from types import ModuleType
from typing import Any

from asyncsparse_lab.spmm.geometry import Geometry
from asyncsparse_lab.spmm.variants import VARIANTS, Variant, find_variant

__all__ = ["VARIANTS", "Geometry", "Variant", "find_variant"]


class _CallableModule(ModuleType):
    """Lets ``asyncsparse_lab.spmm`` be this package and, called, the product.

    The import system binds a subpackage as an attribute of its parent, over a function of the
    same name.  What the call needs is imported by it.
    """

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Multiply: :func:`asyncsparse_lab.spmm.api.spmm`."""
        from asyncsparse_lab.spmm.api import spmm

        return spmm(*args, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        from asyncsparse_lab.spmm.api import spmm

        return inspect.signature(spmm)


sys.modules[__name__].__class__ = _CallableModule
