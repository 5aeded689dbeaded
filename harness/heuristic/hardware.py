"""The figures of an architecture that features use, under the published column names."""

from __future__ import annotations

from collections.abc import Mapping

from harness.arch import load_arch


def hardware_figures(arch: str) -> Mapping[str, float]:
    """The twelve hw_ columns of an architecture; 0 where the device has no such thing.

    Raises RuleError for an architecture that kernels/arch_specs.json does not have.
    """
    return {name: float(value) for name, value in load_arch(arch).hardware.features().items()}
