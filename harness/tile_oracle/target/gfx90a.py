"""The target `gfx90a`: kernels of kernels/gpu on an AMD Instinct MI210, MI250 or MI250X."""

from __future__ import annotations

from tile_oracle.target.amd import AmdTarget


class Gfx90aTarget(AmdTarget):
    """See tile_oracle.target.base.Target."""

    name = "gfx90a"
    arch = "gfx90a"
    device_module = "tile_oracle.device.gfx90a"
