"""Generators: what they make, and what they refuse before making anything."""

from __future__ import annotations

import time

import numpy as np
import pytest
import scipy.sparse as sp

from asyncsparse_lab.errors import InputError, MemoryLimitError
from asyncsparse_lab.matrices import (
    GENERATORS,
    SHORT_FORMS,
    find_call,
)


def build(text):
    call = find_call(text)
    assert call is not None
    return call.build()


@pytest.mark.parametrize("name", GENERATORS)
def test_default_is_canonical_and_repeatable(name):
    call = GENERATORS[name].call({})
    matrix = call.build()
    assert isinstance(matrix, sp.csr_array)
    assert matrix.dtype == np.float64
    assert matrix.indices.dtype == matrix.indptr.dtype == np.int32
    assert matrix.nnz > 0
    assert np.all(matrix.data != 0)
    assert np.all(np.isfinite(matrix.data))
    keys = np.repeat(np.arange(matrix.shape[0]) * matrix.shape[1], np.diff(matrix.indptr))
    keys = keys + matrix.indices
    assert np.all(np.diff(keys) > 0), "rows must be sorted and free of duplicates"
    again = find_call(str(call)).build()
    assert (again != matrix).nnz == 0
    # The bound that guards memory is not below what is made.
    assert call.generator.elements(**call.values) >= matrix.nnz


@pytest.mark.parametrize(
    "name", [n for n, g in GENERATORS.items() if g.parameters[-1].name == "seed"]
)
def test_seed_changes_the_matrix(name):
    first, second = (GENERATORS[name].call({"seed": seed}).build() for seed in (3, 4))
    assert (first != second).nnz > 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stencil2d(point=5)", "no parameter 'point': did you mean 'points'"),
        ("stencil2d(width=4)", "no parameter 'width': it has nx, ny, points"),
        ("stencil2d(nx='4')", "nx='4' is not a whole number"),
        ("stencil2d(nx=4.0)", "nx=4.0 is not a whole number"),
        ("stencil2d(nx=True)", "nx=True is not a whole number"),
        ("stencil2d(nx=0)", "nx=0 is outside 1..100000"),
        ("stencil2d(points=7)", "points=7 is none of 5, 9"),
        ("uniform(density=1.5)", "density=1.5 is outside 0..1"),
        ("uniform(density=nan)", "density=nan is not a number or string"),
        ("uniform(density=1e999)", "density=inf is outside 0..1"),
        ("uniform(seed=-1)", "seed=-1 is outside"),
        ("stencil2d(4, 5)", "arguments are given by name"),
        ("stencil2d(**{'nx': 4})", "arguments are given by name"),
        ("stencil2d(nx=open('x'))", "is not a number or string"),
        ("stencil2d(nx=4", "not of the form"),
        ("stencil2d(nx=4, nx=5)", "nx is given twice"),
        ("a.b(c=1)", "not of the form"),
        ("stencl2d(nx=4)", "did you mean 'stencil2d'"),
        ("mycielskian1", "k=1 is outside 2..20"),
        ("Trefethen_1", "n=1 is outside"),
        ("gate_proj-keep101-uniform-s0", "keep=1.01 is outside 0..1"),
        ("arrow(n=3, width=4)", "width=4 is above n=3"),
        ("rmat(a=0.9, b=0.2)", "above 1"),
        ("blocks(rows=100)", "not a multiple of block=64"),
        ("kkt(variables=10, dense=20)", "at most variables=10"),
        ("point_cloud(nodes=4, links=7)", "more than the pairs"),
        ("power_law_graph(n=10, edges=40)", "more than half"),
        ("hub_rows(rows=5, cols=5, per_row=6)", "6 in a row of 5"),
        ("normal_equations(n=10, largest=11)", "above n=10"),
        ("time_steps(dense=2, coupling=3)", "above dense=2"),
    ],
)
def test_refusal_is_one_line(text, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")) as caught:
        build(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "stencil2d(nx=100000, ny=100000)",
        "uniform(rows=10000000, cols=10000000, density=0.5)",
        "rmat(scale=26, edge_factor=4096)",
        "mycielskian(k=20)",
        "normal_equations(n=10000000, cliques=10000000, largest=20000, exponent=0.0)",
    ],
)
def test_too_large_is_refused_before_it_is_made(text, monkeypatch):
    monkeypatch.setattr("asyncsparse_lab.matrices.generators.base.physical_bytes", lambda: 16 << 30)
    started = time.perf_counter()
    with pytest.raises(MemoryLimitError, match="GB to build"):
        build(text)
    assert time.perf_counter() - started < 2


@pytest.mark.parametrize("example", [example for _, example, _ in SHORT_FORMS])
def test_short_forms_stand_for_calls(example):
    call = find_call(example)
    assert str(find_call(str(call))) == str(call)


def test_name_of_nothing_generated():
    assert find_call("bcsstk16") is None


def test_mycielskian_small_members():
    # k = 3 is the cycle of five vertices, k = 4 Groetzsch's graph with 20 edges.
    cycle = build("mycielskian3").toarray()
    assert cycle.shape == (5, 5)
    assert np.all(cycle.sum(axis=0) == 2)
    assert np.trace(np.linalg.matrix_power(cycle, 3)) == 0, "no triangle"
    groetzsch = build("mycielskian4")
    assert groetzsch.shape == (11, 11)
    assert groetzsch.nnz == 40


@pytest.mark.parametrize(("k", "order", "nnz"), [(9, 383, 14542), (14, 12287, 3695512)])
def test_mycielskian_sizes_of_the_collection(k, order, nnz):
    matrix = build(f"mycielskian{k}")
    assert matrix.shape == (order, order)
    assert matrix.nnz == nnz
    assert (matrix != matrix.T).nnz == 0


@pytest.mark.parametrize(
    ("name", "order", "nnz"),
    [
        ("20b", 19, 147),
        ("20", 20, 158),
        ("200b", 199, 2873),
        ("700", 700, 12654),
        ("20000", 20000, 554466),
        ("20000b", 19999, 554435),
    ],
)
def test_trefethen_sizes_of_the_collection(name, order, nnz):
    matrix = build(f"Trefethen_{name}")
    assert matrix.shape == (order, order)
    assert matrix.nnz == nnz


def test_trefethen_answers_the_published_problem():
    # The (1, 1) entry of the inverse for 20,000 primes is 0.7250783462684011...; the first rows
    # dominate, so a small member has it to a few digits.
    matrix = build("Trefethen_700")
    first = np.zeros(700)
    first[0] = 1
    from scipy.sparse.linalg import spsolve

    assert spsolve(matrix.tocsc(), first)[0] == pytest.approx(0.7250783, abs=1e-3)
    assert list(matrix.diagonal()[:6]) == [2, 3, 5, 7, 11, 13]


@pytest.mark.parametrize(
    ("text", "entry", "row_sum_inside"),
    [
        ("stencil2d(nx=5, ny=7)", 4, 0),
        ("stencil2d(nx=5, ny=7, points=9)", 8, 0),
        ("stencil3d(nx=5, ny=4, nz=3)", 6, 0),
        ("stencil3d(nx=5, ny=4, nz=3, points=27)", 26, 0),
    ],
)
def test_stencils(text, entry, row_sum_inside):
    matrix = build(text)
    call = find_call(text)
    assert np.all(matrix.diagonal() == entry)
    assert (matrix != matrix.T).nnz == 0
    lengths = np.diff(matrix.indptr)
    points = call.values["points"]
    inside = lengths == points
    sides = [value for name, value in call.values.items() if name != "points"]
    assert np.count_nonzero(inside) == np.prod([side - 2 for side in sides])
    assert np.all(matrix.sum(axis=1)[inside] == row_sum_inside)


def test_elasticity_is_definite_in_3x3_blocks_and_knows_rigid_motion():
    matrix = build("elasticity3d(nx=3, ny=2, nz=2)")
    assert matrix.shape == (3 * 3 * 3 * 3,) * 2
    assert abs(matrix - matrix.T).max() < 1e-14
    eigenvalues = np.linalg.eigvalsh(matrix.toarray())
    assert eigenvalues[0] > 1e-4
    # A translation strains nothing where no clamped node is near.
    shift = np.tile([1.0, 2.0, 3.0], 27)
    force = (matrix @ shift).reshape(3, 9, 3)
    assert np.abs(force[1:]).max() < 1e-13
    assert np.abs(force[0]).max() > 0.1


def test_uniaxial_bar_of_one_cube_has_the_stiffness_of_the_material():
    # Without Poisson's effect a bar of length 4 and section 1 is a spring of stiffness E A / L.
    matrix = build("elasticity3d(nx=4, ny=1, nz=1, poisson=0.0)")
    load = np.zeros(matrix.shape[0])
    load[-12::3] = 0.25
    from scipy.sparse.linalg import spsolve

    np.testing.assert_allclose(spsolve(matrix.tocsc(), load)[-12::3], 4.0, rtol=1e-10)


def test_band():
    full = build("band(n=50, half_bandwidth=3)")
    assert full.nnz == 50 * 7 - 12
    thin = build("band(n=500, half_bandwidth=3, fill=0.5)")
    rows, cols = thin.nonzero()
    assert np.abs(rows - cols).max() == 3
    assert np.all(thin.diagonal() != 0)
    assert 500 + 0.4 * 3000 < thin.nnz < 500 + 0.6 * 3000


def test_arrow():
    matrix = build("arrow(n=40, width=3, half_bandwidth=1)")
    lengths = np.diff(matrix.indptr)
    assert list(lengths[-3:]) == [40] * 3
    assert np.all(lengths[1:36] == 6)
    assert np.linalg.eigvalsh(matrix.toarray())[0] > 0


def test_hub_rows():
    matrix = build("hub_rows(rows=300, cols=200, per_row=5, hubs=4, hub_density=0.5)")
    lengths = np.diff(matrix.indptr)
    assert sorted(set(lengths)) == [5, 100]
    assert np.count_nonzero(lengths == 100) == 4


def test_kkt_structure():
    matrix = build("kkt(variables=60, constraints=20, dense=15, per_constraint=3)")
    dense = matrix.toarray()
    assert matrix.nnz == 15**2 + 45 + 2 * 20 * 3
    assert np.array_equal(dense, dense.T)
    assert np.all(dense[60:, 60:] == 0)
    eigenvalues = np.linalg.eigvalsh(dense)
    assert np.count_nonzero(eigenvalues > 0) == 60
    assert np.count_nonzero(eigenvalues < 0) == 20


def test_normal_equations_are_definite():
    matrix = build("normal_equations(n=80, cliques=60, largest=30)")
    assert np.linalg.eigvalsh(matrix.toarray())[0] >= 1 - 1e-9
    assert np.diff(matrix.indptr).max() >= 30


def test_time_steps_structure():
    matrix = build("time_steps(steps=3, dense=6, states=4, coupling=2)")
    dense = matrix.toarray() != 0
    assert matrix.shape == (30, 30)
    assert matrix.nnz == 3 * (36 + 4 * 3) + 2 * 4
    assert np.all(dense[10:16, 10:16])
    assert not dense[:10, 10:].any(), "nothing depends on a later step"
    assert np.all(dense[np.arange(16, 20), np.arange(6, 10)])


def test_point_cloud_has_full_blocks_and_exactly_the_entries_asked_for():
    matrix = build("point_cloud(nodes=60, links=200, block=3)")
    assert matrix.nnz == 9 * (60 + 2 * 200)
    blocks = matrix.tobsr((3, 3))
    assert blocks.nnz == matrix.nnz
    assert np.linalg.eigvalsh(matrix.toarray())[0] > 0
    other = build("point_cloud(nodes=60, links=200, block=3, symmetry='pattern')")
    assert np.array_equal(other.indices, matrix.indices)
    assert abs(other - other.T).max() > 0.1


def test_rmat_is_skewed():
    matrix = build("rmat(scale=11, edge_factor=8)")
    lengths = np.diff(matrix.indptr)
    assert matrix.nnz <= 8 << 11
    assert lengths.max() > 12 * lengths.mean()
    flat = build("rmat(scale=11, edge_factor=8, a=0.25, b=0.25, c=0.25)")
    assert np.diff(flat.indptr).max() < 5 * flat.nnz / 2048


def test_power_law_graph_has_exactly_its_edges():
    matrix = build("power_law_graph(n=500, edges=6000)")
    assert matrix.nnz == 12000
    assert (matrix != matrix.T).nnz == 0
    assert not matrix.diagonal().any()
    lengths = np.diff(matrix.indptr)
    assert lengths.max() > 3 * np.median(lengths)
