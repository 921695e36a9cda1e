"""Downloading a file: resumed after a break, checked, and only then given its name."""

from __future__ import annotations

import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from asyncsparse_lab.errors import DownloadError

Progress = Callable[[int, int | None], None]
"""Takes bytes that are there, and bytes in all if the server says so."""

_CHUNK = 1 << 20
_TRIES = 3


def timeout_seconds() -> float:
    """Return how long a silent server is waited for (``ASYNCSPARSE_TIMEOUT``, default 30)."""
    return float(os.environ.get("ASYNCSPARSE_TIMEOUT", "30"))


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code} {error.reason}"
    if isinstance(error, TimeoutError):
        return f"the server is silent for {timeout_seconds():g} s"
    if isinstance(error, urllib.error.URLError):
        if isinstance(error.reason, TimeoutError):
            return _reason(error.reason)
        return f"no connection ({error.reason}): is there a network?"
    return str(error) or type(error).__name__


def remote_size(url: str) -> int | None:
    """Return how many bytes a download will take, or None if the server does not say.

    Raises
    ------
    DownloadError
        There is no network, or the server refuses.
    """
    try:
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=timeout_seconds()) as answer:
            length = answer.headers.get("Content-Length")
            return int(length) if length is not None and length.isdigit() else None
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise DownloadError(f"{url}: {_reason(error)}") from error


def download(url: str, target: Path, progress: Progress | None = None) -> Path:
    """Download a file; it appears under its name only when it is complete.

    A broken transfer leaves ``.NAME.part`` beside the target, and the next call goes on from
    there if the server still has the same file.

    Parameters
    ----------
    url : str
    target : Path
        Its folder is made if need be.
    progress : callable, optional
        Called after each piece with the bytes that are there and the bytes in all.

    Raises
    ------
    DownloadError
        No network, a status other than 200 and 206, a silent server, or a wrong length.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.part")
    tag = target.with_name(f".{target.name}.tag")
    for attempt in range(1, _TRIES + 1):
        try:
            _transfer(url, partial, tag, progress)
            break
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416:  # what is there does not fit what the server has: start again
                partial.unlink(missing_ok=True)
            elif error.code < 500:
                raise DownloadError(f"{url}: {_reason(error)}") from error
            failure: Exception = error
        except (OSError, http.client.HTTPException, ValueError) as error:
            failure = error
        if attempt == _TRIES:
            kept = partial.stat().st_size if partial.is_file() else 0
            again = f"; {kept} bytes are kept, a further try goes on from there" if kept else ""
            raise DownloadError(f"{url}: {_reason(failure)}{again}") from failure
        time.sleep(0.2 * attempt)
    os.replace(partial, target)
    tag.unlink(missing_ok=True)
    return target


def _transfer(url: str, partial: Path, tag: Path, progress: Progress | None) -> None:
    """Fetch what is missing of a file; raise if the end is not reached."""
    request = urllib.request.Request(url)
    there = partial.stat().st_size if partial.is_file() else 0
    if there and tag.is_file():
        # Only if it is still the same file; else the server sends the whole of the new one.
        request.add_header("Range", f"bytes={there}-")
        request.add_header("If-Range", tag.read_text())
    with urllib.request.urlopen(request, timeout=timeout_seconds()) as answer:
        if answer.status == 206:
            unit, _, total_text = answer.headers.get("Content-Range", "").partition("/")
            if not unit.startswith(f"bytes {there}-") or not total_text.isdigit():
                raise http.client.HTTPException(f"the server sends {unit or 'an unknown range'}")
            total: int | None = int(total_text)
        elif answer.status == 200:
            there = 0
            length = answer.headers.get("Content-Length")
            total = int(length) if length is not None else None
            mark = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
            if mark and not mark.startswith("W/"):
                tag.write_text(mark)
            else:
                tag.unlink(missing_ok=True)
        else:
            raise http.client.HTTPException(f"the server answers {answer.status}")
        with open(partial, "ab" if there else "wb") as file:
            while chunk := answer.read1(_CHUNK):
                file.write(chunk)
                there += len(chunk)
                if progress is not None:
                    progress(there, total)
    if total is not None and there != total:
        raise http.client.HTTPException(f"{there} of {total} bytes came")
