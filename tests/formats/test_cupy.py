"""One code for NumPy and CuPy: every array function in use exists in both; results agree."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import asyncsparse_lab.formats as formats


def array_functions():
    """Collect the names that the package takes from an array module called ``xp``."""
    names = set()
    for path in Path(formats.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                owner = ast.unparse(node.value)
                if owner in ("xp", "csr.xp"):
                    names.add(node.attr)
    return names - {"cuda", "get_default_memory_pool"}  # asked of CuPy only


def test_numpy_has_the_array_functions():
    names = array_functions()
    assert {"argsort", "searchsorted", "cumsum", "nonzero"} <= names
    assert not [name for name in names if not hasattr(np, name)]


def test_cupy_has_the_array_functions():
    cupy = pytest.importorskip("cupy")
    assert not [name for name in array_functions() if not hasattr(cupy, name)]


@pytest.mark.gpu
def test_cupy_gives_the_arrays_that_numpy_gives():
    cupy = pytest.importorskip("cupy")
    import cupyx.scipy.sparse

    rng = np.random.default_rng(0)
    dense = rng.integers(1, 9, (300, 200)) * (rng.random((300, 200)) < 0.05)
    dense[64:128] = 0
    host = sp.csr_array(dense.astype("float32"))
    device = cupyx.scipy.sparse.csr_matrix(sp.csr_matrix(host))
    B = rng.integers(-8, 9, (200, 5)).astype("float32")
    for kind, arrays in (
        (formats.BCSR, ("block_row_ptr", "block_col_idx", "blocks")),
        (formats.WCSR, ("window_row_ptr", "window_col_idx", "values")),
    ):
        ours, theirs = kind.from_csr(host), kind.from_csr(device)
        for name in arrays:
            assert isinstance(getattr(theirs, name), cupy.ndarray)
            assert getattr(theirs, name).dtype == getattr(ours, name).dtype
            assert np.array_equal(getattr(theirs, name).get(), getattr(ours, name))
        assert kind.predict(device) == kind.predict(host)
        assert (theirs.nnz, theirs.fill_ratio) == (ours.nnz, ours.fill_ratio)
        assert np.array_equal(theirs.to_csr().get().toarray(), host.toarray())
        assert np.array_equal((theirs @ cupy.asarray(B)).get(), ours @ B)
    x = rng.standard_normal(1000).astype("float32")
    for round_to in (formats.round_to_bfloat16, formats.round_to_float16):
        assert np.array_equal(round_to(cupy.asarray(x)).get(), round_to(x))
    windows = formats.pad_windows(formats.WCSR.from_csr(host))
    moved = formats.pad_windows(formats.WCSR.from_csr(device))
    ordered = formats.core_matrices(formats.bfloat16_bits(windows.values))
    moved_ordered = formats.core_matrices(formats.bfloat16_bits(moved.values))
    assert np.array_equal(moved_ordered.get(), ordered)
    tiles = formats.bfloat16_bits(formats.BCSR.from_csr(host).blocks)
    swizzled = formats.swizzled_tiles(cupy.asarray(tiles))
    assert np.array_equal(swizzled.get(), formats.swizzled_tiles(tiles))
    tasks = formats.window_tasks(moved.window_row_ptr, 32)
    assert np.array_equal(tasks.get(), formats.window_tasks(windows.window_row_ptr, 32))


@pytest.mark.gpu
def test_cupy_puts_untidy_input_in_order():
    cupy = pytest.importorskip("cupy")
    import cupyx.scipy.sparse

    data = cupy.array([4.0, 2.0, 3.0, 1.0, -1.0, 0.0])
    indices, indptr = cupy.array([7, 2, 2, 5, 5, 1]), cupy.array([0, 5, 6, 6])
    A = cupyx.scipy.sparse.csr_matrix((data, indices, indptr), shape=(3, 9))
    expected = np.zeros((3, 9))
    expected[0, 2], expected[0, 7] = 5, 4
    for kind in (formats.BCSR, formats.WCSR):
        assert np.array_equal(kind.from_csr(A).to_csr().get().toarray(), expected)
    assert A.data.tolist() == [4.0, 2.0, 3.0, 1.0, -1.0, 0.0]
