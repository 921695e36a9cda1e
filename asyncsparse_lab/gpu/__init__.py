"""Kernels from source to launch: compile, inspect, describe, load, launch, time.

Importing this package loads neither CUDA nor CuPy.  The modules are

``compile``
    Source to cubin with NVRTC, cached; needs no GPU.
``inspect``
    What is inside a cubin: instruction counts and the listing; needs no GPU.
``describe``
    Tensor maps, validated on the CPU.
``launch``
    A cubin on the device.
``device``
    Which GPU there is, and in what state.
``timing``
    How long something takes on it.
"""
