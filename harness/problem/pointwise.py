"""A GEMM as a 1x1 convolution: the same numbers in the same places of memory.

    rcr   forward      image of M positions and K channels, N filters
    rrr   bwd_data     gradient of M positions and K channels, image of N channels
    crr   bwd_weight   K positions; M output channels, N input channels

A ccr product is none of them: where both operands lie like A of crr and B of rcr, the result would have
to be written column by column.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from harness.errors import ProblemError
from harness.problem.gemm import GemmProblem
from harness.problem.grouped_conv import GroupedConvProblem

DIRECTION_OF_LAYOUT: Mapping[str, str] = MappingProxyType(
    {"rcr": "forward", "rrr": "bwd_data", "crr": "bwd_weight"}
)
"""Layout of a GEMM -> direction of the convolution that it is."""


def pointwise_conv(problem: GemmProblem) -> GroupedConvProblem:
    """The convolution that computes the product. Its operands are A and B; of crr, B and A.

    Raises ProblemError for ccr, and for a data type that convolutions do not have.
    """
    direction = DIRECTION_OF_LAYOUT.get(problem.layout)
    if direction is None:
        raise ProblemError(
            f"a {problem.layout} product is no 1x1 convolution; {', '.join(DIRECTION_OF_LAYOUT)} are"
        )
    rows, outs, ins = {
        "forward": (problem.M, problem.N, problem.K),
        "bwd_data": (problem.M, problem.K, problem.N),
        "bwd_weight": (problem.K, problem.M, problem.N),
    }[direction]
    return GroupedConvProblem(direction, problem.dtype, 2, N=1, C=ins, K=outs, G=1, Hi=1, Wi=rows, Y=1, X=1)


def operands_swapped(problem: GemmProblem) -> bool:
    """Whether the convolution's operands are B and A, not A and B."""
    return DIRECTION_OF_LAYOUT.get(problem.layout) == "bwd_weight"
