"""Small problems that are awkward in one way each, for kernels that run slowly."""

from __future__ import annotations

from typing import Any

from harness.problem import GroupedConvProblem

_2D: tuple[dict[str, Any], ...] = (
    # One channel, three to seven, and channels in groups of three and seven.
    {"N": 1, "C": 1, "K": 1, "Hi": 5, "Wi": 5, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1},
    {"N": 2, "C": 3, "K": 7, "Hi": 9, "Wi": 7, "Y": 3, "X": 3, "stride_h": 2, "stride_w": 2, "pad_h": 1, "pad_w": 1},
    {"N": 2, "C": 9, "K": 21, "G": 3, "Hi": 6, "Wi": 5, "Y": 3, "X": 2, "pad_h": 1},
    # Depthwise, with groups enough to be merged.
    {"N": 2, "C": 64, "K": 64, "G": 64, "Hi": 5, "Wi": 6, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1},
    {"N": 1, "C": 64, "K": 128, "G": 32, "Hi": 4, "Wi": 5, "Y": 2, "X": 2},
    # Strides of three, and above the filter; dilation; filters of one row and of one column.
    {"N": 1, "C": 16, "K": 24, "Hi": 11, "Wi": 10, "Y": 3, "X": 3, "stride_h": 3, "stride_w": 3, "pad_h": 1, "pad_w": 1},
    {"N": 2, "C": 16, "K": 8, "Hi": 7, "Wi": 9, "Y": 1, "X": 1, "stride_h": 2, "stride_w": 3},
    {"N": 1, "C": 8, "K": 8, "Hi": 13, "Wi": 11, "Y": 3, "X": 3, "pad_h": 4, "pad_w": 4, "dilation_h": 4, "dilation_w": 4},
    {"N": 1, "C": 24, "K": 16, "Hi": 4, "Wi": 9, "Y": 1, "X": 7, "pad_w": 3},
    {"N": 1, "C": 8, "K": 12, "Hi": 9, "Wi": 3, "Y": 5, "X": 1, "stride_h": 2, "pad_h": 2, "dilation_h": 2},
    # Images of one pixel; plain matrices; some tiles and some steps along the depth.
    {"N": 3, "C": 72, "K": 40, "Hi": 1, "Wi": 1, "Y": 1, "X": 1},
    {"N": 1, "C": 8, "K": 8, "Hi": 1, "Wi": 1, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1},
    {"N": 4, "C": 200, "K": 72, "Hi": 6, "Wi": 7, "Y": 1, "X": 1},
    {"N": 2, "C": 72, "K": 136, "Hi": 9, "Wi": 8, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1},
    # Whole tiles, for kernels that cannot take others.
    {"N": 2, "C": 128, "K": 128, "Hi": 8, "Wi": 16, "Y": 1, "X": 1},
)  # fmt: skip
_3D: tuple[dict[str, Any], ...] = (
    {"N": 1, "C": 1, "K": 3, "Di": 3, "Hi": 4, "Wi": 5, "Z": 3, "Y": 3, "X": 3, "pad_d": 1, "pad_h": 1, "pad_w": 1},
    {"N": 2, "C": 9, "K": 21, "G": 3, "Di": 4, "Hi": 5, "Wi": 3, "Z": 2, "Y": 1, "X": 3, "stride_d": 2, "pad_w": 1},
    {"N": 1, "C": 32, "K": 32, "G": 32, "Di": 3, "Hi": 4, "Wi": 4, "Z": 3, "Y": 3, "X": 3, "pad_d": 1},
    {"N": 1, "C": 16, "K": 24, "Di": 7, "Hi": 8, "Wi": 7, "Z": 3, "Y": 3, "X": 3, "stride_d": 3, "stride_h": 2,
     "stride_w": 3, "pad_d": 1, "pad_h": 2, "pad_w": 1},
    {"N": 1, "C": 8, "K": 8, "Di": 6, "Hi": 5, "Wi": 9, "Z": 3, "Y": 2, "X": 3, "dilation_d": 2, "dilation_h": 3,
     "dilation_w": 4, "pad_d": 1, "pad_w": 4},
    {"N": 2, "C": 40, "K": 72, "Di": 1, "Hi": 1, "Wi": 1, "Z": 1, "Y": 1, "X": 1},
    {"N": 1, "C": 72, "K": 40, "Di": 4, "Hi": 5, "Wi": 6, "Z": 1, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1},
)  # fmt: skip


def awkward_problems(direction: str, dtype: str, ndim: int) -> tuple[GroupedConvProblem, ...]:
    """All of them, as problems of a kind."""
    return tuple(
        GroupedConvProblem(direction, dtype, ndim, **{"G": 1, **dimensions})
        for dimensions in (_2D if ndim == 2 else _3D)
    )
