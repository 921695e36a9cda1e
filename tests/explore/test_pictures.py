from io import BytesIO

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from scipy.sparse import csr_array

from asyncsparse_lab.explore.binning import Window, bin_counts
from asyncsparse_lab.explore.canvas import png, readable_bytes, stack, three_digits
from asyncsparse_lab.explore.format_pictures import facts_picture, formats_picture
from asyncsparse_lab.explore.structure import Structure
from asyncsparse_lab.explore.view_pictures import density_picture, lengths_picture
from asyncsparse_lab.formats import BCSR, WCSR
from asyncsparse_lab.matrices import load_matrix_with_facts


def texts(figure: Figure) -> str:
    labels = [text.get_text() for text in figure.texts]
    for axes in figure.axes:
        labels += [axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()]
        labels += [text.get_text() for text in axes.texts]
        labels += [tick.get_text() for tick in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    return "\n".join(labels)


def pixels(figure: Figure) -> np.ndarray:
    return np.asarray(Image.open(BytesIO(png(figure))).convert("RGB"))


def single(shape: tuple[int, int], row: int, column: int) -> csr_array:
    return csr_array(([1.0], ([row], [column])), shape=shape)


@pytest.mark.parametrize("place", [0, 12_345, 99_999])
def test_a_single_nonzero_of_a_huge_matrix_is_a_pixel(place: int) -> None:
    shape = (100_000, 100_000)
    drawn = [
        pixels(density_picture(bin_counts(matrix, Window.whole(shape)), "name", 64))
        for matrix in (single(shape, place, place), csr_array(shape))
    ]
    # Inside the axes only: the scale and the heading differ anyway.
    inside = np.s_[80:600, 80:600]
    assert (drawn[0][inside] != drawn[1][inside]).any()


def test_the_density_says_what_it_shows() -> None:
    matrix = load_matrix_with_facts("stencil2d(nx=64, ny=64)").matrix
    whole = texts(density_picture(bin_counts(matrix, Window.whole(matrix.shape)), "grid", 64))
    assert "grid" in whole
    assert "rows 0 to 4,095, columns 0 to 4,095: 20,224 non-zeros" in whole
    assert "a bin is 8 × 8 positions" in whole
    assert "log scale" in whole
    assert "blocks" not in whole
    close = Window((0, 256), (0, 256))
    near = texts(density_picture(bin_counts(matrix, close), "grid", 64))
    assert "a bin is one position; lines: 64 × 64 blocks" in near


def test_the_lines_stand_at_multiples_of_the_block_size() -> None:
    matrix = load_matrix_with_facts("stencil2d(nx=64, ny=64)").matrix
    figure = density_picture(bin_counts(matrix, Window((100, 300), (0, 200))), "grid", 64)
    lines = [line.get_xydata() for line in figure.axes[0].lines]
    assert sorted({y for (_, y), (_, z) in lines if y == z}) == [128, 192, 256]
    assert sorted({x for (x, _), (z, _) in lines if x == z}) == [0, 64, 128, 192]


def test_a_narrow_matrix_says_that_it_is_not_to_scale() -> None:
    matrix = csr_array(np.ones((1000, 3)))
    density = bin_counts(matrix, Window.whole(matrix.shape))
    assert "not drawn to scale" in texts(density_picture(density, "needle", 8))


@pytest.mark.parametrize(
    "matrix",
    [csr_array((50, 70)), single((1, 1), 0, 0), single((1, 5000), 0, 4999), single((9, 9), 3, 3)],
    ids=["no non-zero", "one by one", "one row", "one non-zero"],
)
def test_odd_matrices_are_drawn(matrix: csr_array) -> None:
    density = bin_counts(matrix, Window.whole(matrix.shape))
    picture, lengths = density_picture(density, "odd", 64), lengths_picture(density)
    assert pixels(picture).shape == (720, 620, 3)
    assert pixels(lengths).shape == (720, 440, 3)
    assert f"{matrix.nnz:,} non-zeros" in texts(picture)
    assert "largest" in texts(lengths)


def test_skewed_lengths_get_a_logarithmic_scale_that_leaves_out_the_empty() -> None:
    matrix = load_matrix_with_facts("hub_rows(rows=2000, cols=2000)").matrix.tolil()
    matrix[7, :] = 0
    matrix = matrix.tocsr()
    picture = lengths_picture(bin_counts(matrix, Window.whole(matrix.shape)))
    assert picture.axes[0].get_xscale() == "log"
    assert "non-zeros in a row (log scale, 0 left out)" in texts(picture)
    assert "1 empty" in picture.axes[0].get_title(loc="left")


def test_histograms_count_every_row() -> None:
    matrix = load_matrix_with_facts("rmat(scale=10)").matrix
    density = bin_counts(matrix, Window.whole(matrix.shape))
    for axes, lengths in zip(
        lengths_picture(density).axes, (density.row_lengths, density.column_lengths), strict=True
    ):
        (bars,) = axes.patches
        expected = np.count_nonzero(lengths) if axes.get_xscale() == "log" else lengths.size
        assert bars.get_data().values.sum() == expected


def test_formats_follow_the_chosen_block_size_and_window_height() -> None:
    loaded = load_matrix_with_facts("blocks(rows=1024, cols=1024, block=64, keep=0.1)")
    structure = Structure.of(loaded)
    figure = texts(formats_picture(structure, 64, 32))
    assert "With 64 × 64 blocks the article's rule picks BCSR" in figure
    assert "Columns per window of 32 rows" in figure
    wide = texts(formats_picture(structure, 128, 32))
    assert "With 128 × 128 blocks the article's rule picks WCSR" in wide


def test_bytes_are_those_of_the_converted_matrix() -> None:
    loaded = load_matrix_with_facts("elasticity3d(nx=6, ny=4, nz=4)")
    sizes = Structure.of(loaded).format_bytes(16, 8)
    values = loaded.matrix.astype(bool).astype(np.int16)  # a type of two bytes
    assert sizes["BCSR 16 × 16"] == BCSR.from_csr(values, (16, 16)).nbytes
    assert sizes["WCSR 8"] == WCSR.from_csr(values, 8).nbytes
    assert sizes["CSR"] == values.nnz * (2 + 4) + 8 * (values.shape[0] + 1)
    assert sizes["dense"] == 2 * values.shape[0] * values.shape[1]


def test_pictures_are_stacked_in_lines() -> None:
    facts = png(facts_picture({"size": "3 x 3", "long": "word " * 60}))
    wide = Image.open(BytesIO(stack([[facts, facts], [facts]])))
    one = Image.open(BytesIO(facts))
    assert wide.size == (2 * one.width, 2 * one.height)


def test_sizes_are_written_with_three_digits_and_no_exponent() -> None:
    assert [readable_bytes(size) for size in (7, 999, 1000, 1_781_348, 1_969_283_282, 10**16)] == [
        "7 B",
        "999 B",
        "1 kB",
        "1.78 MB",
        "1.97 GB",
        "10,000 TB",
    ]
    assert three_digits(2209.4) == "2,209"
