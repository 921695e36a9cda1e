"""Bands, scattered entries, arrows, heavy rows, and the patterns of optimisation problems."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse import csr_array

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.matrices.generators.base import SEED, Generator, Parameter
from asyncsparse_lab.matrices.generators.sampling import (
    distinct_integers,
    from_flat,
    nonzero_normal,
)


def band(n: int, half_bandwidth: int, fill: float, seed: int) -> csr_array[Any]:
    """Entries at ``|i - j| <= half_bandwidth``, each with probability ``fill``; full diagonal.

    Normal values.
    """
    rng = np.random.default_rng(seed)
    offsets = np.arange(-half_bandwidth, half_bandwidth + 1)
    cols = np.arange(n)[:, None] + offsets
    kept = (cols >= 0) & (cols < n)
    if fill < 1:
        kept &= (rng.random(cols.shape) < fill) | (offsets == 0)
    positions = (cols + n * np.arange(n)[:, None])[kept]
    return from_flat(positions, (n, n), nonzero_normal(rng, positions.size))


def uniform(rows: int, cols: int, density: float, seed: int) -> csr_array[Any]:
    """Exactly ``round(density * rows * cols)`` entries, uniform without replacement; normal."""
    rng = np.random.default_rng(seed)
    count = round(density * rows * cols)
    positions = distinct_integers(rng, rows * cols, count)
    return from_flat(positions, (rows, cols), nonzero_normal(rng, count))


def arrow(n: int, width: int, half_bandwidth: int) -> csr_array[Any]:
    """Band, and the last ``width`` rows and columns dense; -1, with row lengths on the diagonal."""
    if width > n:
        raise InputError(f"arrow: width={width} is above n={n}")
    where = np.arange(n)
    near = np.arange(-half_bandwidth, half_bandwidth + 1)
    rows = [np.repeat(where, near.size)]
    cols = [(where[:, None] + near).ravel()]
    shaft = np.arange(n - width, n)
    for first, second in ((shaft, where), (where, shaft)):
        rows.append(np.repeat(first, second.size))
        cols.append(np.tile(second, first.size))
    row, col = np.concatenate(rows), np.concatenate(cols)
    inside = (col >= 0) & (col < n)
    positions = np.unique(row[inside] * n + col[inside])
    result = from_flat(positions, (n, n), np.full(positions.size, -1.0))
    lengths = np.diff(result.indptr).astype(np.float64)
    result.setdiag(lengths)
    return result


def hub_rows(
    rows: int, cols: int, per_row: int, hubs: int, hub_density: float, seed: int
) -> csr_array[Any]:
    """Short rows of ``per_row`` entries, and ``hubs`` rows filled to ``hub_density``.

    Hubs lie at random places; columns are uniform without replacement in every row; normal.
    """
    if per_row > cols or hubs > rows:
        raise InputError(f"hub_rows: {per_row} in a row of {cols}, {hubs} hubs in {rows} rows")
    rng = np.random.default_rng(seed)
    is_hub = np.zeros(rows, dtype=bool)
    is_hub[rng.choice(rows, hubs, replace=False)] = True
    # A row's columns: one from each of per_row equal strides, shifted together; distinct by
    # construction, and O(entries) where drawing without replacement is O(rows * cols).
    stride = cols / max(per_row, 1)
    slots = np.floor((np.arange(per_row) + rng.random((rows, per_row))) * stride)
    start = rng.integers(0, cols, rows)
    short = (slots.astype(np.int64) + start[:, None]) % cols
    positions = [(short + cols * np.arange(rows)[:, None])[~is_hub].ravel()]
    length = round(hub_density * cols)
    positions += [
        row * cols + distinct_integers(rng, cols, length) for row in np.flatnonzero(is_hub)
    ]
    flat = np.unique(np.concatenate(positions))
    return from_flat(flat, (rows, cols), nonzero_normal(rng, flat.size))


def kkt(
    variables: int, constraints: int, dense: int, per_constraint: int, seed: int
) -> csr_array[Any]:
    r"""Symmetric indefinite system of a quadratic programme.

    .. math:: K = \begin{pmatrix} H & A^T \\ A & 0 \end{pmatrix}

    H is diagonal apart from a dense leading block of order ``dense``; constraint i takes variable
    ``i mod variables`` and ``per_constraint - 1`` others at random.  Order
    ``variables + constraints``.
    """
    if dense > variables or per_constraint > variables:
        raise InputError(
            f"kkt: dense={dense} and per_constraint={per_constraint} are at most"
            f" variables={variables}"
        )
    rng = np.random.default_rng(seed)
    block = rng.standard_normal((dense, dense))
    block = (block + block.T) / 2 + 2 * np.sqrt(dense + 1.0) * np.eye(dense)
    tail = sp.diags_array(1.0 + rng.random(variables - dense))
    hessian = sp.block_diag((sp.coo_array(block), tail)) if variables > dense else block
    row = np.arange(constraints)
    step = rng.integers(1, max(variables // max(per_constraint, 1), 1) + 1, constraints)
    # Multiples of a step that is at most variables / per_constraint never wrap onto themselves.
    cols = (row[:, None] + step[:, None] * np.arange(per_constraint)) % variables
    flat = np.sort((row[:, None] * variables + cols).ravel())
    jacobian = from_flat(flat, (constraints, variables), nonzero_normal(rng, flat.size))
    result = csr_array(sp.block_array([[hessian, jacobian.T], [jacobian, None]], format="csr"))
    result.sort_indices()
    return result


def _clique_sizes(cliques: int, largest: int, exponent: float) -> NDArray[np.int64]:
    sizes: NDArray[np.int64] = np.maximum(
        2, largest * (np.arange(cliques) + 1.0) ** -exponent
    ).astype(np.int64)
    return sizes


def _clique_entries(n: int, cliques: int, largest: int, exponent: float, seed: int) -> float:
    sizes = _clique_sizes(cliques, largest, exponent).astype(np.float64)
    return min(float(n) ** 2, n + float(sizes @ sizes))


def normal_equations(
    n: int, cliques: int, largest: int, exponent: float, seed: int
) -> csr_array[Any]:
    r"""Pattern of :math:`A A^T` for a linear programme with some heavy columns.

    Column j of A has :math:`\max(2, largest \cdot (j + 1)^{-exponent})` entries at random
    rows; each makes a clique of the result.  Symmetric
    positive definite: A has normal values, and the identity is added.
    """
    if largest > n:
        raise InputError(f"normal_equations: largest={largest} is above n={n}")
    rng = np.random.default_rng(seed)
    sizes = _clique_sizes(cliques, largest, exponent)
    columns = [np.sort(rng.choice(n, size, replace=False)) for size in sizes]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    values = nonzero_normal(rng, int(offsets[-1]))
    factor = sp.csc_array((values, np.concatenate(columns), offsets), shape=(n, cliques)).tocsr()
    result = csr_array(factor @ factor.T + sp.eye_array(n))
    result.sort_indices()
    return result


def time_steps(steps: int, dense: int, states: int, coupling: int, seed: int) -> csr_array[Any]:
    """Jacobian of a simulation: per time step a dense network block and sparse states.

    Step t has ``dense`` network unknowns that all couple (a reduced admittance matrix), and
    ``states`` others; each state takes ``coupling`` network unknowns of its step and itself at
    this step and the one before.  Order ``steps (dense + states)``; unsymmetric; normal values.
    """
    if coupling > dense:
        raise InputError(f"time_steps: coupling={coupling} is above dense={dense}")
    rng = np.random.default_rng(seed)
    size = dense + states
    network, state = np.arange(dense), np.arange(dense, size)
    step = rng.integers(1, max(dense // max(coupling, 1), 1) + 1, states)
    taken = (np.arange(states)[:, None] + step[:, None] * np.arange(coupling)) % max(dense, 1)
    rows = np.concatenate((np.repeat(network, dense), np.repeat(state, coupling), state))
    cols = np.concatenate((np.tile(network, dense), taken.ravel(), state))
    base = size * np.arange(steps)[:, None]
    later = (base[1:] + state).ravel()
    order = steps * size
    flat = np.concatenate(
        (((base + rows) * order + base + cols).ravel(), later * order + (later - size))
    )
    flat.sort()
    return from_flat(flat, (order, order), nonzero_normal(rng, flat.size))


_N = Parameter("n", 4096, "order", 1, 100_000_000)

GENERATORS = (
    Generator(
        "band",
        "narrow band",
        band,
        (
            _N,
            Parameter("half_bandwidth", 8, "entries on either side", 0, 100_000),
            Parameter("fill", 1.0, "probability of an entry in the band", 0.0, 1.0),
            SEED,
        ),
        lambda n, half_bandwidth, **_: n * (2 * half_bandwidth + 1),
    ),
    Generator(
        "uniform",
        "entries scattered uniformly",
        uniform,
        (
            Parameter("rows", 4096, "of the matrix", 1, 100_000_000),
            Parameter("cols", 4096, "of the matrix", 1, 100_000_000),
            Parameter("density", 0.01, "non-zeros over rows * cols", 0.0, 1.0),
            SEED,
        ),
        lambda rows, cols, density, seed: rows + 2 * density * rows * cols,
    ),
    Generator(
        "arrow",
        "a band, and the last rows and columns dense",
        arrow,
        (
            _N,
            Parameter("width", 4, "dense rows and columns", 0, 100_000),
            Parameter("half_bandwidth", 1, "of the band", 0, 100_000),
        ),
        lambda n, width, half_bandwidth: n * (2 * (width + half_bandwidth) + 1),
    ),
    Generator(
        "hub_rows",
        "short rows and a few very long ones",
        hub_rows,
        (
            Parameter("rows", 4096, "of the matrix", 1, 100_000_000),
            Parameter("cols", 4096, "of the matrix", 1, 100_000_000),
            Parameter("per_row", 8, "entries of a short row", 0, 100_000),
            Parameter("hubs", 8, "long rows", 0, 100_000),
            Parameter("hub_density", 0.5, "of a long row", 0.0, 1.0),
            SEED,
        ),
        lambda rows, cols, per_row, hubs, **_: rows * (per_row + 1) + hubs * cols,
    ),
    Generator(
        "kkt",
        "system of a quadratic programme: Hessian with a dense block, sparse constraints",
        kkt,
        (
            Parameter("variables", 3000, "unknowns", 1, 10_000_000),
            Parameter("constraints", 1000, "rows of A", 0, 10_000_000),
            Parameter("dense", 200, "order of the dense block of the Hessian", 0, 20_000),
            Parameter("per_constraint", 4, "entries in a row of A", 1, 1000),
            SEED,
        ),
        lambda variables, constraints, dense, per_constraint, seed: (
            2 * (variables + dense**2 + constraints * per_constraint)
        ),
    ),
    Generator(
        "normal_equations",
        "A A^T of a linear programme with heavy columns: overlapping cliques",
        normal_equations,
        (
            Parameter("n", 4000, "order", 2, 10_000_000),
            Parameter("cliques", 4000, "columns of A", 1, 10_000_000),
            Parameter("largest", 400, "entries of the heaviest column", 2, 20_000),
            Parameter("exponent", 0.8, "how fast columns get lighter", 0.0, 10.0),
            SEED,
        ),
        _clique_entries,
    ),
    Generator(
        "time_steps",
        "simulation Jacobian: a dense block a time step, sparse states",
        time_steps,
        (
            Parameter("steps", 8, "time steps", 1, 100_000),
            Parameter("dense", 128, "network unknowns a step, fully coupled", 1, 20_000),
            Parameter("states", 256, "other unknowns a step", 0, 1_000_000),
            Parameter("coupling", 4, "network unknowns in a state's row", 0, 1000),
            SEED,
        ),
        lambda steps, dense, states, coupling, seed: steps * (dense**2 + states * (coupling + 2)),
    ),
)
