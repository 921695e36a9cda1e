"""How much memory there is, asked before something large is made."""

from __future__ import annotations

import os


def physical_bytes() -> int:
    """Return the bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
