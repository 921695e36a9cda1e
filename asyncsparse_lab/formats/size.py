"""What a matrix takes in a format, known before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from asyncsparse_lab.errors import MemoryLimitError
from asyncsparse_lab.formats.arrays import free_bytes


@dataclass(frozen=True, slots=True)
class FormatSize:
    """Predicted size of a matrix in BCSR or WCSR.

    Attributes
    ----------
    stored : int
        Blocks of BCSR, or columns of WCSR including their padding.
    values : int
        Stored values, zeros included.
    bytes : int
        Of all arrays: values, indices and pointers.
    fill_ratio : float
        Share of stored values that are non-zero, padding columns not counted; 0 when empty.
    """

    stored: int
    values: int
    bytes: int
    fill_ratio: float


def refuse_beyond(size: FormatSize, max_bytes: int | None, xp: Any, what: str) -> None:
    """Raise :class:`MemoryLimitError` when the predicted bytes exceed the limit.

    Without `max_bytes` the limit is what the machine (or, for CuPy, the device) has free.
    """
    limit = free_bytes(xp) if max_bytes is None else max_bytes
    if size.bytes > limit:
        raise MemoryLimitError(
            f"{what} needs {size.bytes:,} bytes (fill {size.fill_ratio:.2%}), limit "
            f"{limit:,}: choose another format or smaller blocks, or raise max_bytes"
        )
