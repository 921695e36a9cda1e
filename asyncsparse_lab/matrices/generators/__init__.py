"""Matrices made from parameters: ``name(key=value, ...)``, or a short form of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from asyncsparse_lab.matrices.generators import (
    collection,
    graphs,
    least_squares,
    meshes,
    structured,
    weights,
)
from asyncsparse_lab.matrices.generators.base import (
    Generator,
    GeneratorCall,
    Parameter,
    parse_call,
)

GENERATORS: Final[dict[str, Generator]] = {
    generator.name: generator
    for module in (collection, meshes, structured, graphs, weights, least_squares)
    for generator in module.GENERATORS
}
"""The table of generators."""


def _mycielskian(match: re.Match[str]) -> GeneratorCall:
    return GENERATORS["mycielskian"].call({"k": int(match[1])})


def _trefethen(match: re.Match[str]) -> GeneratorCall:
    dropped = 1 if match[2] else 0
    return GENERATORS["Trefethen"].call({"n": int(match[1]), "drop": dropped})


def _block_case(match: re.Match[str]) -> GeneratorCall:
    return GENERATORS["blocks"].call(weights.block_case_arguments(match[0]) or {})


def _feeder(match: re.Match[str]) -> GeneratorCall:
    return GENERATORS["feeder"].call({"buses": {"8kv": 2059, "11kv": 7798}[match[1]]})


SHORT_FORMS: Final[tuple[tuple[str, str, Callable[[re.Match[str]], GeneratorCall]], ...]] = (
    (r"mycielskian(\d{1,3})", "mycielskian14", _mycielskian),
    (r"Trefethen_(\d{1,9})(b?)", "Trefethen_2000", _trefethen),
    (
        r"(?:gate_proj|up_proj|down_proj)-keep\d+(?:\.\d+)?-uniform-s\d+",
        "gate_proj-keep10-uniform-s0",
        _block_case,
    ),
    (r"(8kv|11kv)-stand-in", "8kv-stand-in", _feeder),
)
"""Pattern, example and meaning of each short form."""


def find_call(name: str) -> GeneratorCall | None:
    """Return the generator call that a name stands for, or None if it stands for none.

    Raises
    ------
    InputError
        The name has the form of a call, but not of a valid one.
    """
    if "(" in name:
        return parse_call(name, GENERATORS)
    for pattern, _, meaning in SHORT_FORMS:
        if match := re.fullmatch(pattern, name):
            return meaning(match)
    if name in GENERATORS:
        return GENERATORS[name].call({})
    return None


__all__ = [
    "GENERATORS",
    "SHORT_FORMS",
    "Generator",
    "GeneratorCall",
    "Parameter",
    "find_call",
    "parse_call",
]
