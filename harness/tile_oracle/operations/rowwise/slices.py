"""Slices of problems on rows: by what limits a kernel that keeps a row on the chip."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tile_oracle.operation.descriptor import Belongs

_FEW_ROWS, _SHORT, _LONG = 128, 1024, 32768

ROW_SLICES: Mapping[str, Belongs] = MappingProxyType(
    {
        "few rows": lambda p: p.height < _FEW_ROWS,
        "short rows": lambda p: p.width <= _SHORT,
        "long rows": lambda p: p.width >= _LONG,
        "columns no multiple of 16": lambda p: bool(p.width % 16),
    }
)
"""Name -> whether a problem is in the slice."""
