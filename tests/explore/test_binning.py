import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.explore.binning import SMALLEST_SPAN, Window, bin_counts


def random_csr(rows: int, columns: int, density: float, seed: int = 0) -> csr_array:
    rng = np.random.default_rng(seed)
    return random_array((rows, columns), density=density, format="csr", rng=rng)


@st.composite
def windows(draw: st.DrawFn) -> tuple[csr_array, Window, int]:
    rows, columns = draw(st.integers(1, 60)), draw(st.integers(1, 60))
    matrix = random_csr(rows, columns, draw(st.sampled_from([0.0, 0.05, 0.5, 1.0])))
    top, left = draw(st.integers(0, rows - 1)), draw(st.integers(0, columns - 1))
    window = Window(
        (top, draw(st.integers(top + 1, rows))), (left, draw(st.integers(left + 1, columns)))
    )
    return matrix, window, draw(st.sampled_from([8, 16, 512]))


@settings(max_examples=80, deadline=None)
@given(windows())
def test_each_bin_holds_what_the_dense_matrix_holds_there(
    case: tuple[csr_array, Window, int],
) -> None:
    matrix, window, bins = case
    density = bin_counts(matrix, window, bins)
    there = (matrix.toarray() != 0).astype(int)
    expected = [
        [there[top:bottom, left:right].sum() for left, right in pairs(density.column_edges)]
        for top, bottom in pairs(density.row_edges)
    ]
    np.testing.assert_array_equal(density.counts, expected)
    part = there[slice(*window.rows), slice(*window.columns)]
    np.testing.assert_array_equal(density.row_lengths, part.sum(axis=1))
    np.testing.assert_array_equal(density.column_lengths, part.sum(axis=0))
    assert density.nnz == part.sum()
    assert (density.row_edges[0], density.row_edges[-1]) == window.rows
    assert (density.column_edges[0], density.column_edges[-1]) == window.columns
    assert density.fraction.max() <= 1.0


def pairs(edges: np.ndarray) -> list[tuple[int, int]]:
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))


def test_a_full_matrix_has_density_one_in_every_bin_whatever_the_bins() -> None:
    matrix = csr_array(np.ones((37, 100)))
    for bins in (8, 16, 30, 512):
        np.testing.assert_array_equal(
            bin_counts(matrix, Window.whole(matrix.shape), bins).fraction, 1
        )


def test_bins_are_about_square_and_never_finer_than_a_position() -> None:
    matrix = random_csr(1000, 4000, 0.001)
    assert bin_counts(matrix, Window.whole(matrix.shape), 512).counts.shape == (128, 512)
    close = Window((10, 30), (100, 125))
    assert bin_counts(matrix, close, 512).counts.shape == (20, 25)
    needle = csr_array(np.ones((100_000, 2)))
    assert bin_counts(needle, Window.whole(needle.shape), 512).counts.shape == (512, 2)


@pytest.mark.parametrize(
    ("window", "named"),
    [
        (Window((0, 11), (0, 5)), "rows 0..11"),
        (Window((4, 4), (0, 5)), "rows 4..4"),
        (Window((0, 10), (-1, 5)), "columns -1..5"),
    ],
)
def test_a_window_outside_the_matrix_is_refused(window: Window, named: str) -> None:
    with pytest.raises(InputError, match=named):
        bin_counts(random_csr(10, 5, 0.5), window)


@given(st.integers(1, 500), st.integers(1, 500), st.lists(st.sampled_from("io<>^v"), max_size=12))
def test_zooming_and_moving_never_leave_the_matrix(
    rows: int, columns: int, steps: list[str]
) -> None:
    shape = (rows, columns)
    window = Window.whole(shape)
    for step in steps:
        window = {
            "i": lambda w: w.zoomed(0.5, shape),
            "o": lambda w: w.zoomed(2.0, shape),
            "<": lambda w: w.moved(0, -0.5, shape),
            ">": lambda w: w.moved(0, 0.5, shape),
            "^": lambda w: w.moved(-0.5, 0, shape),
            "v": lambda w: w.moved(0.5, 0, shape),
        }[step](window)
        assert window.checked(shape) is window
        assert window.shape[0] >= min(SMALLEST_SPAN, rows)


def test_zoom_keeps_the_centre_and_a_factor_of_one_keeps_the_window() -> None:
    window = Window((100, 300), (40, 80))
    assert window.zoomed(0.5, (1000, 1000)) == Window((150, 250), (50, 70))
    assert window.zoomed(1.0, (1000, 1000)) == window
    assert window.zoomed(100.0, (1000, 1000)) == Window.whole((1000, 1000))
    assert window.moved(0.5, -2.0, (1000, 1000)) == Window((200, 400), (0, 40))
