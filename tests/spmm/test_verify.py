from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncsparse_lab.errors import DeviceError, UnsupportedError
from asyncsparse_lab.formats import BCSR, bfloat16_bits, bfloat16_from_bits
from asyncsparse_lab.lsmr.updates import update_builds
from asyncsparse_lab.resources import resource_path
from asyncsparse_lab.spmm import verify
from asyncsparse_lab.spmm.contender import Prepared
from asyncsparse_lab.spmm.edge_cases import EDGE_CASES, EdgeCase
from asyncsparse_lab.spmm.product import Product
from asyncsparse_lab.studies import sanitize

CASES = {case.name: case for case in EDGE_CASES}
QUICK = [case for case in EDGE_CASES if case.scope == "small"]


@dataclass
class BlockProduct:
    """A right BCSR product on the host; ``break_it(C, product, run)`` makes it wrong."""

    break_it: Callable[[Any, Product, int], None] = lambda C, product, run: None
    role: str = "ours"
    backend: str = "asyncsparse"
    variant: str = "host"
    params: dict[str, Any] = field(default_factory=dict)

    def prepare(self, product: Product) -> Prepared:
        output = product.new_output()
        A = BCSR.from_csr(product.A, (64, 64))
        m, k = product.A.shape
        runs = 0

        def run() -> None:
            nonlocal runs
            padded = np.zeros((k + -k % 64, product.n), np.float32)
            padded[:k] = bfloat16_from_bits(product.B)
            C = np.zeros((m + -m % 64, product.n), np.float32)
            for row in range(len(A.block_row_ptr) - 1):
                for block in range(A.block_row_ptr[row], A.block_row_ptr[row + 1]):
                    column = 64 * A.block_col_idx[block]
                    C[64 * row : 64 * row + 64] += A.blocks[block] @ padded[column : column + 64]
            output[...] = bfloat16_bits(C[:m]) if output.dtype == np.uint16 else C[:m]
            self.break_it(output, product, runs)
            runs += 1

        return Prepared(run, output, 0.0, {"wgmma_n": 8}, "hash", "host", "none")


@pytest.mark.parametrize("dtype_out", ["bfloat16", "float32"])
@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_a_right_block_product_passes(case: EdgeCase, dtype_out: str) -> None:
    outcome = verify.verify_case(BlockProduct(), dtype_out, case, np)
    assert outcome.fault is None
    assert outcome.share <= 1.0
    assert outcome.elements == case.make().shape[0] * case.n
    assert outcome.kernel_hash == "hash"


def unwritten_row(C: Any, product: Product, run: int) -> None:
    C[-1] = np.nan if C.dtype == np.float32 else 0x7FC0


def one_bad_element(C: Any, product: Product, run: int) -> None:
    C[3, 5] += 1.0


def other_bits(C: Any, product: Product, run: int) -> None:
    C[0, 0] = -C[0, 0] if run and C[0, 0] == 0 else C[0, 0]


def column_zero_for_padding(C: Any, product: Product, run: int) -> None:
    C += 0 * bfloat16_from_bits(product.B)[0]


@pytest.mark.parametrize(
    ("break_it", "case", "words"),
    [
        (unwritten_row, "ragged-n143", r"C\[200, 0\] is nan"),
        (one_bad_element, "whole-tiles", r"C\[3, 5\] is .* not .* \(rel_err"),
        (other_bits, "no-nonzeros", "second run gave other bits"),
        (column_zero_for_padding, "poisoned-b", r"C\[0, 0\] is nan"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_what_kernels_get_wrong_is_found(
    break_it: Callable[[Any, Product, int], None], case: str, words: str
) -> None:
    outcome = verify.verify_case(BlockProduct(break_it), "float32", CASES[case], np)
    assert outcome.fault is not None
    assert re.search(words, outcome.fault)


def test_a_refusal_is_a_fault_and_a_broken_device_is_an_error() -> None:
    class Refuses(BlockProduct):
        def prepare(self, product: Product) -> Prepared:
            raise UnsupportedError("odd strides")

    class Breaks(BlockProduct):
        def prepare(self, product: Product) -> Prepared:
            raise RuntimeError("cudaErrorIllegalAddress")

    outcome = verify.verify_case(Refuses(), "float32", CASES["odd-b"], np)
    assert outcome.fault == "UnsupportedError: odd strides"
    with pytest.raises(
        DeviceError, match=r"host bfloat16 to float32, row-major, on odd-b: .*IllegalAddress"
    ):
        verify.verify_case(Breaks(), "float32", CASES["odd-b"], np)


CLEAN = """========= COMPUTE-SANITIZER
bcsr-opt0 bfloat16 whole-tiles: right
========= ERROR SUMMARY: 0 errors
"""
DIRTY = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 16 bytes
=========     at bcsr_spmm+0x1230
========= Invalid __global__ read of size 16 bytes
=========     at bcsr_spmm+0x1240
========= Barrier error detected. Missing wait.
========= ERROR SUMMARY: 3 errors
"""
RACES = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at bcsr_spmm+0x10 and Read access at +0x20
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


def test_reports_of_the_sanitizer() -> None:
    assert sanitize.parse_report("memcheck", CLEAN) == (0, ())
    errors, found = sanitize.parse_report("memcheck", DIRTY)
    assert errors == 3
    assert len(found) == 2
    assert found[0] == "Invalid __global__ read of size 16 bytes"
    assert found[1].startswith("Barrier error")
    assert sanitize.parse_report("racecheck", RACES)[0] == 1
    with pytest.raises(DeviceError, match="ended without a summary: Killed"):
        sanitize.parse_report("memcheck", "========= COMPUTE-SANITIZER\nKilled\n\n")


def test_a_missing_sanitizer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitize, "find_sanitizer", lambda: None)
    with pytest.raises(DeviceError, match="install the CUDA toolkit"):
        sanitize.run_sanitizer("memcheck", "bcsr-opt3")


@pytest.fixture
def sanitizer(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Callable[[str], Any]:
    """Put a shell script in compute-sanitizer's place."""

    def stand_in(script: str) -> Any:
        program = tmp_path / "compute-sanitizer"
        version = 'if [ "$1" = --version ]; then echo "Version 2025.3.1.0"; exit; fi'
        program.write_text(f"#!/bin/sh\n{version}\ncd {tmp_path}\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(sanitize, "find_sanitizer", lambda: str(program))
        return tmp_path

    return stand_in


def test_the_sanitizer_runs_the_small_cases(sanitizer: Callable[[str], Any]) -> None:
    folder = sanitizer('echo "$@" > asked\necho "========= ERROR SUMMARY: 0 errors"')
    outcome = sanitize.run_sanitizer("synccheck", "bcsr-opt3")
    assert (outcome.errors, outcome.exit_code, outcome.version) == (0, 0, "2025.3.1.0")
    asked = (folder / "asked").read_text()
    assert asked.startswith("--tool synccheck --report-api-errors no --kernel-regex kns=csr_ ")
    assert asked.endswith("-m asyncsparse_lab verify --small --variant bcsr-opt3\n")


def test_our_kernels_are_those_that_the_sanitizer_filters_by() -> None:
    kernels = resource_path("kernels")
    sources = [*kernels.glob("[bcw]*sr*.cu"), *kernels.glob("lsmr_*.cu"), kernels / "convert.cu"]
    text = "".join(source.read_text() for source in sources)
    entries = set(re.findall(r"\b(\w+)\(const __grid_constant__", text)) - {"name"}
    entries |= {build.entry for build in update_builds()}
    assert {"bcsr_spmm", "wcsr_spmm", "wcsr_clear", "convert_csr", "lsmr_persistent"} <= entries
    assert all(any(part in entry for part in sanitize._KERNELS) for entry in entries)


def test_a_sanitizer_that_hangs_is_killed_with_its_child(
    sanitizer: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sanitizer("sleep 60 & echo $! > child\nwait")
    monkeypatch.setattr(sanitize, "LIMIT_SECONDS", 0.5)
    with pytest.raises(DeviceError, match="memcheck: no end after 0 s"):
        sanitize.run_sanitizer("memcheck", "bcsr-opt3")
    child = Path("/proc", (folder / "child").read_text().strip(), "stat")
    assert not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_child_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    from asyncsparse_lab.spmm.variants import VARIANTS

    with pytest.raises(DeviceError, match="no answer after 0 s of 7 launches: the kernel hangs"):
        verify.launch_in_child(VARIANTS["bcsr-opt3"], 7, limit_seconds=0.05)


def test_a_child_without_a_gpu_says_so() -> None:
    from asyncsparse_lab.gpu.device import missing_gpu
    from asyncsparse_lab.spmm.variants import VARIANTS

    if missing_gpu() is None:
        pytest.skip("this machine has a GPU")
    with pytest.raises(DeviceError, match="bcsr-opt3: DeviceError"):
        verify.launch_in_child(VARIANTS["bcsr-opt3"], 7)
