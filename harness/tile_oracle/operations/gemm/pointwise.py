"""A GEMM as a 1x1 convolution: the same values at the same addresses.

rcr   forward      image of M positions and K channels, N filters
rrr   bwd_data     gradient of M positions and K channels, image of N channels
crr   bwd_weight   K positions; M output channels, N input channels
ccr   bwd_data     gradient of N positions and K channels (B), image of M channels: C is computed column by
                   column, so the result is written transposed
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem

DIRECTION_OF_LAYOUT: Mapping[str, str] = MappingProxyType(
    {"rcr": "forward", "rrr": "bwd_data", "crr": "bwd_weight", "ccr": "bwd_data"}
)
"""Layout of a GEMM -> direction of the equal convolution."""


def pointwise_conv(problem: GemmProblem) -> GroupedConvProblem:
    """Returns the convolution that computes the product. Its operands are A and B, or B and A for crr and
    ccr.

    Raises ProblemError for a data type that convolutions do not have.
    """
    m, n, k = problem.gemm_shape
    rows, outs, ins = {"rcr": (m, n, k), "rrr": (m, k, n), "crr": (k, m, n), "ccr": (n, k, m)}[problem.layout]
    direction = DIRECTION_OF_LAYOUT[problem.layout]
    return GroupedConvProblem(direction, problem.dtype, 2, N=1, C=ins, K=outs, G=1, Hi=1, Wi=rows, Y=1, X=1)


def operands_swapped(problem: GemmProblem) -> bool:
    """Returns whether the convolution's operands are B and A instead of A and B."""
    return problem.layout in ("crr", "ccr")


def result_transposed(layout: str) -> bool:
    """Returns whether the convolution must write its result transposed to give C."""
    return layout == "ccr"
