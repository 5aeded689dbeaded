"""What a GPU of an architecture does at most."""

from __future__ import annotations

from tile_oracle.arch import load_arch
from tile_oracle.device.roofline import Limits


def gpu_limits(name: str, compute_units: int) -> Limits:
    """Of an architecture by its name, with so many compute units, or as many as the table has where that
    is 0.

    An architecture that kernels/arch_specs.json gives no peak has no limits.
    """
    arch = load_arch(name)
    if arch.peak is None:
        return Limits()
    hardware = arch.hardware
    clocks = (compute_units or hardware.num_cus) * hardware.max_clock_mhz * 1e6
    flops = {dtype: each * clocks for dtype, each in arch.peak.flops_a_cu_and_clock.items()}
    return Limits(flops, arch.peak.memory_gb_s * 1e9, hardware.cache_bytes)
