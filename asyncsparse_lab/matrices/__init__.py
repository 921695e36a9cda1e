"""Matrices: names -> canonical CSR."""

from __future__ import annotations

from asyncsparse_lab.matrices.canonical import Canonical, canonical
from asyncsparse_lab.matrices.folders import matrix_folder
from asyncsparse_lab.matrices.generators import GENERATORS, SHORT_FORMS, find_call
from asyncsparse_lab.matrices.generators.least_squares import right_hand_side
from asyncsparse_lab.matrices.generators.weights import LAYERS, BlockMatrix, load_blocks
from asyncsparse_lab.matrices.load import (
    available_names,
    find_matrix,
    load_matrix,
    load_matrix_with_facts,
    load_right_hand_side,
)
from asyncsparse_lab.matrices.matrix_market import (
    LoadedMatrix,
    read_matrix_market,
    write_matrix_market,
)
from asyncsparse_lab.matrices.suites import Suite, SuiteEntry, load_suite, suite_names

__all__ = [
    "GENERATORS",
    "LAYERS",
    "SHORT_FORMS",
    "BlockMatrix",
    "Canonical",
    "LoadedMatrix",
    "Suite",
    "SuiteEntry",
    "available_names",
    "canonical",
    "find_call",
    "find_matrix",
    "load_blocks",
    "load_matrix",
    "load_matrix_with_facts",
    "load_right_hand_side",
    "load_suite",
    "matrix_folder",
    "read_matrix_market",
    "right_hand_side",
    "suite_names",
    "write_matrix_market",
]
