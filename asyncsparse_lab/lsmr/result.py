"""What a solve returns: the solution, why it stopped, and what was recomputed to check it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class StopCode(IntEnum):
    """Why the iteration stopped; the numbers are SciPy's, and each has one meaning."""

    STARTS_SOLVED = 0
    CONSISTENT = 1
    LEAST_SQUARES = 2
    CONDITION_LIMIT = 3
    CONSISTENT_AT_ROUNDING = 4
    LEAST_SQUARES_AT_ROUNDING = 5
    CONDITION_AT_ROUNDING = 6
    ITERATION_LIMIT = 7

    @property
    def text(self) -> str:
        """One line for people."""
        return _TEXTS[self]

    @property
    def is_solved(self) -> bool:
        """Whether the code claims a solution; 3, 6 and 7 do not."""
        return self in _SOLVED


_TEXTS = {
    StopCode.STARTS_SOLVED: "x = 0, or the x0 that was given, is the solution",
    StopCode.CONSISTENT: "A x = b holds to atol and btol",
    StopCode.LEAST_SQUARES: "x solves the least-squares problem to atol",
    StopCode.CONDITION_LIMIT: "the estimated condition number passed conlim",
    StopCode.CONSISTENT_AT_ROUNDING: "A x = b holds to machine precision",
    StopCode.LEAST_SQUARES_AT_ROUNDING: "x solves the least-squares problem to machine precision",
    StopCode.CONDITION_AT_ROUNDING: "the estimated condition number passed 1 / machine epsilon",
    StopCode.ITERATION_LIMIT: "the iteration limit was reached before any test was met",
}
_SOLVED = frozenset(
    {
        StopCode.STARTS_SOLVED,
        StopCode.CONSISTENT,
        StopCode.LEAST_SQUARES,
        StopCode.CONSISTENT_AT_ROUNDING,
        StopCode.LEAST_SQUARES_AT_ROUNDING,
    }
)


@dataclass(frozen=True, slots=True)
class Progress:
    """The state after one iteration, as a callback receives it.

    Attributes
    ----------
    column : int
        Index of the right-hand side.
    itn : int
        Iterations done, from 1.
    normr, normar, norma, conda, normx : float
        The recurrence's estimates, in the meaning of :class:`LsmrResult`.
    """

    column: int
    itn: int
    normr: float
    normar: float
    norma: float
    conda: float
    normx: float


@dataclass(frozen=True, slots=True)
class LsmrResult:
    r"""Solution of :math:`\min \|b - A x\|^2 + \mathrm{damp}^2 \|x - x_0\|^2`.

    Unpacks and indexes like the tuple of :func:`scipy.sparse.linalg.lsmr`
    ``(x, istop, itn, normr, normar, norma, conda, normx)``.  For a right-hand side of shape
    ``(m, k)`` with k > 1, ``x`` has shape ``(n, k)`` and every number below is an array of k.

    Attributes
    ----------
    x : ndarray
        Solution, of shape ``(n,)`` or ``(n, k)``, in the module (NumPy or CuPy) of b.
    istop : int
        A :class:`StopCode`.
    itn : int
        Iterations done.
    normr : float
        Estimate of the norm of ``(b - A x, damp (x - x0))``.
    normar : float
        Estimate of :math:`\|A^H (b - A x) - \mathrm{damp}^2 (x - x_0)\|`; with column scaling D
        of :math:`\|D A^H (b - A x)\|`.
    norma : float
        Estimate of the Frobenius norm of A (of A D), damping rows included.
    conda : float
        Lower bound of the condition number of A (of A D); it can be far too small.
    normx : float
        Norm of x; with column scaling that of :math:`D^{-1} x`, which the tests use.
    true_normr, true_normar : float
        The same two norms for A itself, recomputed in FP64 from x at the stop.
    true_normar_scaled : float
        Recomputed norm of :math:`D A^H (b - A x)`; equals ``true_normar`` without scaling.
    confirmed : bool
        Whether the recomputed norms pass the test that the recurrence stopped at, up to a
        tenth of the tolerance and the rounding of the data's precision.
    backend, reason : str
        What solved it, and why that was chosen.
    launches, host_syncs : int
        Kernels started and times that the host waited during the iteration; 0 on the CPU.
    device_bytes : int
        Device memory held for the solve.
    """

    x: Any
    istop: Any
    itn: Any
    normr: Any
    normar: Any
    norma: Any
    conda: Any
    normx: Any
    true_normr: Any
    true_normar: Any
    true_normar_scaled: Any
    confirmed: Any
    backend: str
    reason: str
    launches: int = 0
    host_syncs: int = 0
    device_bytes: int = 0

    def _as_tuple(self) -> tuple[Any, ...]:
        return (
            self.x,
            self.istop,
            self.itn,
            self.normr,
            self.normar,
            self.norma,
            self.conda,
            self.normx,
        )

    def __iter__(self) -> Iterator[Any]:
        """Iterate over SciPy's eight values."""
        return iter(self._as_tuple())

    def __len__(self) -> int:
        """Eight, as SciPy's tuple."""
        return 8

    def __getitem__(self, index: int | slice) -> Any:
        """Index as SciPy's tuple."""
        return self._as_tuple()[index]

    def codes(self) -> list[StopCode]:
        """Return the stop code of each right-hand side."""
        codes = [self.istop] if isinstance(self.istop, int) else list(self.istop)
        return [StopCode(int(code)) for code in codes]

    @property
    def converged(self) -> bool:
        """Whether every right-hand side stopped at a solution that the true norms confirm."""
        confirmed = [self.confirmed] if isinstance(self.confirmed, bool) else self.confirmed
        return all(code.is_solved for code in self.codes()) and all(confirmed)

    def summary(self) -> str:
        """Return a few lines for people: what was reached, and whether it holds."""
        codes = self.codes()
        single = len(codes) == 1

        def value(values: Any, column: int) -> Any:
            return values if single else values[column]

        lines = []
        for column, code in enumerate(codes):
            lines.append(
                f"lsmr ({self.backend}): stop code {int(code)}, {code.text}"
                + ("" if single else f" (right-hand side {column})")
            )
            lines.append(
                f"  iterations {value(self.itn, column)}   "
                f"|r| {value(self.normr, column):.7g} (recomputed "
                f"{value(self.true_normr, column):.7g})   "
                f"|A'r| {value(self.normar, column):.3g} (recomputed "
                f"{value(self.true_normar_scaled, column):.3g})"
            )
            if code.is_solved and not value(self.confirmed, column):
                lines.append("  the recomputed norms do not confirm this: x is not a solution")
        return "\n".join(lines)
