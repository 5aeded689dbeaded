"""Rule blocks of convolutions: the list "blocks" of a rule set (see tile_oracle.pool.rules)."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tile_oracle.arch import Arch, Triple, known_archs
from tile_oracle.errors import KernelError, RuleError
from tile_oracle.files.json_tree import JsonTree
from tile_oracle.kernel.fields import EPILOGUES, SCHEDULERS
from tile_oracle.operation.kind import Kind
from tile_oracle.operations.grouped_conv.kernel import PUBLISHED_VECTORS, SPECIALIZATIONS, GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, DTYPES
from tile_oracle.operations.grouped_conv.refusals import CONTIGUOUS_CHANNELS
from tile_oracle.pool.rule_parts import (
    SIZES,
    TileRule,
    filled,
    read_padding,
    read_pipeline,
    read_tile,
    tilings,
)


@dataclass(frozen=True)
class VectorRule:
    """Vector widths, or the channel multiples (0: any) that determine the widest vectors."""

    widths: Triple | None = None
    input_multiple: int = 0
    output_multiple: int = 0


@dataclass(frozen=True)
class ConvRuleBlock:
    """One cross product. place: its place in the file, for messages."""

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
    specialization: tuple[str, ...] = ("Default",)

    @property
    def candidates(self) -> int:
        """Number of kernels proposed for one kind of problem, before any is refused."""
        tiles = sum(
            (len(self.tile_k) if rule.tile[2] is None else 1) * len(rule.waves) * len(rule.warp_tiles)
            for rule in self.tiles
        )
        buffers = (None,) if self.double_smem_buffer is None else self.double_smem_buffer
        axes = (
            self.pipeline, self.scheduler, self.epilogue, buffers, self.split_image, self.num_groups_to_merge,
            self.explicit_gemm, self.two_stage, self.vectors, self.padding, self.specialization,
        )  # fmt: skip
        return tiles * math.prod(len(axis) for axis in axes)

    def covers(self, kind: Kind, arch: str) -> bool:
        """Whether the block applies to this kind of problem."""
        return arch in self.arch and all(value in getattr(self, name) for name, value in kind.fields)

    def kernels(self, kind: Kind, arch: Arch) -> Iterator[GroupedConvKernel]:
        """Every combination of the lists. Omitted values are computed for the architecture."""
        direction, dtype, ndim = str(kind.words["direction"]), kind.dtype, int(kind.words["ndim"])
        others = [
            (pipeline, scheduler, epilogue, double, split, merge, explicit, two_stage, *padding, special)
            for pipeline in self.pipeline
            for (
                scheduler,
                epilogue,
                double,
                split,
                merge,
                explicit,
                two_stage,
                padding,
                special,
            ) in itertools.product(
                self.scheduler,
                self.epilogue,
                self.double_smem_buffer or (arch.double_smem_buffer_required(pipeline),),
                self.split_image,
                self.num_groups_to_merge,
                self.explicit_gemm,
                self.two_stage,
                self.padding,
                self.specialization,
            )
        ]
        for rule in self.tiles:
            for tile, waves, warp_tile in tilings(rule, self.tile_k, arch.warp_tiles.get(dtype, ())):
                widths = dict.fromkeys(
                    _vector_widths(vectors, direction, dtype, tile, waves, arch) for vectors in self.vectors
                )
                for vectors, other in itertools.product(widths, others):
                    try:
                        yield GroupedConvKernel(
                            direction, dtype, ndim, *tile, *waves, *warp_tile, *vectors, *other
                        )
                    except KernelError as error:
                        raise RuleError(f"{self.place}: {error}") from None


def _vector_widths(
    rule: VectorRule, direction: str, dtype: str, tile: Triple, waves: Triple, arch: Arch
) -> Triple:
    if rule.widths is not None:
        return rule.widths
    widest = arch.widest_vectors(dtype, tile, waves)
    if arch.kernels.fixed_vectors is not None:
        return widest
    multiples = {"C": rule.input_multiple, "K": rule.output_multiple}
    a, b, c = (
        min(width, multiples[channel] or width)
        for width, (channel, _) in zip(widest, CONTIGUOUS_CHANNELS[direction], strict=True)
    )
    return (a, b, c)


_REQUIRED = ("arch", "tiles", "pipeline")
_OPTIONAL = (
    "about", "direction", "dtype", "ndim", "tile_k", "scheduler", "epilogue", "double_smem_buffer",
    "split_image", "num_groups_to_merge", "explicit_gemm", "two_stage", "vectors", "padding",
    "specialization",
)  # fmt: skip


def read_block(tree: JsonTree, tile_lists: Mapping[str, JsonTree]) -> ConvRuleBlock:
    """Reads a block of the list "blocks". Raises RuleError, which names the place."""
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
    return ConvRuleBlock(
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
        specialization=texts("specialization", SPECIALIZATIONS, ("Default",)),
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
