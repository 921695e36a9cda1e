"""A cache of the test's own, and a collection on the loopback interface that can misbehave."""

from __future__ import annotations

import io
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder, a home folder and a folder of matrices of the test's own."""
    for name in ("home", "matrices"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ASYNCSPARSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ASYNCSPARSE_MATRICES", str(tmp_path / "matrices"))
    return tmp_path / "cache"


@dataclass
class Site:
    """What the server holds, how it misbehaves, and what it was asked."""

    files: dict[str, bytes]
    # path -> bytes after which the connection is cut; used up once per entry
    cuts: dict[str, list[int]] = field(default_factory=dict)
    status: dict[str, int] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    no_length: set[str] = field(default_factory=set)
    etag: str = '"one"'
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    wake: threading.Event = field(default_factory=threading.Event)
    url: str = ""


def pack(members: dict[str, bytes]) -> bytes:
    """Pack files into a .tar.gz; a value of b"->TARGET" makes a symbolic link."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            if data.startswith(b"->"):
                info.type, info.linkname = tarfile.SYMTYPE, data[2:].decode()
                tar.addfile(info)
            else:
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return packed.getvalue()


@contextmanager
def run_server(site: Site) -> Iterator[Site]:
    """Run the server for the time of a with block."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _answer(self, body: bool) -> None:
            site.requests.append((self.command, self.path, self.headers.get("Range")))
            if self.path in site.silent:
                site.wake.wait(10)
                return
            status = site.status.get(self.path, 200 if self.path in site.files else 404)
            if status != 200:
                self.send_error(status)
                return
            data, start = site.files[self.path], 0
            asked = self.headers.get("Range")
            if asked and self.headers.get("If-Range") == site.etag:
                start = int(asked.removeprefix("bytes=").removesuffix("-"))
                if start >= len(data):
                    self.send_error(416)
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            else:
                self.send_response(200)
            if self.path not in site.no_length:
                self.send_header("Content-Length", str(len(data) - start))
            self.send_header("ETag", site.etag)
            self.end_headers()
            if body:
                cuts = site.cuts.get(self.path, [])
                stop = cuts.pop(0) if cuts else len(data)
                self.wfile.write(data[start:stop])

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            site.wake.set()
            server.shutdown()
            thread.join()


@pytest.fixture(name="archive")
def _archive() -> Callable[[dict[str, bytes]], bytes]:
    return pack


@pytest.fixture
def site(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """An empty collection; whoever asks for the SuiteSparse collection is sent to it."""
    monkeypatch.setenv("ASYNCSPARSE_TIMEOUT", "0.3")
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with run_server(Site({})) as running:
        monkeypatch.setenv("ASYNCSPARSE_SUITESPARSE_URL", running.url)
        yield running
