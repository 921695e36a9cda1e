"""A least-squares problem, checked before any work and brought into one form."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import numpy as np

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.lsmr.recurrence import Tolerances
from asyncsparse_lab.lsmr.result import Progress

Kind = Literal["sparse", "dense", "operator", "prepared"]
Observer = Callable[[Progress], None]

DEFAULT_ATOL = 1e-6
DEFAULT_BTOL = 1e-6
DEFAULT_CONLIM = 1e8


class PreparedMatrix:
    """A matrix that a backend has already checked and laid out on its device; a base class."""

    backend: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    scaled: bool


@dataclass(frozen=True, slots=True)
class Problem:
    """What a backend gets: checked, of one precision, and never written to.

    Attributes
    ----------
    matrix : object
        A as it was given (operators wrapped by SciPy's ``aslinearoperator``).
    kind : {"sparse", "dense", "operator", "prepared"}
        What A is.
    xp : module
        NumPy or CuPy: where b is and where x will be.
    shape : (int, int)
        m and n.
    dtype : numpy.dtype
        Precision of the vectors: float32, float64, complex64 or complex128.
    columns : sequence of ndarray
        The right-hand sides, each of shape (m,) and of type ``dtype``.
    starts : sequence of ndarray, or None
        The first iterates, each of shape (n,) and of type ``dtype``.
    single : bool
        Whether x has shape (n,) and the numbers of the result are scalars.
    damp : float
        Damping.
    tolerances : Tolerances
        When to stop.
    scales : ndarray or None
        Positive column scales d of shape (n,), float64; the solver works on A diag(d).
    observer : callable or None
        Receives a :class:`Progress` an iteration.
    """

    matrix: Any
    kind: Kind
    xp: ModuleType
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    columns: Sequence[Any]
    starts: Sequence[Any] | None
    single: bool
    damp: float
    tolerances: Tolerances
    scales: Any | None
    observer: Observer | None

    @property
    def is_complex(self) -> bool:
        """Whether the vectors are complex."""
        return self.dtype.kind == "c"


def array_module(value: Any) -> ModuleType:
    """Return CuPy for a CuPy array or matrix, else NumPy, without importing CuPy needlessly."""
    if type(value).__module__.partition(".")[0] in {"cupy", "cupyx"}:
        import cupy

        return cupy  # type: ignore[no-any-return]
    return np


def is_sparse(value: Any) -> bool:
    """Whether a value is a sparse matrix or array of SciPy or CuPy."""
    from scipy import sparse

    if sparse.issparse(value):
        return True
    return array_module(value) is not np and hasattr(value, "tocsr")


def describe_problem(
    A: Any,
    b: Any,
    *,
    damp: float | None,
    atol: float | None,
    btol: float | None,
    conlim: float | None,
    maxiter: int | None,
    x0: Any | None,
    precondition: Any | None,
    observer: Observer | None,
) -> Problem:
    """Check every argument and return the problem.

    Raises
    ------
    InputError
        A, b or x0 not finite or of a wrong shape or type, a tolerance below 0 or not a
        number, or a preconditioner that does not fit; one line, before any work.
    """
    matrix, kind, shape, matrix_dtype = check_matrix(A)
    m, n = shape
    # The persistent kernel finds out by itself, for a fraction of what asking the device costs.
    asks = kind != "prepared"
    rhs, single = _check_vectors(b, m, "b", "A", asks)
    start = None
    if x0 is not None:
        start, _ = _check_vectors(x0, n, "x0", "the columns of A", asks)
        if len(start) != len(rhs):
            raise InputError(f"x0 has {len(start)} columns and b has {len(rhs)}: give as many")
    given = [rhs[0].dtype] if start is None else [rhs[0].dtype, start[0].dtype]
    if kind != "prepared":
        dtype = _working_dtype(matrix_dtype, *given)
    elif any(found.kind == "c" for found in given):
        raise InputError("A was prepared as real and b or x0 is complex: solve for the two parts")
    else:
        dtype = matrix.dtype

    damp_value = _check_number("damp", damp, 0.0)
    tolerances = Tolerances(
        _check_number("atol", atol, DEFAULT_ATOL),
        _check_number("btol", btol, DEFAULT_BTOL),
        _check_number("conlim", conlim, DEFAULT_CONLIM),
        _check_maxiter(maxiter, shape),
    )
    xp = array_module(b)
    if kind in {"sparse", "dense"} and (array_module(A) is np) != (xp is np):
        where = ("A", "b") if xp is np else ("b", "A")
        raise InputError(
            f"{where[0]} is on the GPU and {where[1]} is not: give both as CuPy arrays"
        )

    scales = check_scales(matrix, kind, n, precondition)
    if damp_value and (scales is not None or (kind == "prepared" and matrix.scaled)):
        raise InputError(
            f"precondition with damp={damp_value:g} would change what is penalised: "
            "give damp=0, or scale A yourself"
        )

    def convert(column: Any) -> Any:
        if type(column) is xp.ndarray and column.dtype == dtype and column.flags.c_contiguous:
            return column
        return xp.ascontiguousarray(xp.asarray(column).astype(dtype, copy=False))

    return Problem(
        matrix=matrix,
        kind=kind,
        xp=xp,
        shape=shape,
        dtype=dtype,
        columns=[convert(column) for column in rhs],
        starts=None if start is None else [convert(column) for column in start],
        single=single,
        damp=damp_value,
        tolerances=tolerances,
        scales=scales,
        observer=observer,
    )


def check_matrix(A: Any) -> tuple[Any, Kind, tuple[int, int], np.dtype[Any] | None]:
    """Return A, what it is, its shape and its type; refuse what is not finite or no matrix."""
    if isinstance(A, PreparedMatrix):
        return A, "prepared", A.shape, A.dtype
    from scipy.sparse.linalg import LinearOperator, aslinearoperator

    kind: Kind
    if is_sparse(A):
        shape = _two_dimensions(A.shape)
        # Formats without one array of values (LIL, DOK) and with padding (DIA) are converted.
        A = A if A.format in {"csr", "csc", "coo"} else A.tocsr()
        kind, values = "sparse", A.data
    elif hasattr(A, "rmatvec"):
        shape = _two_dimensions(A.shape)
        on_device = any(base.__module__.startswith("cupyx") for base in type(A).__mro__)
        operator = A if on_device or isinstance(A, LinearOperator) else aslinearoperator(A)
        dtype = None if operator.dtype is None else np.dtype(operator.dtype)
        return operator, "operator", shape, dtype
    else:
        kind = "dense"
        A = values = array_module(A).asarray(A)
        shape = _two_dimensions(A.shape)
    if values.dtype.kind not in "biufc":
        raise InputError(f"A has the type {values.dtype}: give numbers")
    if not bool(array_module(values).isfinite(values).all()):
        raise InputError("A has entries that are not finite: remove or replace them")
    return A, kind, shape, np.dtype(values.dtype)


def _two_dimensions(shape: tuple[int, ...]) -> tuple[int, int]:
    if len(shape) != 2:
        raise InputError(f"A has the shape {shape}: give a matrix of two dimensions")
    if 0 in shape:
        raise InputError(f"A has the shape {shape}: give at least one row and one column")
    return int(shape[0]), int(shape[1])


def _check_vectors(
    value: Any, length: int, name: str, against: str, must_be_finite: bool
) -> tuple[list[Any], bool]:
    """Return the vectors, each of ``length`` entries, and whether there is only one."""
    xp = array_module(value)
    array = value
    if type(value) is not xp.ndarray or not value.ndim:
        array = xp.atleast_1d(value.toarray() if is_sparse(value) else xp.asarray(value))
    if array.dtype.kind not in "biufc":
        raise InputError(f"{name} has the type {array.dtype}: give numbers")
    if array.ndim > 2 or array.shape[0] != length or (array.ndim == 2 and not array.shape[1]):
        raise InputError(
            f"{name} has the shape {array.shape} and {against} asks for {length}: give "
            f"({length},), ({length}, 1) or ({length}, k)"
        )
    if must_be_finite and not bool(xp.isfinite(array).all()):
        raise InputError(f"{name} has entries that are not finite: remove or replace them")
    columns = [array] if array.ndim == 1 else [array[:, j] for j in range(array.shape[1])]
    return columns, len(columns) == 1


def _working_dtype(*dtypes: np.dtype[Any] | None) -> np.dtype[Any]:
    """Return the narrowest of float32, float64 and their complex kin that holds all inputs."""
    given = [np.dtype(dtype) for dtype in dtypes if dtype is not None]
    given = [np.dtype(np.float64) if dtype.kind in "biu" else dtype for dtype in given]
    dtype = np.result_type(np.float32, *given)
    if dtype.name not in {"float32", "float64", "complex64", "complex128"}:
        raise InputError(f"A, b and x0 need the type {dtype}: give float64 or complex128 at most")
    return dtype


def _check_number(name: str, value: float | None, default: float) -> float:
    if value is None:
        return default
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name}={value!r} is no number: give one, or None") from None
    if not math.isfinite(number) or number < 0:
        raise InputError(f"{name}={number:g}: give a finite number from 0 up, or None")
    return number


def _check_maxiter(value: int | None, shape: tuple[int, int]) -> int:
    if value is None:
        return 5 * min(shape)
    if isinstance(value, bool) or int(value) != value or value < 0:
        raise InputError(f"maxiter={value!r}: give a whole number from 0 up, or None")
    return int(value)


def check_scales(matrix: Any, kind: Kind, n: int, precondition: Any | None) -> Any | None:
    """Return the column scales that a preconditioner means, or None."""
    if precondition is None:
        return None
    if kind == "prepared":
        raise InputError("A is prepared already: give precondition when you prepare it")
    if isinstance(precondition, str):
        if precondition != "columns":
            raise InputError(
                f"precondition={precondition!r}: give 'columns', an array of scales, or None"
            )
        if kind == "operator":
            raise InputError(
                "precondition='columns' needs the entries of A: give an array of scales instead"
            )
        return column_scales(matrix)
    xp = array_module(precondition)
    scales = xp.asarray(precondition, dtype=np.float64)
    if scales.shape != (n,):
        raise InputError(f"precondition has the shape {scales.shape}: give ({n},)")
    if not bool((xp.isfinite(scales) & (scales > 0)).all()):
        raise InputError("precondition has entries that are not positive and finite: replace them")
    return scales


def column_scales(matrix: Any) -> Any:
    r"""Return :math:`1 / \|a_j\|` for every column of A, and 1 where a column is zero.

    The columns of A D then have norm 1, which is within a factor sqrt(n) of the best
    condition number that a diagonal D can give (A. van der Sluis, 1969).
    """
    xp = array_module(matrix)
    if hasattr(matrix, "tocoo"):
        coo = matrix.tocoo()
        values = xp.abs(coo.data).astype(np.float64)
        largest = xp.zeros(matrix.shape[1])
        xp.maximum.at(largest, coo.col, values)
        largest = xp.where(largest > 0, largest, 1.0)
        squares = xp.zeros(matrix.shape[1])
        xp.add.at(squares, coo.col, (values / largest[coo.col]) ** 2)
    else:
        values = xp.abs(matrix).astype(np.float64)
        largest = values.max(axis=0)
        largest = xp.where(largest > 0, largest, 1.0)
        squares = ((values / largest) ** 2).sum(axis=0)
    return 1.0 / (largest * xp.sqrt(xp.where(squares > 0, squares, 1.0)))
