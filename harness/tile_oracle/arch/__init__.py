"""Architectures: what each allows a kernel to be, and what a compute unit of it holds at once.

All figures stand in one table, kernels/arch_specs.json. What an operation's kernels have to fulfil besides
stands in the operation's own refusals, which ask the architecture for its limits.
"""

from __future__ import annotations

from tile_oracle.arch.arch import Arch, listed
from tile_oracle.arch.specs import Triple
from tile_oracle.arch.table import known_archs, load_arch, read_archs

__all__ = ["Arch", "Triple", "known_archs", "listed", "load_arch", "read_archs"]
