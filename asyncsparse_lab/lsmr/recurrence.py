r"""The scalars of LSMR in FP64: two plane rotations an iteration, estimates and tests.

LSMR (D. C.-L. Fong and M. Saunders, SIAM J. Sci. Comput. 33(5), 2011) runs Golub-Kahan
bidiagonalisation, :math:`\beta u = A v - \alpha u`, :math:`\alpha v = A^H u - \beta v`, and
solves the small problem with two QR factorisations that are updated by rotations.  The names
below are the paper's.  The tests are written without divisions, so that a zero right-hand
side, an exact solution or a zero gradient need no special case.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from asyncsparse_lab.lsmr.result import StopCode

EPSILON = 2.0**-52


@dataclass(frozen=True, slots=True)
class Tolerances:
    """When to stop.

    Attributes
    ----------
    atol, btol : float
        Relative errors of A and b that the user accepts.
    conlim : float
        Limit of the condition number; 0 means none.
    maxiter : int
        Iteration limit.
    """

    atol: float
    btol: float
    conlim: float
    maxiter: int


def plane_rotation(a: float, b: float) -> tuple[float, float, float]:
    """Return c, s, r with ``[c s; s -c] [a; b] = [r; 0]``, without overflow.

    r is not negative: the stable form of S. Choi's thesis (Stanford, 2006), as in SciPy and CuPy.
    """
    if b == 0:
        return (math.copysign(1.0, a) if a else 0.0), 0.0, abs(a)
    if a == 0:
        return 0.0, math.copysign(1.0, b), abs(b)
    if abs(b) > abs(a):
        tau = a / b
        s = math.copysign(1.0, b) / math.sqrt(1.0 + tau * tau)
        return s * tau, s, b / s
    tau = b / a
    c = math.copysign(1.0, a) / math.sqrt(1.0 + tau * tau)
    return c, c * tau, a / c


def stop_code(
    itn: int,
    normb: float,
    normr: float,
    normar: float,
    norma: float,
    conda: float,
    normx: float,
    tolerances: Tolerances,
) -> StopCode | None:
    r"""Return the code of the strongest test that is met, or None.

    1: :math:`\|r\| \le btol\,\|b\| + atol\,\|A\|\|x\|`; 2: :math:`\|A^H r\| \le atol\,\|A\|\|r\|`;
    3: cond(A) >= conlim; 4, 5, 6: the same with machine epsilon; 7: the iteration limit.
    """
    size = normb + norma * normx
    if normr <= tolerances.btol * normb + tolerances.atol * norma * normx:
        return StopCode.CONSISTENT
    if normar <= tolerances.atol * norma * normr:
        return StopCode.LEAST_SQUARES
    if tolerances.conlim > 0 and conda >= tolerances.conlim:
        return StopCode.CONDITION_LIMIT
    if normr <= EPSILON / 2 * size:
        return StopCode.CONSISTENT_AT_ROUNDING
    if normar <= EPSILON / 2 * norma * normr:
        return StopCode.LEAST_SQUARES_AT_ROUNDING
    if conda >= 2 / EPSILON:
        return StopCode.CONDITION_AT_ROUNDING
    return StopCode.ITERATION_LIMIT if itn >= tolerances.maxiter else None


class Recurrence:
    """Scalars of one right-hand side.

    Parameters
    ----------
    alpha, beta : float
        Norms of the first two vectors of the bidiagonalisation.
    damp : float
        Damping.
    """

    def __init__(self, alpha: float, beta: float, damp: float) -> None:
        self.alpha, self.beta, self.damp = alpha, beta, damp
        self.zetabar = alpha * beta
        self.alphabar = alpha
        self.rho = self.rhobar = self.cbar = 1.0
        self.sbar = self.zeta = 0.0
        # For the estimate of the residual's norm.
        self.betadd, self.betad = beta, 0.0
        self.rhodold = 1.0
        self.tautildeold = self.thetatilde = self.d = 0.0
        # For the estimates of the norm and the condition of A.
        self.norma_squared = alpha * alpha
        self.maxrbar, self.minrbar = 0.0, math.inf
        self.itn = 0
        self.normr, self.normar = beta, abs(self.zetabar)
        self.norma, self.conda = alpha, 1.0

    def advance(self, beta: float, alpha: float) -> tuple[float, float, float]:
        """Take one iteration's norms; return what the vector updates need.

        Returns
        -------
        (float, float, float)
            Factors of ``hbar = h - f0 hbar``, ``x = x + f1 hbar``, ``h = v - f2 h``.
        """
        self.itn += 1
        self.alpha, self.beta = alpha, beta
        chat, shat, alphahat = plane_rotation(self.alphabar, self.damp)

        # The first QR factorisation: of the lower bidiagonal matrix B_k.
        rhoold = self.rho
        c, s, self.rho = plane_rotation(alphahat, beta)
        thetanew = s * alpha
        self.alphabar = c * alpha

        # The second: of R_k transposed.
        rhobarold, zetaold = self.rhobar, self.zeta
        thetabar = self.sbar * self.rho
        rhotemp = self.cbar * self.rho
        self.cbar, self.sbar, self.rhobar = plane_rotation(rhotemp, thetanew)
        self.zeta = self.cbar * self.zetabar
        self.zetabar = -self.sbar * self.zetabar

        self._estimate_normr(chat, shat, c, s, thetabar, zetaold)

        self.norma_squared += beta * beta
        self.norma = math.sqrt(self.norma_squared)
        self.norma_squared += alpha * alpha

        # rhobar begins as 1, which is no singular value of A: SciPy takes it for one, and with
        # |A| < 1 / conlim its estimate of the condition ends the first iteration.
        if self.itn > 1:
            self.maxrbar = max(self.maxrbar, rhobarold)
            self.minrbar = min(self.minrbar, rhobarold)
        smallest = min(self.minrbar, rhotemp)
        self.conda = max(self.maxrbar, rhotemp) / smallest if smallest > 0 else math.inf
        self.normar = abs(self.zetabar)

        return (
            thetabar * self.rho / (rhoold * rhobarold),
            self.zeta / (self.rho * self.rhobar),
            thetanew / self.rho,
        )

    def _estimate_normr(
        self, chat: float, shat: float, c: float, s: float, thetabar: float, zetaold: float
    ) -> None:
        """Update the estimate of the residual's norm, damping rows included."""
        betaacute = chat * self.betadd
        betacheck = -shat * self.betadd
        betahat = c * betaacute
        self.betadd = -s * betaacute

        thetatildeold = self.thetatilde
        ctilde, stilde, rhotildeold = plane_rotation(self.rhodold, thetabar)
        self.thetatilde = stilde * self.rhobar
        self.rhodold = ctilde * self.rhobar
        self.betad = -stilde * self.betad + ctilde * betahat

        self.tautildeold = (zetaold - thetatildeold * self.tautildeold) / rhotildeold
        taud = (self.zeta - self.thetatilde * self.tautildeold) / self.rhodold
        self.d += betacheck * betacheck
        self.normr = math.sqrt(self.d + (self.betad - taud) ** 2 + self.betadd**2)
