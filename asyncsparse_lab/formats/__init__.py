"""Sparse formats of the kernels, their device layouts, rounding, and the article's choice.

All functions take NumPy or CuPy arrays and answer in kind; nothing here imports CuPy itself.
"""

from __future__ import annotations

from asyncsparse_lab.formats.bcsr import BCSR
from asyncsparse_lab.formats.layouts import core_matrices, pad_windows, swizzled_tiles
from asyncsparse_lab.formats.rounding import (
    bfloat16_bits,
    bfloat16_from_bits,
    float16_bits,
    float16_from_bits,
    in_type,
    round_to,
    round_to_bfloat16,
    round_to_float16,
)
from asyncsparse_lab.formats.selection import FormatChoice, choose_by_fill, choose_format
from asyncsparse_lab.formats.size import FormatSize
from asyncsparse_lab.formats.tasks import window_tasks
from asyncsparse_lab.formats.wcsr import WCSR

__all__ = [
    "BCSR",
    "WCSR",
    "FormatChoice",
    "FormatSize",
    "bfloat16_bits",
    "bfloat16_from_bits",
    "choose_by_fill",
    "choose_format",
    "core_matrices",
    "float16_bits",
    "float16_from_bits",
    "in_type",
    "pad_windows",
    "round_to",
    "round_to_bfloat16",
    "round_to_float16",
    "swizzled_tiles",
    "window_tasks",
]
