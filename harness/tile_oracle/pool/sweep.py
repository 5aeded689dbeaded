"""Reads tile_engine's sweeps of GEMM kernels (`gemm_full_benchmark.py CONFIG.json`) as a rule set.

    {"tile_config": {"tile_m": {"min": 64, "max": 256, "step": 64}, ..., "warp_m": {"values": [1, 2]}, ...,
     "warp_tile_m": {"values": [16]}, ...},
     "trait_config": {"pipeline": {"values": ["compv3", "mem"]}, ..., "persistent": {"values": [false]}},
     "k_block_per_cu": 1}

Here warp_{m,n,k} are the waves. Every value of every axis is combined with all others. A sweep states neither
its variant nor, usually, its data type and layout: the program is told by --variant, --dtype and --layout.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from typing import Any

from tile_oracle.arch import known_archs
from tile_oracle.files.json_tree import JsonTree

TILES, TRAITS = "tile_config", "trait_config"
"""The keys of a sweep, the first of which distinguishes it from other kernel lists."""
_SIZES = tuple(tuple(f"{of}_{axis}" for axis in "mnk") for of in ("tile", "warp", "warp_tile"))
_PADS = ("pad_m", "pad_n", "pad_k")
_WORDS = ("pipeline", "scheduler", "epilogue", "persistent")
_STATED = ("variant", "datatype", "layout", "k_block_per_cu")
_COMMENTS = ("kernel_set_name", "_comment")
_PLAIN = ("gemm", "gemm_universal", "standard")
_OTHER = re.compile(r"batched|multi_?(?:d|abd)|stream_?k|grouped|contraction|quant|block_scale|mx_gemm")
_MOST_TILES = 10_000


def sweep_rules(tree: JsonTree) -> JsonTree:
    """Returns the rule set of a sweep, for the reader of rule sets. Raises RuleError, also for other
    variants."""
    top = tree.known_members((TILES, TRAITS), (*_STATED, *_COMMENTS))
    named = _OTHER.search(tree.file.lower())
    variant = top["variant"].text() if "variant" in top else named.group() if named else _PLAIN[0]
    if variant not in _PLAIN:
        raise tree.error(f"a sweep of the variant {variant}: kernels here are those of gemm_universal")
    if "k_block_per_cu" in top and top["k_block_per_cu"].integer(1) != 1:
        raise top["k_block_per_cu"].error(
            "workgroups a compute unit are no part of a kernel here: 1, or none"
        )
    tiles, waves, warp_tiles = (_triples(top[TILES], names) for names in _SIZES)
    traits = top[TRAITS].members()
    for name in traits.keys() - {*_WORDS, *_PADS}:
        raise traits[name].error(f"not a trait of gemm_universal, which has {', '.join((*_WORDS, *_PADS))}")
    values = {name: _axis(part) for name, part in traits.items()}
    pads = itertools.product(*(values.pop(name, [False]) for name in _PADS))
    block = {
        "arch": [arch for arch in known_archs() if arch.startswith("gfx")],
        "tiles": [{"tile": tile, "waves": waves, "warp_tile": warp_tiles} for tile in tiles],
        "padding": ["".join(str(int(pad is True)) for pad in three) for three in pads],
        **values,
        **_kind(top),
    }
    about = f"tile_engine's sweep {tree.file}, read as of --variant gemm_universal"
    return JsonTree({"about": about, "gemm": [block]}, tree.file)


def _triples(tree: JsonTree, names: tuple[str, ...]) -> list[str]:
    axes = [_axis(tree.known_members(itertools.chain(*_SIZES))[name]) for name in names]
    if math.prod(map(len, axes)) > _MOST_TILES:
        raise tree.error(f"{' x '.join(names)} make more than {_MOST_TILES:,} tiles: shorten their lists")
    return ["x".join(map(str, values)) for values in itertools.product(*axes)]


def _axis(tree: JsonTree) -> list[Any]:
    """Returns the values of an axis: a list, its `values`, or those from `min` to `max` in steps."""
    if isinstance(tree.value, list):
        return [item.value for item in tree.items()]
    part = tree.known_members(("values",) if "values" in tree.members() else ("min", "max", "step"))
    if "values" in part:
        return [item.value for item in part["values"].items()]
    least, most, step = (part[name].integer(1) for name in ("min", "max", "step"))
    if most // step > _MOST_TILES:
        raise tree.error(f"more than {_MOST_TILES:,} values: give a larger step")
    return list(range(least, most + 1, step))


def _kind(top: Mapping[str, JsonTree]) -> dict[str, list[str]]:
    """Returns the data type and layout of a sweep that states them."""
    kind = {"layout": [top["layout"].text()]} if "layout" in top else {}
    if "datatype" in top:
        of = top["datatype"].members() if isinstance(top["datatype"].value, dict) else {"a": top["datatype"]}
        dtypes = {of[name].text() for name in ("a", "b") if name in of}
        if len(dtypes) != 1:
            raise top["datatype"].error("kernels here multiply matrices of one data type")
        kind["dtype"] = [*dtypes]
    return kind
