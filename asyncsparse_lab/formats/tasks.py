"""How the work of a WCSR product is cut into pieces of bounded length."""

from __future__ import annotations

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.formats.arrays import INT32_LIMIT, Array, array_module


def window_tasks(window_row_ptr: Array, max_cols_per_task: int | None = None) -> Array:
    """Cut windows with many columns into tasks, longest first.

    A window of c stored columns becomes ``max(1, ceil(c / max_cols_per_task))`` tasks: an empty
    window keeps one, because its rows of C must be written too.

    Parameters
    ----------
    window_row_ptr : int64 array
        As in :class:`~asyncsparse_lab.formats.WCSR`, windows padded to 16 columns.
    max_cols_per_task : int, optional
        A multiple of 16; without it no window is cut.

    Returns
    -------
    int32 array, tasks x 4
        window, first column, columns, tasks of its window (above 1: the partial results have to
        be added up).  Tasks of equal length keep the order of their windows.

    Raises
    ------
    InputError
        `max_cols_per_task` or a window is not a multiple of 16, or there are 2**31 columns.
    """
    xp = array_module(window_row_ptr)
    counts = window_row_ptr[1:] - window_row_ptr[:-1]
    if bool((counts % 16 != 0).any()):
        raise InputError("windows are not padded to 16 columns: use pad_windows")
    if int(window_row_ptr[-1]) >= INT32_LIMIT:
        raise InputError(f"{int(window_row_ptr[-1])} columns, but tasks count them in 32 bits")
    longest = int(counts.max()) if len(counts) else 0
    limit = max(longest, 16) if max_cols_per_task is None else max_cols_per_task
    if limit < 16 or limit % 16:
        raise InputError(f"max_cols_per_task is {limit}, but must be a positive multiple of 16")
    pieces = xp.maximum(-(-counts // limit), 1)
    ends = xp.cumsum(pieces)
    number = xp.arange(int(ends[-1]) if len(ends) else 0)
    window = xp.searchsorted(ends, number, side="right")
    offset = (number - (ends - pieces)[window]) * limit
    length = xp.minimum(counts[window] - offset, limit)
    tasks = xp.stack([window, window_row_ptr[window] + offset, length, pieces[window]], axis=1)
    return tasks[xp.argsort(-length, kind="stable")].astype(xp.int32)
