"""Checks of Matrix Market text: the header, a census of the entries, the line of a fault.

:func:`read_header` and :class:`TextCensus` cost next to nothing and run on every file.
:func:`find_fault` walks the text line by line and runs only when something is wrong.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import numpy as np

from asyncsparse_lab.errors import MatrixFileError

LAYOUTS: Final = ("coordinate", "array")
FIELDS: Final = ("real", "double", "integer", "unsigned-integer", "complex", "pattern")
SYMMETRIES: Final = ("general", "symmetric", "skew-symmetric", "hermitian")

_VALUES_PER_ENTRY: Final = {"pattern": 0, "complex": 2}
_READ_ERRORS: Final = (EOFError, zlib.error, gzip.BadGzipFile)


@dataclass(frozen=True, slots=True)
class Header:
    """Banner and size line of a file.

    Attributes
    ----------
    layout, field, symmetry : str
        As in the banner, in lower case; ``double`` is called ``real``.
    rows, cols, entries : int
        Of the matrix; ``entries`` are those that the file must hold.
    size_line : int
        Number of the size line, from 1.
    body_offset : int
        Bytes of (decompressed) text before the first entry.
    compressed : bool
        Whether the file is gzip.
    """

    layout: str
    field: str
    symmetry: str
    rows: int
    cols: int
    entries: int
    size_line: int
    body_offset: int
    compressed: bool

    @property
    def tokens_per_entry(self) -> int:
        """Words on the line of an entry."""
        values = _VALUES_PER_ENTRY.get(self.field, 1)
        return values + (2 if self.layout == "coordinate" else 0)


def open_text(file: Path, *, compressed: bool) -> io.BufferedIOBase:
    """Open the (decompressed) bytes of a file."""
    if compressed:
        # GzipFile is a BufferedIOBase, which its stub does not say.
        return cast(io.BufferedIOBase, gzip.open(file, "rb"))
    return open(file, "rb")


def read_header(file: Path) -> Header:
    """Read and check banner, comments and size line.

    Raises
    ------
    MatrixFileError
        With the file and the line number.
    """

    def fail(line: int, what: str) -> MatrixFileError:
        return MatrixFileError(f"{file}: line {line}: {what}")

    with open(file, "rb") as plain:
        start = plain.read(2)
    if not start:
        raise fail(1, "the file is empty")
    compressed = start == b"\x1f\x8b"
    try:
        with open_text(file, compressed=compressed) as text:
            number, offset, banner, size = 0, 0, b"", b""
            goes_on = False  # a line that is longer than a piece comes in several
            while line := text.readline(1 << 16):
                offset += len(line)
                is_rest, goes_on = goes_on, not line.endswith(b"\n")
                if is_rest:
                    continue
                number += 1
                if number == 1:
                    banner = line
                    if not line.startswith(b"%%MatrixMarket"):
                        raise fail(1, _what_it_is_instead(file, line))
                elif not line.startswith(b"%") and line.strip():
                    size = line
                    break
    except _READ_ERRORS as error:
        raise fail(number + 1, f"the gzip data is damaged or cut off ({error})") from error

    if not banner:
        raise fail(1, "the file is empty")
    words = banner.decode("latin-1").lower().split()
    if len(words) != 5 or words[1] != "matrix":
        raise fail(1, "the banner is not '%%MatrixMarket matrix LAYOUT FIELD SYMMETRY'")
    layout, field, symmetry = words[2:]
    for word, known in ((layout, LAYOUTS), (field, FIELDS), (symmetry, SYMMETRIES)):
        if word not in known:
            raise fail(1, f"{word!r} in the banner is none of {', '.join(known)}")
    if field == "pattern" and (layout == "array" or symmetry in SYMMETRIES[2:]):
        raise fail(1, f"a pattern matrix cannot be {layout} {symmetry}")
    if symmetry == "hermitian" and field != "complex":
        raise fail(1, f"a Hermitian matrix is complex, not {field}")
    if not size:
        raise fail(number + 1, "the file ends before the size line")

    expected = 3 if layout == "coordinate" else 2
    numbers = size.split()
    if len(numbers) != expected or not all(word.isdigit() for word in numbers):
        found = size.decode("latin-1").strip()[:40]
        raise fail(number, f"the size line has {expected} whole numbers, not {found!r}")
    rows, cols = int(numbers[0]), int(numbers[1])
    if symmetry != "general" and rows != cols:
        raise fail(number, f"a {symmetry} matrix is square, not {rows} x {cols}")
    if layout == "coordinate":
        entries = int(numbers[2])
        possible = rows * cols if symmetry == "general" else rows * (rows + 1)
        if max(rows, cols) >= 2**31:
            raise fail(number, f"{rows} x {cols} is beyond 2^31 - 1 rows or columns")
        if entries and not possible:
            raise fail(number, f"{entries} entries in a matrix of {rows} x {cols}")
    elif symmetry == "general":
        entries = rows * cols
    else:
        entries = rows * (rows + 1) // 2 - (rows if symmetry == "skew-symmetric" else 0)
    field = {"double": "real", "unsigned-integer": "integer"}.get(field, field)
    return Header(layout, field, symmetry, rows, cols, entries, number, offset, compressed)


def _what_it_is_instead(file: Path, line: bytes) -> str:
    lowered = line.lstrip().lower()
    if lowered.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "this is a web page, not a Matrix Market file: download it again"
    if lowered.startswith(b"version https://git-lfs"):
        return "this is a Git LFS pointer, not a Matrix Market file: fetch the file itself"
    if lowered.startswith(b"%%matrixmarket"):
        return "the banner is written '%%MatrixMarket', with these capitals"
    if any(byte < 9 for byte in line[:256]):
        return "this is binary data, not a Matrix Market file (plain or .gz)"
    return "no '%%MatrixMarket' banner: not a Matrix Market file"


class TextCensus:
    """Counts the words after the header and notes characters that numbers cannot have.

    SciPy ignores what stands behind the last number that it wants from a line, so a file whose
    entries have a word too many, or a number that ends early, is read without complaint.
    """

    def __init__(self, skip: int) -> None:
        self._skip = skip
        self._in_word = False
        self.words = 0
        self.has_point = False
        self.has_odd_letter = False

    def add(self, chunk: bytes) -> None:
        """Take the next bytes of the text."""
        if self._skip:
            cut = min(self._skip, len(chunk))
            self._skip -= cut
            chunk = chunk[cut:]
        if not chunk:
            return
        inside = np.frombuffer(chunk, np.uint8) > 32
        self.words += int(np.count_nonzero(inside[1:] > inside[:-1]))
        self.words += int(inside[0] and not self._in_word)
        self._in_word = bool(inside[-1])
        self.has_point = self.has_point or b"." in chunk or b"e" in chunk or b"E" in chunk
        self.has_odd_letter = self.has_odd_letter or any(
            letter in chunk for letter in (b"d", b"D", b"x", b"X", b",", b"_")
        )

    def looks_wrong(self, header: Header) -> bool:
        """Whether the text cannot be what the header says, though SciPy read it."""
        return (
            self.words != header.entries * header.tokens_per_entry
            or self.has_odd_letter
            or (self.has_point and header.field in ("integer", "pattern"))
        )


def _lines(file: Path, header: Header) -> Iterator[tuple[int, list[bytes]]]:
    """Yield number and words of each line after the size line that is not blank."""
    with open_text(file, compressed=header.compressed) as text:
        for number, line in enumerate(text, start=1):
            if number > header.size_line and (words := line.split()):
                yield number, words


def find_fault(file: Path, header: Header, fallback: str) -> str:
    """Return one line that says where the text breaks the format, and how.

    Parameters
    ----------
    file : Path
        A file that SciPy or :class:`TextCensus` objected to.
    header : Header
        Of that file.
    fallback : str
        What to say if no line is at fault.
    """
    seen, number = 0, header.size_line
    try:
        for number, words in _lines(file, header):
            if words[0].startswith(b"%"):
                return f"{file}: line {number}: a comment between the entries"
            if seen == header.entries:
                return f"{file}: line {number}: more than the {header.entries} entries announced"
            if what := _entry_fault(words, header):
                return f"{file}: line {number}: {what}"
            seen += 1
    except _READ_ERRORS as error:
        return (
            f"{file}: line {number + 1}: the gzip data is damaged or cut off ({error})"
            f" after {seen} of {header.entries} entries"
        )
    if seen < header.entries:
        return (
            f"{file}: line {number + 1}: the file ends after {seen} of {header.entries} entries:"
            " it is cut off"
        )
    return f"{file}: {fallback}"


def _entry_fault(words: list[bytes], header: Header) -> str | None:
    wanted = header.tokens_per_entry
    if len(words) != wanted:
        return f"{len(words)} words where a {header.field} {header.layout} entry has {wanted}"
    values = words
    if header.layout == "coordinate":
        for name, word, limit in (
            ("row", words[0], header.rows),
            ("column", words[1], header.cols),
        ):
            if not word.isdigit():
                return f"{name} {_shown(word)} is not a whole number"
            if not 1 <= int(word) <= limit:
                return f"{name} {_shown(word)} is outside 1..{limit}"
        values = words[2:]
    for word in values:
        if header.field == "integer":
            if not word.lstrip(b"+-").isdigit():
                return f"{_shown(word)} is not an integer, but the file is labelled integer"
            if not -(2**63) <= int(word) < 2**64:
                return f"{_shown(word)} does not fit into 64 bits"
        elif _number(word) is None:
            return f"{_shown(word)} is not a number"
    return None


def _number(word: bytes) -> float | None:
    try:
        # float() also takes digits grouped by underscores, which no file format means.
        return None if b"_" in word else float(word)
    except ValueError:
        return None


def _shown(word: bytes) -> str:
    text = word.decode("latin-1")
    return repr(text if len(text) <= 24 else text[:24] + "...")


def find_bad_entry(
    file: Path, header: Header, is_bad: Callable[[int, int, complex], bool]
) -> int | None:
    """Return the line of the first entry for which ``is_bad(row, column, value)`` holds.

    Rows and columns count from 1; in array layout both are 0.  None if there is no such entry.
    """
    for number, words in _lines(file, header):
        row, col = (0, 0) if header.layout == "array" else (int(words[0]), int(words[1]))
        numbers = [float(word) for word in words[0 if header.layout == "array" else 2 :]]
        if not numbers:
            value = 1.0 + 0.0j
        elif len(numbers) == 2:
            # complex(inf, nan) keeps both; abs() of it is what is tested for finiteness
            value = complex(numbers[0], numbers[1])
        else:
            value = complex(numbers[0])
        if is_bad(row, col, value):
            return number
    return None
