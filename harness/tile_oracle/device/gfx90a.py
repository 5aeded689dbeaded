"""The worker's side of the target `gfx90a`."""

from __future__ import annotations

from tile_oracle.device.amd import open_amd_device
from tile_oracle.device.gpu import GpuDevice


def open_device(work: str, visible: str = "", library: str = "") -> GpuDevice:
    """Opens the device. Only the worker calls it. Arguments and errors are those of open_amd_device."""
    return open_amd_device("gfx90a", "MI210, MI250 or MI250X", work, visible, library)
