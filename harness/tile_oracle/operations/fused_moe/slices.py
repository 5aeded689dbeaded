"""Slices of products of experts."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tile_oracle.operation.descriptor import Belongs

FUSED_MOE_SLICES: Mapping[str, Belongs] = MappingProxyType(
    {
        "gate_up": lambda p: p.product == "gate_up",
        "down": lambda p: p.product == "down",
        "up to 8 tokens": lambda p: p.tokens <= 8,
        "9 to 256 tokens": lambda p: 8 < p.tokens <= 256,
        "more than 256 tokens": lambda p: p.tokens > 256,
        "one row an expert": lambda p: p.pairs <= p.experts,
        "many experts": lambda p: p.experts >= 64,
        "uniform": lambda p: not p.zipf and not p.hot,
        "zipf": lambda p: bool(p.zipf),
        "hot": lambda p: bool(p.hot),
    }
)
"""Name -> whether a problem is in the slice."""
