"""Where files are: kernel sources, suites, records and notebooks beside the package; the cache.

A checkout has them at its root; an installed wheel carries them in
``asyncsparse_lab/_resources``, where the build puts them.  The checkout wins, so that what is
edited is what runs.
"""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import Final, Literal

from asyncsparse_lab.errors import InputError

ResourceName = Literal["kernels", "data", "suites", "recorded", "peers", "claims", "notebooks"]

_PLACES: Final[dict[str, str]] = {
    "kernels": "kernels",
    "data": "data",
    "suites": "data/suites",
    "recorded": "data/recorded",
    "peers": "data/peers",
    "claims": "data/claims.toml",
    "notebooks": "notebooks",
}


def checkout_root() -> Path | None:
    """Return the root of the checkout that this package runs from, or None if installed."""
    root = Path(__file__).resolve().parent.parent
    return root if (root / "kernels").is_dir() and (root / "data").is_dir() else None


def resource_path(name: ResourceName) -> Path:
    """Return the path of a resource folder or file.

    Parameters
    ----------
    name : str
        ``kernels``, ``data``, ``suites``, ``recorded``, ``peers``, ``claims`` or ``notebooks``.

    Raises
    ------
    InputError
        The name is unknown, or this installation does not hold the resource.
    """
    if name not in _PLACES:
        raise InputError(f"no resource {name!r}; there are {', '.join(_PLACES)}")
    root = checkout_root()
    if root is None:
        root = Path(str(files("asyncsparse_lab"))) / "_resources"
    path = root / _PLACES[name]
    if not path.exists():
        raise InputError(f"resource {name!r} is missing from this installation: reinstall it")
    return path


def cache_folder() -> Path:
    """Return the folder for downloads and compiled kernels; it need not exist yet.

    ``ASYNCSPARSE_CACHE`` names it; without that, ``~/.cache/asyncsparse``.

    Raises
    ------
    InputError
        The user has no home folder.
    """
    named = os.environ.get("ASYNCSPARSE_CACHE")
    try:
        return Path(named or "~/.cache/asyncsparse").expanduser()
    except RuntimeError as error:
        raise InputError(
            f"{named or 'no cache'}: {error}: set ASYNCSPARSE_CACHE to a folder"
        ) from error
