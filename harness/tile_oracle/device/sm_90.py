"""The target `sm_90` in its worker: a GPU of an NVIDIA driver."""

from __future__ import annotations

import os
from pathlib import Path

from tile_oracle.arch import load_arch
from tile_oracle.device.gpu import GpuDevice
from tile_oracle.device.gpu_limits import gpu_limits
from tile_oracle.device.runtime.cuda import open_cuda
from tile_oracle.errors import TargetError
from tile_oracle.target.device_state import open_reader

_OLDEST = 90


def open_device(work: str, visible: str = "") -> GpuDevice:
    """Called by the worker, and nowhere else.

    work: the binary of kernels/gpu/device_work.hpp. visible: what CUDA_VISIBLE_DEVICES shall be, "" to
    leave it as it is. Raises TargetError for a GPU that cannot run sm_90's code.
    """
    if visible:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    driver = open_cuda()
    properties = driver.properties()
    if int(properties.arch.removeprefix("sm_")) < _OLDEST:
        raise TargetError(f"{properties.name} is {properties.arch}: kernels for sm_90 need an H100 or newer")
    cache_bytes = load_arch("sm_90").hardware.cache_bytes
    # Newer GPUs run this code, too, and are faster.
    known = properties.arch == "sm_90"
    limits = gpu_limits("sm_90", properties.compute_units) if known else None
    return GpuDevice(driver, Path(work), 0, cache_bytes, open_reader("nvidia", properties.identity), limits)
