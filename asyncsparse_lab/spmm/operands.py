"""Dense matrices of a caller, from whichever library, and the streams they belong to.

A matrix is looked at, not copied: its address, shape, strides and type.  Kernels get an array of
CuPy on the same memory that does not own it, so that launch arguments can be kept without keeping
a caller's matrix alive.  bf16 is known to torch and ml_dtypes only; for NumPy and CuPy a uint16
matrix holds its bit patterns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from asyncsparse_lab.errors import InputError, MemoryLimitError
from asyncsparse_lab.formats.arrays import INT32_LIMIT, Array
from asyncsparse_lab.spmm.elementwise import round_dense

_ITEM_TYPES: Final = {"bfloat16": np.dtype(np.uint16)}
_STRIDED: Final = "torch.strided"
_CUDA_DEVICES: Final = (2, 13)  # of DLPack: CUDA, and CUDA managed memory


@dataclass(frozen=True, slots=True)
class Dense:
    """A caller's dense matrix.

    Attributes
    ----------
    owner : object
        What the caller passed; None in what is kept beyond a call.
    library : {"numpy", "cupy", "torch"}
        What a result is made with.
    dtype : str
        Type of its values; uint16 of NumPy and CuPy is "bfloat16".
    device : int or None
        GPU; None for the CPU.
    pointer : int
    shape, strides : tuple of int
        Strides in bytes.
    native : object
        The library's own name of the type.
    """

    owner: Any
    library: str
    dtype: str
    device: int | None
    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    native: Any = None

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return item_type(self.dtype).itemsize

    @property
    def extent(self) -> tuple[int, int]:
        """First byte, and the byte after the last."""
        if 0 in self.shape:
            return self.pointer, self.pointer
        steps = [(size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)]
        first = self.pointer + sum(step for step in steps if step < 0)
        return first, self.pointer + sum(step for step in steps if step > 0) + self.itemsize

    @property
    def layouts(self) -> tuple[str, ...]:
        """Which of row-major and column-major the strides are; a vector may be both."""
        rows, columns = range(2)
        found = []
        for layout, minor, major in (("row-major", columns, rows), ("column-major", rows, columns)):
            contiguous = self.shape[minor] <= 1 or self.strides[minor] == self.itemsize
            apart = self.strides[major] >= self.shape[minor] * self.itemsize
            whole = self.strides[major] % self.itemsize == 0
            if 0 in self.shape or (contiguous and (self.shape[major] <= 1 or (apart and whole))):
                found.append(layout)
        return tuple(found)

    def array(self) -> Array:
        """Return an array on the same memory: NumPy's, or CuPy's without ownership."""
        dtype = item_type(self.dtype)
        if self.device is None:
            if self.library == "torch":
                return tensor_array(self.owner)
            plain = np.asarray(self.owner)
            return plain if plain.dtype == dtype else plain.view(dtype)
        import cupy

        begin, end = self.extent
        if begin == end:
            return cupy.empty(self.shape, dtype=dtype)
        memory = cupy.cuda.UnownedMemory(begin, end - begin, None, self.device)
        pointer = cupy.cuda.MemoryPointer(memory, self.pointer - begin)
        return cupy.ndarray(self.shape, dtype, pointer, strides=self.strides)

    def new(self, shape: tuple[int, int], dtype: str, layout: str) -> Any:
        """Return an uninitialised matrix of the same library, on the same device.

        Raises
        ------
        MemoryLimitError
            It does not fit.
        """
        turned = layout == "column-major"
        extents = shape[::-1] if turned else shape
        try:
            made = self._empty(extents, dtype)
        except Exception as error:  # each library has its own class of being out of memory
            if not isinstance(error, MemoryError) and "OutOfMemory" not in type(error).__name__:
                raise
            needed = shape[0] * shape[1] * item_type(dtype).itemsize
            raise MemoryLimitError(
                f"C, {shape[0]} x {shape[1]} {dtype}, needs {needed:,} bytes, which are not free: "
                "take fewer columns of B at a time"
            ) from None
        return made.T if turned else made

    def _empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        if self.library == "torch":
            import torch

            place = "cpu" if self.device is None else self.device
            return torch.empty(shape, dtype=getattr(torch, dtype), device=place)
        is_ml_dtype = getattr(self.native, "name", "") == dtype  # ml_dtypes' bfloat16
        item = self.native if is_ml_dtype else item_type(dtype)
        if self.library == "cupy":
            import cupy

            return cupy.empty(shape, dtype=item)
        return np.empty(shape, dtype=item)

    def output_type(self, compute: str) -> str:
        """Return the type of C that is right unless another is asked for.

        That of the computation, unless the caller would get bf16 as bits without having used
        them: NumPy and CuPy have no bf16, so their float32 and float64 come back as float32.
        """
        is_readable = self.library == "torch" or compute != "bfloat16" or self.dtype == compute
        return compute if is_readable else "float32"


@cache
def item_type(dtype: str) -> np.dtype[Any]:
    """Return the NumPy type that holds values of a type: uint16 for bfloat16."""
    return _ITEM_TYPES.get(dtype) or np.dtype(dtype)


def library_of(x: Any) -> str:
    """Return the top-level package that an object's type comes from."""
    return type(x).__module__.partition(".")[0]


def dense(x: Any, name: str) -> Dense:
    """Look at a dense matrix.

    Parameters
    ----------
    x : numpy.ndarray, cupy.ndarray, torch.Tensor, or anything with ``__dlpack__``
    name : str
        For messages: B, out.

    Raises
    ------
    InputError
        It is no such matrix, not two-dimensional, sparse, complex, or too large.
    """
    library = library_of(x)
    if library == "torch" and hasattr(x, "data_ptr"):
        found = _torch_dense(x, name)
    elif hasattr(x, "format") and hasattr(x, "tocsr"):
        raise InputError(f"{name} is sparse ({x.format}): only A may be; pass {name}.toarray()")
    elif library == "cupy" and hasattr(x, "data"):
        found = _array_dense(x, name, "cupy", x.data.ptr, int(x.device.id))
    elif isinstance(x, np.ma.MaskedArray):
        raise InputError(f"{name} is masked, which kernels cannot see: pass {name}.filled(0)")
    elif isinstance(x, np.ndarray):
        found = _array_dense(x, name, "numpy", x.ctypes.data, None)
    elif hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        return dense(from_dlpack(x, name), name)
    else:
        raise InputError(
            f"{name} is a {type(x).__name__}: pass an array of NumPy, CuPy or torch, or one with "
            "__dlpack__"
        )
    if len(found.shape) != 2:
        remedy = f": pass {name}[:, None]" if len(found.shape) == 1 else ""
        raise InputError(f"{name} has {len(found.shape)} dimensions, not 2{remedy}")
    if max(found.shape) >= INT32_LIMIT:
        raise InputError(f"{name} is {found.shape}: each extent must be below 2**31")
    if not _is_real(found.dtype):
        raise InputError(f"{name} holds {found.dtype}: the kernels multiply real numbers")
    return found


def signature(x: Any) -> tuple[Any, ...] | None:
    """Return all that :func:`dense` looks at, at little cost; None if it must look itself.

    Only for matrices of CuPy and torch.  Two with the same signature are the same memory in the
    same shape, strides and type: what was found good once need not be checked again.
    """
    library = library_of(x)
    if library == "cupy" and hasattr(x, "strides"):
        return x.data.ptr, x.shape, x.strides, x.dtype
    if library == "torch" and x.is_cuda and not x.requires_grad and str(x.layout) == _STRIDED:
        return x.data_ptr(), x.shape, x.stride(), x.dtype, library
    return None


def _torch_dense(x: Any, name: str) -> Dense:
    if str(x.layout) != _STRIDED:
        raise InputError(f"{name} is sparse ({x.layout}): only A may be; pass {name}.to_dense()")
    refuse_gradient(x, name)
    if x.device.type not in ("cuda", "cpu"):
        raise InputError(f"{name} is on {x.device}: move it to cuda or cpu")
    dtype = str(x.dtype).partition(".")[2]
    if dtype == "uint16":
        raise InputError(f"{name} holds torch.uint16: bits of bf16 are {name}.view(torch.bfloat16)")
    size = x.element_size()
    return Dense(
        x,
        "torch",
        dtype,
        x.device.index if x.is_cuda else None,
        x.data_ptr(),
        tuple(x.shape),
        tuple([size * step for step in x.stride()]),
        x.dtype,
    )


def refuse_gradient(x: Any, name: str) -> None:
    """Refuse a tensor whose gradient would be lost without a word."""
    if x.requires_grad:
        import torch

        if torch.is_grad_enabled():
            raise InputError(
                f"{name} requires a gradient, which spmm does not give: call it under "
                f"torch.no_grad(), or pass {name}.detach()"
            )


def _array_dense(x: Any, name: str, library: str, pointer: int, device: int | None) -> Dense:
    dtype = x.dtype.name
    if not x.dtype.isnative:
        raise InputError(f"{name} holds {x.dtype} in foreign byte order: pass {name}.astype('f4')")
    kind = "bfloat16" if dtype == "uint16" else dtype
    return Dense(x, library, kind, device, pointer, x.shape, x.strides, x.dtype)


def _is_real(dtype: str) -> bool:
    if dtype == "bfloat16":
        return True
    try:
        return np.dtype(dtype).kind in "fiub"
    except TypeError:  # torch's float8 and the like
        return False


def from_dlpack(x: Any, name: str) -> Array:
    """Return an array of NumPy or CuPy on the memory of another library."""
    device = int(x.__dlpack_device__()[0])
    try:
        if device in _CUDA_DEVICES:
            import cupy

            return cupy.from_dlpack(x)
        return np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{name}: DLPack gives no array of it ({reason})") from None


def tensor_array(tensor: Any) -> Array:
    """Return an array of NumPy or CuPy on a tensor's memory, bf16 as its bits."""
    import torch

    is_bfloat16 = tensor.dtype == torch.bfloat16
    bare = tensor.detach().view(torch.int16) if is_bfloat16 else tensor.detach()
    if not tensor.is_cuda:
        array = bare.numpy()
    else:
        import cupy

        array = cupy.from_dlpack(bare)
    return array.view(np.uint16) if is_bfloat16 else array


def rounded(x: Dense, compute: str) -> Dense:
    """Return the matrix in the type of a product, on the same device.

    Raises
    ------
    MemoryLimitError
        It does not fit.
    """
    try:
        return dense(round_dense(x.array(), x.dtype, compute), "B")
    except MemoryError:
        needed = 2 * x.shape[0] * x.shape[1]
        raise MemoryLimitError(
            f"B in {compute} needs {needed:,} bytes, which are not free: pass it rounded"
        ) from None


# -- Streams --


def stream_pointer(stream: Any, library: str, device: int) -> int:
    """Return the handle of a stream; by default the current one of a library.

    Parameters
    ----------
    stream : cupy.cuda.Stream, torch.cuda.Stream, int, anything with ``__cuda_stream__``, or None
    """
    if stream is None:
        if library == "torch":
            import torch

            return int(torch.cuda.current_stream(device).cuda_stream)
        import cupy

        return int(cupy.cuda.get_current_stream().ptr)
    for attribute in ("ptr", "cuda_stream"):
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    if isinstance(stream, int | np.integer) and not isinstance(stream, bool) and stream >= 0:
        return int(stream)
    raise InputError(f"stream is {stream!r}: pass a stream of CuPy or torch, or its handle")


def is_current(pointer: int, device: int) -> bool:
    """Whether CuPy's current stream and device are these."""
    import cupy

    if int(cupy.cuda.runtime.getDevice()) != device:
        return False
    return int(cupy.cuda.get_current_stream().ptr) == pointer


class _Handle:
    """A stream that is known by its handle, as CuPy takes in those of other libraries."""

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol's version and the handle."""
        return 0, self.pointer


@contextmanager
def on_stream(pointer: int, device: int, library: str, stream: Any = None) -> Iterator[None]:
    """Make a stream current for CuPy, and for torch where its matrices are used.

    Of CuPy, the caller's object becomes current, so that who notes it keeps the stream alive.
    """
    import cupy

    with ExitStack() as stack:
        if int(cupy.cuda.runtime.getDevice()) != device:
            stack.enter_context(cupy.cuda.Device(device))
        if int(cupy.cuda.get_current_stream().ptr) != pointer:
            own = (
                cupy.cuda.Stream.from_external(_Handle(pointer))
                if pointer
                else cupy.cuda.Stream.null
            )
            stack.enter_context(stream if library_of(stream) == "cupy" else own)
        if library == "torch":
            stack.enter_context(_torch_guard(pointer, device))
        yield


def is_recording() -> bool:
    """Whether the current stream only records what is enqueued, for a CUDA graph."""
    import cupy

    return bool(cupy.cuda.get_current_stream().is_capturing())


def _torch_guard(pointer: int, device: int) -> Any:
    import torch

    if int(torch.cuda.current_stream(device).cuda_stream) == pointer:
        return nullcontext()
    return torch.cuda.stream(torch.cuda.ExternalStream(pointer, device=device))
