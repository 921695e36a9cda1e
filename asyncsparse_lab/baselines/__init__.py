"""Libraries that compute the same product, behind the contract of our own kernels.

Each adapter says which algorithm it used, predicts its memory before it allocates, and refuses
with a reason.  CuPy's and SciPy's sparse products are not among them: neither multiplies bf16.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from asyncsparse_lab.baselines.cublas import DenseGemm
from asyncsparse_lab.baselines.cusparse import BlockedEllSpMM, BsrSpMM, CsrSpMM
from asyncsparse_lab.baselines.pytorch import TritonBsr
from asyncsparse_lab.spmm.contender import Contender

_CONTENDERS: Final[tuple[Contender, ...]] = (
    DenseGemm(),
    CsrSpMM(algorithm=2),
    CsrSpMM(algorithm=3),
    BlockedEllSpMM(),
    BsrSpMM(),
    TritonBsr(),
)

BASELINES: Final = MappingProxyType(
    {f"{contender.backend}-{contender.variant}": contender for contender in _CONTENDERS}
)
"""Name, such as ``cusparse-csr-alg2``, to the adapter."""

__all__ = ["BASELINES"]
