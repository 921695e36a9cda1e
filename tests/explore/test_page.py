import base64
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import pytest
from PIL import Image

from asyncsparse_lab import explore
from asyncsparse_lab.errors import InputError
from asyncsparse_lab.explore.binning import Window
from asyncsparse_lab.explore.chooser import local_names, parameter_control
from asyncsparse_lab.matrices import GENERATORS, find_matrix
from asyncsparse_lab.matrices.catalogue import seed_catalogue

BROKEN = "%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1.0\n7 7 2.0\n"


def walk(widget: Any) -> Iterator[Any]:
    yield widget
    for child in getattr(widget, "children", ()):
        yield from walk(child)


class Hands:
    """Finds controls of a page as a user does: by what stands on or beside them."""

    def __init__(self, page: explore.Explorer) -> None:
        self.all = list(walk(page.widget))

    def described(self, text: str) -> Any:
        (one,) = [w for w in self.all if getattr(w, "description", None) == text]
        return one

    def marked(self, name: str) -> Any:
        (one,) = [w for w in self.all if f"asyncsparse-{name}" in getattr(w, "_dom_classes", ())]
        return one

    def pictures(self) -> tuple[bytes, ...]:
        return tuple(self.marked(part).value for part in ("density", "lengths", "formats"))


@pytest.fixture
def page() -> explore.Explorer:
    return explore.show("stencil2d(nx=32, ny=32)")


@pytest.fixture
def hands(page: explore.Explorer) -> Hands:
    return Hands(page)


def test_it_shows_the_whole_matrix_first(page: explore.Explorer, hands: Hands) -> None:
    assert page.window == Window.whole((1024, 1024))
    assert hands.described("rows").value == (0, 1024)
    for picture in hands.pictures():
        assert Image.open(BytesIO(picture)).format == "PNG"
    facts = " ".join(w.value for w in hands.all if isinstance(w, widgets.HTML))
    assert "1,024 x 1,024" in facts


def test_a_zoom_button_moves_the_sliders_and_the_pictures_of_the_view(
    page: explore.Explorer, hands: Hands
) -> None:
    density, lengths, formats = hands.pictures()
    hands.described("Zoom in").click()
    assert page.window == Window((256, 768), (256, 768))
    assert hands.described("rows").value == (256, 768)
    near = hands.pictures()
    assert near[0] != density
    assert near[1] != lengths
    assert near[2] == formats
    hands.described("↑").click()
    assert page.window.rows == (0, 512)
    hands.described("Whole matrix").click()
    assert hands.pictures() == (density, lengths, formats)


def test_a_range_slider_moves_one_side_and_an_empty_range_gets_a_few_positions(
    page: explore.Explorer, hands: Hands
) -> None:
    hands.described("rows").value = (100, 300)
    assert page.window == Window((100, 300), (0, 1024))
    hands.described("columns").value = (500, 500)
    assert page.window == Window((100, 300), (496, 504))


def test_block_size_and_window_height_change_the_picture_of_the_formats(hands: Hands) -> None:
    first = hands.pictures()
    hands.described("BCSR block").value = 8
    second = hands.pictures()
    assert second[2] != first[2]
    hands.described("WCSR window").value = 8
    third = hands.pictures()
    assert third[2] not in (first[2], second[2])
    assert third[:2] == second[:2]


def test_close_up_the_block_size_changes_the_lines_in_the_density(hands: Hands) -> None:
    for _ in range(3):
        hands.described("Zoom in").click()
    before = hands.pictures()
    hands.described("BCSR block").value = 32
    assert hands.pictures()[0] != before[0]


def test_a_broken_file_gives_its_line_and_what_was_shown_stays(
    page: explore.Explorer, hands: Hands, tmp_path: Path
) -> None:
    file = tmp_path / "broken.mtx"
    file.write_text(BROKEN)
    before = hands.pictures()
    hands.marked("file").value = str(file)
    hands.described("Open").click()
    said = hands.marked("status").value
    assert "broken.mtx: line 4" in said
    assert "still showing stencil2d(nx=32, ny=32)" in said
    assert "\n" not in said
    assert hands.pictures() == before
    file.write_text(BROKEN.replace("7 7", "3 2"))
    hands.described("Open").click()
    assert page.name == "broken.mtx"
    assert "line 4" not in hands.marked("status").value


def test_without_any_matrix_the_page_has_its_line_and_no_picture(tmp_path: Path) -> None:
    file = tmp_path / "<b>.mtx"
    file.write_text(BROKEN)
    page = explore.show(str(file))
    hands = Hands(page)
    assert "&lt;b&gt;.mtx: line 4" in hands.marked("status").value
    bundle = page._repr_mimebundle_()
    assert "image/png" not in bundle
    assert "line 4" in bundle["text/plain"]
    page.open("stencil2d(nx=8, ny=8)")
    assert "image/png" in page._repr_mimebundle_()


def test_a_matrix_without_rows_is_refused_in_one_line(hands: Hands, tmp_path: Path) -> None:
    file = tmp_path / "empty.mtx"
    file.write_text("%%MatrixMarket matrix coordinate real general\n0 5 0\n")
    hands.marked("file").value = str(file)
    hands.described("Open").click()
    assert "0 × 5" in hands.marked("status").value


@pytest.mark.parametrize("sizes", [{"block": 7}, {"window": 256}])
def test_a_size_outside_the_sweep_is_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(InputError, match="is none of 8, 16, 32, 64, 128"):
        explore.show("stencil2d(nx=8, ny=8)", **sizes)


def test_the_still_picture_holds_all_that_the_page_shows(page: explore.Explorer) -> None:
    bundle = page._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    still = Image.open(BytesIO(base64.b64decode(bundle["image/png"])))
    assert still.width >= 1000
    assert still.height > 720 + 440


def test_a_million_nonzeros_follow_a_control_in_under_a_second() -> None:
    hands = Hands(explore.show("uniform(rows=40000, cols=40000, density=0.000625)"))
    for move in (
        lambda: hands.described("Zoom in").click(),
        lambda: setattr(hands.described("columns"), "value", (5000, 30000)),
        lambda: setattr(hands.described("WCSR window"), "value", 16),
        lambda: setattr(hands.described("BCSR block"), "value", 16),
    ):
        # Processor time: this machine may have other things to do.
        start = time.process_time()
        move()
        assert time.process_time() - start < 1.0


def test_a_generator_is_chosen_with_its_parameters(page: explore.Explorer, hands: Hands) -> None:
    (pick,) = [w for w in hands.all if isinstance(w, widgets.Dropdown) and "band" in w.options]
    pick.value = "band"
    again = Hands(page)
    again.described("n").value = 100
    again.described("Make it").click()
    assert page.name == "band(n=100, half_bandwidth=8, fill=1.0, seed=0)"
    again.described("n").value = -1
    again.described("Make it").click()
    assert "n=-1 is outside" in again.marked("status").value


@pytest.mark.parametrize("generator", list(GENERATORS.values()), ids=list(GENERATORS))
def test_every_generator_has_a_control_for_each_parameter(generator: Any) -> None:
    for parameter in generator.parameters:
        control = parameter_control(parameter)
        assert control.value == parameter.default
        assert control.description == parameter.name


def test_local_names_can_be_loaded_without_a_network(page: explore.Explorer, hands: Hands) -> None:
    assert all(find_matrix(name) is not None for name in local_names())
    hands.marked("local").value = local_names()[-1]
    assert page.name == local_names()[-1]


STATISTICS = """2
01-Jan-2024 00:00:00
HB,tiny,3,3,4,1,0,0,0,1,1,directed graph,4
Group,tinier,5,5,6,1,0,0,0,1,1,structural problem,6
"""


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Make an index of two matrices, of a collection that does not answer."""
    monkeypatch.setenv("ASYNCSPARSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ASYNCSPARSE_SUITESPARSE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("ASYNCSPARSE_TIMEOUT", "1")
    (tmp_path / "ssstats.csv").write_text(STATISTICS)
    assert seed_catalogue(tmp_path / "ssstats.csv") == 2


@pytest.mark.usefixtures("catalogue")
def test_the_collection_is_searched_and_no_network_gives_one_line(hands: Hands) -> None:
    (found,) = [w for w in hands.all if isinstance(w, widgets.Select)]
    fetch = hands.described("Fetch and show")
    fetch.click()
    assert "search for a name first" in hands.marked("status").value
    hands.marked("search").value = "tin"
    hands.described("Search").click()
    assert "2 found" in hands.marked("status").value
    assert found.options[0][0] == "HB/tiny: 3 × 3, 4 non-zeros, directed graph"
    hands.marked("search").value = "Group/tin"
    hands.described("Search").click()
    assert [entry.full_name for _, entry in found.options] == ["Group/tinier"]
    found.index = 0
    fetch.click()
    said = hands.marked("status").value
    assert "127.0.0.1" in said or "Group/tinier" in said
    assert "still showing" in said
    hands.marked("search").value = "a;b"
    hands.described("Search").click()
    assert "is in no name" in hands.marked("status").value
