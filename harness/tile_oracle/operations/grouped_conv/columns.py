"""Other programs' names for the dimensions of a convolution."""

from __future__ import annotations

from collections.abc import Mapping

_AXES = (("h", "y"), ("w", "x"), ("d", "z"))
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
        for field, (a, b) in zip(ours.split(), (_AXES[2], _AXES[0], _AXES[1]), strict=True):
            for pattern in patterns:
                found.setdefault(pattern.format(a=a, b=b), field)
    # Our names in another case are recognised without this table.
    return {name: ours for name, ours in found.items() if name != ours.lower()}


FOREIGN_COLUMNS: Mapping[str, str] = _foreign_columns()
"""A column of PyTorch, MIOpen, cuDNN or tile_engine in lower case -> ours. They are suggested in messages and
not accepted, since some stand for two of ours (`kernel_size`) and others are ambiguous (`P`)."""
