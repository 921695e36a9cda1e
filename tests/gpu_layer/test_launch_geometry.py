import ctypes
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from asyncsparse_lab.errors import DeviceError, InputError
from asyncsparse_lab.gpu.compile import Artifact
from asyncsparse_lab.gpu.device import DeviceFacts
from asyncsparse_lab.gpu.launch import Kernel, LaunchLimits, check_arch, check_geometry
from asyncsparse_lab.gpu.ptxas import Resources

H200 = LaunchLimits(shared_bytes=232_448)


@pytest.mark.parametrize(
    ("grid", "extents"),
    [
        (5, (5, 1, 1)),
        ((5,), (5, 1, 1)),
        ((2**31 - 1, 65_535, 65_535), (2**31 - 1, 65_535, 65_535)),
    ],
)
def test_grid_is_completed(grid: Any, extents: tuple[int, ...]) -> None:
    assert check_geometry("k", grid, 1024, 232_448, H200) == extents


@pytest.mark.parametrize(
    ("grid", "threads", "shared", "limits", "message"),
    [
        (
            (1, 65_536),
            32,
            0,
            H200,
            r"grid\.y = 65536 exceeds 65535: put the long extent on grid\.x",
        ),
        ((1, 1, 65_536), 32, 0, H200, r"grid\.z = 65536 exceeds 65535"),
        (2**31, 32, 0, H200, r"grid\.x = 2147483648 exceeds"),
        ((0, 4), 32, 0, H200, r"grid\.x = 0: there is nothing to launch"),
        ((1, 1, 1, 1), 32, 0, H200, "has 4 extents"),
        (1, 1025, 0, H200, "1025 threads a block; the hardware's limit is 1024"),
        (1, 0, 0, H200, "0 threads a block"),
        (1, 256, 0, LaunchLimits(232_448, 128), "the kernel's launch bounds' limit is 128"),
        (1, 32, 232_449, H200, "232449 bytes of dynamic shared memory; at most 232448 fit"),
        (1, 32, -1, H200, "-1 bytes"),
        (3, 32, 0, LaunchLimits(232_448, 1024, (2, 1, 1)), r"grid\.x = 3 is no multiple of the 2"),
    ],
)
def test_impossible_launch_is_one_line(
    grid: Any, threads: int, shared: int, limits: LaunchLimits, message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        check_geometry("k", grid, threads, shared, limits)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arch", "capability", "runs"),
    [
        ("sm_90a", (9, 0), True),
        ("sm_80", (8, 6), True),
        ("sm_86", (8, 0), False),
        ("sm_80", (9, 0), False),
        ("sm_90a", (10, 0), False),
    ],
)
def test_cubin_runs_only_on_its_generation(
    arch: str, capability: tuple[int, int], runs: bool
) -> None:
    artifact = Artifact(Path(), "k", arch, "", "", Resources())
    facts = DeviceFacts(
        name="a GPU",
        slug="a-gpu",
        capability=capability,
        arch=f"sm_{capability[0]}{capability[1]}",
        sm_count=1,
        l2_bytes=1,
        memory_bytes=1,
        shared_bytes_per_block=1,
        driver=None,
        cuda_driver=None,
        cuda_runtime=None,
    )
    if runs:
        check_arch(artifact, facts)
        return
    with pytest.raises(DeviceError, match=f"was compiled for {arch}"):
        check_arch(artifact, facts)


class Arguments(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint64),)


@pytest.mark.parametrize(
    ("statuses", "bound"), [([0], 0), ([201, 0], 1), ([201, 201], 1), ([700], 0)]
)
def test_a_launch_without_a_context_is_bound_to_one_and_tried_again(
    statuses: list[int], bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, bindings = list(statuses), []
    runtime = SimpleNamespace(free=bindings.append)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    kernel = Kernel.__new__(Kernel)
    kernel.artifact = SimpleNamespace(entry="k")  # type: ignore[assignment]
    kernel.limits = H200
    kernel.parameter_bytes = 8
    kernel._function = None
    kernel._driver = SimpleNamespace(cuLaunchKernel=lambda *_: (left.pop(0),))
    monkeypatch.setattr(Kernel, "_allow_shared", lambda *_: None)
    monkeypatch.setattr(Kernel, "_explain", lambda _, status: f"status {status}")
    run = kernel.prepare(1, 32, 0, Arguments(), stream=0)
    if statuses[-1]:
        with pytest.raises(DeviceError, match=f"launch of k: status {statuses[-1]}"):
            run()
    else:
        run()
    assert left == []
    assert bindings == [0] * bound
