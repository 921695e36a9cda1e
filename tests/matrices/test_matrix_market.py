"""Reading Matrix Market files: every field and symmetry, and one line for every fault."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncsparse_lab.errors import InputError, MatrixFileError
from asyncsparse_lab.matrices import read_matrix_market, write_matrix_market

BANNER = "%%MatrixMarket matrix "


def write(folder: Path, text: str | bytes, name: str = "a.mtx") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


GOOD = {
    "real general": (
        "coordinate real general\n2 3 2\n1 3 1.5\n2 1 -2e1\n",
        [[0, 0, 1.5], [-20, 0, 0]],
    ),
    "integer": ("coordinate integer general\n1 2 1\n1 2 -7\n", [[0, -7]]),
    "pattern": ("coordinate pattern general\n2 2 2\n1 1\n2 1\n", [[1, 0], [1, 0]]),
    "complex": ("coordinate complex general\n1 2 1\n1 2 1 -2\n", [[0, 1 - 2j]]),
    "symmetric": ("coordinate real symmetric\n2 2 2\n1 1 5\n2 1 3\n", [[5, 3], [3, 0]]),
    "upper triangle": ("coordinate real symmetric\n2 2 1\n1 2 3\n", [[0, 3], [3, 0]]),
    "pattern symmetric": ("coordinate pattern symmetric\n2 2 1\n2 1\n", [[0, 1], [1, 0]]),
    "skew": ("coordinate real skew-symmetric\n2 2 1\n2 1 3\n", [[0, -3], [3, 0]]),
    "hermitian": (
        "coordinate complex hermitian\n2 2 2\n1 1 5 0\n2 1 3 4\n",
        [[5, 3 - 4j], [3 + 4j, 0]],
    ),
    "array": ("array real general\n2 2\n1\n0\n3\n4\n", [[1, 3], [0, 4]]),
    "array symmetric": ("array integer symmetric\n2 2\n1\n2\n3\n", [[1, 2], [2, 3]]),
    "array skew": ("array real skew-symmetric\n2 2\n7\n", [[0, -7], [7, 0]]),
    "array complex": ("array complex general\n1 1\n1 2\n", [[1 + 2j]]),
    "comments and windows line ends": (
        "coordinate real general\r\n% c\r\n\r\n1 1 1\r\n1 1 4\r\n",
        [[4]],
    ),
    "double": ("coordinate double general\n1 1 1\n1 1 4\n", [[4]]),
    "no entries": ("coordinate real general\n2 1 0\n", [[0], [0]]),
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("ending", [".mtx", ".mtx.gz"])
def test_reads_every_kind(tmp_path: Path, name: str, ending: str) -> None:
    body, expected = GOOD[name]
    text = (BANNER + body).encode()
    path = write(tmp_path, gzip.compress(text) if ending.endswith("gz") else text, "a" + ending)
    loaded = read_matrix_market(path)
    matrix = loaded.matrix
    np.testing.assert_array_equal(matrix.toarray(), np.array(expected))
    assert matrix.has_canonical_format
    complex_file = "complex" in body
    assert matrix.dtype == (np.complex128 if complex_file else np.float64)
    assert matrix.indices.dtype == np.int32


def test_compression_is_told_by_content(tmp_path: Path) -> None:
    text = (BANNER + "coordinate real general\n1 1 1\n1 1 4\n").encode()
    assert read_matrix_market(write(tmp_path, gzip.compress(text), "a.mtx")).matrix[0, 0] == 4
    assert read_matrix_market(write(tmp_path, text, "a.mtx.gz")).matrix[0, 0] == 4


def test_counts_what_it_tidies(tmp_path: Path) -> None:
    text = BANNER + "coordinate real general\n3 3 5\n1 1 2\n1 1 3\n2 2 0\n3 1 1\n3 1 -1\n"
    loaded = read_matrix_market(write(tmp_path, text))
    assert loaded.matrix.nnz == 1
    assert loaded.matrix[0, 0] == 5
    assert (loaded.stored_entries, loaded.duplicates, loaded.explicit_zeros) == (5, 2, 2)
    assert (loaded.field, loaded.symmetry, loaded.layout) == ("real", "general", "coordinate")


def test_counts_zeros_of_a_symmetric_file_on_both_sides(tmp_path: Path) -> None:
    loaded = read_matrix_market(
        write(tmp_path, BANNER + "coordinate real symmetric\n2 2 2\n1 1 1\n2 1 0\n")
    )
    assert (loaded.matrix.nnz, loaded.explicit_zeros, loaded.stored_entries) == (1, 2, 2)


REAL = BANNER + "coordinate real general\n"
BAD = {
    "empty": ("", 1, "empty"),
    "no banner": ("2 2 1\n1 1 1\n", 1, "banner"),
    "web page": ("<!DOCTYPE html>\n<html></html>\n", 1, "web page"),
    "lfs pointer": ("version https://git-lfs.github.com/spec/v1\n", 1, "Git LFS"),
    "binary": (b"\x7fELF\x00\x01\x02\x00" * 40, 1, "binary"),
    "capitals": ("%%matrixmarket matrix coordinate real general\n1 1 0\n", 1, "capitals"),
    "vector": ("%%MatrixMarket vector coordinate real general\n1 1\n", 1, "banner"),
    "unknown field": (BANNER + "coordinate quaternion general\n1 1 0\n", 1, "quaternion"),
    "unknown symmetry": (BANNER + "coordinate real diagonal\n1 1 0\n", 1, "diagonal"),
    "pattern array": (BANNER + "array pattern general\n1 1\n", 1, "pattern"),
    "real hermitian": (BANNER + "coordinate real hermitian\n1 1 0\n", 1, "Hermitian"),
    "no size": (REAL + "% only a comment\n", 3, "ends before"),
    "short size": (REAL + "2 2\n1 1 1\n", 2, "3 whole numbers"),
    "long size": (REAL + "2 2 1 1\n1 1 1\n", 2, "3 whole numbers"),
    "size in words": (REAL + "two 2 1\n1 1 1\n", 2, "two"),
    "negative size": (REAL + "-2 2 1\n1 1 1\n", 2, "-2"),
    "huge size": (REAL + "99999999999 1 1\n1 1 1\n", 2, "2^31"),
    "huge count": (REAL + "9 9 99999999999999\n1 1 1\n", 4, "1 of 99999999999999"),
    "entries in nothing": (REAL + "0 5 3\n1 1 1\n", 2, "0 x 5"),
    "symmetric not square": (BANNER + "coordinate real symmetric\n2 3 1\n1 1 1\n", 2, "square"),
    "cut off": (REAL + "2 2 2\n1 1 1\n", 4, "1 of 2"),
    "cut off in a number": (REAL + "2 2 2\n1 1 1\n2 2", 4, "2 words"),
    "too many": (REAL + "2 2 1\n1 1 1\n2 2 2\n", 4, "more than the 1"),
    "row too large": (REAL + "2 2 2\n1 1 1\n3 1 1\n", 4, "row '3' is outside 1..2"),
    "column zero": (REAL + "2 2 1\n1 0 1\n", 3, "column '0'"),
    "negative row": (REAL + "2 2 1\n-1 1 1\n", 3, "row '-1'"),
    "row beyond 64 bits": (REAL + "2 2 1\n99999999999999999999 1 1\n", 3, "outside"),
    "fractional row": (REAL + "2 2 1\n1.0 1 1\n", 3, "'1.0'"),
    "no number": (REAL + "2 2 2\n1 1 1\n1 2 one\n", 4, "'one' is not a number"),
    "fortran exponent": (REAL + "2 2 1\n1 1 1.5D+03\n", 3, "'1.5D+03' is not a number"),
    "decimal comma": (REAL + "2 2 1\n1 1 1,5\n", 3, "'1,5' is not a number"),
    "value missing": (REAL + "2 2 2\n1 1\n2 2 1\n", 3, "2 words"),
    "word too many": (REAL + "2 2 2\n1 1 1\n2 2 1 7\n", 4, "4 words"),
    "comment inside": (REAL + "2 2 2\n1 1 1\n% here\n2 2 1\n", 4, "comment"),
    "not a number value": (REAL + "2 2 2\n1 1 1\n2 2 nan\n", 4, "finite"),
    "value overflows": (REAL + "2 2 2\n1 1 1\n2 2 1e999\n", 4, "finite"),
    "fraction in integer": (BANNER + "coordinate integer general\n2 2 1\n1 1 1.7\n", 3, "'1.7'"),
    "integer beyond float64": (
        BANNER + "coordinate integer general\n2 2 2\n1 1 1\n1 2 9007199254740993\n",
        4,
        "2^53",
    ),
    "integer beyond 64 bits": (
        BANNER + "coordinate integer general\n2 2 1\n1 1 99999999999999999999\n",
        3,
        "64 bits",
    ),
    "values in pattern": (
        BANNER + "coordinate pattern general\n2 2 2\n1 1 5\n2 2 1\n",
        3,
        "3 words",
    ),
    "real labelled complex": (BANNER + "coordinate complex general\n2 2 1\n1 1 5\n", 3, "4"),
    "both triangles": (
        BANNER + "coordinate real symmetric\n2 2 3\n1 1 5\n2 1 3\n1 2 3\n",
        5,
        "lower triangle too",
    ),
    "both triangles skew": (
        BANNER + "coordinate real skew-symmetric\n2 2 2\n2 1 3\n1 2 -3\n",
        4,
        "lower triangle too",
    ),
    "both triangles pattern": (
        BANNER + "coordinate pattern symmetric\n2 2 2\n2 1\n1 2\n",
        4,
        "lower triangle too",
    ),
    "skew diagonal": (BANNER + "coordinate real skew-symmetric\n2 2 1\n2 2 3\n", 3, "diagonal"),
    "hermitian diagonal": (
        BANNER + "coordinate complex hermitian\n2 2 1\n2 2 3 1\n",
        3,
        "diagonal",
    ),
    "array short": (BANNER + "array real general\n2 2\n1\n2\n3\n", 6, "3 of 4"),
    "array long": (BANNER + "array real general\n1 2\n1\n2\n3\n", 5, "more than the 2"),
    "array two a line": (BANNER + "array real general\n1 2\n1 2\n", 3, "2 words"),
    "array infinite": (BANNER + "array real general\n1 2\n1\ninf\n", 4, "finite"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gz"])
def test_fault_is_one_line_with_file_and_line_number(
    tmp_path: Path, name: str, compressed: bool
) -> None:
    text, line, words = BAD[name]
    data = text if isinstance(text, bytes) else text.encode()
    path = write(tmp_path, gzip.compress(data) if compressed else data, "bad.mtx")
    with pytest.raises(MatrixFileError) as caught:
        read_matrix_market(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: line {line}: ")
    assert words in message
    assert "\n" not in message


def test_broken_gzip_is_named(tmp_path: Path) -> None:
    body = "".join(f"{i} {i} {i * 0.37}\n" for i in range(1, 3001))
    whole = gzip.compress((REAL + "3000 3000 3000\n" + body).encode())
    with pytest.raises(MatrixFileError, match=r"line \d+: the gzip data .* of 3000 entries"):
        read_matrix_market(write(tmp_path, whole[: len(whole) // 2]))
    damaged = bytearray(whole)
    damaged[-8] ^= 0xFF  # the checksum of the text
    with pytest.raises(MatrixFileError, match="line 3003: the gzip data is damaged"):
        read_matrix_market(write(tmp_path, bytes(damaged)))
    with pytest.raises(MatrixFileError, match="line 1: the gzip data is damaged"):
        read_matrix_market(write(tmp_path, whole[:12]))


def test_rows_beyond_the_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncsparse_lab.matrices.matrix_market.physical_bytes", lambda: 16 << 30)
    path = write(tmp_path, REAL + "2000000000 5 1\n1 1 1\n")
    with pytest.raises(MatrixFileError, match="line 2: 2000000000 x 5 does not fit"):
        read_matrix_market(path)


def test_array_beyond_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, BANNER + "array real general\n4 4\n" + "1\n" * 16)
    assert read_matrix_market(path).matrix.nnz == 16
    monkeypatch.setattr("asyncsparse_lab.matrices.matrix_market.physical_bytes", lambda: 250)
    with pytest.raises(MatrixFileError, match="line 2: 4 x 4 does not fit"):
        read_matrix_market(path)


def test_comment_of_any_length_is_a_comment(tmp_path: Path) -> None:
    text = f"{REAL}%{'x' * 200_000}\n1 1 1\n1 1 4\n"
    assert read_matrix_market(write(tmp_path, text)).matrix[0, 0] == 4
    with pytest.raises(MatrixFileError, match="line 4: row '2' is outside"):
        read_matrix_market(write(tmp_path, text.replace("1 1 4", "2 1 4")))


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(MatrixFileError, match="No such file"):
        read_matrix_market(tmp_path / "nothing.mtx")
    with pytest.raises(MatrixFileError, match="directory"):
        read_matrix_market(tmp_path)


@given(
    entries=st.lists(
        st.tuples(
            st.integers(1, 7),
            st.integers(1, 5),
            st.floats(allow_nan=False, allow_infinity=False, width=64),
        ),
        max_size=25,
        unique_by=lambda entry: entry[:2],
    )
)
@settings(max_examples=60, deadline=None)
def test_every_float_reads_back(tmp_path_factory: pytest.TempPathFactory, entries: list) -> None:
    dense = np.zeros((7, 5))
    for row, col, value in entries:
        dense[row - 1, col - 1] = value
    text = REAL + f"7 5 {len(entries)}\n" + "".join(f"{i} {j} {v!r}\n" for i, j, v in entries)
    path = write(tmp_path_factory.mktemp("float"), text)
    np.testing.assert_array_equal(read_matrix_market(path).matrix.toarray(), dense)


@pytest.mark.parametrize("ending", [".mtx", ".mtx.gz"])
def test_write_then_read(tmp_path: Path, ending: str) -> None:
    rng = np.random.default_rng(3)
    from scipy.sparse import random_array

    matrix = random_array((40, 30), density=0.1, rng=rng, format="csr")
    path = write_matrix_market(tmp_path / f"a{ending}", matrix, note="for a test")
    again = read_matrix_market(path).matrix
    assert abs(again - matrix).max() == 0
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    first = path.read_bytes()
    assert write_matrix_market(path, matrix, note="for a test").read_bytes() == first


def test_write_refuses_other_names(tmp_path: Path) -> None:
    from scipy.sparse import eye_array

    matrix = eye_array(2, format="csr")
    with pytest.raises(InputError, match="ends in"):
        write_matrix_market(tmp_path / "a.txt", matrix, note="")
    with pytest.raises(InputError, match="no such folder"):
        write_matrix_market(tmp_path / "b" / "a.mtx", matrix, note="")
