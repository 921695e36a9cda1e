"""PyTorch: BSR times dense by its Triton kernel, the one behind ``bsr @ dense`` for bf16.

The kernel writes the type of its inputs, wants n as a multiple of its tile of 64 columns, and is
called directly with a preallocated output.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from asyncsparse_lab.baselines.cusparse import BLOCK, bsr_arrays
from asyncsparse_lab.baselines.operands import Operands, library_operands, timed_conversion
from asyncsparse_lab.errors import MemoryLimitError, UnsupportedError
from asyncsparse_lab.formats.arrays import Array
from asyncsparse_lab.spmm.contender import Prepared
from asyncsparse_lab.spmm.product import Product

TILE_COLUMNS: Final = 64


@dataclass(frozen=True)
class TritonBsr:
    """``torch.sparse._triton_ops.bsr_dense_mm`` with blocks of 64 x 64."""

    role: str = "library"
    backend: str = "torch"
    variant: str = "bsr"
    params: dict[str, Any] = field(default_factory=lambda: {"block": BLOCK})

    def prepare(self, product: Product) -> Prepared:
        """Convert A to blocks, and let Triton compile.

        Raises
        ------
        UnsupportedError
            float32 output is asked for; torch or Triton is missing, or refuses.
        MemoryLimitError
            The blocks would not fit.
        """
        if product.dtype_out != "bfloat16":
            raise UnsupportedError(
                "bsr_dense_mm writes the type of its inputs, bfloat16: ask for dtype_out=bfloat16"
            )
        torch, multiply = _torch()
        arrays, preprocess_us = timed_conversion(
            "torch-bsr", lambda: bsr_arrays(product), product.xp
        )
        operands = library_operands(
            product, row_multiple=BLOCK, k_multiple=BLOCK, column_multiple=TILE_COLUMNS
        )
        run = operands.around(_call(torch, multiply, arrays, operands))
        try:
            run()
            product.xp.cuda.get_current_stream().synchronize()
        except torch.OutOfMemoryError as error:
            raise MemoryLimitError(f"torch: {_first_line(error)}") from error
        except Exception as error:  # Triton's errors have no common base
            raise UnsupportedError(f"bsr_dense_mm: {_first_line(error)}") from error
        return Prepared(
            run=run,
            output=operands.output,
            preprocess_us=preprocess_us,
            params={"algorithm": "bsr_dense_mm (Triton)", "padded": operands.padded},
            compiler=f"torch {torch.__version__}",
        )


def _torch() -> tuple[Any, Any]:
    try:
        import torch
        from torch.sparse import _triton_ops
    except ImportError as error:
        raise UnsupportedError(f"torch is missing ({error}): pip install torch triton") from None
    multiply = getattr(_triton_ops, "bsr_dense_mm", None)
    if multiply is None:  # torch defines it only beside Triton
        raise UnsupportedError(f"torch {torch.__version__} has no bsr_dense_mm: install triton")
    return torch, multiply


def _call(
    torch: Any, multiply: Any, arrays: tuple[Array, Array, Array], operands: Operands
) -> Callable[[], None]:
    import cupy

    offsets, columns, blocks = arrays
    B, C = _bfloat16_tensor(torch, operands.B), _bfloat16_tensor(torch, operands.C)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "BSR support is in beta state"
        bsr = torch.sparse_bsr_tensor(
            _tensor(torch, offsets),
            _tensor(torch, columns),
            _bfloat16_tensor(torch, blocks),
            size=(C.shape[0], B.shape[0]),
        )

    def call() -> None:
        stream = cupy.cuda.get_current_stream().ptr
        if stream == 0:  # torch's own default too
            multiply(bsr, B, out=C, skip_checks=True)
        else:
            with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
                multiply(bsr, B, out=C, skip_checks=True)

    return call


def _tensor(torch: Any, array: Array) -> Any:
    """Return a tensor on the same memory."""
    if array.size == 0:  # has no address to share
        return torch.empty(array.shape, dtype=getattr(torch, str(array.dtype)), device="cuda")
    return torch.as_tensor(array, device="cuda")


def _bfloat16_tensor(torch: Any, bits: Array) -> Any:
    """Return the bits as torch's bf16, by way of int16, which both know."""
    return _tensor(torch, bits.view(np.int16)).view(torch.bfloat16)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else 'no message'}"
