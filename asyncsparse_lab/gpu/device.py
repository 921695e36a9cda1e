"""Which GPU there is, and in what state.

Nothing here touches the driver before :func:`driver_is_loadable` said yes: without ``libcuda``
the Python bindings raise at the first call and may hang at the next.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from asyncsparse_lab.errors import DeviceError

_STATE_KEYS: Final = (
    "sm_clock_mhz",
    "sm_clock_max_mhz",
    "memory_clock_mhz",
    "temperature_c",
    "power_w",
    "throttle_reasons",
)
# Bits of NVML's clocks event reasons.
_THROTTLE_REASONS: Final = {
    0x001: "gpu_idle",
    0x002: "application_clocks",
    0x004: "software_power_cap",
    0x008: "hardware_slowdown",
    0x010: "sync_boost",
    0x020: "software_thermal_slowdown",
    0x040: "hardware_thermal_slowdown",
    0x080: "hardware_power_brake",
    0x100: "display_clocks",
}


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """The current GPU; what does not change while a process runs.

    Attributes
    ----------
    name : str
        As the driver calls it.
    slug : str
        The folder of its records, such as ``"nvidia-h200"``.
    capability : tuple of int
        Compute capability.
    arch : str
        What to compile portable kernels for, such as ``"sm_90"``.
    sm_count : int
        Streaming multiprocessors.
    l2_bytes, memory_bytes : int
        L2 cache and device memory.
    shared_bytes_per_block : int
        Shared memory that one thread block may ask for.
    driver : str or None
        Version of the kernel driver.
    cuda_driver, cuda_runtime : str or None
        CUDA version that the driver offers, and CuPy's.
    """

    name: str
    slug: str
    capability: tuple[int, int]
    arch: str
    sm_count: int
    l2_bytes: int
    memory_bytes: int
    shared_bytes_per_block: int
    driver: str | None
    cuda_driver: str | None
    cuda_runtime: str | None


@cache
def driver_is_loadable() -> bool:
    """Return whether the CUDA driver library is there; touches nothing else."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def slug_of(name: str) -> str:
    """Return the folder name for a GPU's records: ``"NVIDIA H200"`` -> ``"nvidia-h200"``."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def missing_gpu() -> str | None:
    """Return why no GPU can be used, in one line with the remedy; None if one can."""
    if not driver_is_loadable():
        return (
            "no NVIDIA driver on this machine (libcuda.so.1 does not load): run this where a GPU"
            " is, or see 'asyncsparse doctor' for what works here"
        )
    try:
        from cuda.bindings import driver
    except ImportError:
        return "cuda-bindings is missing: pip install 'asyncsparse-lab[gpu]' (or [gpu13])"
    (status,) = driver.cuInit(0)
    if int(status) != 0:
        return f"the driver finds no GPU ({status.name}): check nvidia-smi"
    status, count = driver.cuDeviceGetCount()
    if int(status) != 0 or count == 0:
        return "the driver finds no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES"
    try:
        import cupy  # noqa: F401
    except ImportError:
        version = _version(driver.cuDriverGetVersion()[1])
        extra = "gpu13" if version >= "13" else "gpu"
        return f"CuPy is missing: pip install 'asyncsparse-lab[{extra}]'"
    return None


def device_facts() -> DeviceFacts:
    """Return the facts of the current device.

    Raises
    ------
    DeviceError
        No GPU can be used.
    """
    reason = missing_gpu()
    if reason is not None:
        raise DeviceError(reason)
    import cupy

    return _facts(int(cupy.cuda.Device().id))


def require_gpu(minimum: tuple[int, int] = (9, 0)) -> DeviceFacts:
    """Return the facts of the current device if it will do.

    Parameters
    ----------
    minimum : tuple of int
        Compute capability.  From 9.0 on exactly that generation is meant: WGMMA exists on no
        other.

    Raises
    ------
    DeviceError
        No GPU can be used, or it is of another generation.
    """
    facts = device_facts()
    if minimum >= (9, 0) and facts.capability[0] != minimum[0]:
        raise DeviceError(
            f"{facts.name} has compute capability {_dotted(facts.capability)}; WGMMA kernels "
            f"run on {_dotted(minimum)} alone (H100, H200): use one, or the csr kernels"
        )
    if facts.capability < minimum:
        raise DeviceError(
            f"{facts.name} has compute capability {_dotted(facts.capability)}; "
            f"{_dotted(minimum)} is needed"
        )
    return facts


def clock_state() -> dict[str, Any]:
    """Return the state of the current GPU now, for a run's record.

    Returns
    -------
    dict
        ``sm_clock_mhz``, ``sm_clock_max_mhz``, ``memory_clock_mhz``, ``temperature_c``,
        ``power_w``, ``throttle_reasons`` (names of what holds the clocks down at this moment;
        an idle GPU says ``gpu_idle``).  What this machine does not tell is None.

    Raises
    ------
    DeviceError
        No GPU can be used.
    """
    device_facts()
    import cupy

    state = _management_state(_bus_id(int(cupy.cuda.Device().id)))
    return {key: state.get(key) for key in _STATE_KEYS}


def sm_clock_mhz() -> float | None:
    """Return the SM clock of the current GPU now in MHz, None if this machine does not tell."""
    clock = clock_state()["sm_clock_mhz"]
    return None if clock is None else float(clock)


def free_memory() -> int:
    """Return the bytes of device memory that an allocation may take now.

    That is what the driver has left and what CuPy's pool holds unused.

    Raises
    ------
    DeviceError
        No GPU can be used.
    """
    device_facts()
    import cupy

    return int(cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes())


@cache
def _facts(ordinal: int) -> DeviceFacts:
    import cupy
    from cuda.bindings import driver

    properties = cupy.cuda.runtime.getDeviceProperties(ordinal)
    name = properties["name"].decode()
    capability = (int(properties["major"]), int(properties["minor"]))
    return DeviceFacts(
        name=name,
        slug=slug_of(name),
        capability=capability,
        arch=f"sm_{capability[0]}{capability[1]}",
        sm_count=int(properties["multiProcessorCount"]),
        l2_bytes=int(properties["l2CacheSize"]),
        memory_bytes=int(properties["totalGlobalMem"]),
        shared_bytes_per_block=int(properties["sharedMemPerBlockOptin"]),
        driver=_management_state(_bus_id(ordinal)).get("driver"),
        cuda_driver=_version(driver.cuDriverGetVersion()[1]),
        cuda_runtime=_version(cupy.cuda.runtime.runtimeGetVersion()),
    )


def _bus_id(ordinal: int) -> str:
    """Return what the management library knows a device by, whatever CUDA_VISIBLE_DEVICES says."""
    import cupy

    return str(cupy.cuda.runtime.deviceGetPCIBusId(ordinal))


def _management_state(bus_id: str) -> dict[str, Any]:
    """Ask NVML (1 ms), or nvidia-smi (0.1 s and more) where its bindings are not installed."""
    try:
        import pynvml  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return _state_from_smi(bus_id)
    try:
        return _state_from_nvml(pynvml, bus_id)
    except pynvml.NVMLError:
        return {}


def _state_from_nvml(nvml: Any, bus_id: str) -> dict[str, Any]:
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByPciBusId(bus_id)
    reasons = int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu))
    driver = nvml.nvmlSystemGetDriverVersion()
    return {
        "driver": driver.decode() if isinstance(driver, bytes) else str(driver),
        "sm_clock_mhz": float(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
        "sm_clock_max_mhz": float(nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM)),
        "memory_clock_mhz": float(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM)),
        "temperature_c": float(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)),
        "power_w": nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
        "throttle_reasons": _reason_names(reasons),
    }


def _state_from_smi(bus_id: str) -> dict[str, Any]:
    query = (
        "driver_version,clocks.sm,clocks.max.sm,clocks.mem,temperature.gpu,power.draw,"
        "clocks_event_reasons.active"
    )
    try:
        ran = subprocess.run(
            ["nvidia-smi", "-i", bus_id, f"--query-gpu={query}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    return parse_smi(ran.stdout)


def parse_smi(line: str) -> dict[str, Any]:
    """Read one line of nvidia-smi's answer; a field such as ``[N/A]`` becomes None."""
    driver, *numbers, reasons = (field.strip() for field in line.strip().split(","))
    state: dict[str, Any] = {"driver": driver}
    for key, text in zip(_STATE_KEYS, numbers, strict=False):
        try:
            state[key] = float(text)
        except ValueError:
            state[key] = None
    try:
        state["throttle_reasons"] = _reason_names(int(reasons, 16))
    except ValueError:
        state["throttle_reasons"] = None
    return state


def _reason_names(bits: int) -> list[str]:
    return [name for bit, name in _THROTTLE_REASONS.items() if bits & bit]


def _version(number: int) -> str:
    """Return CUDA's integer version in words: 13020 -> ``"13.2"``."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
