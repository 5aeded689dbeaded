"""The target `gfx942`: kernels of kernels/gpu on an AMD Instinct MI300X, MI300A or MI325X."""

from __future__ import annotations

from tile_oracle.target.amd import AmdTarget


class Gfx942Target(AmdTarget):
    """See tile_oracle.target.base.Target."""

    name = "gfx942"
    arch = "gfx942"
    device_module = "tile_oracle.device.gfx942"
