"""The target `sm_90`: kernels of kernels/gpu on an NVIDIA GPU of the Hopper generation or newer."""

from __future__ import annotations

from tile_oracle.target.base import TargetOptions
from tile_oracle.target.gpu import GpuTarget
from tile_oracle.target.gpu_presence import nvidia_presence


class Sm90Target(GpuTarget):
    """See tile_oracle.target.base.Target."""

    name = "sm_90"
    arch = "sm_90"
    device_module = "tile_oracle.device.sm_90"
    visible_variable = "CUDA_VISIBLE_DEVICES"

    def __init__(self, options: TargetOptions) -> None:
        super().__init__(options, nvidia_presence())
