"""The peak rates of a GPU architecture."""

from __future__ import annotations

from tile_oracle.arch import load_arch
from tile_oracle.device.roofline import Limits


def gpu_limits(name: str, compute_units: int) -> Limits:
    """The limits of an architecture with `compute_units` compute units; 0 means as many as in the table.

    Without a peak in kernels/arch_specs.json there are no limits.
    """
    arch = load_arch(name)
    if arch.peak is None:
        return Limits()
    hardware = arch.hardware
    clocks = (compute_units or hardware.num_cus) * hardware.max_clock_mhz * 1e6
    flops = {dtype: each * clocks for dtype, each in arch.peak.flops_a_cu_and_clock.items()}
    return Limits(flops, arch.peak.memory_gb_s * 1e9, hardware.cache_bytes)
