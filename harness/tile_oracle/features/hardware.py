"""The figures of an architecture that features use, under the published column names."""

from __future__ import annotations

from collections.abc import Mapping

from tile_oracle.arch import load_arch


def hardware_figures(arch: str) -> Mapping[str, float]:
    """The figures of an architecture: the twelve published hw_ columns, and what our own features of
    binaries read: registers of a SIMD's lane, their granule, and the LDS of a compute unit (of which the
    published figure is too small for gfx950). 0 where the device has no such thing.

    Raises RuleError for an architecture that kernels/arch_specs.json does not have.
    """
    found = load_arch(arch)
    more = {
        "hw_registers_per_lane": found.hardware.registers_per_lane,
        "hw_register_granule": found.hardware.register_granule,
        "hw_lds_bytes": max(found.lds_limit_bytes, found.hardware.lds_capacity_bytes),
    }
    return {name: float(value) for name, value in {**found.hardware.features(), **more}.items()}
