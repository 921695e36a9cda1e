"""Every kernel that a study launches compiles, spills nothing, and holds the hardware's
instructions that its name promises."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from asyncsparse_lab.errors import CompileError
from asyncsparse_lab.gpu import compile as compiling
from asyncsparse_lab.gpu.compile import Artifact, compile_kernel, compile_many
from asyncsparse_lab.gpu.inspect import sass, sass_counts
from asyncsparse_lab.resources import resource_path
from asyncsparse_lab.spmm.builds import Build, all_builds
from asyncsparse_lab.spmm.run import compile_variant
from asyncsparse_lab.spmm.variants import VARIANTS
from asyncsparse_lab.studies.spmm_common import kernel_build

# Variant -> instructions that have to be there, instructions that must not (local memory never).
EXPECTED: Mapping[str, tuple[set[str], set[str]]] = {
    "bcsr-opt0": ({"FFMA"}, {"HGMMA", "UTMALDG"}),
    "bcsr-opt1": ({"HGMMA"}, {"UTMALDG"}),
    "bcsr-opt2": ({"HGMMA", "UTMALDG", "SYNCS"}, {"USETMAXREG"}),
    "bcsr-opt3": ({"HGMMA", "UTMALDG", "SYNCS", "USETMAXREG"}, set()),
    "bcsr-multicast": ({"HGMMA", "UTMALDG", "SYNCS", "USETMAXREG"}, set()),
    "bcsr-persistent": ({"HGMMA", "UTMALDG", "SYNCS", "USETMAXREG"}, set()),
    "bcsr-persistent-swizzle": ({"HGMMA", "UTMALDG", "SYNCS", "USETMAXREG"}, set()),
    "bcsr-overlap": ({"HGMMA", "UTMALDG", "UTMASTG", "SYNCS", "USETMAXREG", "STSM"}, set()),
    "bcsr-overlap-narrow": (
        {"HGMMA", "UTMALDG", "UTMASTG", "SYNCS", "USETMAXREG", "STSM"},
        set(),
    ),
    "bcsr-paired": ({"HGMMA", "UTMALDG", "UTMASTG", "SYNCS", "USETMAXREG", "STSM"}, set()),
    # A by bulk copy, B written to shared memory by threads, sums by atomics.
    "wcsr-paper": ({"HGMMA", "UBLKCP", "SYNCS", "STS", "REDG"}, {"UTMALDG", "USETMAXREG"}),
    "wcsr-paper-unsplit": ({"HGMMA", "UBLKCP", "SYNCS", "STS"}, {"UTMALDG", "USETMAXREG"}),
    # B by cp.async, which arrives on the ring's barriers by itself; C through shared memory.
    "wcsr-pipelined": ({"HGMMA", "UBLKCP", "SYNCS", "LDGSTS", "STSM"}, {"UTMALDG"}),
    # CUDA cores, and nothing that only Hopper has.
    "csr-vector": ({"FFMA"}, {"HGMMA", "UTMALDG", "UBLKCP", "SYNCS"}),
}


@pytest.fixture(scope="module")
def built() -> dict[str, tuple[Build, Artifact]]:
    """All builds, in the user's cache: its key covers all that is compiled."""
    builds = all_builds()
    results = compile_many(kernel_build(*build) for build in builds)
    failed = [str(result) for result in results if isinstance(result, CompileError)]
    assert not failed, "\n".join(failed)
    return {
        f"{build.variant.name} {dict(build.variant.constants)} {build[1:]}": (build, result)
        for build, result in zip(builds, results, strict=True)
        if not isinstance(result, CompileError)
    }


@pytest.mark.slow
def test_every_build_compiles_and_uses_no_local_memory(
    built: dict[str, tuple[Build, Artifact]],
) -> None:
    # Without a stack frame there is no address that STL and LDL could use; the listings of the
    # named variants are looked at below (0.6 s each, too much for all).
    for name, (_, artifact) in built.items():
        numbers = artifact.resources
        assert (numbers.stack, numbers.spill_stores, numbers.spill_loads) == (0, 0, 0), name
    assert {build.variant.name for build, _ in built.values()} == set(VARIANTS)


@pytest.mark.slow
def test_static_shared_memory_fits_beside_the_ring(
    built: dict[str, tuple[Build, Artifact]],
) -> None:
    for name, (build, artifact) in built.items():
        shared = build.variant.launch_geometry.shared_bytes + artifact.resources.static_shared
        assert shared <= 232_448, name


@pytest.mark.slow
def test_registers_allow_the_block(built: dict[str, tuple[Build, Artifact]]) -> None:
    for name, (build, artifact) in built.items():
        # Registers are handed out to warps in units of 8 a thread.
        each = -(-artifact.resources.registers // 8) * 8
        assert each * build.variant.launch_geometry.threads <= 65_536, name


@pytest.mark.parametrize("name", VARIANTS)
def test_instructions_are_those_of_the_name(name: str) -> None:
    wanted, forbidden = EXPECTED[name]  # who adds a variant says what makes it one
    counts = sass_counts(compile_variant(VARIANTS[name], "bfloat16"))
    assert wanted <= set(counts)
    assert not (forbidden | {"LDL", "STL"}) & set(counts)


def test_only_the_cluster_kernel_loads_for_several_blocks() -> None:
    assert ".MULTICAST" in sass(compile_variant(VARIANTS["bcsr-multicast"], "bfloat16"))
    assert ".MULTICAST" not in sass(compile_variant(VARIANTS["bcsr-opt3"], "bfloat16"))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", ["delay", "probe_empty", "compare_launch"])
def test_helper_kernels_compile_for_every_generation(name: str, arch: str) -> None:
    assert compile_kernel(f"{name}.cu", name, {}, arch).resources.stack == 0


@pytest.mark.parametrize("name", ["bcsr-opt1", "bcsr-opt2", "bcsr-opt3"])
def test_wgmma_kernels_need_the_a_of_sm_90a(name: str) -> None:
    variant = VARIANTS[name]
    with pytest.raises(CompileError, match=r"wgmma\S* not supported on \.target 'sm_90'"):
        compile_kernel(variant.path, variant.entry, variant.macros("bfloat16"), "sm_90")


def test_hash_of_a_shipped_kernel_depends_on_code_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = compile_variant(VARIANTS["bcsr-opt3"], "bfloat16")
    copy = tmp_path / "elsewhere" / "kernels"
    shutil.copytree(resource_path("kernels"), copy)
    for source in copy.rglob("*.cu*"):
        source.write_text(f"// A comment that was not there.\n{source.read_text()}")
    monkeypatch.setenv("ASYNCSPARSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compiling, "resource_path", lambda _: copy)
    variant = VARIANTS["bcsr-opt3"]
    there = compile_kernel(variant.source, variant.entry, variant.macros("bfloat16"))
    assert there.folder.parent != here.folder.parent
    assert there.kernel_hash == here.kernel_hash
