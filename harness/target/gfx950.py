"""The target `gfx950`: kernels of kernels/gpu on an AMD Instinct MI350 or MI355X."""

from __future__ import annotations

from collections.abc import Mapping

from harness.build.ck_tile.api import detect
from harness.build.ck_tile.headers import find_headers
from harness.target.gpu import GpuTarget
from harness.target.gpu_presence import amd_presence
from harness.target.resolve import TargetOptions


class Gfx950Target(GpuTarget):
    """See harness.target.base.Target."""

    name = "gfx950"
    arch = "gfx950"
    device_module = "harness.target.gfx950_device"
    visible_variable = "HIP_VISIBLE_DEVICES"

    def __init__(self, options: TargetOptions) -> None:
        ck_tile = None if options.ck_tile is None else detect(find_headers(options.ck_tile))
        super().__init__(options, amd_presence(), ck_tile)

    def device_options(self) -> Mapping[str, str]:
        return {**super().device_options(), "library": self._presence.library}
