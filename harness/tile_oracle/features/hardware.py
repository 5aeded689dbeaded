"""Hardware features of an architecture, under the published column names."""

from __future__ import annotations

from collections.abc import Mapping

from tile_oracle.arch import load_arch


def hardware_features(arch: str) -> Mapping[str, float]:
    """Hardware features of an architecture, name -> value: the twelve published hw_ columns, and the inputs
    of our own features of binaries.

    The latter are the registers per SIMD lane, their allocation granule, and the LDS of a compute unit (the
    published value is too small for gfx950). A feature that the device does not have is 0. Raises RuleError
    for an architecture that is not in kernels/arch_specs.json.
    """
    found = load_arch(arch)
    more = {
        "hw_registers_per_lane": found.hardware.registers_per_lane,
        "hw_register_granule": found.hardware.register_granule,
        "hw_lds_bytes": max(found.lds_limit_bytes, found.hardware.lds_capacity_bytes),
    }
    return {name: float(value) for name, value in {**found.hardware.features(), **more}.items()}
