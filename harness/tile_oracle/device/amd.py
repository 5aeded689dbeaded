"""The worker's side of the targets with AMD GPUs: a GPU opened through HIP."""

from __future__ import annotations

import os
from pathlib import Path

from tile_oracle.arch import load_arch
from tile_oracle.arch.time_bound import gpu_limits
from tile_oracle.device.gpu import GpuDevice
from tile_oracle.device.runtime.hip import open_hip
from tile_oracle.errors import TargetError
from tile_oracle.targets.device_state import open_reader


def open_device(arch: str, work: str, visible: str = "", library: str = "") -> GpuDevice:
    """Opens the device. Only the worker calls it.

    arch: the required architecture. work: the binary of kernels/gpu/device_work.hpp. visible: value for
    HIP_VISIBLE_DEVICES, "" to keep the current one. library: path of libamdhip64, "" to let the loader find
    it. Raises TargetError for another GPU.
    """
    if visible:
        os.environ["HIP_VISIBLE_DEVICES"] = visible
    driver = open_hip(library=library or None)
    properties = driver.properties()
    hardware = load_arch(arch).hardware
    if properties.arch != arch:
        raise TargetError(
            f"{properties.name} is {properties.arch}: kernels for {arch} need a GPU like {hardware.product}"
        )
    reader = open_reader("amd", properties.identity)
    limits = gpu_limits(arch, properties.compute_units)
    return GpuDevice(driver, Path(work), hardware.num_cus, hardware.cache_bytes, reader, limits)
