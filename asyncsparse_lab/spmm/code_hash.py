"""Hashes of what modules do: their syntax trees, without comments and docstrings."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def code_digest(paths: Iterable[Path]) -> str:
    """Return the SHA-256 of the code of modules, by their files."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(json.dumps(structure(ast.parse(path.read_text("utf-8")))).encode())
    return digest.hexdigest()


def structure(node: Any) -> Any:
    """Return a syntax tree as nested lists, the same in every version of Python.

    (``ast.dump`` is not: later versions have more fields.)  Docstrings are left out.
    """
    if isinstance(node, list):
        return [structure(item) for item in node if not _is_string(item)]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = [(name, value) for name, value in ast.iter_fields(node) if value not in (None, [])]
    return [type(node).__name__, *([name, structure(value)] for name, value in fields)]


def _is_string(statement: Any) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
