"""Suites: lists of matrices, frozen as data before anything is measured on them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asyncsparse_lab.errors import AsyncSparseError, InputError
from asyncsparse_lab.matrices.load import find_matrix, load_matrix
from asyncsparse_lab.resources import resource_path

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True, slots=True)
class SuiteEntry:
    """A matrix of a suite.

    Attributes
    ----------
    name : str
        For :func:`load_matrix`.
    rows, cols, nnz : int
        ``nnz`` counts stored entries with both triangles, explicit zeros included, as
        collections do; for generated matrices there are none.
    group : str or None
        Group in the SuiteSparse collection, if the suite says so.
    stand_in_for : str or None
        The matrix whose place a generated one takes; name it wherever the entry is shown.
    """

    name: str
    rows: int
    cols: int
    nnz: int
    group: str | None = None
    stand_in_for: str | None = None

    @property
    def label(self) -> str:
        """Short name for figures; a stand-in is called that."""
        return f"{self.stand_in_for} (stand-in)" if self.stand_in_for else self.name

    @property
    def density(self) -> float:
        """Non-zeros over rows times columns."""
        return self.nnz / (self.rows * self.cols)

    @property
    def source(self) -> str:
        """What :func:`load_matrix` takes; ``group/name`` where the suite names a group."""
        return f"{self.group}/{self.name}" if self.group else self.name

    def is_available(self) -> bool:
        """Whether the matrix can be loaded here without a network."""
        try:
            return find_matrix(self.source) is not None or find_matrix(self.name) is not None
        except AsyncSparseError:
            return False

    def load(self) -> csr_array[Any]:
        """Load the matrix; see :func:`load_matrix` for what it raises."""
        return load_matrix(self.name if find_matrix(self.name) is not None else self.source)


@dataclass(frozen=True, slots=True)
class Suite:
    """A named list of matrices.

    Attributes
    ----------
    name, title : str
    entries : tuple of SuiteEntry
    """

    name: str
    title: str
    entries: tuple[SuiteEntry, ...]

    def __iter__(self) -> Iterator[SuiteEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def available(self) -> tuple[SuiteEntry, ...]:
        """Return the entries that can be loaded here without a network."""
        return tuple(entry for entry in self.entries if entry.is_available())


def suite_names() -> list[str]:
    """Return the names of all suites."""
    return sorted(path.stem for path in resource_path("suites").glob("*.toml"))


def load_suite(name: str) -> Suite:
    """Read a suite.

    Raises
    ------
    InputError
        No such suite, or its file does not have the form of one.
    """
    if name not in suite_names():
        raise InputError(f"no suite {name!r}; there are {', '.join(suite_names())}")
    path = resource_path("suites") / f"{name}.toml"
    try:
        with open(path, "rb") as file:
            data = tomllib.load(file)
        entries = tuple(SuiteEntry(**entry) for entry in data["matrices"])
        return Suite(name, data["title"], entries)
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{path.name}: not a suite: {error}") from error
