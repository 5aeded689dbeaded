"""Readers for the common parts of rule blocks: tiles, pipelines, paddings, lists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tile_oracle.arch import Triple
from tile_oracle.files.json_tree import JsonTree
from tile_oracle.kernel import PIPELINE_NAME

_T = TypeVar("_T")


@dataclass(frozen=True)
class TileRule:
    """A tile with the waves and warp tiles to try. A third number of None is filled in by `tilings`."""

    tile: tuple[int, int, int | None]
    waves: tuple[Triple, ...]
    warp_tiles: tuple[tuple[int, int, int | None], ...]


def filled(tree: JsonTree, values: tuple[_T, ...]) -> tuple[_T, ...]:
    """The values of a list. Raises RuleError when it is empty."""
    if not values:
        raise tree.error("an empty list makes no kernels: leave the key out, or name a value")
    return values


def read_tile(tree: JsonTree, tile_k: tuple[int, ...]) -> TileRule:
    """Reads an object with tile, waves and warp_tile. Raises RuleError."""
    part = tree.known_members(("tile", "waves", "warp_tile"))
    tile = _sizes(part["tile"], may_lack_k=True)
    if tile[2] is None and not tile_k:
        raise part["tile"].error(f"{part['tile']} needs a third number, or a list 'tile_k' in its block")
    waves = []
    for item in _one_or_more(part["waves"]):
        m, n, k = _sizes(item, may_lack_k=False)
        assert k is not None
        waves.append((m, n, k))
    warp_tiles = tuple(_sizes(item, may_lack_k=True) for item in _one_or_more(part["warp_tile"]))
    return TileRule(tile, tuple(waves), warp_tiles)


def _one_or_more(tree: JsonTree) -> tuple[JsonTree, ...]:
    return (tree,) if isinstance(tree.value, str) else filled(tree, tuple(tree.items()))


def _sizes(tree: JsonTree, may_lack_k: bool) -> tuple[int, int, int | None]:
    match = SIZES.fullmatch(tree.text())
    if match is None or (match[3] is None and not may_lack_k):
        raise tree.error(f"{tree} is not of the form 64x64x64" + (" or 64x64" if may_lack_k else ""))
    return (int(match[1]), int(match[2]), None if match[3] is None else int(match[3]))


def read_pipeline(tree: JsonTree) -> str:
    """Reads a pipeline's name. Raises RuleError."""
    text = tree.text()
    if PIPELINE_NAME.fullmatch(text) is None:
        raise tree.error(f"{tree} is not a pipeline; one is compv3, mem, basic_v1, comp_async")
    return text


def read_padding(tree: JsonTree) -> tuple[bool, bool, bool]:
    """Reads pad_m, pad_n and pad_k from three digits. Raises RuleError."""
    text = tree.text()
    if re.fullmatch("[01]{3}", text) is None:
        raise tree.error(f"{tree} is not three digits 0 or 1, one each for pad_m, pad_n, pad_k")
    return (text[0] == "1", text[1] == "1", text[2] == "1")


SIZES = re.compile(r"([1-9][0-9]{0,6})x([1-9][0-9]{0,6})(?:x([1-9][0-9]{0,6}))?")


def tilings(
    rule: TileRule, tile_ks: Sequence[int], listed: Sequence[Triple]
) -> Iterator[tuple[Triple, Triple, Triple]]:
    """Tile, waves and warp tile of each tiling that a tile rule gives."""
    tile_m, tile_n, fixed_k = rule.tile
    for tile_k in tile_ks if fixed_k is None else (fixed_k,):
        for waves in rule.waves:
            for warp_m, warp_n, warp_k in rule.warp_tiles:
                if warp_k is None:
                    warp_k = _deepest(listed, warp_m, warp_n, tile_k, waves[2])
                yield (tile_m, tile_n, tile_k), waves, (warp_m, warp_n, warp_k)


def _deepest(listed: Sequence[Triple], warp_m: int, warp_n: int, tile_k: int, wave_k: int) -> int:
    """The K of a warp tile with given m and n: the largest listed K that divides the tile.

    A matrix instruction does a fixed number of multiplications, so its depth follows from m x n and the data
    type. The list has the native depth and multiples that chain instructions; the deepest one needs the
    fewest address computations. If none fits, the smallest listed depth (or the tile's depth, if none is
    listed) is used, and the architecture refuses the kernel.
    """
    depths = sorted(k for m, n, k in listed if (m, n) == (warp_m, warp_n))
    fitting = [k for k in depths if tile_k % (wave_k * k) == 0]
    return fitting[-1] if fitting else depths[0] if depths else tile_k
