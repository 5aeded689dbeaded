"""Small problems, each awkward in one way, for kernels that run slowly."""

from __future__ import annotations

from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem

_2D = (
    # One channel, three to seven, and groups of three channels and seven.
    "n1-c1-k1-i5x5-f3x3-p1",
    "n2-c3-k7-i9x7-f3x3-s2-p1",
    "n2-g3-c9-k21-i6x5-f3x2-p1x0",
    # Depthwise or nearly so, with enough groups to be merged.
    "n2-g64-c64-k64-i5x6-f3x3-p1",
    "n1-g32-c64-k128-i4x5-f2x2",
    # Strides of three, and larger than the filter; dilation; filters of one row and of one column.
    "n1-c16-k24-i11x10-f3x3-s3-p1",
    "n2-c16-k8-i7x9-f1x1-s2x3",
    "n1-c8-k8-i13x11-f3x3-p4-d4",
    "n1-c24-k16-i4x9-f1x7-p0x3",
    "n1-c8-k12-i9x3-f5x1-s2x1-p2x0-d2x1",
    # Images of one pixel; plain matrices; some tiles and some steps along the depth.
    "n3-c72-k40-i1x1-f1x1",
    "n1-c8-k8-i1x1-f3x3-p1",
    "n4-c200-k72-i6x7-f1x1",
    "n2-c72-k136-i9x8-f3x3-p1",
    # Whole tiles, for kernels that take no others.
    "n2-c128-k128-i8x16-f1x1",
)
_3D = (
    "n1-c1-k3-i3x4x5-f3x3x3-p1",
    "n2-g3-c9-k21-i4x5x3-f2x1x3-s2x1x1-p0x0x1",
    "n1-g32-c32-k32-i3x4x4-f3x3x3-p1x0x0",
    "n1-c16-k24-i7x8x7-f3x3x3-s3x2x3-p1x2x1",
    "n1-c8-k8-i6x5x9-f3x2x3-p1x0x4-d2x3x4",
    "n2-c40-k72-i1x1x1-f1x1x1",
    "n1-c72-k40-i4x5x6-f1x3x3-p0x1x1",
)


def awkward_problems(direction: str, dtype: str, ndim: int) -> tuple[GroupedConvProblem, ...]:
    """All of them, as problems of a kind."""
    return tuple(
        GroupedConvProblem.from_id(f"{direction}-{dtype}-{dimensions}")
        for dimensions in (_2D if ndim == 2 else _3D)
    )
