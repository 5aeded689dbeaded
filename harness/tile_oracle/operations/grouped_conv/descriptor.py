"""The descriptor of grouped convolution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tile_oracle.operation.bands import BANDS
from tile_oracle.operation.descriptor import Operation
from tile_oracle.operation.part import deferred, part
from tile_oracle.operations.grouped_conv.cpu_source import cpu_source
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel, parse_grouped_conv_name
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, DTYPES, GroupedConvProblem
from tile_oracle.operations.grouped_conv.words import CONV_SLICES, CONV_TERMS, FOREIGN_COLUMNS

_DEPTH_DEFAULTS = {"Di": 1, "Z": 1, "stride_d": 1, "pad_d": 0, "dilation_d": 1}


def _completed(values: dict[str, Any]) -> dict[str, Any]:
    """Adds missing values: one group; 3D if a depth column is not its default, else 2D; the padding of an
    axis for which only the output extent is given."""
    deep = any(values.get(name, default) != default for name, default in _DEPTH_DEFAULTS.items())
    deep |= values.get("Do", 1) > 1
    pads = {f"pad_{axis}": pad for axis in "dhw" if (pad := _pad_of_output(values, axis)) is not None}
    return {"G": 1, "ndim": 3 if deep else 2} | pads | values


def _pad_of_output(values: Mapping[str, Any], axis: str) -> int | None:
    """Returns the smallest symmetric padding that gives the stated output extent."""
    inside, taps, outside = {"d": ("Di", "Z", "Do"), "h": ("Hi", "Y", "Ho"), "w": ("Wi", "X", "Wo")}[axis]
    if f"pad_{axis}" in values or outside not in values:
        return None
    reach = (values.get(taps, 1) - 1) * values.get(f"dilation_{axis}", 1) + 1
    covered = (values[outside] - 1) * values.get(f"stride_{axis}", 1) + reach
    return int(max(0, -((values.get(inside, 1) - covered) // 2)))


def _timed_like(kernel: GroupedConvKernel) -> GroupedConvKernel | None:
    """compv5 has the times of compv3, as the public gfx950 measurements show."""
    return replace(kernel, pipeline="compv3") if kernel.pipeline == "compv5" else None


def _cpu_source(kernel: GroupedConvKernel) -> str:
    return cpu_source(kernel, kernel.direction, kernel.ndim)


GROUPED_CONV = Operation(
    plural="convolutions",
    problem=GroupedConvProblem,
    kernel=GroupedConvKernel,
    parse_kernel=parse_grouped_conv_name,
    kind_fields={"direction": DIRECTIONS, "dtype": DTYPES, "ndim": (2, 3)},
    kind_words="direction, dtype and rank",
    kind_format="{direction} {dtype} {ndim}D",
    kernel_prefix_format="grouped_conv_{direction}_{dtype}_{ndim}d_",
    id_prefixes=tuple(f"{direction}-" for direction in DIRECTIONS),
    short_names=r"[0-9]+x[0-9]+x[0-9]+_[a-z0-9_]+",
    marks=("direction",),
    required=("N", "C", "K", "Hi", "Wi", "Y", "X"),
    outputs=("Do", "Ho", "Wo"),
    foreign_columns=FOREIGN_COLUMNS,
    models_by=("direction", "dtype"),
    defaults={"direction": "forward", "dtype": "bf16"},
    completed=_completed,
    family_varies=("N", "Di", "Hi", "Wi"),
    slices=CONV_SLICES,
    bands={"2D": lambda p: p.ndim == 2, **BANDS, "K no multiple of 16": lambda p: bool(p.K // p.G % 16)},
    rules_key="blocks",
    read_rules=deferred(".rules:read_block", __package__),
    kernel_lists=part(".kernel_lists", __package__),
    refusals=deferred(".refusals:refusals", __package__),
    problem_refusals=deferred(".refusals:problem_refusals", __package__),
    cpu_source=_cpu_source,
    gpu_source=part(".gpu_source", __package__),
    ck_tile=part(".ck_tile", __package__),
    on_device=part(".on_device", __package__),
    least_work=deferred(".least_work:least_work", __package__),
    on_gpu=part(".on_gpu", __package__),
    triton_view=part(".triton_view:GroupedConvView", __package__),
    terms=CONV_TERMS,
    features=part("tile_oracle.features.schemas:GROUPED_CONV_FEATURES"),
    search=part(".search", __package__),
    derived_columns=("Ho", "Wo"),
    timed_like=_timed_like,
)
"""Grouped convolution: forward, data gradient, weight gradient, in 2D and 3D."""
