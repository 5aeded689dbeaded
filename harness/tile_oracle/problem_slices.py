"""Slices: the kinds of problem that a set is described by and that results are broken down into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tile_oracle.problem import GEMM_LAYOUTS, GemmProblem, GroupedConvProblem, Problem

Belongs = Callable[[Problem], bool]

ConvRule = Callable[[GroupedConvProblem], bool]
GemmRule = Callable[[GemmProblem], bool]


def is_depthwise(problem: GroupedConvProblem) -> bool:
    """One input channel a group (the number of outputs a group may be larger)."""
    return problem.G > 1 and problem.C == problem.G


def is_pointwise(problem: GroupedConvProblem) -> bool:
    """Every filter extent is 1."""
    return set(problem.filter) == {1}


def is_gemm_like(problem: GroupedConvProblem) -> bool:
    """A plain matrix product: pointwise, ungrouped, unit stride, no padding."""
    return is_pointwise(problem) and problem.G == 1 and set(problem.stride) == {1} and set(problem.pad) == {0}


def has_odd_channels(problem: GroupedConvProblem) -> bool:
    """Channels of a group that vectors of 8 do not divide, depthwise (where they are few by nature) aside."""
    return not is_depthwise(problem) and bool((problem.C // problem.G) % 8 or (problem.K // problem.G) % 8)


def _conv(rules: Mapping[str, ConvRule]) -> dict[str, Belongs]:
    def rule(belongs: ConvRule) -> Belongs:
        return lambda problem: isinstance(problem, GroupedConvProblem) and belongs(problem)

    return {name: rule(belongs) for name, belongs in rules.items()}


def _gemm(rules: Mapping[str, GemmRule]) -> dict[str, Belongs]:
    def rule(belongs: GemmRule) -> Belongs:
        return lambda problem: isinstance(problem, GemmProblem) and belongs(problem)

    return {name: rule(belongs) for name, belongs in rules.items()}


def _of_layout(layout: str) -> GemmRule:
    return lambda problem: problem.layout == layout


CONV_SLICES: Mapping[str, Belongs] = MappingProxyType(
    _conv(
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
)
"""Slices of convolutions."""

GEMM_SLICES: Mapping[str, Belongs] = MappingProxyType(
    _gemm(
        {
            "tiny M": lambda p: p.M < 8,
            "small M": lambda p: 8 <= p.M < 128,
            "medium M": lambda p: 128 <= p.M < 1024,
            "large M": lambda p: p.M >= 1024,
            "N or K of 1": lambda p: 1 in (p.N, p.K),
            "odd N or K": lambda p: bool(p.N % 8 or p.K % 8) and 1 not in (p.N, p.K),
            "deep": lambda p: 4 * max(p.M, p.N) <= p.K,
            "split K": lambda p: p.split_k > 1,
            **{layout: _of_layout(layout) for layout in GEMM_LAYOUTS},
        }
    )
)
"""Slices of GEMMs; the bands of M are the published ones."""

SLICES: Mapping[str, Belongs] = MappingProxyType({**CONV_SLICES, **GEMM_SLICES})
"""Name -> whether a problem belongs. Slices overlap; a problem may be in none."""

_OF_OP = {GroupedConvProblem.op: CONV_SLICES, GemmProblem.op: GEMM_SLICES}


def slices_of_op(op: str) -> Mapping[str, Belongs]:
    """The slices that problems of an operation can be in."""
    return _OF_OP[op]


def slices_of(problem: Problem) -> tuple[str, ...]:
    """The slices that a problem is in, in the order of SLICES."""
    return tuple(name for name, belongs in _OF_OP[problem.op].items() if belongs(problem))
