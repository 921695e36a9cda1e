"""Print the extra that fits this machine: gpu13, gpu, or compile where there is no driver."""

import ctypes


def cuda_version() -> int:
    """Return what the NVIDIA driver offers, such as 13000 for CUDA 13.0; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    version = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    return version.value


if __name__ == "__main__":
    version = cuda_version()
    print("gpu13" if version >= 13000 else "gpu" if version else "compile")
