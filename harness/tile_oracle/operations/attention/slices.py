"""Slices of attention problems: by what limits a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tile_oracle.operation.descriptor import Belongs

_FEW, _LONG = 16, 8192

ATTENTION_SLICES: Mapping[str, Belongs] = MappingProxyType(
    {
        "decode": lambda p: p.seq_q <= _FEW,
        "causal": lambda p: bool(p.causal),
        "grouped": lambda p: p.group > 1,
        "long": lambda p: p.seq_kv >= _LONG,
        "lengths no multiples of 16": lambda p: p.seq_q > 1 and bool(p.seq_q % 16 or p.seq_kv % 16),
    }
)
"""Name -> whether a problem is in the slice."""
