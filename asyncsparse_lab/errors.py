"""Everything a caller can catch.

Each class derives from :class:`AsyncSparseError` and from the built-in class that a reader
would expect, so that ``except ValueError`` works too.  A message is one line: it names the
value that was wrong and the remedy.
"""

from __future__ import annotations


class AsyncSparseError(Exception):
    """Base of all errors that this package raises on purpose."""


class InputError(AsyncSparseError, ValueError):
    """An argument has the wrong shape, type, range or content."""


class MatrixFileError(InputError):
    """A matrix file is malformed, truncated or mislabelled; names the file and the line."""


class RecordError(InputError):
    """A measurement record or a claims file does not follow its schema."""


class DownloadError(AsyncSparseError, RuntimeError):
    """A download failed; no partial file was left under the final name."""


class CompileError(AsyncSparseError, RuntimeError):
    """A kernel did not compile, or compiled into something that the gate refuses."""


class DeviceError(AsyncSparseError, RuntimeError):
    """No suitable GPU, or the GPU reported an error."""


class UnsupportedError(AsyncSparseError, NotImplementedError):
    """A library or a kernel does not offer this combination of types and shapes."""


class MemoryLimitError(AsyncSparseError, MemoryError):
    """The bytes predicted for an operation exceed what is there; nothing was allocated."""


class NotebookError(AsyncSparseError, RuntimeError):
    """A notebook failed; its executed copy was kept."""
