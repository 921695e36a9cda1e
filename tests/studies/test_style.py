from __future__ import annotations

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.records.frame import frame_of
from asyncsparse_lab.studies import style


def test_the_documents_kernels_look_all_different():
    ladder = [f"bcsr-opt{number}" for number in range(4)]
    names = [*ladder, "bcsr-multicast", "bcsr-persistent", "bcsr-persistent-swizzle"]
    names += ["wcsr-paper", "wcsr-paper-unsplit", "bcsr-pingpong", "bcsr-paired", "wcsr-pipelined"]
    assert len({style.look(name) for name in names}) == len(names)


def test_a_contender_looks_the_same_everywhere():
    assert style.look("bcsr-opt3") == style.look("bcsr-opt3")
    first, second = style.look("cusparse csr-alg2"), style.look("cusparse csr-alg3")
    assert first.color == second.color
    assert first.marker != second.marker
    assert style.look("my-own-kernel").marker == "p"
    assert style.contender_name("asyncsparse", "auto") == "auto"
    assert style.contender_name("cublas", "dense") == "cublas dense"


def test_the_look_leaves_nothing_behind():
    before = dict(mpl.rcParams)
    with style.theme():
        assert dict(mpl.rcParams) != before
    assert dict(mpl.rcParams) == before


def test_values_of_a_document_are_hollow_and_lighter_unless_stated():
    axes = Figure().add_subplot()
    for kind in ("stated", "derived", "elsewhere"):
        style.document_mark(axes, [1], [2], kind, label="paper")
    stated, derived, elsewhere = axes.lines
    assert stated.get_markerfacecolor() == "none"
    assert stated.get_alpha() > derived.get_alpha() == elsewhere.get_alpha()
    labels = [line.get_label() for line in axes.lines]
    assert labels == ["paper", "paper (derived)", "paper (elsewhere)"]
    with pytest.raises(InputError, match="'guessed'"):
        style.document_mark(axes, [1], [2], "guessed")


def test_a_figure_says_where_when_how_and_how_many(make_record):
    rows = [make_record(matrix=name, l2=l2) for name in "ab" for l2 in ("cold", "warm")]
    frame = frame_of(rows, gpu_name="NVIDIA H200").assign(utc="2026-11-30T01:02:03Z")
    assert style.provenance_line(frame) == (
        "Measured on NVIDIA H200, 2026-11-30, cold and warm L2, 2 matrices"
    )
    figure = Figure()
    style.provenance(figure, frame)
    style.stamp_stale(figure, [])
    style.stamp_stale(figure, ["bcsr-opt3", "bcsr-opt2", "bcsr-opt3"])
    texts = [text.get_text() for text in figure.texts]
    assert texts[0].startswith("Measured on NVIDIA H200")
    assert texts[1:] == ["measured with an earlier kernel: bcsr-opt2, bcsr-opt3"]
    heights = [text.get_position()[1] for text in figure.texts]
    assert heights[1] < heights[0] < 0  # below the picture, one under the other
