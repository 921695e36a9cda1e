import pytest

from asyncsparse_lab.errors import DeviceError
from asyncsparse_lab.gpu import device

without_driver = pytest.mark.skipif(device.driver_is_loadable(), reason="there is a driver")


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3"),
        ("NVIDIA GeForce RTX 4090 (Laptop)", "nvidia-geforce-rtx-4090-laptop"),
    ],
)
def test_slug(name: str, slug: str) -> None:
    assert device.slug_of(name) == slug


@without_driver
@pytest.mark.parametrize(
    "ask", [device.device_facts, device.require_gpu, device.clock_state, device.free_memory]
)
def test_without_a_driver_every_question_is_one_line(ask: object) -> None:
    with pytest.raises(DeviceError, match="no NVIDIA driver") as caught:
        ask()  # type: ignore[operator]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("capability", "minimum", "message"),
    [
        ((8, 6), (9, 0), r"capability 8\.6; WGMMA kernels run on 9\.0 alone"),
        ((10, 0), (9, 0), r"capability 10\.0; WGMMA kernels run on 9\.0 alone"),
        ((7, 5), (8, 0), r"capability 7\.5; 8\.0 is needed"),
        ((9, 0), (9, 0), None),
        ((10, 0), (8, 0), None),
    ],
)
def test_gpu_of_another_generation_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int],
    minimum: tuple[int, int],
    message: str | None,
) -> None:
    facts = device.DeviceFacts(
        name="a GPU",
        slug="a-gpu",
        capability=capability,
        arch="sm_00",
        sm_count=1,
        l2_bytes=1,
        memory_bytes=1,
        shared_bytes_per_block=1,
        driver=None,
        cuda_driver=None,
        cuda_runtime=None,
    )
    monkeypatch.setattr(device, "device_facts", lambda: facts)
    if message is None:
        assert device.require_gpu(minimum) is facts
        return
    with pytest.raises(DeviceError, match=message):
        device.require_gpu(minimum)


def test_answer_of_nvidia_smi() -> None:
    state = device.parse_smi("580.95.05, 1980, 1980, 3201, 41, 121.50, 0x0000000000000005\n")
    assert state == {
        "driver": "580.95.05",
        "sm_clock_mhz": 1980.0,
        "sm_clock_max_mhz": 1980.0,
        "memory_clock_mhz": 3201.0,
        "temperature_c": 41.0,
        "power_w": 121.5,
        "throttle_reasons": ["gpu_idle", "software_power_cap"],
    }


def test_what_nvidia_smi_does_not_tell_is_none() -> None:
    state = device.parse_smi("580.95.05, [N/A], 1980, [N/A], 41, [Not Supported], [N/A]")
    assert state["sm_clock_max_mhz"] == 1980.0
    assert [state[key] for key in ("sm_clock_mhz", "power_w", "throttle_reasons")] == [None] * 3
