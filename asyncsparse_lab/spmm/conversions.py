"""What a sparse matrix was converted to so far, shared by the products that multiply it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
Makers = Mapping[str, Callable[[Any], Any]]
"""Name of a format to what makes it of a product."""


class Conversions:
    """Converted matrices by name, each with the microseconds that it took.

    Parameters
    ----------
    makers : mapping, optional
        Name to what makes that format of a product, in place of who asks for it.
    """

    def __init__(self, makers: Makers | None = None) -> None:
        self._made: dict[str, tuple[Any, float]] = {}
        self.makers = makers or {}

    def get(self, name: str, make: Callable[[], tuple[T, float]]) -> tuple[T, float]:
        """Return what ``make`` gave when the name was first asked for."""
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def keep(self, name: str, matrix: Any) -> None:
        """Take a conversion that was made elsewhere."""
        self._made[name] = matrix, 0.0

    def forget(self, *names: str) -> None:
        """Drop conversions, all if none is named."""
        for name in names or tuple(self._made):
            self._made.pop(name, None)

    def matrices(self) -> dict[str, Any]:
        """Return what there is, by name."""
        return {name: matrix for name, (matrix, _) in self._made.items()}
