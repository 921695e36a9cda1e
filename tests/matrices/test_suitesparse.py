"""Catalogue and transfer, against a server on the loopback interface that misbehaves."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asyncsparse_lab.errors import DownloadError, InputError, UnsupportedError
from asyncsparse_lab.matrices import catalogue, load_matrix, suitesparse, transfer

TEXT = b"%%MatrixMarket matrix coordinate real general\n3 2 3\n1 1 4\n2 1 0\n3 2 5\n"
# More than a socket's buffer, and not compressible, so that half of it is a real half.
PADDING = random.Random(0).randbytes(300_000)
STATISTICS = """3
01-Jan-2020 00:00:00
HB,toy,3,2,2,1,0,0,0,0,0,structural problem,3
HB,toyota,30,30,90,1,1,0,0,1,1,undirected graph,90
Other,toy,5,5,9,0,0,0,0,1,1,circuit problem,9
"""
Pack = Callable[[dict[str, bytes]], bytes]
TOY = "/MM/HB/toy.tar.gz"


@pytest.fixture(autouse=True)
def collection(site: Any, archive: Pack) -> None:
    """A collection of three members, of which one has an archive."""
    site.files[TOY] = archive({"toy/toy.mtx": TEXT, "toy/toy_b.mtx": PADDING})
    site.files["/files/ssstats.csv"] = STATISTICS.encode()


def leftovers(cache: Path) -> list[str]:
    found = [path for path in (cache / "suitesparse").rglob("*") if path.is_file()]
    return sorted(path.name for path in found)


def test_load_fetches_once_and_keeps(site: Any, cache: Path) -> None:
    matrix = load_matrix("HB/toy")
    assert matrix.toarray().tolist() == [[4, 0], [0, 0], [0, 5]]
    assert leftovers(cache) == ["toy.mtx.gz"]
    asked = len(site.requests)
    assert (load_matrix("HB/toy") != matrix).nnz == 0
    assert (load_matrix("toy") != matrix).nnz == 0
    assert len(site.requests) == asked, "the second time nothing is asked of the server"


def test_bytes_are_told_before_the_transfer(site: Any) -> None:
    told = []
    seen = []

    def announce(count: int, total: int) -> None:
        told.append((count, total, [method for method, path, _ in site.requests if path == TOY]))

    suitesparse.fetch_all(["HB/toy"], announce, lambda there, total: seen.append((there, total)))
    size = len(site.files[TOY])
    assert told == [(1, size, ["HEAD"])]
    assert seen[-1] == (size, size)
    suitesparse.fetch_all(["HB/toy"], announce)
    assert len(told) == 1, "nothing is missing, nothing is announced"


def test_wrong_name_stops_before_any_transfer(site: Any) -> None:
    with pytest.raises(InputError, match="no matrix 'HB/nope'"):
        suitesparse.fetch_all(["HB/toy", "HB/nope"], lambda *_: None)
    assert TOY not in [path for _, path, _ in site.requests]


def test_cut_off_transfer_is_resumed_within_one_call(site: Any, cache: Path) -> None:
    site.cuts[TOY] = [100_000]
    suitesparse.fetch("HB/toy")
    ranges = [asked for method, path, asked in site.requests if path == TOY]
    assert ranges == [None, "bytes=100000-"]
    assert leftovers(cache) == ["toy.mtx.gz"]


def test_cut_off_transfer_is_resumed_by_the_next_call(site: Any, cache: Path) -> None:
    site.cuts[TOY] = [50_000, 60_000, 70_000]
    with pytest.raises(DownloadError, match="70000 bytes are kept") as caught:
        suitesparse.fetch("HB/toy")
    assert "\n" not in str(caught.value)
    assert leftovers(cache) == [".toy.tar.gz.part", ".toy.tar.gz.tag"]
    assert not suitesparse.cached_path(catalogue.find_in_catalogue("HB/toy")).exists()
    suitesparse.fetch("HB/toy")
    assert site.requests[-1] == ("GET", TOY, "bytes=70000-")
    assert leftovers(cache) == ["toy.mtx.gz"]


def test_changed_file_is_not_patched_together(site: Any, cache: Path, archive: Pack) -> None:
    site.cuts[TOY] = [50_000, 60_000, 70_000]
    with pytest.raises(DownloadError):
        suitesparse.fetch("HB/toy")
    site.etag = '"two"'
    site.files[TOY] = archive({"toy/toy_c.mtx": PADDING[::-1], "toy/toy.mtx": TEXT})
    assert load_matrix("HB/toy").nnz == 2


def test_range_that_the_server_refuses_starts_again(site: Any, cache: Path) -> None:
    folder = cache / "suitesparse" / "HB"
    folder.mkdir(parents=True)
    (folder / ".toy.tar.gz.part").write_bytes(b"x" * (len(site.files[TOY]) + 10))
    (folder / ".toy.tar.gz.tag").write_text(site.etag)
    assert load_matrix("HB/toy").nnz == 2


@pytest.mark.parametrize(
    ("status", "words"), [(404, "404 Not Found"), (403, "403 Forbidden"), (503, "503 ")]
)
def test_refusal_of_the_server_is_one_line(site: Any, cache: Path, status: int, words: str) -> None:
    site.status[TOY] = status
    with pytest.raises(DownloadError, match=f"toy.tar.gz: the server answers {words}") as caught:
        suitesparse.fetch("HB/toy")
    assert "\n" not in str(caught.value)
    tries = [path for _, path, _ in site.requests].count(TOY)
    assert tries == (3 if status == 503 else 1)
    assert leftovers(cache) == []


def test_silent_server_is_given_up(site: Any, cache: Path) -> None:
    site.silent.add(TOY)
    with pytest.raises(DownloadError, match=r"the server is silent for 0\.3 s"):
        suitesparse.fetch("HB/toy")


def test_no_network_is_one_line(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    monkeypatch.setenv("ASYNCSPARSE_SUITESPARSE_URL", f"http://127.0.0.1:{port}")
    with pytest.raises(DownloadError, match="is there a network") as caught:
        load_matrix("HB/toy")
    assert "\n" not in str(caught.value)
    with pytest.raises(DownloadError, match="is there a network"):
        transfer.remote_size(f"http://127.0.0.1:{port}{TOY}")


EVIL = {
    "path outside": ({"../../evil.mtx": TEXT}, "refused"),
    "path outside from within": ({"toy/../../../evil.mtx": TEXT, "toy/toy.mtx": TEXT}, "refused"),
    "link outside": ({"toy/toy.mtx": b"->/etc/hostname"}, "refused"),
    "link within": ({"toy/a": TEXT, "toy/toy.mtx": b"->a"}, "holds no toy/toy.mtx"),
    "no matrix": ({"toy/other.mtx": TEXT}, "holds no toy/toy.mtx"),
    "wrong shape": (
        {"toy/toy.mtx": TEXT.replace(b"3 2 3", b"3 3 3")},
        "3 x 3 with 2 non-zeros came, the index says 3 x 2 with 2",
    ),
    "wrong count": (
        {"toy/toy.mtx": b"%%MatrixMarket matrix coordinate real general\n3 2 1\n1 1 4\n"},
        "with 1 non-zeros came",
    ),
    "no matrix file": ({"toy/toy.mtx": b"<html>"}, "no matrix: .* line 1: .* web page"),
}


@pytest.mark.parametrize("name", EVIL)
def test_archive_that_is_not_right_is_refused(
    site: Any, cache: Path, archive: Pack, name: str
) -> None:
    members, words = EVIL[name]
    site.files[TOY] = archive(members)
    with pytest.raises(DownloadError, match=words) as caught:
        suitesparse.fetch("HB/toy")
    assert "\n" not in str(caught.value)
    assert leftovers(cache) == []
    assert not list(cache.parent.rglob("evil.mtx"))


@pytest.mark.parametrize("length", [True, False])
def test_damaged_archive_is_refused(site: Any, cache: Path, length: bool) -> None:
    site.files[TOY] = site.files[TOY][:200_000]
    if not length:
        site.no_length.add(TOY)
    with pytest.raises(DownloadError, match="the archive is damaged"):
        suitesparse.fetch("HB/toy")
    assert leftovers(cache) == []
    site.files[TOY] = b"<html>not here</html>"
    with pytest.raises(DownloadError, match="the archive is damaged"):
        suitesparse.fetch("HB/toy")


def test_archive_larger_than_the_disk_is_refused(
    site: Any, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type(suitesparse.shutil.disk_usage("."))(100, 50, 50)
    monkeypatch.setattr(suitesparse.shutil, "disk_usage", lambda _path: usage)
    with pytest.raises(DownloadError, match="unpacked it takes 70 bytes, of which 50 are free"):
        suitesparse.fetch("HB/toy")


def test_index_is_downloaded_once_and_then_needs_no_network(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = catalogue.search_catalogue("toy")
    assert [entry.full_name for entry in found] == ["HB/toy", "Other/toy", "HB/toyota"]
    assert found[0].kind == "structural problem"
    assert [entry.field for entry in found] == ["real", "complex", "binary"]
    monkeypatch.setenv("ASYNCSPARSE_SUITESPARSE_URL", "http://127.0.0.1:9")
    assert len(catalogue.search_catalogue()) == 3
    assert len(site.requests) == 1


def test_index_is_made_from_the_folder_when_it_is_there(
    site: Any, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache.parent / "matrices" / "ssstats.csv").write_text(STATISTICS)
    assert catalogue.find_in_catalogue("HB/toyota").nnz == 90
    assert site.requests == []


def test_index_of_the_user_is_taken_over(site: Any, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "stats.csv").write_text(STATISTICS)
    catalogue.seed_catalogue(tmp_path / "stats.csv")
    users_own = cache.parent / "home" / ".ssgetpy" / "index.db"
    users_own.parent.mkdir()
    catalogue.index_path().rename(users_own)
    assert catalogue.find_in_catalogue("toyota").group == "HB"
    assert site.requests == []
    assert users_own.is_file()


def test_exact_names_only(site: Any) -> None:
    assert catalogue.find_in_catalogue("HB/toy").rows == 3
    assert catalogue.find_in_catalogue("Other/toy").rows == 5
    with pytest.raises(InputError, match=r"several matrices .* HB/toy, Other/toy"):
        catalogue.find_in_catalogue("toy")
    with pytest.raises(InputError, match=r"no matrix 'HB/to' .*: there are HB/toy, HB/toyota"):
        catalogue.find_in_catalogue("HB/to")
    with pytest.raises(InputError, match="is in no name"):
        catalogue.search_catalogue("x' OR 1=1 --")


def test_search_by_size(site: Any) -> None:
    found = catalogue.search_catalogue(min_nnz=5, max_nnz=50)
    assert [entry.full_name for entry in found] == ["Other/toy"]
    assert len(catalogue.search_catalogue("toy", limit=2)) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<html>\n\n\n", "line 1: the number of matrices is expected"),
        ("5\ndate\nHB,toy,3,2,2,1,0,0,0,0,0,kind,3\n", "5 matrices announced, 1 there"),
        ("1\ndate\nHB,toy,three,2,2,1,0,0,0,0,0,kind,3\n", "not the collection's"),
        ("1\ndate\nHB,toy\n", "not the collection's"),
    ],
)
def test_statistics_file_that_is_none(site: Any, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "stats.csv").write_text(text)
    with pytest.raises(InputError, match=words):
        catalogue.seed_catalogue(tmp_path / "stats.csv")
    assert not catalogue.index_path().exists()
    site.files["/files/ssstats.csv"] = text.encode()
    with pytest.raises(DownloadError, match="statistics file is damaged"):
        catalogue.refresh_catalogue()


def test_damaged_index_says_what_to_do(site: Any, cache: Path) -> None:
    cache.mkdir()
    catalogue.index_path().write_bytes(b"not a database" * 100)
    with pytest.raises(InputError, match=r"the index is damaged .*: delete it"):
        catalogue.search_catalogue("toy")


def test_refresh_replaces_the_index(site: Any) -> None:
    assert len(catalogue.search_catalogue()) == 3
    lines = STATISTICS.splitlines()
    site.files["/files/ssstats.csv"] = "\n".join(["1", *lines[1:3]]).encode()
    assert catalogue.refresh_catalogue() == 1
    assert len(catalogue.search_catalogue()) == 1


def test_ssgetpy_stays_importable_and_the_home_folder_untouched(site: Any, cache: Path) -> None:
    """In a process of its own: nothing of ssgetpy is loaded by an import of ours."""
    code = (
        "import sys, asyncsparse_lab.matrices as m\n"
        "assert not any(name.startswith('ssgetpy') for name in sys.modules)\n"
        "from asyncsparse_lab.matrices.catalogue import search_catalogue\n"
        "assert len(search_catalogue()) == 3\n"
        "assert not any(name.startswith('ssgetpy') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert list((cache.parent / "home").iterdir()) == []


def test_missing_ssgetpy_says_what_to_install(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue.search_catalogue("toy")  # the index is there
    catalogue._ssgetpy_modules.cache_clear()
    monkeypatch.setattr(catalogue.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UnsupportedError, match="pip install ssgetpy"):
        catalogue.search_catalogue("toy")


def test_cache_that_cannot_be_written_says_what_to_do(
    site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ASYNCSPARSE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(InputError, match="set ASYNCSPARSE_CACHE"):
        load_matrix("HB/toy")


def test_missing_archive_is_noticed_before_any_transfer(site: Any) -> None:
    del site.files[TOY]
    with pytest.raises(DownloadError, match="404 Not Found"):
        suitesparse.fetch_all(["HB/toy"], lambda *_: None)
