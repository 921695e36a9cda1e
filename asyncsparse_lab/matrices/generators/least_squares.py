"""Least-squares problems with known answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse import csr_array

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.matrices.generators.base import Generator, Parameter


def feeder(
    buses: int, voltage_weight: float, flow_weight: float, branching: float, seed: int
) -> csr_array[Any]:
    r"""Measurement matrix of a radial three-phase feeder, a full-rank least-squares problem.

    Three unknowns a bus.  A branch from bus p to bus i gives three flow measurements,
    :math:`w_f Y (x_i - x_p) / r`, with the 3 x 3 admittance Y of coupled phases and a
    log-normal impedance r; every unknown is also measured by itself with weight
    :math:`w_v`.  Bus i hangs on its predecessor, or with probability ``branching`` on any
    earlier bus.  Shape (6 buses - 3, 3 buses); 18 (buses - 1) + 3 buses non-zeros; the smaller
    ``voltage_weight``, the larger the condition number.
    """
    rng = np.random.default_rng(seed)
    parent = np.empty(buses, dtype=np.int64)
    for bus in range(1, buses):
        along = rng.random() > branching
        parent[bus] = bus - 1 if along else rng.integers(0, bus)
    branches = buses - 1
    impedance = np.exp(rng.normal(0.0, 0.5, branches))
    coupled = np.full((3, 3), 0.3) + 0.7 * np.eye(3)
    admittance = np.linalg.inv(coupled) * flow_weight

    # Rows as they lie in CSR: a branch's three have 3 entries of the far bus, which was there
    # before, and 3 of the near one.
    phases = np.arange(3)
    flows, unknowns = 3 * branches, 3 * buses
    indices = np.empty(18 * branches + unknowns, dtype=np.int64)
    values = np.empty(indices.size)
    of_flow = indices[: 18 * branches].reshape(branches, 3, 2, 3)
    of_flow[:, :, 0] = (3 * parent[1:, None] + phases)[:, None]
    of_flow[:, :, 1] = (3 * np.arange(1, buses)[:, None] + phases)[:, None]
    indices[18 * branches :] = np.arange(unknowns)
    flow = values[: 18 * branches].reshape(branches, 3, 2, 3)
    flow[:, :, 1] = admittance / impedance[:, None, None]
    flow[:, :, 0] = -flow[:, :, 1]
    values[18 * branches :] = voltage_weight
    indptr = np.empty(flows + unknowns + 1, dtype=np.int64)
    indptr[: flows + 1] = 6 * np.arange(flows + 1)
    indptr[flows + 1 :] = 6 * flows + np.arange(1, unknowns + 1)
    result = csr_array((values, indices, indptr), shape=(flows + unknowns, unknowns))
    result.has_sorted_indices = result.has_canonical_format = True
    return result


def right_hand_side(
    matrix: csr_array[Any], relative_residual: float, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r"""Return b and the exact solution x of :math:`\min \|A x - b\|` with a given residual.

    :math:`b = A x + e` with normal x and an e that is orthogonal to the columns of A, scaled
    so that :math:`\|A x - b\| / \|b\|` equals ``relative_residual``.

    Parameters
    ----------
    matrix : csr_array of shape (m, n), m > n, full rank
    relative_residual : float
        In [0, 1).
    seed : int

    Returns
    -------
    (b, x) : float64 arrays of length m and n

    Raises
    ------
    InputError
        The residual is outside [0, 1), or the matrix has no more rows than columns.
    """
    import scipy.sparse.linalg

    rows, cols = matrix.shape
    if not 0 <= relative_residual < 1:
        raise InputError(f"relative_residual={relative_residual!r} is outside [0, 1)")
    if rows <= cols:
        raise InputError(f"a matrix of {rows} x {cols} leaves no residual: more rows are needed")
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(cols)
    image = matrix @ x
    noise = rng.standard_normal(rows)
    normal = scipy.sparse.linalg.splu(sp.csc_array(matrix.T @ matrix))
    # The second projection removes what rounding left of the first.
    for _ in range(2):
        noise = noise - matrix @ normal.solve(matrix.T @ noise)
    length = relative_residual / np.sqrt(1 - relative_residual**2) * np.linalg.norm(image)
    return image + noise * (length / np.linalg.norm(noise)), x


GENERATORS = (
    Generator(
        "feeder",
        "measurements of a radial three-phase feeder: stand-in of the LSMR problems",
        feeder,
        (
            Parameter("buses", 2059, "of the feeder; three unknowns each", 2, 10_000_000),
            Parameter("voltage_weight", 0.3, "of direct measurements", 1e-6, 1e6),
            Parameter("flow_weight", 1.0, "of flow measurements", 1e-6, 1e6),
            Parameter("branching", 0.25, "probability of a side branch", 0.0, 1.0),
            Parameter("seed", 1, "of numpy's default_rng", 0, 2**63 - 1),
        ),
        lambda buses, **_: 21 * buses,
    ),
)
