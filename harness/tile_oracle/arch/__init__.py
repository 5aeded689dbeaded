"""Architectures: the limits that each sets for kernels, and the occupancy of its compute units.

All figures are in one table, kernels/arch_specs.json. An operation has further requirements in its own
refusals, which ask the architecture for its limits.
"""

from __future__ import annotations

from tile_oracle.arch.arch import Arch, listed
from tile_oracle.arch.specs import Triple
from tile_oracle.arch.table import known_archs, load_arch, read_archs

__all__ = ["Arch", "Triple", "known_archs", "listed", "load_arch", "read_archs"]
