"""Loading NVIDIA's libraries through ctypes: the least host work per call.

They are found by ``cuda.pathfinder``, so they are the copies that CuPy or torch load too.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from asyncsparse_lab.errors import UnsupportedError

# cudaDataType_t
R_32F: Final = 0
R_16F: Final = 2
R_16BF: Final = 14
DATA_TYPES: Final[dict[str, int]] = {"float32": R_32F, "bfloat16": R_16BF, "float16": R_16F}

ONE: Final = ctypes.c_float(1.0)
ZERO: Final = ctypes.c_float(0.0)


def load_library(name: str) -> ctypes.CDLL:
    """Load ``cusparse`` or ``cublas``.

    Raises
    ------
    UnsupportedError
        The library, or what finds it, is not installed.
    """
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib
    except ImportError:
        raise UnsupportedError(
            "cuda-pathfinder is not installed: pip install 'asyncsparse-lab[gpu]' (or [gpu13])"
        ) from None
    try:
        path = load_nvidia_dynamic_lib(name).abs_path
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        raise UnsupportedError(
            f"lib{name} was not found ({reason}): install nvidia-{name} or the CUDA toolkit"
        ) from None
    return ctypes.CDLL(path)


def pointer(array: Any) -> ctypes.c_void_p:
    """Return the device address of a CuPy array."""
    return ctypes.c_void_p(array.data.ptr)


def current_stream() -> ctypes.c_void_p:
    """Return the handle of the current CuPy stream."""
    import cupy

    return ctypes.c_void_p(cupy.cuda.get_current_stream().ptr)
