"""A device module: the HIP runtime's code over tests/shims/hip_on_cuda.c, running sm_90's binaries."""

from __future__ import annotations

import ctypes
from pathlib import Path

from tile_oracle.device.gpu import GpuDevice
from tile_oracle.device.runtime.hip import open_hip


def open_device(arch: str, work: str, visible: str, library: str) -> GpuDevice:
    """Called by the worker."""
    ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)  # what the library forwards to
    return GpuDevice(open_hip(library=library), Path(work), 132)
