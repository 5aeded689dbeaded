"""The words for convolutions: slices, terms in names of kernels, other programs' columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tile_oracle.operations.gemm.words import TILED_TERMS
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem

# ---- Slices of convolutions, for describing problem sets and breaking down results ---------------


def is_depthwise(problem: GroupedConvProblem) -> bool:
    """Returns whether each group has one input channel; it may have more outputs."""
    return problem.G > 1 and problem.C == problem.G


def is_pointwise(problem: GroupedConvProblem) -> bool:
    """Returns whether every filter extent is 1."""
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

# ---- The words in names of convolution kernels ---------------------------------------------------

CONV_TERMS: Mapping[str, str] = {
    **TILED_TERMS,
    "dsb": "double buffer in LDS (NVIDIA: shared memory): one is filled while the other is read",
    "si": "split image: no tile holds pixels of two images",
    "wMxNxK": "waves along each axis of the tile",
    "wtMxNxK": "tile of one matrix instruction sequence of a wave",
    "vAxBxC": "elements of each global load of A and B, and of each store of C",
    "gmN": "a workgroup computes N groups as one GEMM",
    "eg": "explicit GEMM: a 1x1 convolution runs as a plain matrix product",
    "2s": "two stages: the depth is split; a second kernel adds the partial sums",
    "epdefault": "default epilogue: results are stored from registers, not reordered in LDS",
    "f1x1p0, f1x1s1p0, f3x3": "specialization: only for these filters, strides (s) and paddings (p)",
    "padMNK": "bits: whether partial tiles along M, N and K are handled; all are where it is absent",
}
"""Of grouped convolutions."""

# ---- Other programs' names for the dimensions of a convolution -----------------------------------

_SUFFIXES = (("h", "y"), ("w", "x"), ("d", "z"))
_OF_AXIS = {
    "Di Hi Wi": ("in_{a}", "input_{a}", "i{a}", "{a}in", "{a}_in", "{a}"),
    "Z Y X": ("fil_{a}", "filter_{a}", "kernel_{a}", "k{a}", "f{a}", "kernel_size_{a}", "filter{a}"),
    "Do Ho Wo": ("out_{a}", "output_{a}", "o{a}", "{a}out", "{a}_out"),
    "stride_d stride_h stride_w": ("conv_stride_{a}", "s{a}", "stride{a}", "stride_{b}"),
    "pad_d pad_h pad_w": ("padding_{a}", "p{a}", "pad{a}", "pad_{b}"),
    "dilation_d dilation_h dilation_w": ("d{a}", "dilation{a}", "dil_{a}", "dilation_{b}"),
}
_WORDS = {
    "N": "batch batch_size batchsize bs n_batch minibatch",
    "C": "in_channels input_channels channels_in in_channel inchannels cin c_in ci num_channels",
    "K": "out_channels output_channels channels_out out_channel outchannels cout c_out co num_filters k_out",
    "G": "groups group num_groups group_count ngroups n_groups conv_groups",
    "Hi": "height image_height input_height",
    "Wi": "width image_width input_width",
    "Hi and Wi": "image_size input_size input_shape image image_shape",
    "Y": "kernel_height filter_height r",
    "X": "kernel_width filter_width s",
    "Y and X": "kernel_size filter_size kernel_shape filter ksize",
    "Ho": "output_height p",
    "Wo": "output_width q",
    "stride_h and stride_w": "stride strides conv_stride",
    "pad_h and pad_w": "pad padding pads",
    "dilation_h and dilation_w": "dilation dilations",
    "Di": "depth",
    "direction": "variant conv_direction op_direction",
    "dtype": "data_type datatype precision torch_dtype",
    "ndim": "ndim_spatial spatial_dim spatial_dims",
}


def _foreign_columns() -> dict[str, str]:
    found = {word: ours for ours, words in _WORDS.items() for word in words.split()}
    for ours, patterns in _OF_AXIS.items():
        for field, (a, b) in zip(ours.split(), (_SUFFIXES[2], _SUFFIXES[0], _SUFFIXES[1]), strict=True):
            for pattern in patterns:
                found.setdefault(pattern.format(a=a, b=b), field)
    # Our names in another case are recognised without this table.
    return {name: ours for name, ours in found.items() if name != ours.lower()}


FOREIGN_COLUMNS: Mapping[str, str] = _foreign_columns()
"""A column of PyTorch, MIOpen, cuDNN or tile_engine in lower case -> ours. They are suggested in messages and
not accepted, since some stand for two of ours (`kernel_size`) and others are ambiguous (`P`)."""
