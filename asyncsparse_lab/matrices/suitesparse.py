"""Fetching members of the SuiteSparse collection into the cache folder."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from asyncsparse_lab.errors import DownloadError, MatrixFileError
from asyncsparse_lab.matrices.catalogue import CatalogueEntry, collection_url, find_in_catalogue
from asyncsparse_lab.matrices.folders import writable_cache_folder
from asyncsparse_lab.matrices.matrix_market import read_matrix_market
from asyncsparse_lab.matrices.transfer import Progress, download, remote_size
from asyncsparse_lab.resources import cache_folder


def cached_path(entry: CatalogueEntry) -> Path:
    """Return where a member lies once it is fetched."""
    return cache_folder() / "suitesparse" / entry.group / f"{entry.name}.mtx.gz"


def archive_url(entry: CatalogueEntry) -> str:
    """Return the address of a member's Matrix Market archive."""
    return f"{collection_url()}/MM/{entry.group}/{entry.name}.tar.gz"


def missing_bytes(entries: Sequence[CatalogueEntry]) -> int:
    """Return how many bytes fetching would take, as far as the server says; asks it.

    Raises
    ------
    DownloadError
        There is no network, or the server lacks one of them.
    """
    wanted = [entry for entry in entries if not cached_path(entry).is_file()]
    return sum(remote_size(archive_url(entry)) or 0 for entry in wanted)


def fetch(name: str, progress: Progress | None = None) -> Path:
    """Fetch a member of the collection, unless it is there already.

    The archive is checked (length, readable, nothing that would be unpacked elsewhere), the
    matrix is read, and its shape and non-zeros are compared with the index, before the file
    gets its name.

    Parameters
    ----------
    name : str
        ``group/name``.
    progress : callable, optional
        See :func:`asyncsparse_lab.matrices.transfer.download`.

    Returns
    -------
    Path
        A ``.mtx.gz`` file below :func:`cache_folder`.

    Raises
    ------
    InputError
        No such member.
    DownloadError
        The transfer failed, or what came is not the matrix.
    """
    group, _, stem = name.strip().rpartition("/")
    known = cache_folder() / "suitesparse" / group / f"{stem}.mtx.gz"
    if group and known.is_file():
        return known
    return fetch_entry(find_in_catalogue(name), progress)


def fetch_entry(entry: CatalogueEntry, progress: Progress | None = None) -> Path:
    """Fetch a member that was found in the catalogue; see :func:`fetch`."""
    target = cached_path(entry)
    if target.is_file():
        return target
    writable_cache_folder()
    target.parent.mkdir(parents=True, exist_ok=True)
    archive = target.with_name(f"{entry.name}.tar.gz")
    download(archive_url(entry), archive, progress)
    partial = target.with_name(f".{entry.name}.{os.getpid()}.mtx.gz")
    try:
        _extract(archive, entry, partial)
        _compare(partial, entry)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
        # A damaged archive is of no use to a further try either.
        archive.unlink(missing_ok=True)
    return target


def _extract(archive: Path, entry: CatalogueEntry, target: Path) -> None:
    """Unpack the matrix from its archive into a compressed file."""
    wanted = f"{entry.name}/{entry.name}.mtx"
    try:
        with (
            tarfile.open(archive, "r:gz") as tar,
            tempfile.TemporaryDirectory(dir=archive.parent, prefix=".unpack-") as folder,
        ):
            found = None
            for member in tar:
                # Raises for names that lead outside, links and devices: then nothing of it is used.
                tarfile.data_filter(member, folder)
                if member.name.removeprefix("./") == wanted and member.isfile():
                    found = member
            if found is None:
                raise DownloadError(f"{entry.full_name}: the archive holds no {wanted}")
            free = shutil.disk_usage(folder).free
            if found.size > free // 2:
                raise DownloadError(
                    f"{entry.full_name}: unpacked it takes {found.size} bytes,"
                    f" of which {free} are free"
                )
            tar.extract(found, folder, filter="data")
            with (
                open(Path(folder) / found.name, "rb") as plain,
                gzip.open(target, "wb", compresslevel=3) as packed,
            ):
                shutil.copyfileobj(plain, packed, 1 << 20)
    except tarfile.FilterError as error:
        raise DownloadError(f"{entry.full_name}: the archive is refused: {error}") from error
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DownloadError(f"{entry.full_name}: the archive is damaged: {error}") from error


def _compare(file: Path, entry: CatalogueEntry) -> None:
    """Refuse a file that is not the matrix of the index."""
    try:
        loaded = read_matrix_market(file)
    except MatrixFileError as error:
        raise DownloadError(f"{entry.full_name}: what came is no matrix: {error}") from error
    rows, cols = loaded.matrix.shape
    nnz = loaded.matrix.nnz
    same = (rows, cols) == (entry.rows, entry.cols) and (
        nnz <= entry.nnz <= nnz + loaded.explicit_zeros
    )
    if not same:
        raise DownloadError(
            f"{entry.full_name}: {rows} x {cols} with {nnz} non-zeros came, the index says"
            f" {entry.rows} x {entry.cols} with {entry.nnz}"
        )


Announce = Callable[[int, int], None]
"""Takes the number of matrices and the bytes of the transfer, before it starts."""


def fetch_all(
    names: Sequence[str], announce: Announce, progress: Progress | None = None
) -> list[Path]:
    """Fetch several members; tell first how many bytes that takes.

    Raises
    ------
    InputError, DownloadError
        See :func:`fetch`; nothing is transferred if one of the names is wrong.
    """
    entries = [find_in_catalogue(name) for name in names]
    missing = [entry for entry in entries if not cached_path(entry).is_file()]
    if missing:
        announce(len(missing), missing_bytes(missing))
    return [fetch_entry(entry, progress) for entry in entries]
