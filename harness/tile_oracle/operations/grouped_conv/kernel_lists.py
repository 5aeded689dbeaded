"""Reads and writes the instance lists of Composable Kernel's dispatcher: kernels of one kind, field by field.

    {"variant": "forward", "ndim_spatial": 2, "layout": "nhwgc", "datatype": "bf16",
     "instances": [{"id": 0, "tile_m": 256, ..., "warp_m": 2, ..., "pipeline": "compv3", ...}]}

Here warp_{m,n,k} are the waves, and compv1 is basic_v1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tile_oracle.arch import known_archs
from tile_oracle.errors import KernelError, RuleError
from tile_oracle.files.json_tree import JsonTree
from tile_oracle.kernel.named import other_kernel
from tile_oracle.operation.descriptor import RuleBlock
from tile_oracle.operations.grouped_conv.kernel import SPECIALIZATIONS, GroupedConvKernel
from tile_oracle.operations.grouped_conv.rules import ConvRuleBlock, VectorRule
from tile_oracle.pool.ck_builder_line import BuilderLine
from tile_oracle.pool.rule_parts import INSTANCES, NamedKernels, RuleSet, TileRule

_DIRECTIONS = {
    "forward": "forward", "fwd": "forward", "bwd_data": "bwd_data", "backward_data": "bwd_data",
    "bwd_weight": "bwd_weight", "backward_weight": "bwd_weight",
}  # fmt: skip
_LAYOUTS = {2: "nhwgc", 3: "ndhwgc"}
_NUMBERS = {
    **{f"tile_{axis}": f"tile_{axis}" for axis in "mnk"},
    **{f"wave_{axis}": f"warp_{axis}" for axis in "mnk"},
    **{f"warp_tile_{axis}": f"warp_tile_{axis}" for axis in "mnk"},
    **{f"vector_{operand}": f"vector_size_{operand}" for operand in "abc"},
}
"""Field of a kernel -> key of an instance."""
_WORDS = ("pipeline", "scheduler", "epilogue")
_FLAGS = ("double_smem_buffer", "split_image", "explicit_gemm", "two_stage")
_MERGED, _GROUPS = "num_groups_to_merge", "num_wave_groups"
_TWO_WAVE_GROUPS = "compv5"
_STREAM_K, _OF_STREAM_K = "streamk_enabled", ("streamk_reduction_strategy", "streamk_persistent")
"""Whether tiles are shared among workgroups, and how: false is the kernel without these keys."""


def read_kernel_list(tree: JsonTree, name: str) -> RuleSet:
    """Returns the set of an instance list. Raises RuleError."""
    top = tree.known_members(("variant", "ndim_spatial", "datatype", INSTANCES), ("layout",))
    ndim = top["ndim_spatial"].integer(2)
    if ndim not in _LAYOUTS:
        raise top["ndim_spatial"].error("ndim_spatial is 2 or 3")
    if "layout" in top:
        top["layout"].text((_LAYOUTS[ndim],))
    kind: dict[str, Any] = {
        "direction": _DIRECTIONS[top["variant"].text(_DIRECTIONS)],
        "dtype": top["datatype"].text(("bf16", "fp16", "fp32")),
        "ndim": ndim,
    }
    archs = tuple(arch for arch in known_archs() if arch.startswith("gfx9"))
    blocks: list[RuleBlock] = []
    left_out: list[tuple[str, str]] = []
    for item in top[INSTANCES].items():
        place = f"{item.file}: {item.path}"
        try:
            kernel = _instance(item, kind)
            blocks.append(NamedKernels(place, archs, kernel.kind, (kernel,)))
        except (RuleError, KernelError) as error:
            left_out.append((place, str(error).removeprefix(f"{place}: ").removeprefix(f"{item.file}: ")))
    if not blocks:
        first = f": {left_out[0][0]}: {left_out[0][1]}" if left_out else ""
        raise top[INSTANCES].error(f"no instance is a kernel{first}")
    about = f"{len(blocks)} instances of {kind['direction']} {kind['dtype']} {ndim}D"
    shown = (f"  {place}: {reason}" for place, reason in left_out[:5])
    total = len(blocks) + len(left_out)
    notes = (f"{len(left_out)} of {total} instances were left out, the first:", *shown) if left_out else ()
    return RuleSet(name, about, {"grouped_conv": tuple(blocks)}, notes, tuple(left_out))


def _instance(tree: JsonTree, kind: Mapping[str, Any]) -> GroupedConvKernel:
    """Returns the kernel of one instance. Raises RuleError or KernelError."""
    if (tagged := tree.members().get("kind")) is not None:
        raise tagged.error(f"it is {other_kernel(tagged.text()) or tagged}: kernels here are implicit GEMMs")
    rest = ("scheduler", "epilogue", "specialization", "id")
    options = (*_FLAGS, *rest, _MERGED, _GROUPS, _STREAM_K, *_OF_STREAM_K)
    part = tree.known_members((*_NUMBERS.values(), "pipeline"), options)
    values: dict[str, Any] = {field: part[key].integer(1) for field, key in _NUMBERS.items()}
    values |= {name: part[name].text() for name in _WORDS if name in part}
    values |= {name: part[name].flag() for name in _FLAGS if name in part}
    if _MERGED in part:
        values[_MERGED] = part[_MERGED].integer(1)
    if values["pipeline"] == "compv1":
        values["pipeline"] = "basic_v1"
    groups = part[_GROUPS].integer(1) if _GROUPS in part else 1
    if groups != 1 and (groups, values["pipeline"]) != (2, _TWO_WAVE_GROUPS):
        raise part[_GROUPS].error(f"{_GROUPS} is 1, or 2 for {_TWO_WAVE_GROUPS}")
    if _STREAM_K in part and part[_STREAM_K].flag():
        raise part[_STREAM_K].error("stream-K: kernels here do not share tiles among workgroups")
    if "specialization" in part:
        values["specialization"] = _specialization(part["specialization"])
    return GroupedConvKernel(**kind, **values)


def _specialization(tree: JsonTree) -> str:
    """Ignores case and underscores: default, filter1x1_pad0, Filter1x1Pad0."""
    known = {name.lower(): name for name in SPECIALIZATIONS}
    found = known.get(re.sub("_", "", tree.text()).lower())
    if found is None:
        raise tree.error(f"{tree} is not one of {', '.join(SPECIALIZATIONS)}")
    return found


def instances_json(kernels: Sequence[GroupedConvKernel]) -> str:
    """Returns the instance list of kernels of one kind, one instance per line. Raises KernelError for kernels
    of several kinds, and for kernels that a list cannot express."""
    if len({kernel.kind for kernel in kernels}) != 1:
        raise KernelError("an instance list has one direction, data type and rank: name them, or filter")
    for kernel in kernels:
        if not (kernel.pad_m and kernel.pad_n and kernel.pad_k):
            raise KernelError(f"{kernel.name}: an instance list cannot express paddings that are off")
    first = kernels[0]
    head = {
        "variant": first.direction, "ndim_spatial": first.ndim, "layout": _LAYOUTS[first.ndim],
        "datatype": first.dtype,
    }  # fmt: skip
    rows = (json.dumps({"id": number, **_as_instance(kernel)}) for number, kernel in enumerate(kernels))
    return json.dumps(head)[:-1] + ', "instances": [\n' + ",\n".join(rows) + "\n]}\n"


def _as_instance(kernel: GroupedConvKernel) -> dict[str, Any]:
    return {
        **{key: getattr(kernel, field) for field, key in _NUMBERS.items()},
        "pipeline": "compv1" if kernel.pipeline == "basic_v1" else kernel.pipeline,
        "scheduler": kernel.scheduler,
        "epilogue": kernel.epilogue,
        **{name: getattr(kernel, name) for name in _FLAGS},
        _MERGED: kernel.num_groups_to_merge,
        _GROUPS: 2 if kernel.pipeline == _TWO_WAVE_GROUPS else 1,
        # filter1x1_pad0, as the dispatcher's lists spell it
        "specialization": re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kernel.specialization).lower(),
    }


# ---- config files of CK Builder -------------------------------------------------------------------


def builder_block(line: BuilderLine, archs: tuple[str, ...]) -> ConvRuleBlock:
    """Returns the block of one line of a config file of CK Builder."""
    alone = (
        *("pipeline", "scheduler", "double_smem_buffer", "split_image", "num_groups_to_merge"),
        *("explicit_gemm", "two_stage", "specialization"),
    )
    return ConvRuleBlock(
        place=line.place,
        arch=archs,
        kinds={name: (getattr(line, name),) for name in ("direction", "dtype", "ndim")},
        tiles=(TileRule(line.tile, (line.waves,), (line.warp_tile,)),),
        tile_k=(),
        choices={
            **{name: (getattr(line, name),) for name in alone},
            "vectors": (VectorRule(line.vectors),),
            "epilogue": ("cshuffle",),
            "padding": ((True, True, True),),
        },
    )
