"""Rule blocks of GEMM kernels: the list "gemm" of a rule set (see tile_oracle.pool.rules)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tile_oracle.arch import Arch, known_archs
from tile_oracle.errors import KernelError, RuleError
from tile_oracle.files.json_tree import JsonTree
from tile_oracle.kernel.fields import EPILOGUES, SCHEDULERS
from tile_oracle.operation.kind import Kind
from tile_oracle.operations.gemm.kernel import GemmKernel
from tile_oracle.operations.gemm.problem import GEMM_DTYPES, GEMM_LAYOUTS
from tile_oracle.pool.rule_parts import TileRule, filled, read_padding, read_pipeline, read_tile, tilings


@dataclass(frozen=True)
class GemmRuleBlock:
    """One cross product. place: its place in the file, for messages."""

    place: str
    about: str
    arch: tuple[str, ...]
    dtype: tuple[str, ...]
    layout: tuple[str, ...]
    tiles: tuple[TileRule, ...]
    tile_k: tuple[int, ...]
    pipeline: tuple[str, ...]
    scheduler: tuple[str, ...]
    epilogue: tuple[str, ...]
    padding: tuple[tuple[bool, bool, bool], ...]
    persistent: tuple[bool, ...]

    @property
    def candidates(self) -> int:
        """Number of kernels proposed for one kind of problem, before any is refused."""
        tiles = sum(
            (len(self.tile_k) if rule.tile[2] is None else 1) * len(rule.waves) * len(rule.warp_tiles)
            for rule in self.tiles
        )
        axes = (self.pipeline, self.scheduler, self.epilogue, self.padding, self.persistent)
        return tiles * math.prod(len(axis) for axis in axes)

    def covers(self, kind: Kind, arch: str) -> bool:
        """Whether the block applies to this kind of problem."""
        return arch in self.arch and all(value in getattr(self, name) for name, value in kind.fields)

    def kernels(self, kind: Kind, arch: Arch) -> Iterator[GemmKernel]:
        """Every combination of the lists; the K of a warp tile is computed for the pipeline."""
        dtype, layout = kind.dtype, str(kind.words["layout"])
        for pipeline in self.pipeline:
            others = list(itertools.product(self.scheduler, self.epilogue, self.padding, self.persistent))
            shuffled = pipeline.startswith("preshuffle")
            listed = (arch.preshuffle_warp_tiles if shuffled else arch.warp_tiles).get(dtype, ())
            for rule in self.tiles:
                for tile, waves, warp_tile in tilings(rule, self.tile_k, listed):
                    for scheduler, epilogue, padding, persistent in others:
                        try:
                            yield GemmKernel(
                                *(dtype, layout, *tile, *waves, *warp_tile),
                                *(pipeline, scheduler, epilogue, *padding, persistent),
                            )
                        except KernelError as error:
                            raise RuleError(f"{self.place}: {error}") from None


_REQUIRED = ("arch", "tiles", "pipeline")
_OPTIONAL = ("about", "dtype", "layout", "tile_k", "scheduler", "epilogue", "padding", "persistent")


def read_block(tree: JsonTree, tile_lists: Mapping[str, JsonTree]) -> GemmRuleBlock:
    """Reads a block of the list "gemm". Raises RuleError, which names the place."""
    part = tree.known_members(_REQUIRED, _OPTIONAL)

    def texts(key: str, words: tuple[str, ...], default: tuple[str, ...]) -> tuple[str, ...]:
        return filled(part[key], part[key].texts(words)) if key in part else default

    tile_k = filled(part["tile_k"], part["tile_k"].integers(1)) if "tile_k" in part else ()
    tiles = part["tiles"]
    if isinstance(tiles.value, str):
        tiles = tile_lists[tiles.text(tile_lists)]
    return GemmRuleBlock(
        place=f"{tree.file}: {tree.path}",
        about=part["about"].text() if "about" in part else "",
        arch=texts("arch", known_archs(), ()),
        dtype=texts("dtype", GEMM_DTYPES, GEMM_DTYPES),
        layout=texts("layout", GEMM_LAYOUTS, GEMM_LAYOUTS),
        tiles=filled(tiles, tuple(read_tile(item, tile_k) for item in tiles.items())),
        tile_k=tile_k,
        pipeline=filled(part["pipeline"], tuple(read_pipeline(item) for item in part["pipeline"].items())),
        scheduler=texts("scheduler", SCHEDULERS, ("intrawave",)),
        epilogue=texts("epilogue", EPILOGUES, ("cshuffle",)),
        padding=filled(part["padding"], tuple(read_padding(item) for item in part["padding"].items()))
        if "padding" in part
        else ((True, True, True),),
        persistent=filled(part["persistent"], part["persistent"].flags())
        if "persistent" in part
        else (False,),
    )
