"""The target `gfx950`: kernels of kernels/gpu on an AMD Instinct MI350 or MI355X."""

from __future__ import annotations

from collections.abc import Mapping

from tile_oracle.target.base import TargetOptions
from tile_oracle.target.gpu import GpuTarget
from tile_oracle.target.gpu_presence import amd_presence


class Gfx950Target(GpuTarget):
    """See tile_oracle.target.base.Target."""

    name = "gfx950"
    arch = "gfx950"
    device_module = "tile_oracle.device.gfx950"
    visible_variable = "HIP_VISIBLE_DEVICES"

    def __init__(self, options: TargetOptions) -> None:
        super().__init__(options, amd_presence())

    def device_options(self) -> Mapping[str, str]:
        return {**super().device_options(), "library": self._presence.library}
