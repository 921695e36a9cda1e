from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from asyncsparse_lab.errors import DeviceError, InputError
from asyncsparse_lab.gpu.describe import TensorMap, aligned_bytes
from asyncsparse_lab.gpu.device import driver_is_loadable

GOOD: dict[str, Any] = {
    "address": 1 << 20,
    "dtype": "bfloat16",
    "shape": (100, 200),
    "strides": (400, 2),
    "box": (64, 64),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "complex64"}, "dtype 'complex64' is not one of"),
        ({"swizzle": 96}, "swizzle 96 is not"),
        ({"l2_promotion": 32}, "L2 promotion 32 is not"),
        ({"fill": "ones"}, "fill 'ones' is not"),
        ({"fill": "nan", "dtype": "uint16"}, "fill 'nan' needs a floating-point type"),
        ({"shape": (), "strides": (), "box": ()}, "rank 0"),
        ({"shape": (4,) * 6, "strides": (16,) * 5 + (2,), "box": (8,) * 6}, "rank 6"),
        ({"strides": (2,)}, "differ in length"),
        ({"address": 0}, "address 0x0 is not a multiple of 16"),
        ({"address": (1 << 20) + 8}, "address 0x100008 is not a multiple of 16"),
        ({"shape": (0, 200)}, "extent 0 of"),
        ({"shape": (2**32 + 1, 200)}, "extent 4294967297 of"),
        ({"strides": (400, 4)}, "last stride 4 is not the 2 bytes"),
        ({"strides": (402, 2)}, "stride 402 is not a multiple of 16 bytes"),
        ({"strides": (2**40, 2)}, "stride 1099511627776 is not"),
        ({"strides": (0, 2)}, "stride 0 is not"),
        ({"box": (257, 64)}, "box extent 257"),
        ({"box": (0, 64)}, "box extent 0"),
        ({"box": (64, 4)}, "8 bytes in a row of box"),
        ({"box": (64, 72)}, "144 bytes in a row of box .* exceed the swizzle's span of 128"),
        ({"box": (64, 32), "swizzle": 32}, "64 bytes .* span of 32"),
    ],
)
def test_broken_rule_is_one_line_with_the_value(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        TensorMap(**{**GOOD, **change})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"shape": (2**32, 200)},
        {"strides": (2**40 - 16, 2)},
        {"box": (256, 64)},
        {"box": (1, 8), "swizzle": 0},
        {"box": (64, 256), "swizzle": 0},
        {"shape": (7,), "strides": (2,), "box": (8,)},
        {"shape": (2, 3, 4, 5, 8), "strides": (960, 320, 80, 16, 2), "box": (1, 1, 1, 1, 8)},
        {"fill": "nan"},
    ],
)
def test_limits_themselves_are_allowed(change: dict[str, Any]) -> None:
    assert TensorMap(**{**GOOD, **change}).box_bytes % 16 == 0


def test_description_of_an_array() -> None:
    host = np.zeros((10, 64), dtype=np.uint16)[:, :40]
    array = SimpleNamespace(
        data=SimpleNamespace(ptr=4096), dtype=host.dtype, shape=host.shape, strides=host.strides
    )
    described = TensorMap.over(array, (8, 32), "bfloat16", swizzle=64)
    assert described == TensorMap(4096, "bfloat16", (10, 40), (128, 2), (8, 32), swizzle=64)
    assert described.box_bytes == 8 * 32 * 2


def test_buffer_is_aligned() -> None:
    kept = [aligned_bytes(128) for _ in range(20)]
    assert all(buffer.ctypes.data % 128 == 0 for buffer in kept)
    assert all(buffer.nbytes == 128 and not buffer.any() for buffer in kept)


@pytest.mark.skipif(driver_is_loadable(), reason="there is a driver")
def test_without_a_driver_encoding_says_so() -> None:
    with pytest.raises(DeviceError, match="NVIDIA driver"):
        TensorMap(**GOOD).encode()
