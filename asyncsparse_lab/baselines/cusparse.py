"""cuSPARSE: ``cusparseSpMM`` on CSR, Blocked-ELL and BSR.

All compute in float32 from bf16 and write float32 or bf16, where the installed version does; what
it refuses is an :class:`~asyncsparse_lab.errors.UnsupportedError` with cuSPARSE's own reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from asyncsparse_lab.baselines.blocked_ell import (
    BlockedEll,
    blocked_ell_from_bcsr,
    longest_block_row,
    predicted_bytes,
)
from asyncsparse_lab.baselines.operands import library_operands, timed_conversion
from asyncsparse_lab.errors import UnsupportedError
from asyncsparse_lab.formats import BCSR, bfloat16_bits
from asyncsparse_lab.formats.arrays import Array
from asyncsparse_lab.spmm.contender import Prepared
from asyncsparse_lab.spmm.product import Product, require_memory

BLOCK: Final = 64
ALIGNED: Final = 8
PADDED_LIMIT_BYTES: Final = 8 << 30  # of Blocked-ELL values

# cusparseSpMMAlg_t
_CSR_ALGORITHMS: Final = {1: 4, 2: 6, 3: 12}
_BLOCKED_ELL_ALG1: Final = 13
_BSR_ALG1: Final = 14


@dataclass(frozen=True)
class CsrSpMM:
    """``CUSPARSE_SPMM_CSR_ALG1``, ``ALG2`` or ``ALG3``, the last after ``cusparseSpMM_preprocess``.

    B is taken as it lies, whatever its stride.
    """

    algorithm: int
    role: str = "library"
    backend: str = "cusparse"
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def variant(self) -> str:
        """``csr-alg1``, ``csr-alg2`` or ``csr-alg3``."""
        return f"csr-alg{self.algorithm}"

    def prepare(self, product: Product) -> Prepared:
        """Make the descriptors and, for ALG3, let cuSPARSE analyse A.

        Raises
        ------
        UnsupportedError
            cuSPARSE is missing, refuses the types, or A has 2**31 non-zeros or more.
        MemoryLimitError
            C or cuSPARSE's buffer would not fit; nothing was allocated.
        """
        from asyncsparse_lab.baselines import spmm_call

        if product.A.nnz >= 2**31:
            raise UnsupportedError(f"{product.A.nnz} non-zeros: cuSPARSE's 32-bit CSR ends below")
        library, csr = spmm_call.library(), product.device_csr
        operands = library_operands(product)

        def setup() -> spmm_call.SpMM:
            return spmm_call.SpMM(
                library,
                library.csr(product.A.shape, csr),
                operands,
                product.dtype_out,
                _CSR_ALGORITHMS[self.algorithm],
                preprocess=self.algorithm == 3,
            )

        call, preprocess_us = timed_conversion(self.variant, setup, product.xp)
        return Prepared(
            run=call,
            output=operands.output,
            preprocess_us=preprocess_us,
            params={"algorithm": f"CUSPARSE_SPMM_CSR_ALG{self.algorithm}", "padded": False},
            compiler=library.version,
        )


@dataclass(frozen=True)
class BlockedEllSpMM:
    """``CUSPARSE_SPMM_BLOCKED_ELL_ALG1`` with blocks of 64 x 64."""

    role: str = "library"
    backend: str = "cusparse"
    variant: str = "blocked-ell"
    limit_bytes: int = PADDED_LIMIT_BYTES
    params: dict[str, Any] = field(default_factory=lambda: {"block": BLOCK})

    def prepare(self, product: Product) -> Prepared:
        """Pad A's block rows to the longest one.

        Raises
        ------
        UnsupportedError
            cuSPARSE is missing, or refuses the types.
        MemoryLimitError
            The padded values exceed ``limit_bytes`` or the free memory; nothing was allocated.
        """
        from asyncsparse_lab.baselines import spmm_call

        width = longest_block_row(product, BLOCK)
        needed = predicted_bytes(product.m, width, BLOCK)
        require_memory(needed, f"Blocked-ELL of width {width}", product.xp, self.limit_bytes)
        library = spmm_call.library()

        def convert() -> BlockedEll:
            blocks = BCSR.from_csr(product.device_matrix, (BLOCK, BLOCK))
            return blocked_ell_from_bcsr(blocks, width)

        matrix, preprocess_us = timed_conversion(self.variant, convert, product.xp)
        return _block_prepared(
            product,
            library,
            library.blocked_ell(matrix, -(-product.k // BLOCK) * BLOCK, BLOCK),
            _BLOCKED_ELL_ALG1,
            preprocess_us,
            {"algorithm": "CUSPARSE_SPMM_BLOCKED_ELL_ALG1", "ell_width": width},
        )


@dataclass(frozen=True)
class BsrSpMM:
    """``CUSPARSE_SPMM_BSR_ALG1`` with row-major blocks of 64 x 64, where cuSPARSE has it."""

    role: str = "library"
    backend: str = "cusparse"
    variant: str = "bsr"
    params: dict[str, Any] = field(default_factory=lambda: {"block": BLOCK})

    REQUIRED: ClassVar[str] = "cusparseCreateBsr"

    def prepare(self, product: Product) -> Prepared:
        """Convert A to blocks.

        Raises
        ------
        UnsupportedError
            cuSPARSE is missing, has no BSR product, or refuses the types.
        MemoryLimitError
            The blocks would not fit; nothing was allocated.
        """
        from asyncsparse_lab.baselines import spmm_call

        library = spmm_call.library()
        library.require(self.REQUIRED)

        def convert() -> tuple[Array, Array, Array]:
            return bsr_arrays(product)

        arrays, preprocess_us = timed_conversion(self.variant, convert, product.xp)
        return _block_prepared(
            product,
            library,
            library.bsr(arrays, -(-product.k // BLOCK), BLOCK),
            _BSR_ALG1,
            preprocess_us,
            {"algorithm": "CUSPARSE_SPMM_BSR_ALG1"},
        )


def bsr_arrays(product: Product) -> tuple[Array, Array, Array]:
    """Return block row offsets and block columns (int32), and row-major blocks of bf16 bits."""
    blocks = BCSR.from_csr(product.device_matrix, (BLOCK, BLOCK))
    int32 = product.xp.int32
    return (
        blocks.block_row_ptr.astype(int32),
        blocks.block_col_idx,
        bfloat16_bits(blocks.blocks),
    )


def _block_prepared(
    product: Product,
    library: Any,
    matrix: Any,
    algorithm: int,
    preprocess_us: float,
    params: dict[str, Any],
) -> Prepared:
    """Prepare a format of whole blocks: m and k padded to them, n to 16-byte rows."""
    from asyncsparse_lab.baselines.spmm_call import SpMM

    operands = library_operands(
        product, row_multiple=BLOCK, k_multiple=BLOCK, column_multiple=ALIGNED
    )
    call: Callable[[], None] = SpMM(library, matrix, operands, product.dtype_out, algorithm)
    return Prepared(
        run=operands.around(call),
        output=operands.output,
        preprocess_us=preprocess_us,
        params=params | {"padded": operands.padded},
        compiler=library.version,
    )
