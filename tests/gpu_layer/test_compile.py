import hashlib
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from asyncsparse_lab.errors import CompileError, InputError
from asyncsparse_lab.gpu import compile as compiling
from asyncsparse_lab.gpu import nvrtc
from asyncsparse_lab.gpu.compile import KernelBuild, compile_kernel, compile_many

pytestmark = pytest.mark.usefixtures("kernel_cache")

WriteKernel = Callable[..., Path]


def forbid_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(compiling, "compile_text", refuse)


def test_artifact_holds_cubin_hash_resources_and_log(write_kernel: WriteKernel) -> None:
    artifact = compile_kernel(write_kernel(), "scale", {"FACTOR": 3})
    image = artifact.cubin.read_bytes()
    assert image.startswith(b"\x7fELF")
    assert artifact.kernel_hash == hashlib.sha256(image).hexdigest()
    assert artifact.compiler.startswith("nvrtc ")
    assert artifact.compiler.count(".") == 2
    assert artifact.resources.static_shared == 64 * 4
    assert 0 < artifact.resources.registers <= 255
    assert artifact.resources.spill_stores == artifact.resources.spill_loads == 0
    assert "Compiling entry function 'scale' for 'sm_90a'" in artifact.log
    assert sorted(path.name for path in artifact.folder.iterdir()) == [
        "compile.log",
        "include",
        "kernel.cu",
        "kernel.cubin",
        "report.json",
    ]


def test_second_compilation_comes_from_the_cache(
    write_kernel: WriteKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compile_kernel(write_kernel(), "scale", {"FACTOR": 3, "UNUSED": 1})
    forbid_compiling(monkeypatch)
    again = compile_kernel(write_kernel(), "scale", {"UNUSED": np.int32(1), "FACTOR": 3})
    assert again == first


def test_constants_reach_the_kernel(write_kernel: WriteKernel) -> None:
    three, four = (compile_kernel(write_kernel(), "scale", {"FACTOR": f}) for f in (3, 4))
    assert three.kernel_hash != four.kernel_hash


def test_comments_and_place_change_the_key_but_not_the_kernel(
    write_kernel: WriteKernel, scale_source: str, scale_header: str
) -> None:
    here = compile_kernel(write_kernel(), "scale", {"FACTOR": 3})
    elsewhere = compile_kernel(
        write_kernel(
            source=f"// another comment\n\n{scale_source}",
            header=scale_header.replace("2 * value;", "2 * value; /* and one here */"),
            folder="a copy",
        ),
        "scale",
        {"FACTOR": 3},
    )
    assert elsewhere.folder != here.folder
    assert elsewhere.kernel_hash == here.kernel_hash


def test_header_of_a_header_is_part_of_the_key(tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text('#include "outer.cuh"\nextern "C" __global__ void k(float* x) { *x = F; }')
    (tmp_path / "outer.cuh").write_text('#include "inner.cuh"')
    hashes = set()
    for value in (1, 2):
        (tmp_path / "inner.cuh").write_text(f"#define F {value}.0f")
        hashes.add(compile_kernel(source, "k", {}).kernel_hash)
    assert len(hashes) == 2


def test_compiler_version_is_part_of_the_key(
    write_kernel: WriteKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = compile_kernel(write_kernel(), "scale", {"FACTOR": 3})
    monkeypatch.setattr(compiling, "compiler_version", lambda: "nvrtc 1.2.3")
    other = compile_kernel(write_kernel(), "scale", {"FACTOR": 3})
    assert (other.compiler, other.kernel_hash) == ("nvrtc 1.2.3", now.kernel_hash)
    assert other.folder != now.folder


@pytest.mark.parametrize(
    ("file", "content"),
    [("kernel.cubin", b"\x7fELF cut"), ("report.json", b'{"name": '), ("report.json", None)],
)
def test_damaged_cache_is_named_and_rebuilt(
    write_kernel: WriteKernel,
    caplog: pytest.LogCaptureFixture,
    kernel_cache: Path,
    file: str,
    content: bytes | None,
) -> None:
    first = compile_kernel(write_kernel(), "scale", {"FACTOR": 3})
    if content is None:
        (first.folder / file).unlink()
    else:
        (first.folder / file).write_bytes(content)
    with caplog.at_level(logging.WARNING):
        again = compile_kernel(write_kernel(), "scale", {"FACTOR": 3})
    assert again == first
    assert hashlib.sha256(again.cubin.read_bytes()).hexdigest() == first.kernel_hash
    assert str(first.folder) in caplog.text
    assert [path.name for path in kernel_cache.iterdir()] == [first.folder.name]


def test_the_same_kernel_built_at_once_is_stored_once(
    write_kernel: WriteKernel, kernel_cache: Path
) -> None:
    build = KernelBuild(write_kernel(), "scale", {"FACTOR": 3})
    done: list[KernelBuild] = []
    results = compile_many([build] * 4, workers=4, on_done=lambda b, _: done.append(b))
    assert not any(isinstance(result, CompileError) for result in results)
    assert len(set(results)) == 1
    assert len(done) == 4
    assert len(list(kernel_cache.iterdir())) == 1


def test_many_builds_return_failures_in_their_place(write_kernel: WriteKernel) -> None:
    source = write_kernel()
    good, bad = compile_many(
        [KernelBuild(source, "scale", {"FACTOR": 3}), KernelBuild(source, "nothing", {"FACTOR": 3})]
    )
    assert not isinstance(good, CompileError)
    assert isinstance(bad, CompileError)


def test_error_shows_file_and_line(
    write_kernel: WriteKernel, scale_source: str, kernel_cache: Path
) -> None:
    wrong = scale_source.replace("a.n)", "b.n)")
    line = 1 + wrong[: wrong.index("b.n)")].count("\n")
    with pytest.raises(CompileError, match=rf'scale\.cu\({line}\): error: .*"b" is undefined'):
        compile_kernel(write_kernel(wrong), "scale", {"FACTOR": 3})
    assert not kernel_cache.exists()


def test_error_in_a_header_names_the_header(write_kernel: WriteKernel, scale_header: str) -> None:
    source = write_kernel(header=scale_header.replace("2 * value", "2 * valeu"))
    with pytest.raises(CompileError, match=r"twice\.cuh\(2\): error"):
        compile_kernel(source, "scale", {"FACTOR": 3})


@pytest.mark.parametrize("header", ["stdio.h", "beside_the_shell.cuh"])
def test_only_own_headers_are_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str
) -> None:
    workplace = tmp_path / "somewhere"
    workplace.mkdir()
    (workplace / "beside_the_shell.cuh").write_text("#define A 1\n")
    monkeypatch.chdir(workplace)
    source = tmp_path / "k.cu"
    source.write_text(f'#include "{header}"\nextern "C" __global__ void k() {{}}')
    with pytest.raises(CompileError, match=rf'k\.cu\(1\).*could not open source file "{header}"'):
        compile_kernel(source, "k", {})


def test_sm_90_without_a_is_refused_for_wgmma(tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text(
        'extern "C" __global__ void k() { asm volatile("wgmma.fence.sync.aligned;"); }'
    )
    with pytest.raises(CompileError, match=r"'wgmma\.fence' not supported on \.target 'sm_90'"):
        compile_kernel(source, "k", {}, arch="sm_90")
    assert compile_kernel(source, "k", {}, arch="sm_90a").arch == "sm_90a"


def test_gate_refuses_spills(tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text("""
        extern "C" __global__ void __launch_bounds__(1024) k(float* x) {
          float a[128];
          for (int i = 0; i < 128; i++) a[i] = x[i * 1024 + threadIdx.x];
          for (int j = 0; j < 9; j++) {
            for (int i = 0; i < 128; i++) a[i] = a[(i + 1) % 128] * a[i] + x[j];
            __syncthreads();
          }
          for (int i = 0; i < 128; i++) x[i * 1024 + threadIdx.x] = a[i];
        }""")
    with pytest.raises(CompileError, match=r"k spills \d+ bytes of registers at 64 a thread"):
        compile_kernel(source, "k", {})
    assert compile_kernel(source, "k", {}, gate=False).resources.spill_stores > 0


def test_gate_refuses_an_ignored_setmaxnreg(tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text(
        'extern "C" __global__ void k() { asm volatile("setmaxnreg.dec.sync.aligned.u32 24;"); }'
    )
    with pytest.raises(CompileError, match=r"C7508.*'setmaxnreg' ignored"):
        compile_kernel(source, "k", {})
    assert "C7508" in compile_kernel(source, "k", {}, gate=False).log


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"entry": "nothing"}, r"no kernel 'nothing'; its entries are scale"),
        ({"arch": "compute_90"}, "architecture 'compute_90'"),
        ({"constants": {"FACTOR": 1.5}}, r"FACTOR=1\.5 is not an integer"),
        ({"constants": {"FACTOR": True}}, "FACTOR=True is not an integer"),
        ({"constants": {"A B": 1}}, "'A B' is not a macro name"),
        ({"source": "no_such.cu"}, r"no kernel source no_such\.cu"),
    ],
)
def test_malformed_requests_are_one_line(
    write_kernel: WriteKernel, arguments: dict[str, object], message: str
) -> None:
    request = {"source": write_kernel(), "entry": "scale", "constants": {"FACTOR": 3}, **arguments}
    with pytest.raises((InputError, CompileError), match=message) as caught:
        compile_kernel(**request)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_unwritable_cache_names_the_setting(
    write_kernel: WriteKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("ASYNCSPARSE_CACHE", str(tmp_path / "a file"))
    with pytest.raises(CompileError, match="set ASYNCSPARSE_CACHE"):
        compile_kernel(write_kernel(), "scale", {"FACTOR": 3})


def test_missing_library_names_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import nvrtc as bindings

    def not_there() -> None:
        raise RuntimeError("Failed to dlopen libnvrtc.so.13")

    monkeypatch.setattr(bindings, "nvrtcVersion", not_there)
    with pytest.raises(CompileError, match=r"pip install .*nvidia-cuda-nvrtc") as caught:
        nvrtc._nvrtc.__wrapped__()
    assert "\n" not in str(caught.value)


def test_missing_bindings_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(CompileError, match=r"asyncsparse-lab\[compile\]"):
        nvrtc._nvrtc.__wrapped__()
