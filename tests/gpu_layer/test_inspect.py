import re
from collections.abc import Callable
from pathlib import Path

import pytest

from asyncsparse_lab.errors import CompileError
from asyncsparse_lab.gpu import inspect
from asyncsparse_lab.gpu.compile import compile_kernel

pytestmark = pytest.mark.usefixtures("kernel_cache")


def test_counts_cover_every_instruction(write_kernel: Callable[..., Path]) -> None:
    artifact = compile_kernel(write_kernel(), "scale", {"FACTOR": 3})
    counts = inspect.sass_counts(artifact)
    # One load of x for the tile and one for twice(); one store; one barrier.
    assert counts["LDG"] == 2
    assert counts["STG"] == counts["BAR"] == counts["STS"] == counts["LDS"] == 1
    instructions = re.findall(r"/\*[0-9a-f]{4}\*/", inspect.sass(artifact))
    assert sum(counts.values()) == len(instructions)


def test_predicates_and_suffixes_are_not_mnemonics(tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text("""
        extern "C" __global__ void k(float* x, int n) {
          if (threadIdx.x == n) x[threadIdx.x] = 1.0f;
          asm volatile("bar.sync 3, 64;");
          __nanosleep(n);
        }""")
    counts = inspect.sass_counts(compile_kernel(source, "k", {}))
    assert counts["STG"] == counts["NANOSLEEP"] == counts["BAR"] == 1
    assert all(re.fullmatch(r"[A-Z][A-Z0-9]*", mnemonic) for mnemonic in counts)
    assert "P0" not in counts


def test_each_kernel_of_a_source_is_read_apart(tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text("""
        extern "C" __global__ void k(float* x) { *x = *x * 2.0f; }
        extern "C" __global__ void k_with_atomic(int* x) { atomicAdd(x + threadIdx.x, 1); }
        """)
    plain = inspect.sass_counts(compile_kernel(source, "k", {}))
    atomic = inspect.sass_counts(compile_kernel(source, "k_with_atomic", {}))
    assert "FADD" in plain or "FMUL" in plain
    assert {"RED", "REDG", "ATOMG"} & set(atomic)
    assert not {"RED", "REDG", "ATOMG"} & set(plain)


def test_missing_disassembler_names_the_wheel(
    write_kernel: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect, "find_disassembler", lambda: None)
    artifact = compile_kernel(write_kernel(), "scale", {"FACTOR": 5})
    with pytest.raises(CompileError, match="pip install nvidia-cuda-nvdisasm"):
        inspect.sass(artifact)


def test_configured_disassembler_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "nvdisasm"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    for configured in (own, tmp_path):
        monkeypatch.setenv("NVDISASM_PATH", str(configured))
        assert inspect.find_disassembler() == own
