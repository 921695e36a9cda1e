"""The SuiteSparse collection's catalogue: ssgetpy's index, used without a network.

Importing ``ssgetpy`` as such opens an index in the home folder and downloads it afresh when it
is missing or older than 90 days; without a network the import fails even with a full index.
Its parts do not: they are imported beneath a package that was not executed, and the index lies
in our cache folder.  It is refreshed only when that is asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from asyncsparse_lab.errors import DownloadError, InputError, UnsupportedError
from asyncsparse_lab.matrices.folders import matrix_folder, writable_cache_folder
from asyncsparse_lab.matrices.transfer import download
from asyncsparse_lab.resources import cache_folder

_WORD = re.compile(r"[\w.+-]+", re.ASCII)
_PARTS = ("config", "db", "csvindex")


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A member of the collection, as its index describes it.

    Attributes
    ----------
    group, name : str
    rows, cols, nnz : int
        ``nnz`` does not count explicit zeros.
    field : str
        ``real``, ``complex`` or ``binary``.
    kind : str
        Where the matrix comes from, e.g. ``structural problem``.
    """

    group: str
    name: str
    rows: int
    cols: int
    nnz: int
    field: str
    kind: str

    @property
    def full_name(self) -> str:
        """Return ``group/name``, as :func:`load_matrix` takes it."""
        return f"{self.group}/{self.name}"


@cache
def _ssgetpy_modules() -> dict[str, ModuleType]:
    spec = importlib.util.find_spec("ssgetpy")
    if spec is None:
        raise UnsupportedError(
            "the SuiteSparse catalogue needs ssgetpy: pip install ssgetpy==1.0rc2"
        )
    folder = writable_cache_folder()
    home = os.environ.get("HOME")
    already = {name for name in sys.modules if name.partition(".")[0] == "ssgetpy"}
    try:
        # ssgetpy.config makes a folder below HOME, and fails if HOME is not set.
        os.environ["HOME"] = str(folder)
        if "ssgetpy" not in sys.modules:
            sys.modules["ssgetpy"] = importlib.util.module_from_spec(spec)
        return {part: importlib.import_module(f"ssgetpy.{part}") for part in _PARTS}
    finally:
        # Whoever imports ssgetpy later gets the real package.
        for name in list(sys.modules):
            if name.partition(".")[0] == "ssgetpy" and name not in already:
                del sys.modules[name]
        if home is None:
            del os.environ["HOME"]
        else:
            os.environ["HOME"] = home


def collection_url() -> str:
    """Return the address of the collection: ``ASYNCSPARSE_SUITESPARSE_URL``, or ssgetpy's."""
    named = os.environ.get("ASYNCSPARSE_SUITESPARSE_URL")
    return (named or str(_ssgetpy_modules()["config"].SS_ROOT_URL)).rstrip("/")


def index_path() -> Path:
    """Return where our copy of the index lies; it need not exist yet."""
    return cache_folder() / "ssgetpy-index.db"


def seed_catalogue(statistics: Path) -> int:
    """Build the index from a local statistics file (the collection's ``ssstats.csv``).

    Returns
    -------
    int
        Matrices in the index.

    Raises
    ------
    InputError
        The file cannot be read, or is not the collection's statistics file.
    """
    try:
        lines = statistics.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{statistics}: cannot be read as a statistics file: {error}") from error
    if len(lines) < 3 or not lines[0].strip().isdigit():
        raise InputError(f"{statistics}: line 1: the number of matrices is expected here")
    if len(lines) - 2 != int(lines[0]):
        raise InputError(
            f"{statistics}: line {len(lines)}: {lines[0].strip()} matrices announced,"
            f" {len(lines) - 2} there: it is cut off"
        )
    modules = _ssgetpy_modules()
    try:
        rows = list(modules["csvindex"].gen_rows(lines[2:]))
    except (ValueError, IndexError) as error:
        raise InputError(f"{statistics}: not the collection's statistics file: {error}") from error
    writable_cache_folder()
    partial = index_path().with_suffix(f".{os.getpid()}.part")
    try:
        database = modules["db"].MatrixDB(db=str(partial))
        try:
            database.refresh(rows)
        finally:
            database.conn.close()
        os.replace(partial, index_path())
    finally:
        partial.unlink(missing_ok=True)
    return len(rows)


def refresh_catalogue() -> int:
    """Download the collection's statistics file and build the index from it.

    Raises
    ------
    DownloadError
        There is no network, or the server does not answer as it should.
    """
    statistics = writable_cache_folder() / "ssstats.csv"
    statistics.unlink(missing_ok=True)
    download(f"{collection_url()}/files/ssstats.csv", statistics)
    try:
        return seed_catalogue(statistics)
    except InputError as error:
        raise DownloadError(f"the collection's statistics file is damaged: {error}") from error


def _require_index() -> Path:
    if index_path().is_file():
        return index_path()
    users_own = Path(os.path.expanduser("~/.ssgetpy/index.db"))  # stays as it is without a home
    folder = matrix_folder()
    if users_own.is_file():
        writable_cache_folder()
        shutil.copyfile(users_own, index_path())
    elif folder is not None and (folder / "ssstats.csv").is_file():
        seed_catalogue(folder / "ssstats.csv")
    else:
        refresh_catalogue()
    return index_path()


@contextmanager
def _database() -> Iterator[Any]:
    path = _require_index()
    try:
        database = _ssgetpy_modules()["db"].MatrixDB(db=str(path))
    except sqlite3.DatabaseError as error:
        raise InputError(f"{path}: the index is damaged ({error}): delete it") from error
    try:
        yield database
    except sqlite3.DatabaseError as error:
        raise InputError(f"{path}: the index is damaged ({error}): delete it") from error
    finally:
        database.conn.close()


def _entry(matrix: Any) -> CatalogueEntry:
    return CatalogueEntry(
        matrix.group, matrix.name, matrix.rows, matrix.cols, matrix.nnz, matrix.dtype, matrix.kind
    )


def search_catalogue(
    text: str = "", *, min_nnz: int = 0, max_nnz: int | None = None, limit: int = 50
) -> list[CatalogueEntry]:
    """Return members whose name contains ``text`` (or ``group/text``), smallest first.

    Raises
    ------
    InputError
        ``text`` holds characters that no name has.
    DownloadError
        There is no index yet, and it could not be fetched.
    """
    group, slash, name = text.strip().rpartition("/")
    for word in filter(None, (group, name)):
        if not _WORD.fullmatch(word):
            raise InputError(f"{word[:40]!r} is in no name: they have letters, digits and _.+-")
    with _database() as database:
        found = database.search(
            group=group if slash else None,
            name=name or None,
            nzbounds=(min_nnz, max_nnz),
            limit=1_000_000,
        )
    return sorted(map(_entry, found), key=lambda entry: entry.nnz)[:limit]


def find_in_catalogue(name: str) -> CatalogueEntry:
    """Return the member with exactly this ``group/name``, or with this name if it is unique.

    Raises
    ------
    InputError
        There is none, or more than one.
    """
    # ssgetpy matches parts of names ("ash" finds GaAsH6): keep exact ones.
    near = search_catalogue(name, limit=1_000_000)
    wanted = name.strip().rpartition("/")[2]
    exact = [entry for entry in near if entry.name == wanted]
    if len(exact) == 1:
        return exact[0]
    some = ", ".join(entry.full_name for entry in (exact or near)[:5])
    if exact:
        raise InputError(f"{name!r} is several matrices of the collection: say which of {some}")
    hint = f": there are {some}" if near else ""
    raise InputError(f"no matrix {name!r} in the SuiteSparse collection{hint}")
