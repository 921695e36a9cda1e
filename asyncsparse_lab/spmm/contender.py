"""What computes a product, and a contender that is ready to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from asyncsparse_lab.formats.arrays import Array

if TYPE_CHECKING:
    from asyncsparse_lab.spmm.product import Product


@dataclass
class Prepared:
    """A contender that is ready to run on one product.

    Attributes
    ----------
    run : callable
        Enqueues one product on the current CuPy stream; no host synchronisation.
    output : array, m x n
        float32, or uint16 bits of bf16; where ``run`` leaves C.
    preprocess_us : float
        Conversion of A and setup, measured once.
    params : dict
        What was chosen: algorithm, padded, wgmma_n, stages ...
    kernel_hash, host_hash : str or None
        Of our kernels; None for a library.
    compiler : str or None
        What made the code: NVRTC's version, or the library's.
    measurements : array or None
        Of an instrumented build, the rows that its last run filled.
    """

    run: Callable[[], None]
    output: Array
    preprocess_us: float
    params: dict[str, Any] = field(default_factory=dict)
    kernel_hash: str | None = None
    host_hash: str | None = None
    compiler: str | None = None
    measurements: Array | None = None


class Contender(Protocol):
    """What computes a product: one of our variants, or a library."""

    @property
    def role(self) -> str:
        """``paper``, ``ours``, ``planner``, ``library`` or ``probe``."""

    @property
    def backend(self) -> str:
        """``asyncsparse``, ``cublas``, ``cusparse``, ``torch`` ..."""

    @property
    def variant(self) -> str:
        """Name within the backend."""

    @property
    def params(self) -> dict[str, Any]:
        """What is fixed before a product is seen."""

    def prepare(self, product: Product) -> Prepared:
        """Convert A and allocate C.

        Raises
        ------
        UnsupportedError
            These types or shapes are not offered.
        MemoryLimitError
            The converted matrix would not fit; nothing was allocated.
        """
