"""The worker's side of the target `gfx942`."""

from __future__ import annotations

from tile_oracle.device.amd import open_amd_device
from tile_oracle.device.gpu import GpuDevice


def open_device(work: str, visible: str = "", library: str = "") -> GpuDevice:
    """Opens the device. Only the worker calls it. Arguments and errors are those of open_amd_device."""
    return open_amd_device("gfx942", "MI300X, MI300A or MI325X", work, visible, library)
