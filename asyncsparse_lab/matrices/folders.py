"""Where matrices lie on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.resources import cache_folder, checkout_root


def matrix_folder() -> Path | None:
    """Return the folder of real matrices (``NAME.mtx.gz``), or None where there is none.

    ``ASYNCSPARSE_MATRICES`` names it; without that, ``../shared/matrices`` beside the checkout.

    Raises
    ------
    InputError
        ``ASYNCSPARSE_MATRICES`` names something that is not a folder.
    """
    named = os.environ.get("ASYNCSPARSE_MATRICES")
    if named:
        folder = Path(named).expanduser()
        if not folder.is_dir():
            raise InputError(
                f"ASYNCSPARSE_MATRICES={named} is not a folder: point it at one, or unset it"
            )
        return folder
    root = checkout_root()
    if root is None:
        return None
    beside = root.parent / "shared" / "matrices"
    return beside if beside.is_dir() else None


def writable_cache_folder() -> Path:
    """Return :func:`cache_folder`, made if need be.

    Raises
    ------
    InputError
        Nothing can be written there.
    """
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder}: {error.strerror}: set ASYNCSPARSE_CACHE to a folder that can be written"
        ) from error
    if not os.access(folder, os.W_OK):
        raise InputError(
            f"{folder} cannot be written: set ASYNCSPARSE_CACHE to a folder that can be"
        )
    return folder
