"""The base class of targets with AMD GPUs: HIP's library and environment variable."""

from __future__ import annotations

from collections.abc import Mapping

from tile_oracle.target.base import TargetOptions
from tile_oracle.target.gpu import GpuTarget
from tile_oracle.target.gpu_presence import amd_presence


class AmdTarget(GpuTarget):
    """Subclasses set name, arch and device_module."""

    visible_variable = "HIP_VISIBLE_DEVICES"

    def __init__(self, options: TargetOptions) -> None:
        super().__init__(options, amd_presence().of(self.arch))

    def device_options(self) -> Mapping[str, str]:
        return {**super().device_options(), "library": self._presence.library}
