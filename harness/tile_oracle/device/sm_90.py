"""The worker's side of the target `sm_90`: a GPU opened through CUDA's driver API."""

from __future__ import annotations

import os
from pathlib import Path

from tile_oracle.arch import load_arch
from tile_oracle.arch.time_bound import gpu_limits
from tile_oracle.device.gpu import GpuDevice
from tile_oracle.device.runtime.cuda import open_cuda
from tile_oracle.errors import TargetError
from tile_oracle.target.device_state import open_reader

_OLDEST = 90


def open_device(work: str, visible: str = "") -> GpuDevice:
    """Opens the device. Only the worker calls it.

    work: the binary of kernels/gpu/device_work.hpp. visible: value for CUDA_VISIBLE_DEVICES, "" to keep the
    current one. Raises TargetError for a GPU that cannot run code for sm_90.
    """
    if visible:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    driver = open_cuda()
    properties = driver.properties()
    if int(properties.arch.removeprefix("sm_")) < _OLDEST:
        raise TargetError(f"{properties.name} is {properties.arch}: kernels for sm_90 need an H100 or newer")
    cache_bytes = load_arch("sm_90").hardware.cache_bytes
    # Newer GPUs run this code too, but their limits differ.
    known = properties.arch == "sm_90"
    limits = gpu_limits("sm_90", properties.compute_units) if known else None
    return GpuDevice(driver, Path(work), 0, cache_bytes, open_reader("nvidia", properties.identity), limits)
