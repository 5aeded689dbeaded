"""The worker's side of the targets with NVIDIA GPUs: a GPU opened through CUDA's driver API."""

from __future__ import annotations

import os
from pathlib import Path

from tile_oracle.arch import load_arch
from tile_oracle.arch.time_bound import gpu_limits
from tile_oracle.device.gpu import GpuDevice
from tile_oracle.device.runtime.cuda import open_cuda
from tile_oracle.errors import TargetError
from tile_oracle.targets.device_state import open_reader


def open_device(arch: str, work: str, visible: str = "", library: str = "") -> GpuDevice:
    """Opens the device. Only the worker calls it.

    arch: the architecture of the kernels. work: the binary of kernels/gpu/device_work.hpp. visible: value for
    CUDA_VISIBLE_DEVICES, "" to keep the current one. library: unused, the loader finds libcuda. Raises
    TargetError for a GPU that cannot run such code.
    """
    if visible:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    driver = open_cuda()
    properties = driver.properties()
    if int(properties.arch.removeprefix("sm_")) < int(arch.removeprefix("sm_")):
        raise TargetError(f"{properties.name} is {properties.arch}: kernels for {arch} need a newer GPU")
    cache_bytes = load_arch(arch).hardware.cache_bytes
    # Newer GPUs run this code too, but their limits differ.
    limits = gpu_limits(arch, properties.compute_units) if properties.arch == arch else None
    return GpuDevice(driver, Path(work), 0, cache_bytes, open_reader("nvidia", properties.identity), limits)
