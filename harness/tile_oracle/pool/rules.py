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

Rules for GEMM kernels are a list of blocks of their own, "gemm" beside "blocks"; either may be left out:

    {"gemm": [{
        "arch": ["gfx950"],
        "dtype": [...], "layout": ["rcr"],                          left out: all
        "tiles": [...], "pipeline": ["compv3", "preshufflev2"], ...}]}

with `tile_k`, `scheduler`, `epilogue` and `padding` as above, and `persistent` [false].

The sets `profiler` and `tests` are no files of ours: they are read from a checkout's CK Builder config files
(tile_oracle.pool.ck_builder), and are named with it: `profiler@DIR` (`rules_of`).
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

from tile_oracle.arch import Triple, known_archs
from tile_oracle.data_files import data_folder
from tile_oracle.errors import RuleError
from tile_oracle.json_tree import JsonTree, shown
from tile_oracle.kernel import EPILOGUES, PUBLISHED_VECTORS, SCHEDULERS
from tile_oracle.pool.ck_builder import BUILDER_SETS, BuilderLine, read_builder_configs
from tile_oracle.pool.gemm_rules import GemmRuleBlock, read_gemm_block
from tile_oracle.pool.rule_parts import SIZES, TileRule, filled, read_padding, read_pipeline, read_tile
from tile_oracle.problem import DIRECTIONS, DTYPES, Kind

MAX_CANDIDATES = 250_000
"""Candidates of a set's blocks together: more is a slip, and would take minutes to look at."""


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
    """A named list of blocks, those of GEMM kernels apart. notes: what a person should be told of it."""

    name: str
    about: str
    blocks: tuple[RuleBlock, ...]
    gemm: tuple[GemmRuleBlock, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def archs(self) -> tuple[str, ...]:
        """The architectures that the set has convolution kernels for."""
        return tuple(dict.fromkeys(arch for block in self.blocks for arch in block.arch))

    def covers(self, kind: Kind, arch: str) -> bool:
        """Whether the set says anything about this kind of problem."""
        first, dtype, last = kind
        if isinstance(last, int):
            return any(block.covers(first, dtype, last, arch) for block in self.blocks)
        return any(block.covers(dtype, last, arch) for block in self.gemm)

    @property
    def gemm_archs(self) -> tuple[str, ...]:
        """The architectures that the set has GEMM kernels for."""
        return tuple(dict.fromkeys(arch for block in self.gemm for arch in block.arch))


def list_rule_sets() -> tuple[str, ...]:
    """The names of the shipped rule sets, sorted."""
    return tuple(sorted(path.stem for path in (data_folder("kernels") / "rules").glob("*.json")))


def rules_of(kernel_set: str, ck_tile: Path | None) -> str:
    """What `load_rule_set` takes for a kernel set and the checkout beside it: profiler and tests need one."""
    return f"{kernel_set}@{ck_tile}" if kernel_set in BUILDER_SETS and ck_tile is not None else kernel_set


def load_rule_set(name_or_path: str) -> RuleSet:
    """A shipped rule set by name, a user's own by the path of its .json file, or a checkout's (`rules_of`).

    Raises RuleError.
    """
    set_name, at, checkout = name_or_path.partition("@")
    if set_name in BUILDER_SETS:
        if not at:
            raise RuleError(
                f"kernel set {set_name} is read from the CK Builder config files of a checkout of Composable "
                "Kernel: name it with --ck-tile DIR"
            )
        return _builder_set(set_name, Path(checkout))
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
    tree = JsonTree.read(path)
    only_gemm = isinstance(tree.value, dict) and "gemm" in tree.value and "blocks" not in tree.value
    needed, optional = ("gemm",) if only_gemm else ("blocks",), () if only_gemm else ("gemm",)
    top = tree.known_members(needed, ("about", "tile_lists", *optional))
    tile_lists = top["tile_lists"].members() if "tile_lists" in top else {}
    blocks = tuple(_read_block(item, tile_lists) for item in top["blocks"].items()) if "blocks" in top else ()
    gemm = tuple(read_gemm_block(item, tile_lists) for item in top["gemm"].items()) if "gemm" in top else ()
    if not blocks and not gemm:
        raise top["blocks" if "blocks" in top else "gemm"].error("a rule set needs at least one block")
    for key, candidates in (
        ("blocks", sum(block.candidates for block in blocks)),
        ("gemm", sum(block.candidates for block in gemm)),
    ):
        if candidates > MAX_CANDIDATES:
            raise top[key].error(
                f"the blocks propose {candidates:,} kernels for each kind of problem, and at most "
                f"{MAX_CANDIDATES:,} are looked at: shorten their lists"
            )
    return RuleSet(name, top["about"].text() if "about" in top else "", blocks, gemm)


@lru_cache(maxsize=4)
def _builder_set(name: str, folder: Path) -> RuleSet:
    configs = read_builder_configs(name, folder)
    blocks = tuple(_builder_block(line, configs.archs) for line in configs.lines)
    return RuleSet(
        f"{name}@{folder}", f"{configs.files} config files in {configs.folder}", blocks, notes=configs.notes
    )


def _builder_block(line: BuilderLine, archs: tuple[str, ...]) -> RuleBlock:
    return RuleBlock(
        place=line.place,
        about="",
        arch=archs,
        direction=(line.direction,),
        dtype=(line.dtype,),
        ndim=(line.ndim,),
        tiles=(line.tile,),
        tile_k=(),
        pipeline=(line.pipeline,),
        scheduler=(line.scheduler,),
        epilogue=("cshuffle",),
        double_smem_buffer=(line.double_smem_buffer,),
        split_image=(line.split_image,),
        num_groups_to_merge=(line.num_groups_to_merge,),
        explicit_gemm=(False,),
        two_stage=(line.two_stage,),
        vectors=(VectorRule(line.vectors),),
        padding=((True, True, True),),
    )


_REQUIRED = ("arch", "tiles", "pipeline")
_OPTIONAL = (
    "about", "direction", "dtype", "ndim", "tile_k", "scheduler", "epilogue", "double_smem_buffer",
    "split_image", "num_groups_to_merge", "explicit_gemm", "two_stage", "vectors", "padding",
)  # fmt: skip


def _read_block(tree: JsonTree, tile_lists: Mapping[str, JsonTree]) -> RuleBlock:
    part = tree.known_members(_REQUIRED, _OPTIONAL)

    def texts(key: str, words: tuple[str, ...] | None, default: tuple[str, ...]) -> tuple[str, ...]:
        return filled(part[key], part[key].texts(words)) if key in part else default

    def flags(key: str) -> tuple[bool, ...]:
        return filled(part[key], part[key].flags()) if key in part else (False,)

    def integers(key: str, default: tuple[int, ...]) -> tuple[int, ...]:
        return filled(part[key], part[key].integers(1)) if key in part else default

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
        tiles=filled(tiles, tuple(read_tile(item, tile_k) for item in tiles.items())),
        tile_k=tile_k,
        pipeline=filled(part["pipeline"], tuple(read_pipeline(item) for item in part["pipeline"].items())),
        scheduler=texts("scheduler", SCHEDULERS, ("intrawave",)),
        epilogue=texts("epilogue", EPILOGUES, ("cshuffle",)),
        double_smem_buffer=flags("double_smem_buffer") if "double_smem_buffer" in part else None,
        split_image=flags("split_image"),
        num_groups_to_merge=integers("num_groups_to_merge", (1,)),
        explicit_gemm=flags("explicit_gemm"),
        two_stage=flags("two_stage"),
        vectors=filled(part["vectors"], tuple(_vectors(item) for item in part["vectors"].items()))
        if "vectors" in part
        else (VectorRule(PUBLISHED_VECTORS),),
        padding=filled(part["padding"], tuple(read_padding(item) for item in part["padding"].items()))
        if "padding" in part
        else ((True, True, True),),
    )


def _ranks(tree: JsonTree) -> tuple[int, ...]:
    ranks = filled(tree, tree.integers(1))
    if any(rank not in (2, 3) for rank in ranks):
        raise tree.error("ndim is 2 or 3")
    return ranks


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
    sizes = SIZES.fullmatch(text)
    if sizes is None or sizes[3] is None:
        raise tree.error(
            f"{tree} is neither three widths (4x8x8) nor 'max' nor [input_|output_]channels_multiple_of_N "
            "with N = 1, 2, 4 or 8"
        )
    return VectorRule((int(sizes[1]), int(sizes[2]), int(sizes[3])))


_STRATEGY = re.compile(r"(input_|output_)?channels_multiple_of_([1248])")
