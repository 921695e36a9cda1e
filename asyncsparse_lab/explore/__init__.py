"""The explorer: a matrix seen close up, and what the formats make of it.

``show("bcsstk16")`` in a notebook gives a page of controls and pictures; the same pictures stand
still where no kernel runs.
"""

from __future__ import annotations

from asyncsparse_lab.explore.page import Explorer, show

__all__ = ["Explorer", "show"]
