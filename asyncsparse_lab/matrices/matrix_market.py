"""Reading and writing Matrix Market files.

SciPy parses; this module checks what SciPy lets through.  A number with a Fortran exponent, a
fraction in an integer file, values in a pattern file and a symmetric file with both triangles
are all read by SciPy without complaint, and wrongly.

Source of the format: R. F. Boisvert, R. Pozo, K. A. Remington. The Matrix Market Exchange
Formats: Initial Design. NISTIR 5935, 1996.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import scipy.io
import scipy.sparse as sp

from asyncsparse_lab.errors import InputError, MatrixFileError
from asyncsparse_lab.matrices.canonical import canonical
from asyncsparse_lab.matrices.memory import physical_bytes
from asyncsparse_lab.matrices.mm_check import (
    Header,
    TextCensus,
    find_bad_entry,
    find_fault,
    open_text,
    read_header,
)

if TYPE_CHECKING:
    from scipy.sparse import coo_array, csr_array


@dataclass(frozen=True, slots=True)
class LoadedMatrix:
    """A matrix as read from a file, and what the file said.

    Attributes
    ----------
    matrix : csr_array
        Canonical: sorted, no duplicates, no explicit zeros; float64 or complex128.
    layout : str
        ``coordinate`` or ``array``.
    field : str
        ``real``, ``integer``, ``complex`` or ``pattern``; pattern entries become 1.0, integers
        float64.
    symmetry : str
        ``general``, ``symmetric``, ``skew-symmetric`` or ``hermitian``; ``matrix`` holds both
        triangles in every case.
    stored_entries : int
        Entries in the file.
    explicit_zeros : int
        Zeros that were dropped, after the symmetric half was expanded.
    duplicates : int
        Entries that were summed into another one, after expansion.
    """

    matrix: csr_array[Any]
    layout: str
    field: str
    symmetry: str
    stored_entries: int
    explicit_zeros: int
    duplicates: int


class _WatchedStream(io.RawIOBase):
    """A binary stream that takes a census of what passes through it."""

    # SciPy asks for a kilobyte at a time; we read and count in pieces worth a NumPy call.
    _piece = 1 << 22

    def __init__(self, source: io.BufferedIOBase, census: TextCensus) -> None:
        self._source = source
        self._census = census
        self._chunk = b""
        self._position = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        if self._position == len(self._chunk):
            self._chunk = self._source.read(self._piece)
            self._position = 0
            self._census.add(self._chunk)
        start = self._position
        self._position = len(self._chunk) if size < 0 else min(start + size, len(self._chunk))
        return self._chunk[start : self._position]


def read_matrix_market(path: str | os.PathLike[str]) -> LoadedMatrix:
    """Read a Matrix Market file, plain or gzip-compressed (told by content, not by name).

    Parameters
    ----------
    path : path
        Coordinate or array layout; every field and symmetry of the format.

    Returns
    -------
    LoadedMatrix

    Raises
    ------
    MatrixFileError
        The file is missing, malformed, truncated, mislabelled, or holds a value that is not
        finite; one line that names the file and the line number.
    """
    file = Path(path)
    try:
        return _read(file)
    except OSError as error:
        raise MatrixFileError(f"{file}: cannot be read: {error.strerror or error}") from error


def _read(file: Path) -> LoadedMatrix:
    header = read_header(file)
    _require_plausible(file, header)
    census = TextCensus(header.body_offset)
    try:
        raw = _parse(file, header, census)
    except (ValueError, OverflowError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise MatrixFileError(find_fault(file, header, str(error))) from error
    if census.looks_wrong(header):
        raise MatrixFileError(find_fault(file, header, "the entries do not match the header"))

    if header.layout == "array":
        dense = np.asarray(raw)
        _require_finite(file, header, dense)
        raw = sp.coo_array(dense)
        zeros = dense.size - raw.nnz
        tidy = canonical(raw)
        return LoadedMatrix(
            tidy.matrix, "array", header.field, header.symmetry, header.entries, zeros, 0
        )
    _require_finite(file, header, raw.data)
    if header.symmetry != "general":
        _require_one_triangle(file, header, raw)
    try:
        tidy = canonical(raw)
    except InputError as error:
        line = find_bad_entry(file, header, lambda _i, _j, value: abs(value) >= 2**53)
        raise MatrixFileError(f"{file}: line {line}: {error}") from error
    return LoadedMatrix(
        tidy.matrix,
        "coordinate",
        header.field,
        header.symmetry,
        header.entries,
        tidy.explicit_zeros,
        tidy.duplicates,
    )


def _parse(file: Path, header: Header, census: TextCensus) -> Any:
    """Let SciPy parse: a plain file by its path, which is fastest, a compressed one as a stream."""
    # SciPy takes these endings at their word; we have looked.
    if header.compressed or file.suffix in (".gz", ".bz2"):
        with open_text(file, compressed=header.compressed) as source:
            return scipy.io.mmread(cast(Any, _WatchedStream(source, census)), spmatrix=False)
    with open(file, "rb") as source:
        while chunk := source.read(1 << 22):
            census.add(chunk)
    return scipy.io.mmread(file, spmatrix=False)


def _require_plausible(file: Path, header: Header) -> None:
    """Refuse a size line that the file cannot fulfil, before SciPy allocates what it says."""
    # An entry takes a digit and a line end at least; deflate packs 1032 bytes into one.
    text_bytes = file.stat().st_size * (1032 if header.compressed else 1)
    if header.entries > text_bytes // 2 + 1:
        raise MatrixFileError(find_fault(file, header, "the size line is wrong"))
    # Of a row there are two offsets, also while it is converted; an array is read as it is.
    needed = 16 * (header.rows + header.cols)
    if header.layout == "array":
        needed += (16 if header.field == "complex" else 8) * header.rows * header.cols
    if needed > physical_bytes():
        raise MatrixFileError(
            f"{file}: line {header.size_line}: {header.rows} x {header.cols} does not fit into"
            " the memory of this machine"
        )


def _require_finite(file: Path, header: Header, values: Any) -> None:
    if np.isfinite(values).all():
        return
    line = find_bad_entry(file, header, lambda _i, _j, value: not np.isfinite(value))
    raise MatrixFileError(f"{file}: line {line}: value is not finite in float64")


def _require_one_triangle(file: Path, header: Header, raw: coo_array[Any]) -> None:
    """Refuse a symmetric file whose entries say a position twice.

    SciPy appends the mirrored entries, so the first ``header.entries`` are those of the file.
    """
    rows, cols = raw.coords[0][: header.entries], raw.coords[1][: header.entries]
    below, above = rows > cols, rows < cols
    if below.any() and above.any():
        line = find_bad_entry(file, header, lambda i, j, _value: i < j)
        raise MatrixFileError(
            f"{file}: line {line}: entry above the diagonal, but the file is labelled"
            f" {header.symmetry} and holds the lower triangle too: relabel it general,"
            " or keep one triangle"
        )
    diagonal = raw.data[: header.entries][rows == cols]
    if header.symmetry == "skew-symmetric" and np.any(diagonal != 0):
        line = find_bad_entry(file, header, lambda i, j, value: i == j and value != 0)
        raise MatrixFileError(
            f"{file}: line {line}: non-zero on the diagonal of a skew-symmetric matrix"
        )
    if header.symmetry == "hermitian" and np.any(np.imag(diagonal) != 0):
        line = find_bad_entry(file, header, lambda i, j, value: i == j and value.imag != 0)
        raise MatrixFileError(
            f"{file}: line {line}: imaginary part on the diagonal of a Hermitian matrix"
        )


def write_matrix_market(path: str | os.PathLike[str], matrix: csr_array[Any], note: str) -> Path:
    """Write a matrix as ``coordinate general``; gzip-compressed if the name ends in ``.gz``.

    Values are written with the shortest digits that read back to the same float64.  The file
    appears under its name only when it is complete.

    Parameters
    ----------
    path : path
        Ends in ``.mtx`` or ``.mtx.gz``.
    matrix : csr_array
        float64 or complex128.
    note : str
        Comment in the file: where the matrix comes from.

    Raises
    ------
    InputError
        The name has another ending, or the folder does not exist.
    """
    file = Path(path)
    if not file.name.endswith((".mtx", ".mtx.gz")):
        raise InputError(f"{file}: the name of a Matrix Market file ends in .mtx or .mtx.gz")
    if not file.parent.is_dir():
        raise InputError(f"{file.parent}: no such folder; make it first")
    partial = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with open(partial, "wb") as plain:
            if file.name.endswith(".gz"):
                # No name and no time in the gzip header: the same matrix gives the same bytes.
                with gzip.GzipFile("", "wb", 6, plain, mtime=0) as packed:
                    scipy.io.mmwrite(cast(Any, packed), matrix, comment=note, symmetry="general")
            else:
                scipy.io.mmwrite(plain, matrix, comment=note, symmetry="general")
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)
    return file
