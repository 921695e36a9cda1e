"""Hashes of what stands beside the kernel: the variant's entry and the device layout."""

from __future__ import annotations

import ast
from dataclasses import replace

from asyncsparse_lab.spmm import code_hash, run
from asyncsparse_lab.spmm.variants import VARIANTS

OPT3 = VARIANTS["bcsr-opt3"]


def test_the_host_hash_follows_the_entry() -> None:
    first = run.host_hash(OPT3)
    assert run.host_hash(OPT3) == first
    assert run.host_hash(OPT3.with_constants(STAGES=2)) != first
    wider = replace(OPT3.launch_geometry, threads=256)
    assert run.host_hash(replace(OPT3, geometry=wider)) != first


def test_comments_and_docstrings_do_not_count_but_code_does() -> None:
    def structure(text: str) -> object:
        return code_hash.structure(ast.parse(text))

    plain = structure("def f(x: int) -> int:\n    return x + 1\n")
    documented = '"""Doc."""\ndef f(x: int) -> int:\n    """Doc."""\n    return x + 1\n'
    assert structure(documented) == plain
    assert structure("def f(x: int) -> int:\n    return x + 1  # why\n") == plain
    assert structure("def f(x: int) -> int:\n    return x + 2\n") != plain
