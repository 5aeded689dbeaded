"""Hardware features of an architecture, under the published column names."""

from __future__ import annotations

from collections.abc import Mapping

from tile_oracle.arch import load_arch

LDS_FOR_RATIO = "hw_lds_for_ratio"
"""The LDS by which the published models of GEMM divide a kernel's, unless they state another."""
RATE = "hw_flops_"
"""Prefix of a data type's operations per compute unit and clock; types without a known rate have none."""
_WARP_GROUPS = ("sm_90",)
"""Architectures whose matrix instructions of warp groups (wgmma) read both operands from shared memory."""


def stated_hardware(constants: Mapping[str, float]) -> Mapping[str, float]:
    """Hardware features that a model folder states: CK Tile's names, without hw_, of what it was trained
    with."""
    stated = {f"hw_{name}": float(value) for name, value in constants.items()}
    return stated | ({LDS_FOR_RATIO: stated["hw_lds_capacity"]} if "hw_lds_capacity" in stated else {})


def hardware_features(arch: str) -> Mapping[str, float]:
    """Hardware features of an architecture, name -> value: the twelve published hw_ columns, and the inputs
    of our own features of binaries.

    The latter are the registers per SIMD lane, their allocation granule, and the LDS of a compute unit (the
    published value is too small for gfx950); and for the roofline the LDS of a workgroup, peak rates, and
    whether there are matrix instructions of warp groups. A feature that the device does not have is 0.
    Raises RuleError for an architecture that is not in kernels/arch_specs.json.
    """
    found = load_arch(arch)
    more = {
        "hw_registers_per_lane": found.hardware.registers_per_lane,
        "hw_register_granule": found.hardware.register_granule,
        "hw_lds_bytes": max(found.lds_limit_bytes, found.hardware.lds_capacity_bytes),
        "hw_lds_limit": found.lds_limit_bytes,
        LDS_FOR_RATIO: 65536,
        "hw_warp_groups": int(arch in _WARP_GROUPS),
        "hw_memory_gb_s": found.peak.memory_gb_s if found.peak is not None else 0,
    }
    if found.peak is not None:
        more |= {RATE + name: rate for name, rate in found.peak.flops_a_cu_and_clock.items()}
    return {name: float(value) for name, value in {**found.hardware.features(), **more}.items()}
