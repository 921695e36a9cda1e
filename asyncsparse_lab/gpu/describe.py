r"""Tensor maps: what TMA needs to know of a tensor, validated on the CPU.

The driver answers a wrong description with "invalid value" and nothing else, or the kernel
faults; every rule is therefore checked here first (CUDA driver API, ``cuTensorMapEncodeTiled``;
CUDA C++ Programming Guide, Tensor Memory Accelerator).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from asyncsparse_lab.errors import DeviceError, InputError
from asyncsparse_lab.gpu.device import driver_is_loadable

TENSOR_MAP_BYTES: Final = 128
"""Size of an encoded tensor map, and the alignment of the buffer it is encoded into."""

# Bytes an element, and the driver's number of the type (CUtensorMapDataType).
_TYPES: Final[dict[str, tuple[int, int]]] = {
    "uint8": (1, 0),
    "uint16": (2, 1),
    "uint32": (4, 2),
    "int32": (4, 3),
    "uint64": (8, 4),
    "int64": (8, 5),
    "float16": (2, 6),
    "float32": (4, 7),
    "float64": (8, 8),
    "bfloat16": (2, 9),
}
_FLOATS: Final = ("float16", "float32", "float64", "bfloat16")
_SWIZZLES: Final = {0: 0, 32: 1, 64: 2, 128: 3}  # span in bytes -> CUtensorMapSwizzle
_PROMOTIONS: Final = {0: 0, 64: 1, 128: 2, 256: 3}  # bytes -> CUtensorMapL2promotion


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor in global memory, and the box of it that one TMA copy moves.

    Dimensions are in the order of arrays, the contiguous one last.  (The driver and the
    coordinates in PTX count from the contiguous one; :meth:`encode` turns them round.)

    Attributes
    ----------
    address : int
        Device address of the first element, a multiple of 16.
    dtype : str
        Element type; for a copy only its size matters, except for `fill`.
    shape : tuple of int
        1 to 5 extents in elements.
    strides : tuple of int
        Bytes from one index to the next in every dimension, as NumPy and CuPy give them: the
        last is the element's size, the others are multiples of 16 below 2**40.
    box : tuple of int
        Extents of the copied box, 1 to 256 each.
    swizzle : {0, 32, 64, 128}
        Span in bytes within which 16-byte pieces are exchanged in shared memory; the box's last
        extent fits into it.  The shared tile's address is a multiple of eight spans.
    l2_promotion : {0, 64, 128, 256}
        Bytes that a miss brings into L2.
    fill : {"zeros", "nan"}
        What elements outside the tensor read as.

    Raises
    ------
    InputError
        A rule is broken; the message names the value and the rule.
    """

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: Literal[0, 32, 64, 128] = 128
    l2_promotion: Literal[0, 64, 128, 256] = 256
    fill: Literal["zeros", "nan"] = "zeros"

    def __post_init__(self) -> None:
        for name in ("shape", "strides", "box"):
            object.__setattr__(self, name, tuple(int(extent) for extent in getattr(self, name)))
        self._check_options()
        self._check_extents()
        self._check_box()

    @classmethod
    def over(
        cls, array: Any, box: Sequence[int], dtype: str | None = None, **options: Any
    ) -> TensorMap:
        """Describe a CuPy array.

        Parameters
        ----------
        array : cupy.ndarray
            Its last axis is contiguous.
        box : sequence of int
            As the attribute.
        dtype : str, optional
            Of the elements; ``"bfloat16"`` for an array of 16-bit patterns.
        **options
            ``swizzle``, ``l2_promotion``, ``fill``.
        """
        return cls(
            address=int(array.data.ptr),
            dtype=dtype or str(array.dtype),
            shape=tuple(array.shape),
            strides=tuple(array.strides),
            box=tuple(box),
            **options,
        )

    @property
    def box_bytes(self) -> int:
        """Bytes that one copy brings: what a barrier's transaction count must expect."""
        elements = 1
        for extent in self.box:
            elements *= extent
        return elements * _TYPES[self.dtype][0]

    def encode(self) -> npt.NDArray[np.uint8]:
        """Let the driver encode the map.

        Returns
        -------
        array of uint8, 128
            Aligned to 128 bytes; goes into the kernel's arguments by value.

        Raises
        ------
        DeviceError
            There is no driver, or it refuses the map all the same.
        """
        rank = len(self.shape)
        encoded = aligned_bytes(TENSOR_MAP_BYTES)
        status = _encoder()(
            encoded.ctypes.data,
            _TYPES[self.dtype][1],
            rank,
            self.address,
            (ctypes.c_uint64 * rank)(*reversed(self.shape)),
            (ctypes.c_uint64 * rank)(*reversed(self.strides[:-1])),
            (ctypes.c_uint32 * rank)(*reversed(self.box)),
            (ctypes.c_uint32 * rank)(*[1] * rank),
            0,  # not interleaved
            _SWIZZLES[self.swizzle],
            _PROMOTIONS[self.l2_promotion],
            int(self.fill == "nan"),
        )
        if status != 0:
            raise DeviceError(f"cuTensorMapEncodeTiled refuses {self} (CUDA error {status})")
        return encoded

    def _check_options(self) -> None:
        if self.dtype not in _TYPES:
            raise InputError(f"tensor map: dtype {self.dtype!r} is not one of {', '.join(_TYPES)}")
        if self.swizzle not in _SWIZZLES:
            raise InputError(f"tensor map: swizzle {self.swizzle} is not 0, 32, 64 or 128 bytes")
        if self.l2_promotion not in _PROMOTIONS:
            raise InputError(
                f"tensor map: L2 promotion {self.l2_promotion} is not 0, 64, 128 or 256 bytes"
            )
        if self.fill not in ("zeros", "nan"):
            raise InputError(f"tensor map: fill {self.fill!r} is not 'zeros' or 'nan'")
        if self.fill == "nan" and self.dtype not in _FLOATS:
            raise InputError(
                f"tensor map: fill 'nan' needs a floating-point type, not {self.dtype}"
            )

    def _check_extents(self) -> None:
        rank, itemsize = len(self.shape), _TYPES[self.dtype][0]
        if not 1 <= rank <= 5:
            raise InputError(f"tensor map: rank {rank} of shape {self.shape} is not 1 to 5")
        if len(self.strides) != rank or len(self.box) != rank:
            raise InputError(
                f"tensor map: shape {self.shape}, strides {self.strides} and box {self.box} "
                "differ in length"
            )
        if self.address <= 0 or self.address % 16:
            raise InputError(
                f"tensor map: address {self.address:#x} is not a multiple of 16 above 0: "
                "copy the view into memory of its own"
            )
        for extent in self.shape:
            if not 1 <= extent <= 2**32:
                raise InputError(f"tensor map: extent {extent} of {self.shape} is not 1 to 2**32")
        if self.strides[-1] != itemsize:
            raise InputError(
                f"tensor map: the last stride {self.strides[-1]} is not the {itemsize} bytes of "
                f"{self.dtype}: the last axis must be contiguous"
            )
        for stride in self.strides[:-1]:
            if stride % 16 or not 0 < stride < 2**40:
                raise InputError(
                    f"tensor map: stride {stride} is not a multiple of 16 bytes below 2**40: "
                    "pad the rows to a multiple of 16 bytes"
                )

    def _check_box(self) -> None:
        for extent in self.box:
            if not 1 <= extent <= 256:
                raise InputError(f"tensor map: box extent {extent} of {self.box} is not 1 to 256")
        row_bytes = self.box[-1] * _TYPES[self.dtype][0]
        if row_bytes % 16:
            raise InputError(
                f"tensor map: {row_bytes} bytes in a row of box {self.box} are not a multiple of 16"
            )
        if self.swizzle and row_bytes > self.swizzle:
            raise InputError(
                f"tensor map: {row_bytes} bytes in a row of box {self.box} exceed the swizzle's "
                f"span of {self.swizzle}: copy it in several boxes"
            )


def aligned_bytes(size: int, alignment: int = TENSOR_MAP_BYTES) -> npt.NDArray[np.uint8]:
    """Return zeroed host memory at an address that is a multiple of `alignment`."""
    memory = np.zeros(size + alignment, dtype=np.uint8)
    start = -memory.ctypes.data % alignment
    return memory[start : start + size]


@cache
def _encoder() -> Any:
    """Return the driver's function.

    It is called through ctypes since cuda.bindings encodes into an object of its own, at
    addresses that are multiples of 16 only (cuda-python issue 1692).
    """
    if not driver_is_loadable():
        raise DeviceError("tensor maps are encoded by the NVIDIA driver: this machine has none")
    function = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    pointer, number = ctypes.c_void_p, ctypes.c_uint32
    function.argtypes = [
        *(pointer, number, number, pointer, pointer, pointer, pointer, pointer),
        *(number, number, number, number),
    ]
    function.restype = ctypes.c_int
    return function
