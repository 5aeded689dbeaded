"""Rule sets: which kernels to try, as data (kernels/rules/*.json, or a user's own file).

A rule set is a list of blocks. A block is a cross product: every tile x every value of every other
axis, for the architectures, directions, data types and ranks that it names. What the architecture
refuses of it is dropped and counted, never repaired.

    {"about": "...", "blocks": [{
        "arch": ["gfx950"],                          names in kernels/arch_specs.json
        "direction": [...], "dtype": [...], "ndim": [2, 3],         left out: all
        "tiles": [{"tile": "64x128x64", "waves": "2x2x1", "warp_tile": "32x32x16"}, ...],
        "pipeline": ["compv3", "compv4"],
        "vectors": ["4x8x8"], ...}]}

`tiles` may name one of the file's "tile_lists": {"name": [...]}. A tile's `waves` and `warp_tile` may be
lists; a tile "64x128" takes its depths from the block's `tile_k`; a warp tile "32x32" takes the deepest
K that the architecture lists for the data type and that divides the tile. `vectors` are widths, or a
strategy: "max", "channels_multiple_of_4", "input_channels_multiple_of_1",
"output_channels_multiple_of_2" (the widest load that such channel counts allow). `double_smem_buffer`
left out means: where the pipeline requires it. The other axes, with what they are when left out:
`scheduler` ["intrawave"], `epilogue` ["cshuffle"], `split_image` [false], `num_groups_to_merge` [1],
`explicit_gemm` [false], `two_stage` [false], `padding` ["111"] (one digit for each of pad_m, pad_n, pad_k).
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG
from typing import TypeVar

from harness.arch import Triple, known_archs
from harness.data_files import data_folder
from harness.errors import RuleError
from harness.json_tree import JsonTree, shown
from harness.kernel import EPILOGUES, PIPELINE_NAME, PUBLISHED_VECTORS, SCHEDULERS
from harness.problem import DIRECTIONS, DTYPES

_T = TypeVar("_T")

MAX_CANDIDATES = 250_000
"""Candidates of a set's blocks together: more is a slip, and would take minutes to look at."""


@dataclass(frozen=True)
class TileRule:
    """A tile with the waves and warp tiles to try; a third number of None is filled in by rule."""

    tile: tuple[int, int, int | None]
    waves: tuple[Triple, ...]
    warp_tiles: tuple[tuple[int, int, int | None], ...]


@dataclass(frozen=True)
class VectorRule:
    """Vector widths, or the channel multiples (0: any) from which the widest ones are made."""

    widths: Triple | None = None
    input_multiple: int = 0
    output_multiple: int = 0


@dataclass(frozen=True)
class RuleBlock:
    """One cross product. `place` says where it stands, for messages."""

    place: str
    about: str
    arch: tuple[str, ...]
    direction: tuple[str, ...]
    dtype: tuple[str, ...]
    ndim: tuple[int, ...]
    tiles: tuple[TileRule, ...]
    tile_k: tuple[int, ...]
    pipeline: tuple[str, ...]
    scheduler: tuple[str, ...]
    epilogue: tuple[str, ...]
    double_smem_buffer: tuple[bool, ...] | None
    split_image: tuple[bool, ...]
    num_groups_to_merge: tuple[int, ...]
    explicit_gemm: tuple[bool, ...]
    two_stage: tuple[bool, ...]
    vectors: tuple[VectorRule, ...]
    padding: tuple[tuple[bool, bool, bool], ...]

    @property
    def candidates(self) -> int:
        """How many kernels the block proposes for one kind of problem, before any is refused."""
        tiles = sum(
            (len(self.tile_k) if rule.tile[2] is None else 1) * len(rule.waves) * len(rule.warp_tiles)
            for rule in self.tiles
        )
        buffers = (None,) if self.double_smem_buffer is None else self.double_smem_buffer
        axes = (
            self.pipeline, self.scheduler, self.epilogue, buffers, self.split_image, self.num_groups_to_merge,
            self.explicit_gemm, self.two_stage, self.vectors, self.padding,
        )  # fmt: skip
        return tiles * math.prod(len(axis) for axis in axes)

    def covers(self, direction: str, dtype: str, ndim: int, arch: str) -> bool:
        """Whether the block says anything about this kind of problem."""
        return arch in self.arch and direction in self.direction and dtype in self.dtype and ndim in self.ndim


@dataclass(frozen=True)
class RuleSet:
    """A named list of blocks."""

    name: str
    about: str
    blocks: tuple[RuleBlock, ...]

    @property
    def archs(self) -> tuple[str, ...]:
        """The architectures that the set has kernels for."""
        return tuple(dict.fromkeys(arch for block in self.blocks for arch in block.arch))


def list_rule_sets() -> tuple[str, ...]:
    """The names of the shipped rule sets, sorted."""
    return tuple(sorted(path.stem for path in (data_folder("kernels") / "rules").glob("*.json")))


def load_rule_set(name_or_path: str) -> RuleSet:
    """A shipped rule set by name, or a user's own by the path of its .json file. Raises RuleError."""
    if name_or_path.endswith(".json"):
        path = Path(name_or_path)
        name = name_or_path
    elif name_or_path in list_rule_sets():
        path = data_folder("kernels") / "rules" / f"{name_or_path}.json"
        name = name_or_path
    else:
        known = list_rule_sets()
        close = difflib.get_close_matches(name_or_path[:100], known, 1)
        hint = f"did you mean {close[0]}?" if close else f"shipped sets: {', '.join(known)}"
        raise RuleError(
            f"kernel set {shown(name_or_path)} is not known; {hint} (a file's name ends in .json)"
        )
    try:
        path = path.absolute()
        stat = path.stat()
    except (OSError, ValueError):
        raise RuleError(f"kernel set {shown(name_or_path)}: there is no such file") from None
    if not S_ISREG(stat.st_mode):
        raise RuleError(f"kernel set {shown(name_or_path)} is not a file")
    return _read(path, name, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=64)
def _read(path: Path, name: str, mtime_ns: int, size_bytes: int) -> RuleSet:
    # Time and size are part of the cache's key only: an edited file is read again.
    top = JsonTree.read(path).known_members(("blocks",), ("about", "tile_lists"))
    tile_lists = top["tile_lists"].members() if "tile_lists" in top else {}
    blocks = tuple(_read_block(item, tile_lists) for item in top["blocks"].items())
    if not blocks:
        raise top["blocks"].error("a rule set needs at least one block")
    candidates = sum(block.candidates for block in blocks)
    if candidates > MAX_CANDIDATES:
        raise top["blocks"].error(
            f"the blocks propose {candidates:,} kernels for each kind of problem, and at most "
            f"{MAX_CANDIDATES:,} are looked at: shorten their lists"
        )
    return RuleSet(name, top["about"].text() if "about" in top else "", blocks)


_REQUIRED = ("arch", "tiles", "pipeline")
_OPTIONAL = (
    "about", "direction", "dtype", "ndim", "tile_k", "scheduler", "epilogue", "double_smem_buffer",
    "split_image", "num_groups_to_merge", "explicit_gemm", "two_stage", "vectors", "padding",
)  # fmt: skip


def _read_block(tree: JsonTree, tile_lists: Mapping[str, JsonTree]) -> RuleBlock:
    part = tree.known_members(_REQUIRED, _OPTIONAL)

    def texts(key: str, words: tuple[str, ...] | None, default: tuple[str, ...]) -> tuple[str, ...]:
        return _filled(part[key], part[key].texts(words)) if key in part else default

    def flags(key: str) -> tuple[bool, ...]:
        return _filled(part[key], part[key].flags()) if key in part else (False,)

    def integers(key: str, default: tuple[int, ...]) -> tuple[int, ...]:
        return _filled(part[key], part[key].integers(1)) if key in part else default

    tile_k = integers("tile_k", ())
    tiles = part["tiles"]
    if isinstance(tiles.value, str):
        tiles = tile_lists[tiles.text(tile_lists)]
    return RuleBlock(
        place=f"{tree.file}: {tree.path}",
        about=part["about"].text() if "about" in part else "",
        arch=texts("arch", known_archs(), ()),
        direction=texts("direction", DIRECTIONS, DIRECTIONS),
        dtype=texts("dtype", DTYPES, DTYPES),
        ndim=_ranks(part["ndim"]) if "ndim" in part else (2, 3),
        tiles=_filled(tiles, tuple(_read_tile(item, tile_k) for item in tiles.items())),
        tile_k=tile_k,
        pipeline=_filled(part["pipeline"], tuple(_pipeline(item) for item in part["pipeline"].items())),
        scheduler=texts("scheduler", SCHEDULERS, ("intrawave",)),
        epilogue=texts("epilogue", EPILOGUES, ("cshuffle",)),
        double_smem_buffer=flags("double_smem_buffer") if "double_smem_buffer" in part else None,
        split_image=flags("split_image"),
        num_groups_to_merge=integers("num_groups_to_merge", (1,)),
        explicit_gemm=flags("explicit_gemm"),
        two_stage=flags("two_stage"),
        vectors=_filled(part["vectors"], tuple(_vectors(item) for item in part["vectors"].items()))
        if "vectors" in part
        else (VectorRule(PUBLISHED_VECTORS),),
        padding=_filled(part["padding"], tuple(_padding(item) for item in part["padding"].items()))
        if "padding" in part
        else ((True, True, True),),
    )


def _filled(tree: JsonTree, values: tuple[_T, ...]) -> tuple[_T, ...]:
    if not values:
        raise tree.error("an empty list makes no kernels: leave the key out, or name a value")
    return values


def _ranks(tree: JsonTree) -> tuple[int, ...]:
    ranks = _filled(tree, tree.integers(1))
    if any(rank not in (2, 3) for rank in ranks):
        raise tree.error("ndim is 2 or 3")
    return ranks


def _read_tile(tree: JsonTree, tile_k: tuple[int, ...]) -> TileRule:
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
    return (tree,) if isinstance(tree.value, str) else _filled(tree, tuple(tree.items()))


def _sizes(tree: JsonTree, may_lack_k: bool) -> tuple[int, int, int | None]:
    match = _SIZES.fullmatch(tree.text())
    if match is None or (match[3] is None and not may_lack_k):
        raise tree.error(f"{tree} is not of the form 64x64x64" + (" or 64x64" if may_lack_k else ""))
    return (int(match[1]), int(match[2]), None if match[3] is None else int(match[3]))


def _pipeline(tree: JsonTree) -> str:
    text = tree.text()
    if PIPELINE_NAME.fullmatch(text) is None:
        raise tree.error(f"{tree} is not a pipeline; one is compv3, mem, basic_v1, comp_async")
    return text


def _vectors(tree: JsonTree) -> VectorRule:
    text = tree.text()
    if text == "max":
        return VectorRule()
    strategy = _STRATEGY.fullmatch(text)
    if strategy is not None:
        multiple = int(strategy[2])
        return VectorRule(
            input_multiple=0 if strategy[1] == "output_" else multiple,
            output_multiple=0 if strategy[1] == "input_" else multiple,
        )
    sizes = _SIZES.fullmatch(text)
    if sizes is None or sizes[3] is None:
        raise tree.error(
            f"{tree} is neither three widths (4x8x8) nor 'max' nor [input_|output_]channels_multiple_of_N "
            "with N = 1, 2, 4 or 8"
        )
    return VectorRule((int(sizes[1]), int(sizes[2]), int(sizes[3])))


def _padding(tree: JsonTree) -> tuple[bool, bool, bool]:
    text = tree.text()
    if re.fullmatch("[01]{3}", text) is None:
        raise tree.error(f"{tree} is not three digits 0 or 1, one each for pad_m, pad_n, pad_k")
    return (text[0] == "1", text[1] == "1", text[2] == "1")


_SIZES = re.compile(r"([1-9][0-9]{0,6})x([1-9][0-9]{0,6})(?:x([1-9][0-9]{0,6}))?")
_STRATEGY = re.compile(r"(input_|output_)?channels_multiple_of_([1248])")
