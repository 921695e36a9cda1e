"""Small solves with each of LSMR's kernels: what compute-sanitizer watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse

from asyncsparse_lab.errors import AsyncSparseError
from asyncsparse_lab.lsmr.geometry import Geometry

if TYPE_CHECKING:
    from asyncsparse_lab.gpu.compile import KernelBuild

PERSISTENT: Final = "lsmr-persistent"
DOCUMENT: Final = "lsmr-document"
WATCHED: Final = (PERSISTENT, DOCUMENT)

_FEEDER: Final = "feeder(buses=3000)"  # its slices fill the rings of a few warps
_LONG: Final = 2500  # entries of a row and of a column: they are cut into pieces
_ITERATIONS: Final = 4  # each is all of an iteration, and the tool slows it down a thousandfold
_TOLERANCE: Final = {4: 1e-3, 8: 1e-9}
_WIDE: Final = {"fused": False, "float4": True}
_UPDATES: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"float4": True},
    {"fused": False},
    _WIDE,
    {"deterministic": True},
)


@dataclass(frozen=True)
class Solve:
    """A geometry of the persistent kernel, the bytes of an element, and what is solved.

    Attributes
    ----------
    rhs : int
        Right-hand sides, none a multiple of another.
    given : mapping
        Further arguments of the solver: a start, damping.
    scaled : bool
        Whether columns are scaled.
    """

    geometry: Geometry
    itemsize: int = 4
    rhs: int = 1
    given: dict[str, Any] = field(default_factory=dict)
    scaled: bool = False

    @property
    def label(self) -> str:
        """What it is, in words."""
        more = f"{self.rhs} right-hand sides, {', '.join(self.given) or 'nothing'} given"
        return f"{self.geometry}, {8 * self.itemsize} bits, {more}, scaled: {self.scaled}"

    def build(self, arch: str = "sm_90") -> KernelBuild:
        """Return its compilation."""
        return self.geometry.build(np.dtype(f"f{self.itemsize}"), self.rhs, arch)


def persistent_solves() -> list[Solve]:
    """Return a solve of each way in which the persistent kernel is compiled, and a few more."""
    streamed = _geometry(2, staged=False, ring_steps=16)
    shared = replace(streamed, units=4)
    return [
        Solve(_geometry(8, batched=1)),
        Solve(_geometry(8, batched=1), given={"x0": 1.0}, scaled=True),
        Solve(_geometry(16, batched=1), itemsize=8),
        Solve(_geometry(4, staged=False, together=2)),
        Solve(_geometry(8), rhs=2),
        Solve(_geometry(4, staged=False), rhs=4),
        Solve(_geometry(8, batched=2, cluster=True)),
        Solve(streamed),
        Solve(shared, given={"damp": 0.1}),
        Solve(shared, itemsize=8),
        Solve(replace(streamed, ring_steps=32, units=2)),
    ]


def _geometry(blocks: int, staged: bool = True, **more: Any) -> Geometry:
    return Geometry(blocks, 96, staged, watched=True, **more)


def kernel_builds(name: str, arch: str = "sm_90") -> list[KernelBuild]:
    """Return the compilations that the solves of a name launch, each once."""
    from asyncsparse_lab.lsmr.updates import update_builds

    if name == DOCUMENT:
        return update_builds(arch)
    builds: list[KernelBuild] = []
    for solve in persistent_solves():
        if (build := solve.build(arch)) not in builds:
            builds.append(build)
    return builds


@cache
def watched_matrix() -> Any:
    """Return A, m x n in CSR: short rows, one long row and one long column."""
    from asyncsparse_lab.matrices import load_matrix

    A = load_matrix(_FEEDER)
    m, n = A.shape
    row, column = np.zeros(n), np.zeros(m + 1)
    row[:: n // _LONG] = 1e-2
    column[:: m // _LONG] = 1e-2
    column[0] = 1.0
    taller = sparse.vstack([A, sparse.csr_array(row[None, :])])
    return sparse.csr_array(sparse.hstack([taller, sparse.csr_array(column[:, None])]))


def faults(name: str) -> Iterator[tuple[str, str]]:
    """Solve everything of a name; yield what was solved, and what is wrong with it, if anything.

    A few iterations of each are held to those of the host, and to the same solve once more.
    """
    rng = np.random.default_rng(0)
    if name == PERSISTENT:
        for solve in persistent_solves():
            dtype = np.dtype(f"f{solve.itemsize}")
            A = watched_matrix().astype(dtype)
            b = rng.standard_normal((A.shape[0], solve.rhs)).astype(dtype)
            given = {key: np.full(A.shape[1], value) if key == "x0" else value
                     for key, value in solve.given.items()}  # fmt: skip
            scaled = {"precondition": "columns"} if solve.scaled else {}
            run = partial(_persistent, solve.geometry, given, scaled)
            yield solve.label, _fault(A, b[:, 0] if solve.rhs == 1 else b, run, given | scaled)
        return
    A = watched_matrix().astype(np.float32)
    b = rng.standard_normal(A.shape[0]).astype(np.float32)
    for options in _UPDATES:
        yield f"dense b, {options}", _fault(A, b, partial(_document, options), {})
    few = np.where(np.abs(b) < 2, 0, b)
    yield "sparse b", _fault(A, few, _of_sparse_b, {})


def _fault(A: Any, b: Any, run: Callable[[Any, Any], Any], given: dict[str, Any]) -> str:
    from asyncsparse_lab.lsmr import lsmr

    expected = np.asarray(lsmr(A, b, backend="host", **given, **_unending()).x)
    try:
        found, again = (np.asarray(run(A, b)) for _ in range(2))
    except AsyncSparseError as error:
        return str(error)
    bound = _TOLERANCE[A.dtype.itemsize]
    for which, x in (("", found), ("solved again, ", again)):
        largest = float(np.abs(x - expected).max() / np.abs(expected).max())
        if not largest <= bound:  # as a NaN does
            return f"{which}x differs from the host's by {largest:.2g}, not {bound:g}"
    return ""


def _unending() -> dict[str, Any]:
    return {"maxiter": _ITERATIONS, "atol": 0.0, "btol": 0.0, "conlim": 0.0}


def _persistent(
    geometry: Geometry, given: dict[str, Any], scaled: dict[str, Any], A: Any, b: Any
) -> Any:
    import cupy

    from asyncsparse_lab.lsmr import lsmr
    from asyncsparse_lab.lsmr.persistent import prepare

    prepared = prepare(A, A.dtype, geometry=geometry, **scaled)
    return cupy.asnumpy(lsmr(prepared, cupy.asarray(b), **given, **_unending()).x)


def _of_sparse_b(A: Any, b: Any) -> Any:
    return _document(_WIDE, A, sparse.csc_array(b[:, None]))


def _document(options: dict[str, Any], A: Any, b: Any) -> Any:
    import cupy

    from asyncsparse_lab.lsmr.document import Context, SolverOptions, SparseMatrix
    from asyncsparse_lab.lsmr.document_solver import Solver

    matrix = SparseMatrix.from_csr(Context(), A, "dual")
    x = cupy.empty(A.shape[1], dtype=cupy.float32)
    limits = SolverOptions(atol=0.0, btol=0.0, conlim=0.0, max_iterations=_ITERATIONS)
    Solver(matrix.context).solve(matrix, b, x, replace(limits, **options))
    return cupy.asnumpy(x)
