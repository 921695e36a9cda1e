"""Which groups of 64 rows the columns of a window touch, and columns in the order of that.

Windows of 128 or 256 rows share a gathered tile of B among 2 or 4 consumers of 64 rows each.  A
consumer has nothing to load of A and to multiply where its 64 rows are empty in all 16 columns of
a step of WGMMA.  In the order of the groups that they touch, columns leave few other steps.
"""

from __future__ import annotations

from typing import Any, Final

from asyncsparse_lab.formats.arrays import array_module
from asyncsparse_lab.formats.layouts import K16

SPARE: Final = 4
"""Bytes beyond the last step: a kernel reads those of a whole stage."""


def column_groups(values: Any) -> Any:
    """Return the groups of 64 rows that each stored column touches.

    Parameters
    ----------
    values : uint16 array, steps x groups x 2 x 8 x 8 x 8
        Core matrices, NumPy or CuPy: :func:`asyncsparse_lab.formats.layouts.core_matrices`.

    Returns
    -------
    uint8 array, steps x 16
        Bit g: whether rows 64 g to 64 g + 63 have a non-zero there.
    """
    xp = array_module(values)
    steps, groups = values.shape[:2]
    touched = (values != 0).any(axis=(3, 4)).reshape(steps, groups, K16)
    bits = xp.zeros((steps, K16), dtype=xp.uint8)
    for group in range(groups):
        bits |= touched[:, group].astype(xp.uint8) << group
    return bits


def step_groups(bits: Any) -> Any:
    """Return the groups that each step of 16 columns touches, and spare bytes.

    Parameters
    ----------
    bits : uint8 array, steps x 16
        Of :func:`column_groups`.
    """
    xp = array_module(bits)
    found = xp.zeros(len(bits) + SPARE, dtype=xp.uint8)
    for column in range(K16):
        found[: len(bits)] |= bits[:, column]
    return found


def in_order_of_groups(
    window_of_step: Any, bits: Any, window_col_idx: Any, values: Any
) -> tuple[Any, Any, Any]:
    """Sort the columns of each window by the groups that they touch; padding stays last.

    Parameters
    ----------
    window_of_step : int array, steps
    bits : uint8 array, steps x 16
    window_col_idx : int32 array, steps * 16
    values : uint16 array, steps x groups x 2 x 8 x 8 x 8

    Returns
    -------
    bits, window_col_idx, values : arrays
        In that order.
    """
    xp = array_module(values)
    steps, groups = values.shape[:2]
    flat = bits.reshape(-1)
    window = xp.repeat(xp.asarray(window_of_step), K16)
    is_padding = flat == 0
    order = xp.lexsort(xp.stack([window_col_idx, flat, is_padding, window]).astype(xp.int64))
    columns = values.transpose(0, 2, 5, 1, 3, 4).reshape(steps * K16, -1)[order]
    core = columns.reshape(steps, 2, 8, groups, 8, 8).transpose(0, 3, 1, 4, 5, 2)
    return flat[order].reshape(steps, K16), window_col_idx[order], xp.ascontiguousarray(core)
