"""The target `gfx950`: kernels of kernels/gpu on an AMD Instinct MI350 or MI355X."""

from __future__ import annotations

from tile_oracle.target.amd import AmdTarget


class Gfx950Target(AmdTarget):
    """See tile_oracle.target.base.Target."""

    name = "gfx950"
    arch = "gfx950"
    device_module = "tile_oracle.device.gfx950"
