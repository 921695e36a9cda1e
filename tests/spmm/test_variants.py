"""The table of kernels: what it accepts, what it refuses, what it launches."""

from __future__ import annotations

import ctypes
import re

import pytest

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.resources import resource_path
from asyncsparse_lab.spmm.arguments import BcsrArguments
from asyncsparse_lab.spmm.builds import all_builds, ring_sweep
from asyncsparse_lab.spmm.geometry import MAX_SHARED_BYTES, WGMMA_COLUMNS, Geometry, max_stages
from asyncsparse_lab.spmm.variants import VARIANTS, Variant, find_variant


def test_the_documented_limits_of_the_ring() -> None:
    # DESIGN: at most 5 stages at BN = 256 and 3 at BN = 512.
    assert max_stages(128) == 5
    assert max_stages(256) == 3


@pytest.mark.parametrize("wgmma_n", WGMMA_COLUMNS)
def test_the_deepest_ring_fits_and_one_more_is_refused(wgmma_n: int) -> None:
    opt3 = VARIANTS["bcsr-opt3"]
    deepest = opt3.with_constants(WGMMA_N=wgmma_n, STAGES=max_stages(wgmma_n))
    assert deepest.launch_geometry.shared_bytes <= MAX_SHARED_BYTES
    with pytest.raises(InputError, match=rf"at most {max_stages(wgmma_n)} stages fit"):
        opt3.with_constants(WGMMA_N=wgmma_n, STAGES=max_stages(wgmma_n) + 1)


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"WGMMA_N": 100}, "WGMMA_N = 100"),
        ({"STAGES": 1}, "2 slots or more"),
        ({"STAGE": 3}, "no constant STAGE"),
        ({"WGMMA_N": 64, "MINIMUM_CTAS": 2}, "MINIMUM_CTAS = 2 with SETMAXNREG"),
    ],
)
def test_impossible_constants_are_refused_in_one_line(
    constants: dict[str, int], message: str
) -> None:
    with pytest.raises(InputError, match=message) as refused:
        VARIANTS["bcsr-opt3"].with_constants(**constants)
    assert "\n" not in str(refused.value)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match="bcsr-opt3"):
        find_variant("bcsr-opt9")


def test_an_unknown_output_type_is_refused() -> None:
    with pytest.raises(InputError, match="float64"):
        VARIANTS["bcsr-opt3"].macros("float64")


def test_sweeps_are_loops_over_entries() -> None:
    swept = list(ring_sweep(VARIANTS["bcsr-opt3"]))
    assert len(swept) == sum(max_stages(n) - 1 for n in WGMMA_COLUMNS)
    assert len({tuple(sorted(v.constants.items())) for v in swept}) == len(swept)


def test_builds_are_listed_once_and_hold_every_variant() -> None:
    builds = all_builds()
    keys = {(b.variant.name, tuple(sorted(b.variant.params.items())), *b[1:]) for b in builds}
    assert len(keys) == len(builds)
    assert {b.variant.name for b in builds} == set(VARIANTS)
    assert {b.dtype_out for b in builds if b.variant.name == "bcsr-opt0"} == {
        "bfloat16",
        "float32",
    }


def test_ones_own_kernel_needs_only_its_source() -> None:
    mine = Variant(source="somewhere/my_kernel.cu", constants={"WGMMA_N": 64, "STAGES": 4})
    assert mine.name == "my_kernel"
    assert (
        mine.launch_geometry
        == VARIANTS["bcsr-opt3"].with_constants(WGMMA_N=64, STAGES=4).launch_geometry
    )


@pytest.mark.parametrize(
    ("geometry", "expected"),
    [
        (Geometry(384, 256, 64, 0), 10 * 5),
        (Geometry(384, 256, 64, 0, cluster=2), 10 * 6),
        (Geometry(384, 256, 64, 0, persistent=True), 132),
    ],
)
def test_grids_cover_the_columns_in_whole_clusters(geometry: Geometry, expected: int) -> None:
    assert geometry.grid(block_rows=10, n=1025, sm_count=132) == expected


def test_the_argument_struct_mirrors_the_header() -> None:
    header = (resource_path("kernels") / "include" / "bcsr_arguments.cuh").read_text()
    body = header[header.index("struct BcsrArguments {") :].partition("};")[0]
    names = re.findall(r"(\w+)(?:\[\d+\])?;", re.sub(r"//.*", "", body))
    assert names == [name for name, _ in BcsrArguments._fields_]
    size = int(re.search(r"sizeof\(BcsrArguments\) == (\d+)", header).group(1))  # type: ignore[union-attr]
    assert ctypes.sizeof(BcsrArguments) == size


def test_the_wgmma_header_is_what_its_generator_writes() -> None:
    import runpy

    root = resource_path("kernels").parent
    generator = runpy.run_path(str(root / "scripts" / "generate_wgmma.py"))
    header = root / "kernels" / "include" / "wgmma_instructions.cuh"
    assert header.read_text() == generator["generate"]()
