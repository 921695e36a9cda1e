"""Graphs with skewed degrees."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.matrices.generators.base import SEED, Generator, Parameter
from asyncsparse_lab.matrices.generators.sampling import (
    from_flat,
    sorted_distinct,
    symmetric_from_pairs,
)


def rmat(scale: int, edge_factor: int, a: float, b: float, c: float, seed: int) -> csr_array[Any]:
    r"""R-MAT: a directed graph of :math:`2^{scale}` vertices with power-law degrees.

    Each of ``edge_factor * 2^scale`` edges descends ``scale`` times into a quadrant of the
    matrix, chosen with probabilities a, b, c, 1 - a - b - c.  Edges that fall together count
    once, so there are fewer non-zeros than edges drawn.  Values are uniform in (0, 1].

    Source: D. Chakrabarti, Y. Zhan, C. Faloutsos. R-MAT: A Recursive Model for Graph Mining.
    SDM 2004; the defaults are those of Graph500.
    """
    if a + b + c > 1:
        raise InputError(f"rmat: a + b + c = {a + b + c:g} is above 1")
    rng = np.random.default_rng(seed)
    edges = edge_factor << scale
    rows = np.zeros(edges, dtype=np.int64)
    cols = np.zeros(edges, dtype=np.int64)
    for _ in range(scale):
        draw = rng.random(edges)
        down = draw >= a + b
        right = ((draw >= a) & ~down) | (draw >= a + b + c)
        rows = 2 * rows + down
        cols = 2 * cols + right
    positions = sorted_distinct((rows << scale) + cols)
    return from_flat(positions, (1 << scale, 1 << scale), 1.0 - rng.random(positions.size))


def power_law_graph(n: int, edges: int, exponent: float, seed: int) -> csr_array[Any]:
    r"""Undirected weighted graph with exactly ``edges`` edges and power-law degrees.

    Vertex i is an end of an edge with a probability in proportion to
    :math:`(i + i_0)^{-1/(exponent - 1)}` (Chung and Lu's model), :math:`i_0 = n / 20` so that
    hubs do not fill up; edges are drawn until there are enough distinct ones.  Vertices are then
    numbered at random.  No diagonal; weights are uniform in (0, 1]; ``2 edges`` non-zeros.

    Source: F. Chung, L. Lu. Connected Components in Random Graphs with Given Expected Degree
    Sequences. Annals of Combinatorics 6, 2002.
    """
    if edges > n * (n - 1) // 4:
        raise InputError(f"power_law_graph: edges={edges} is more than half the pairs of {n}")
    rng = np.random.default_rng(seed)
    # Inverse of the distribution function, in closed form; 1 - gamma > 0 for any exponent > 2.
    offset, power = n / 20, 1.0 - 1.0 / (exponent - 1.0)
    low_end, high_end = offset**power, (n + offset) ** power
    found = np.empty(0, dtype=np.int64)
    accepted = 0.8
    while found.size < edges:
        wanted = edges - found.size
        draw = rng.random((2, int(1.05 * wanted / accepted) + 1024))
        draw *= high_end - low_end
        draw += low_end
        ends = np.minimum(draw ** (1.0 / power) - offset, n - 1).astype(np.int64)
        low, high = np.minimum(ends[0], ends[1]), np.maximum(ends[0], ends[1])
        before = found.size
        found = sorted_distinct(np.concatenate((found, (low * n + high)[low < high])))
        accepted = max((found.size - before) / draw.shape[1], 0.05)
    if found.size > edges:
        found = np.delete(found, rng.choice(found.size, found.size - edges, replace=False))
    number = rng.permutation(n)
    first, second = number[found // n], number[found % n]
    weights = 1.0 - rng.random(edges)
    return symmetric_from_pairs(
        np.minimum(first, second), np.maximum(first, second), weights, np.zeros(n)
    )


GENERATORS = (
    Generator(
        "rmat",
        "directed graph with power-law degrees (R-MAT)",
        rmat,
        (
            Parameter("scale", 12, "log2 of the order", 1, 26),
            Parameter("edge_factor", 16, "edges drawn per vertex", 1, 4096),
            Parameter("a", 0.57, "probability of the upper left quadrant", 0.0, 1.0),
            Parameter("b", 0.19, "of the upper right", 0.0, 1.0),
            Parameter("c", 0.19, "of the lower left", 0.0, 1.0),
            SEED,
        ),
        lambda scale, edge_factor, **_: 2 * edge_factor << scale,
    ),
    Generator(
        "power_law_graph",
        "undirected weighted graph, exact number of edges, power-law degrees",
        power_law_graph,
        (
            Parameter("n", 4096, "vertices", 4, 10_000_000),
            Parameter("edges", 65536, "undirected edges", 1, 10**9),
            Parameter("exponent", 2.5, "of the degree distribution", 2.05, 10.0),
            SEED,
        ),
        lambda n, edges, **_: n + 4 * edges,
    ),
)
