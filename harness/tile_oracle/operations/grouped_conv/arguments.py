"""Names and axes of a convolution's arrays."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tile_oracle.operation.descriptor import Argument
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem

_NAMES: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {"forward": ("x", "w", "y"), "bwd_data": ("dy", "w", "dx"), "bwd_weight": ("x", "dy", "dw")}
)
"""Direction -> both operands and the result."""

_AXES = {"x": "N {i} G C/G", "w": "G K/G {f} C/G", "y": "N {o} G K/G"}
_SPATIAL = {"i": ("Di", "Hi", "Wi"), "f": ("Z", "Y", "X"), "o": ("Do", "Ho", "Wo")}


def arguments(problem: GroupedConvProblem) -> tuple[Argument, Argument, Argument]:
    """Returns both operands and the result. A gradient has the axes of the array it belongs to."""
    spatial = {key: " ".join(names[3 - problem.ndim :]) for key, names in _SPATIAL.items()}
    first, second, result = (
        Argument(name, _AXES[name.removeprefix("d")].format(**spatial)) for name in _NAMES[problem.direction]
    )
    return first, second, result
