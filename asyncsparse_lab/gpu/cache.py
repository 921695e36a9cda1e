"""Compiled kernels on disk: one folder a key, whole or not there.

They lie in ``kernels`` below ``ASYNCSPARSE_CACHE``, by default ``~/.cache/asyncsparse``.  A folder
holds ``kernel.cu`` and the headers it included, ``kernel.cubin``, ``compile.log`` and
``report.json``.  It is written under a temporary name and renamed, so processes that build the
same kernel at once do not disturb each other.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from asyncsparse_lab.errors import CompileError
from asyncsparse_lab.gpu.ptxas import Resources, parse_ptxas_log
from asyncsparse_lab.resources import cache_folder

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Report:
    """What was built: ``report.json``.

    Attributes
    ----------
    name : str
        The source in messages.
    compiler : str
        Such as ``"nvrtc 13.0.88"``.
    options : tuple of str
        What the compiler was given.
    cubin_sha256 : str
        Of the cubin, in hexadecimal.
    entries : tuple of str
        The kernels in the cubin.
    functions : mapping
        Resources of the kernels and of what was not inlined into them.
    """

    name: str
    compiler: str
    options: tuple[str, ...]
    cubin_sha256: str
    entries: tuple[str, ...]
    functions: Mapping[str, Resources]


def cache_root() -> Path:
    """Return the folder that compiled kernels are kept in; it need not exist yet."""
    return cache_folder() / "kernels"


def store(
    folder: Path,
    *,
    name: str,
    source: str,
    headers: Mapping[str, str],
    options: tuple[str, ...],
    compiler: str,
    cubin: bytes,
    log: str,
) -> Report:
    """Write one artifact; another process may write the same at the same time.

    Parameters
    ----------
    folder : Path
        Its place below :func:`cache_root`.
    name, source, headers, options, compiler
        What was compiled, and how.
    cubin, log
        What came out.

    Raises
    ------
    CompileError
        The cache cannot be written.
    """
    entries, functions = parse_ptxas_log(log)
    digest = hashlib.sha256(cubin).hexdigest()
    report = Report(name, compiler, options, digest, tuple(entries), functions)
    files = {
        "kernel.cu": source.encode(),
        **{f"include/{header}": text.encode() for header, text in headers.items()},
        "kernel.cubin": cubin,
        "compile.log": f"{log}\n".encode(),
        "report.json": json.dumps(asdict(report), indent=1).encode(),
    }
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".building-", dir=folder.parent))
        try:
            for file, content in files.items():
                (temporary / file).parent.mkdir(parents=True, exist_ok=True)
                (temporary / file).write_bytes(content)
            _rename_unless_there(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise CompileError(
            f"cannot write to the kernel cache {folder.parent} ({error.strerror}): "
            "set ASYNCSPARSE_CACHE to a folder that can be written"
        ) from error
    return report


def read(folder: Path) -> Report | None:
    """Return the report of an artifact; None if there is none, or it was damaged (and is gone)."""
    if not folder.is_dir():
        return None
    try:
        content = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        functions = {name: Resources(**numbers) for name, numbers in content["functions"].items()}
        report = Report(
            name=content["name"],
            compiler=content["compiler"],
            options=tuple(content["options"]),
            cubin_sha256=content["cubin_sha256"],
            entries=tuple(content["entries"]),
            functions=functions,
        )
        (folder / "compile.log").stat()
        cubin = (folder / "kernel.cubin").read_bytes()
        if hashlib.sha256(cubin).hexdigest() == report.cubin_sha256:
            return report
        reason = "its cubin is not the one that was built"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = str(error)
    _LOG.warning("cached kernel %s is damaged (%s): building it again", folder, reason)
    _discard(folder)
    return None


def _rename_unless_there(temporary: Path, folder: Path) -> None:
    try:
        temporary.rename(folder)
    except OSError:
        # Another process was first, with the same bytes: theirs stays.
        if read(folder) is None:
            raise


def _discard(folder: Path) -> None:
    """Remove a folder so that others see all of it or none."""
    try:
        away = Path(tempfile.mkdtemp(prefix=".discarded-", dir=folder.parent))
    except OSError:
        return  # a cache that only others may write to: building again says so
    try:
        folder.rename(away / folder.name)
    except FileNotFoundError:
        pass  # another process was discarding it at the same time
    finally:
        shutil.rmtree(away, ignore_errors=True)
