"""Matrices of discretised differential equations."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse import csr_array

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.matrices.generators.base import SEED, Generator, Parameter, Value
from asyncsparse_lab.matrices.generators.sampling import dominant_diagonal, symmetric_from_pairs


def stencil(sides: tuple[int, ...], box: bool) -> csr_array[Any]:
    r"""Negative Laplacian on a grid with zero boundary values.

    A star takes the 2 d nearest neighbours, with -1 each and 2 d on the diagonal; a box takes all
    :math:`3^d - 1` neighbours, with -1 each and :math:`3^d - 1` on the diagonal.  The last
    coordinate runs fastest.
    """
    if box:
        ones: Any = csr_array(np.ones((1, 1)))
        for side in sides:
            near = sp.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(side, side))
            ones = sp.kron(ones, near, format="csr")
        centre = sp.eye_array(ones.shape[0], format="csr") * 3.0 ** len(sides)
        result = csr_array(centre - ones)
    else:
        result = csr_array((1, 1), dtype=np.float64)
        for side in sides:
            line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(side, side))
            result = csr_array(
                sp.kron(result, sp.eye_array(side)) + sp.kron(sp.eye_array(result.shape[0]), line)
            )
    result.eliminate_zeros()
    result.sort_indices()
    return result


def stencil2d(nx: int, ny: int, points: int) -> csr_array[Any]:
    """5- or 9-point Laplacian of order nx * ny; see :func:`stencil`."""
    return stencil((nx, ny), box=points == 9)


def stencil3d(nx: int, ny: int, nz: int, points: int) -> csr_array[Any]:
    """7- or 27-point Laplacian of order nx * ny * nz; see :func:`stencil`."""
    return stencil((nx, ny, nz), box=points == 27)


def _hexahedron_stiffness(poisson: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    r"""Stiffness of the trilinear unit cube, Young's modulus 1: 24 x 24.

    :math:`K = \int B^T D B`, by 2 x 2 x 2 Gauss points, exact for this element.
    """
    lame = poisson / ((1 + poisson) * (1 - 2 * poisson))
    shear = 0.5 / (1 + poisson)
    elastic = np.diag([2 * shear] * 3 + [shear] * 3)
    elastic[:3, :3] += lame
    corners = np.array(list(product((-1.0, 1.0), repeat=3)))
    stiffness = np.zeros((24, 24))
    for point in corners / np.sqrt(3.0):
        # Derivatives of N = (1 + x x_i)(1 + y y_i)(1 + z z_i) / 8, with d/dx = 2 d/dxi on [0, 1].
        factors = 1.0 + corners * point
        gradient = np.stack(
            [corners[:, d] * np.delete(factors, d, axis=1).prod(axis=1) / 4 for d in range(3)]
        )
        strain = np.zeros((6, 24))
        for d in range(3):
            strain[d, d::3] = gradient[d]
        for row, (first, second) in enumerate(((0, 1), (1, 2), (0, 2)), start=3):
            strain[row, first::3] = gradient[second]
            strain[row, second::3] = gradient[first]
        stiffness += strain.T @ elastic @ strain / 8
    return stiffness


def elasticity3d(nx: int, ny: int, nz: int, poisson: float) -> csr_array[Any]:
    """Linear elasticity of a bar of nx x ny x nz cubes, clamped at one end: 3 x 3 blocks.

    Trilinear hexahedra of side 1 and Young's modulus 1; three displacements a node, numbered
    together.  Order 3 nx (ny + 1) (nz + 1); symmetric positive definite.
    """
    element = _hexahedron_stiffness(poisson)
    nodes = np.arange((nx + 1) * (ny + 1) * (nz + 1)).reshape(nx + 1, ny + 1, nz + 1)
    corners = np.stack(
        [
            nodes[i : i + nx, j : j + ny, k : k + nz].ravel()
            for i, j, k in product((0, 1), repeat=3)
        ],
        axis=1,
    )
    unknowns = (3 * corners[:, :, None] + np.arange(3)).reshape(corners.shape[0], 24)
    rows = np.repeat(unknowns, 24, axis=1).ravel()
    cols = np.tile(unknowns, (1, 24)).ravel()
    values = np.tile(element.ravel(), corners.shape[0])
    order = 3 * nodes.size
    full = sp.coo_array((values, (rows, cols)), shape=(order, order)).tocsr()
    clamped = 3 * (ny + 1) * (nz + 1)
    # Sums that cancel in exact arithmetic leave about 1e-17: zero in the matrix that is meant.
    free = csr_array(full[clamped:, clamped:])
    free.data[np.abs(free.data) < 1e-14] = 0.0
    free.eliminate_zeros()
    free.sort_indices()
    return free


def point_cloud(
    nodes: int, links: int, block: int, dimension: int, symmetry: str, seed: int
) -> csr_array[Any]:
    """Unstructured mesh-like matrix: scattered nodes, coupled to their nearest neighbours.

    ``nodes`` points, one in each of as many equal-sized cells of a box as there are, jittered;
    the ``links`` closest pairs are coupled.  Every node carries ``block`` unknowns and every
    coupling is a full block, so there are exactly ``block^2 (nodes + 2 links)`` non-zeros.
    Nodes are numbered along the box, cell layer by cell layer.  Symmetric values are positive
    definite by dominance of the diagonal.
    """
    from scipy.spatial import cKDTree

    if links > nodes * (nodes - 1) // 2:
        raise InputError(f"point_cloud: links={links} is more than the pairs of {nodes} nodes")
    rng = np.random.default_rng(seed)
    side = int(np.ceil(nodes ** (1 / dimension)))
    cells = np.stack(np.unravel_index(np.arange(nodes), (side,) * dimension), axis=1)
    points = cells + rng.uniform(-0.35, 0.35, cells.shape)
    tree = cKDTree(points)
    radius = 1.0
    pairs = tree.query_pairs(radius, output_type="ndarray")
    while len(pairs) < links:
        radius *= 1.15
        pairs = tree.query_pairs(radius, output_type="ndarray")
    distance = np.linalg.norm(points[pairs[:, 0]] - points[pairs[:, 1]], axis=1)
    # lexsort, not argpartition: ties are broken by number, on every machine alike
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0], distance))[:links]].astype(np.int64)
    low, high = pairs.min(axis=1), pairs.max(axis=1)

    inside = np.arange(block)
    first, second = np.meshgrid(inside, inside, indexing="ij")
    rows = (block * low[:, None] + first.ravel()).ravel()
    cols = (block * high[:, None] + second.ravel()).ravel()
    upper = first < second
    own_rows = (block * np.arange(nodes)[:, None] + first[upper]).ravel()
    own_cols = (block * np.arange(nodes)[:, None] + second[upper]).ravel()
    rows, cols = np.concatenate((rows, own_rows)), np.concatenate((cols, own_cols))
    values = rng.uniform(-1.0, -0.1, rows.size)
    diagonal = dominant_diagonal(rows, cols, values, nodes * block)
    result = symmetric_from_pairs(rows, cols, values, diagonal)
    if symmetry == "pattern":
        result.data *= rng.uniform(0.5, 1.5, result.nnz)
    return result


def _side(name: str, default: Value) -> Parameter:
    return Parameter(name, default, "points along this side", 1, 100_000)


def _cubes(name: str, default: Value) -> Parameter:
    return Parameter(name, default, "cubes along this side", 1, 1000)


GENERATORS = (
    Generator(
        "stencil2d",
        "Laplacian on a 2-D grid, 5 or 9 points",
        stencil2d,
        (
            _side("nx", 64),
            _side("ny", 64),
            Parameter("points", 5, "of the stencil", choices=(5, 9)),
        ),
        lambda nx, ny, points: nx * ny * points,
    ),
    Generator(
        "stencil3d",
        "Laplacian on a 3-D grid, 7 or 27 points",
        stencil3d,
        (
            _side("nx", 16),
            _side("ny", 16),
            _side("nz", 16),
            Parameter("points", 7, "of the stencil", choices=(7, 27)),
        ),
        lambda nx, ny, nz, points: nx * ny * nz * points,
    ),
    Generator(
        "elasticity3d",
        "3-D linear elasticity of a clamped bar, 3x3 blocks",
        elasticity3d,
        (
            _cubes("nx", 12),
            _cubes("ny", 6),
            _cubes("nz", 6),
            Parameter("poisson", 0.3, "Poisson's ratio", 0.0, 0.49),
        ),
        lambda nx, ny, nz, poisson: 576 * nx * ny * nz,
    ),
    Generator(
        "point_cloud",
        "unstructured mesh: scattered nodes coupled to their nearest, dense blocks",
        point_cloud,
        (
            Parameter("nodes", 1000, "points", 2, 10_000_000),
            Parameter("links", 6000, "coupled pairs of nodes", 1, 10**9),
            Parameter("block", 3, "unknowns at a node", 1, 64),
            Parameter("dimension", 3, "of the space", choices=(1, 2, 3)),
            Parameter(
                "symmetry", "full", "of values or of the pattern only", choices=("full", "pattern")
            ),
            SEED,
        ),
        lambda nodes, links, block, **_: block**2 * (nodes + 4 * links),
    ),
)
