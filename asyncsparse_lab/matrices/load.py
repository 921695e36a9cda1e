"""From a name to a canonical CSR matrix."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.matrices.folders import matrix_folder
from asyncsparse_lab.matrices.generators import GENERATORS, SHORT_FORMS, GeneratorCall, find_call
from asyncsparse_lab.matrices.matrix_market import LoadedMatrix, read_matrix_market
from asyncsparse_lab.resources import cache_folder

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_array

_ENDINGS = (".mtx", ".mtx.gz")
_LONGEST_NAME = 200  # of characters; file systems refuse 255 bytes and more


def find_matrix(name_or_path: str | Path) -> GeneratorCall | Path | None:
    """Say what a name means on this machine: a generator call, a file, or neither.

    In this order: a path to a Matrix Market file; a generated name; a file ``NAME.mtx.gz`` in
    :func:`matrix_folder`; a SuiteSparse matrix that was fetched before, as ``group/name`` or by
    its name alone.

    Raises
    ------
    InputError
        A call of a generator that the generator refuses, or a path to a file that is not there.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or text.endswith(_ENDINGS):
        # os.path, unlike Path, takes a name that no file can have, or a user that is not, calmly.
        expanded = os.path.expanduser(text)
        if os.path.isdir(expanded):
            raise InputError(f"{text} is a folder: name a Matrix Market file in it")
        if not os.path.isfile(expanded):
            raise InputError(f"{text[:200]}: no such file")
        return Path(expanded)
    if call := find_call(text):
        return call
    # A name is no path: nothing outside the two folders is reached through it.
    parts = text.split("/")
    if any(part in ("", ".", "..") or len(part) > _LONGEST_NAME for part in parts):
        return None
    fetched = cache_folder() / "suitesparse"
    if len(parts) == 2:
        path = fetched / parts[0] / f"{parts[1]}.mtx.gz"
        return path if path.is_file() else None
    if len(parts) > 2:
        return None
    folder = matrix_folder()
    for ending in _ENDINGS if folder is not None else ():
        assert folder is not None
        if (path := folder / f"{text}{ending}").is_file():
            return path
    found = sorted(path for path in fetched.glob("*/*.mtx.gz") if path.name == f"{text}.mtx.gz")
    if len(found) > 1:
        groups = ", ".join(f"{path.parent.name}/{text}" for path in found)
        raise InputError(f"{text!r} is several matrices: say which of {groups}")
    return found[0] if found else None


def load_matrix_with_facts(name_or_path: str | Path) -> LoadedMatrix:
    """Load a matrix and what its file says of it; see :func:`load_matrix`."""
    found = find_matrix(name_or_path)
    if isinstance(found, GeneratorCall):
        matrix = found.build()
        return LoadedMatrix(matrix, "coordinate", "real", "general", matrix.nnz, 0, 0)
    if isinstance(found, Path):
        return read_matrix_market(found)
    text = str(name_or_path)
    if text.count("/") == 1:
        from asyncsparse_lab.matrices.suitesparse import fetch

        return read_matrix_market(fetch(text))
    raise InputError(_nothing_called(text))


def load_matrix(name_or_path: str | Path) -> csr_array[Any]:
    """Load a matrix as canonical CSR.

    Parameters
    ----------
    name_or_path : str or Path
        A generated name (``stencil2d(nx=64, ny=64)``, ``mycielskian14``, ``Trefethen_2000``,
        ``gate_proj-keep10-uniform-s0``), the name of a file in the folder of real matrices
        (``bcsstk16``), a Matrix Market file (``.mtx``, ``.mtx.gz``), or a member of the
        SuiteSparse collection (``HB/bcsstk16``), which is fetched once and kept.

    Returns
    -------
    csr_array
        float64 or complex128; sorted, duplicates summed, explicit zeros dropped.  Pattern
        entries are 1.0.  A symmetric file gives both triangles.

    Raises
    ------
    InputError
        No such matrix, or parameters that a generator refuses.
    MatrixFileError
        The file is malformed; the message names file and line.
    DownloadError
        A SuiteSparse matrix could not be fetched.
    """
    return load_matrix_with_facts(name_or_path).matrix


def available_names() -> list[str]:
    """Return the names of all files that :func:`load_matrix` finds on this machine."""
    folder = matrix_folder()
    names = set()
    for ending in _ENDINGS if folder is not None else ():
        assert folder is not None
        names |= {path.name.removesuffix(ending) for path in folder.glob(f"*{ending}")}
    fetched = cache_folder() / "suitesparse"
    names |= {
        f"{path.parent.name}/{path.name.removesuffix('.mtx.gz')}"
        for path in fetched.glob("*/*.mtx.gz")
    }
    return sorted(names, key=str.lower)


def load_right_hand_side(name: str) -> NDArray[Any] | None:
    """Return the published right-hand side of a matrix in the folder, or None.

    It lies beside the matrices as ``rhs/NAME_rhs1.mtx.gz``.
    """
    folder = matrix_folder()
    if folder is None:
        return None
    path = folder / "rhs" / f"{name}_rhs1.mtx.gz"
    if not path.is_file():
        return None
    vector: NDArray[Any] = read_matrix_market(path).matrix.toarray().ravel()
    return vector


def _nothing_called(text: str) -> str:
    known = [*GENERATORS, *(example for _, example, _ in SHORT_FORMS), *available_names()]
    if os.path.isfile(text):
        return (
            f"{text}: the name of a Matrix Market file ends in .mtx or .mtx.gz; rename it, or pass"
            " a pathlib.Path"
        )
    near = get_close_matches(text, known, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "see 'asyncsparse matrices list'"
    place = "" if matrix_folder() else "; no folder of real matrices here (ASYNCSPARSE_MATRICES)"
    return f"no matrix {text[:80]!r}: {hint}{place}"
