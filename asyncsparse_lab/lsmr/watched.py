"""Small solves that reach every part of LSMR's kernels: what compute-sanitizer watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from asyncsparse_lab.errors import AsyncSparseError
from asyncsparse_lab.lsmr.geometry import Geometry

if TYPE_CHECKING:
    from asyncsparse_lab.gpu.compile import KernelBuild

PERSISTENT: Final = "lsmr-persistent"
DOCUMENT: Final = "lsmr-document"
WATCHED: Final = (PERSISTENT, DOCUMENT)

_MATRIX: Final = "feeder(buses=3000)"  # its slices fill the rings of a few warps
_ITERATIONS: Final = 4  # each is all of an iteration, and the tool slows it down a thousandfold
_TOLERANCE: Final = {4: 1e-3, 8: 1e-9}
_UPDATES: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"fused": False},
    {"float4": True},
    {"deterministic": True},
)


class Solve(NamedTuple):
    """A geometry of the persistent kernel, the bytes of an element, and right-hand sides."""

    geometry: Geometry
    itemsize: int = 4
    rhs: int = 1

    def build(self, arch: str = "sm_90") -> KernelBuild:
        """Return its compilation."""
        return self.geometry.build(np.dtype(f"f{self.itemsize}"), self.rhs, arch)


def persistent_solves() -> list[Solve]:
    """Return a solve of each way in which the persistent kernel is compiled."""
    streamed = Geometry(2, 96, staged=False, ring_steps=16)
    return [
        Solve(Geometry(8, 96, staged=True, batched=1)),
        Solve(Geometry(16, 96, staged=True, batched=1), itemsize=8),
        Solve(Geometry(4, 96, staged=False, together=2)),
        Solve(Geometry(8, 96, staged=True), rhs=2),
        Solve(Geometry(4, 96, staged=False), rhs=4),
        Solve(Geometry(8, 96, staged=True, batched=2, cluster=True)),
        Solve(streamed),
        Solve(Geometry(2, 96, staged=False, ring_steps=16, units=4)),
        Solve(Geometry(2, 96, staged=False, ring_steps=16, units=4), itemsize=8),
        Solve(Geometry(2, 96, staged=False, ring_steps=32, units=2)),
    ]


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


def faults(name: str) -> Iterator[tuple[str, str]]:
    """Solve everything of a name; yield what was solved, and what is wrong with it, if anything.

    A few iterations of each are held to those of the host.
    """
    from asyncsparse_lab.matrices import load_matrix

    A = load_matrix(_MATRIX)
    b = A @ np.linspace(-1, 1, A.shape[1]) + np.sin(np.arange(A.shape[0]))
    runs: list[tuple[str, int, int, Callable[[Any, Any], Any]]]
    if name == PERSISTENT:
        runs = [
            (str(solve.geometry), solve.itemsize, solve.rhs, partial(_persistent, solve.geometry))
            for solve in persistent_solves()
        ]
    else:
        runs = [(str(options), 4, 1, partial(_document, options)) for options in _UPDATES]
    for label, itemsize, rhs, run in runs:
        dtype = np.dtype(f"f{itemsize}")
        sides = np.stack([b * (column + 1) for column in range(rhs)], axis=1).astype(dtype)
        given = sides[:, 0] if rhs == 1 else sides
        yield f"{label}, {dtype}, {rhs} right-hand sides", _fault(A.astype(dtype), given, run)


def _fault(A: Any, b: Any, run: Callable[[Any, Any], Any]) -> str:
    from asyncsparse_lab.lsmr import lsmr

    expected = np.asarray(lsmr(A, b, backend="host", **_unending()).x)
    try:
        found = np.asarray(run(A, b))
    except AsyncSparseError as error:
        return str(error)
    largest = float(np.abs(found - expected).max() / np.abs(expected).max())
    bound = _TOLERANCE[A.dtype.itemsize]
    # Not "largest > bound", which a NaN would pass.
    return "" if largest <= bound else f"x differs from the host's by {largest:.2g}, not {bound:g}"


def _unending() -> dict[str, Any]:
    return {"maxiter": _ITERATIONS, "atol": 0.0, "btol": 0.0, "conlim": 0.0}


def _persistent(geometry: Geometry, A: Any, b: Any) -> Any:
    import cupy

    from asyncsparse_lab.lsmr import lsmr
    from asyncsparse_lab.lsmr.persistent import prepare

    prepared = prepare(A, A.dtype, geometry=geometry)
    return cupy.asnumpy(lsmr(prepared, cupy.asarray(b), **_unending()).x)


def _document(options: dict[str, Any], A: Any, b: Any) -> Any:
    import cupy

    from asyncsparse_lab.lsmr.document import Context, SolverOptions, SparseMatrix
    from asyncsparse_lab.lsmr.document_solver import Solver

    matrix = SparseMatrix.from_csr(Context(), A, "dual")
    x = cupy.empty(A.shape[1], dtype=cupy.float32)
    limits = SolverOptions(atol=0.0, btol=0.0, conlim=0.0, max_iterations=_ITERATIONS)
    Solver(matrix.context).solve(matrix, cupy.asarray(b), x, replace(limits, **options))
    return cupy.asnumpy(x)
