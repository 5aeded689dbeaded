"""The target `sm_90`: kernels of kernels/gpu on an NVIDIA GPU of the Hopper generation or newer."""

from __future__ import annotations

from harness.target.gpu import GpuTarget
from harness.target.gpu_presence import nvidia_presence
from harness.target.resolve import TargetOptions


class Sm90Target(GpuTarget):
    """See harness.target.base.Target."""

    name = "sm_90"
    arch = "sm_90"
    device_module = "harness.target.sm_90_device"
    visible_variable = "CUDA_VISIBLE_DEVICES"

    def __init__(self, options: TargetOptions) -> None:
        super().__init__(options, nvidia_presence())
