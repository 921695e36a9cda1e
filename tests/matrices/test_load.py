"""From names to matrices: what wins, what is refused, and the suites."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.matrices import (
    available_names,
    find_call,
    find_matrix,
    load_matrix,
    load_right_hand_side,
    load_suite,
    matrix_folder,
    suite_names,
)
from asyncsparse_lab.resources import cache_folder, checkout_root, resource_path

ONE = b"%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 4\n"
SMALL_ENOUGH = 4_000_000


def put(path: Path, data: bytes = ONE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def test_name_is_looked_up_among_generators_then_in_the_folder_then_among_the_fetched(
    cache: Path,
) -> None:
    folder = matrix_folder()
    put(folder / "toy.mtx.gz")
    put(folder / "plain.mtx")
    put(folder / "mycielskian5.mtx.gz")
    put(cache / "suitesparse" / "HB" / "old.mtx.gz")
    put(cache / "suitesparse" / "HB" / "toy.mtx.gz")
    assert find_matrix("toy") == folder / "toy.mtx.gz"
    assert find_matrix("plain") == folder / "plain.mtx"
    assert find_matrix("HB/toy") == cache / "suitesparse" / "HB" / "toy.mtx.gz"
    assert find_matrix("old") == cache / "suitesparse" / "HB" / "old.mtx.gz"
    assert load_matrix("old")[0, 0] == 4
    assert load_matrix("mycielskian5").shape == (23, 23)
    assert available_names() == ["HB/old", "HB/toy", "mycielskian5", "plain", "toy"]


def test_name_in_two_groups_has_to_be_told_apart(cache: Path) -> None:
    for group in ("A", "B"):
        put(cache / "suitesparse" / group / "same.mtx.gz")
    with pytest.raises(InputError, match="several matrices: say which of A/same, B/same"):
        load_matrix("same")


def test_path_is_a_path(tmp_path: Path, cache: Path) -> None:
    path = put(tmp_path / "mycielskian5.mtx")
    assert load_matrix(path)[0, 0] == 4
    assert load_matrix(str(path))[0, 0] == 4
    with pytest.raises(InputError, match="no such file"):
        load_matrix(tmp_path / "other.mtx")
    with pytest.raises(InputError, match="no such file"):
        load_matrix("other.mtx.gz")


def test_path_that_is_no_matrix_file_says_what_to_do(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "folder.mtx").mkdir()
    with pytest.raises(InputError, match="is a folder: name a Matrix Market file in it"):
        load_matrix(tmp_path / "folder.mtx")
    other = put(tmp_path / "matrix.txt")
    with pytest.raises(InputError, match=r"ends in \.mtx or \.mtx\.gz"):
        load_matrix(str(other))
    assert load_matrix(other)[0, 0] == 4
    for impossible in ("~nobody-of-that-name/a.mtx", "x" * 5000 + ".mtx", "x" * 5000):
        with pytest.raises(InputError, match=r"no such file|no matrix"):
            load_matrix(impossible)


def test_cache_without_a_home_asks_for_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASYNCSPARSE_CACHE", "~nobody-of-that-name/cache")
    with pytest.raises(InputError, match="set ASYNCSPARSE_CACHE"):
        cache_folder()


@pytest.mark.parametrize("name", ["../matrices/toy", "..", "", "/", "a/../b", "a/b/c"])
def test_name_leads_nowhere_else(cache: Path, name: str) -> None:
    put(matrix_folder() / "toy.mtx.gz")
    assert find_matrix(name) is None


def test_unknown_name_gets_a_hint(cache: Path) -> None:
    put(matrix_folder() / "bcsstk16.mtx.gz")
    with pytest.raises(InputError, match=r"no matrix 'bcstk16': did you mean bcsstk16\?"):
        load_matrix("bcstk16")
    with pytest.raises(InputError, match="asyncsparse matrices list"):
        load_matrix("qqqqqqqq")


def test_folder_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASYNCSPARSE_MATRICES", str(tmp_path / "gone"))
    with pytest.raises(InputError, match="is not a folder: point it at one, or unset it"):
        matrix_folder()


def test_right_hand_side_of_the_folder(cache: Path) -> None:
    text = b"%%MatrixMarket matrix array real general\n3 1\n1\n0\n2.5\n"
    put(matrix_folder() / "rhs" / "toy_rhs1.mtx.gz", text)
    np.testing.assert_array_equal(load_right_hand_side("toy"), [1, 0, 2.5])
    assert load_right_hand_side("other") is None


def test_the_suites_are_frozen() -> None:
    assert {"smoke", "shared", "dense1", "paper414"} <= set(suite_names())
    assert len(load_suite("shared")) == 80
    assert len(load_suite("paper414")) == 414
    for name in ("shared", "dense1"):
        assert all(min(entry.rows, entry.cols) >= 1000 for entry in load_suite(name)), name
    for name in suite_names():
        names = [entry.source for entry in load_suite(name)]
        assert len(names) == len(set(names)), name


def test_dense1_is_what_it_says() -> None:
    suite = load_suite("dense1")
    shared = {entry.name for entry in load_suite("shared") if entry.density >= 0.01}
    stand_ins = {entry.stand_in_for for entry in suite if entry.stand_in_for}
    exact = {entry.name for entry in suite if not entry.stand_in_for}
    assert len(shared) == 17
    assert exact == shared | {"mycielskian14", "mycielskian15", "mycielskian16"}
    assert stand_ins == {
        *("heart1", "human_gene2", "exdata_1", "nd3k", "nd6k", "gupta3", "TSC_OPF_1047"),
        *("TSOPF_RS_b678_c1", "pattern1", "nemeth26", "mouse_gene", "msc10848", "ramage02"),
    }
    assert all(entry.density >= 0.01 for entry in suite)
    originals = {entry.name: entry for entry in load_suite("paper414")}
    for entry in suite:
        if entry.stand_in_for:
            original = originals[entry.stand_in_for]
            assert abs(entry.rows / original.rows - 1) < 0.01, entry.label
            assert abs(entry.nnz / original.nnz - 1) < 0.01, entry.label
            assert entry.label == f"{entry.stand_in_for} (stand-in)"


def generated(name: str) -> list:
    entries = load_suite(name).entries
    return [
        pytest.param(entry, id=entry.label)
        for entry in entries
        if find_call(entry.name) and entry.nnz <= SMALL_ENOUGH
    ]


@pytest.mark.parametrize("entry", [*generated("smoke"), *generated("dense1")])
def test_generated_matrices_are_as_frozen(entry) -> None:
    assert entry.is_available()
    matrix = entry.load()
    assert matrix.shape == (entry.rows, entry.cols)
    assert matrix.nnz == entry.nnz


@pytest.mark.slow
@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, id=entry.label)
        for entry in load_suite("dense1")
        if find_call(entry.name) and SMALL_ENOUGH < entry.nnz <= 10_000_000
    ],
)
def test_large_stand_ins_are_as_frozen(entry) -> None:
    matrix = entry.load()
    assert matrix.shape == (entry.rows, entry.cols)
    assert matrix.nnz == entry.nnz


def test_suites_are_available_as_far_as_the_folder_goes(cache: Path) -> None:
    assert len(load_suite("smoke").available()) == len(load_suite("smoke"))
    here = {entry.name for entry in load_suite("shared").available()}
    assert here == {"Trefethen_2000", "mycielskian11", "mycielskian13"}
    put(matrix_folder() / "bcsstk16.mtx.gz")
    assert "bcsstk16" in {entry.name for entry in load_suite("shared").available()}


def test_entry_of_a_group_is_found_by_its_full_name(cache: Path) -> None:
    entry = next(one for one in load_suite("paper414") if one.name == "2cubes_sphere")
    assert entry.source == "Um/2cubes_sphere"
    assert not entry.is_available()
    put(cache / "suitesparse" / "Um" / "2cubes_sphere.mtx.gz")
    assert entry.is_available()
    assert entry.load()[0, 0] == 4


def test_unknown_suite() -> None:
    with pytest.raises(InputError, match="no suite 'nope'; there are dense1, paper414"):
        load_suite("nope")


def test_resources_lie_in_the_checkout() -> None:
    root = checkout_root()
    assert root is not None
    assert resource_path("suites") == root / "data" / "suites"
    with pytest.raises(InputError, match="no resource 'nothing'"):
        resource_path("nothing")


def test_resources_of_a_wheel_lie_in_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "_resources" / "data" / "suites").mkdir(parents=True)
    monkeypatch.setattr("asyncsparse_lab.resources.checkout_root", lambda: None)
    monkeypatch.setattr("asyncsparse_lab.resources.files", lambda _package: tmp_path)
    assert resource_path("suites") == tmp_path / "_resources" / "data" / "suites"
    with pytest.raises(InputError, match="'kernels' is missing from this installation"):
        resource_path("kernels")
