"""Slices of convolutions, for describing problem sets and breaking down results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem


def is_depthwise(problem: GroupedConvProblem) -> bool:
    """Returns one input channel per group (a group may have more outputs)."""
    return problem.G > 1 and problem.C == problem.G


def is_pointwise(problem: GroupedConvProblem) -> bool:
    """Every filter extent is 1."""
    return set(problem.filter) == {1}


def has_odd_channels(problem: GroupedConvProblem) -> bool:
    """Channels of a group are not a multiple of 8. Depthwise convolutions are excluded."""
    return not is_depthwise(problem) and bool((problem.C // problem.G) % 8 or (problem.K // problem.G) % 8)


CONV_SLICES: Mapping[str, Callable[[GroupedConvProblem], bool]] = MappingProxyType(
    {
        "1x1": is_pointwise,
        "3x3": lambda p: set(p.filter) == {3},
        "larger filter": lambda p: max(p.filter) > 3,
        "depthwise": is_depthwise,
        "grouped": lambda p: p.G > 1 and not is_depthwise(p),
        "strided": lambda p: max(p.stride) > 1,
        "dilated": lambda p: max(p.dilation) > 1,
        "3D": lambda p: p.ndim == 3,
        "odd channels": has_odd_channels,
    }
)
"""Slices of convolutions."""
