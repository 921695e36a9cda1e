"""Mirrors of the structs in ``kernels/include/lsmr_arguments.cuh``."""

from __future__ import annotations

import ctypes


class MatrixArguments(ctypes.Structure):
    """``LsmrMatrix``."""

    _fields_ = (
        ("slices", ctypes.c_void_p),
        ("block_slices", ctypes.c_void_p),
        ("columns", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("true_values", ctypes.c_void_p),
        ("rows", ctypes.c_int32),
        ("first_piece", ctypes.c_int32),
        ("piece_begin", ctypes.c_int32),
        ("piece_end", ctypes.c_int32),
        ("block_parts", ctypes.c_int32),
    )


class SolveArguments(ctypes.Structure):
    """``LsmrArguments``."""

    _fields_ = (
        ("forward", MatrixArguments),
        ("adjoint", MatrixArguments),
        ("row_order", ctypes.c_void_p),
        ("column_order", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("start", ctypes.c_void_p),
        ("x", ctypes.c_void_p),
        ("u", ctypes.c_void_p),
        ("v", ctypes.c_void_p),
        ("state", ctypes.c_void_p),
        ("wide_x", ctypes.c_void_p),
        ("wide_r", ctypes.c_void_p),
        ("slots", ctypes.c_void_p),
        ("slots_x", ctypes.c_void_p),
        ("outcomes", ctypes.c_void_p),
        ("history", ctypes.c_void_p),
        ("damp", ctypes.c_double),
        ("atol", ctypes.c_double),
        ("btol", ctypes.c_double),
        ("conlim", ctypes.c_double),
        ("maxiter", ctypes.c_int32),
        ("spin_limit", ctypes.c_uint32),
    )


OUTCOME_FIELDS = (
    "code",
    "itn",
    "normr",
    "normar",
    "norma",
    "conda",
    "normx",
    "true_normr",
    "true_normar",
    "true_normar_scaled",
    "normb",
    "reserved",
)
HISTORY_FIELDS = 8
