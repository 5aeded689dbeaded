"""Bands of problem size and arithmetic intensity, common to all operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tile_oracle.problem import Problem

_GFLOP = 1e9


def _intensity(problem: Problem) -> float:
    return problem.flops / problem.bytes


BANDS: Mapping[str, Callable[[Problem], bool]] = MappingProxyType(
    {
        "under 0.1 GFLOP": lambda p: p.flops < 0.1 * _GFLOP,
        "0.1 to 1 GFLOP": lambda p: 0.1 * _GFLOP <= p.flops < _GFLOP,
        "1 to 10 GFLOP": lambda p: _GFLOP <= p.flops < 10 * _GFLOP,
        "over 10 GFLOP": lambda p: p.flops >= 10 * _GFLOP,
        "under 20 FLOP/byte": lambda p: _intensity(p) < 20,
        "20 to 100 FLOP/byte": lambda p: 20 <= _intensity(p) < 100,
        "over 100 FLOP/byte": lambda p: _intensity(p) >= 100,
    }
)
"""Name -> whether a problem is in the band."""
