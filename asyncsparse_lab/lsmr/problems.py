"""Least-squares problems with known answers: for tests, and for the study ``lsmr-problems``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from asyncsparse_lab.errors import InputError

Vector = np.ndarray[tuple[int], np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class KnownProblem:
    r"""A problem whose minimiser is known.

    Attributes
    ----------
    matrix : csr_array
        A of shape (m, n).
    b : ndarray
        Right-hand side of shape (m,).
    x : ndarray
        The minimiser of :math:`\|b - A x\|^2 + \mathrm{damp}^2\|x\|^2`.
    damp : float
        The damping that ``x`` belongs to.
    """

    matrix: csr_array
    b: Vector
    x: Vector
    damp: float


def paige_saunders(
    m: int,
    n: int,
    duplicates: int = 1,
    power: int = 1,
    damp: float = 0.0,
    *,
    complex_phases: bool = False,
) -> KnownProblem:
    r"""Return the test problem of Paige and Saunders (ACM TOMS 8(1), 1982, section 8).

    :math:`A = Y D Z` with Householder matrices Y and Z from the vectors
    :math:`\sin(4 \pi i / m)` and :math:`\cos(4 \pi i / n)`, and singular values
    :math:`(\lceil i / \mathrm{duplicates} \rceil \, \mathrm{duplicates} / n)^\mathrm{power}`, so
    that the condition number is about :math:`(n / \mathrm{duplicates})^\mathrm{power}`.  The
    residual is chosen so that :math:`A^H (b - A x) = \mathrm{damp}^2 x` for x = n-1, ..., 0.

    Parameters
    ----------
    m, n : int
        Shape, m >= n.
    duplicates : int
        How often each singular value is repeated.
    power : int
        Exponent of the singular values.
    damp : float
        Damping that x is the solution for.
    complex_phases : bool
        Multiply rows and columns of A by phases, which makes a complex problem of the same
        singular values.

    Raises
    ------
    InputError
        m < n.
    """
    if m < n:
        raise InputError(f"m={m} is below n={n}: give at least as many rows as columns")
    rows, columns = np.arange(1, m + 1), np.arange(1, n + 1)
    y = np.sin(4 * np.pi * rows / m)
    z = np.cos(4 * np.pi * columns / n)
    y /= np.linalg.norm(y)
    z /= np.linalg.norm(z)
    groups = (columns - 1 + duplicates) // duplicates
    singular = (groups * duplicates / n) ** float(power)
    dense = np.zeros((m, n))
    dense[np.arange(n), np.arange(n)] = singular
    dense -= 2 * np.outer(y, y @ dense)
    dense -= 2 * np.outer(dense @ z, z)

    x = (n - columns).astype(float)
    rotated = np.empty(m)
    rotated[:n] = damp**2 * (x - 2 * z * (z @ x)) / singular
    rotated[n:] = (-1.0) ** np.arange(m - n) * rows[n:] / m
    b = dense @ x + (rotated - 2 * y * (y @ rotated))
    if complex_phases:
        left = np.exp(1j * rows)
        right = np.exp(2j * columns)
        return KnownProblem(
            csr_array(left[:, None] * dense * right.conj()), left * b, right * x, damp
        )
    return KnownProblem(csr_array(dense), b, x, damp)
