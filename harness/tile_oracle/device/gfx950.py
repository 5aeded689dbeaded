"""The worker's side of the target `gfx950`."""

from __future__ import annotations

from tile_oracle.device.amd import open_amd_device
from tile_oracle.device.gpu import GpuDevice


def open_device(work: str, visible: str = "", library: str = "") -> GpuDevice:
    """Opens the device. Only the worker calls it. Arguments and errors are those of open_amd_device."""
    return open_amd_device("gfx950", "MI350 or MI355X", work, visible, library)
