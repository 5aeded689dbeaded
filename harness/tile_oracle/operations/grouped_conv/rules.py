"""Rule blocks of convolutions: the list "blocks" of a rule set (see tile_oracle.pool.rules)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tile_oracle.arch import Arch, Triple
from tile_oracle.files.json_tree import JsonTree
from tile_oracle.operation.kind import Kind
from tile_oracle.operations.grouped_conv.kernel import PUBLISHED_VECTORS, SPECIALIZATIONS, GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, DTYPES
from tile_oracle.operations.grouped_conv.refusals import CONTIGUOUS_CHANNELS
from tile_oracle.pool.rule_parts import SIZES, TiledBlock, each, read_tiled_block, words


@dataclass(frozen=True)
class VectorRule:
    """Vector widths, or the channel multiples (0: any) that determine the widest vectors."""

    widths: Triple | None = None
    input_multiple: int = 0
    output_multiple: int = 0


@dataclass(frozen=True)
class ConvRuleBlock(TiledBlock):
    """See TiledBlock. Values that a block omits are computed for the architecture."""

    def combined(self, kind: Kind, arch: Arch) -> Iterator[GroupedConvKernel]:
        """Yields every combination of the lists. Raises KernelError."""
        direction, dtype, ndim = str(kind.words["direction"]), kind.dtype, int(kind.words["ndim"])
        others = list(self.others("vectors"))
        for other in others:
            if other["double_smem_buffer"] is None:
                other["double_smem_buffer"] = arch.double_smem_buffer_required(other["pipeline"])
        for tile, waves, warp_tile in self.tilings(arch.warp_tiles.get(dtype, ())):
            widths = dict.fromkeys(
                _vector_widths(rule, direction, dtype, tile, waves, arch) for rule in self.choices["vectors"]
            )
            for vectors, other in itertools.product(widths, others):
                yield GroupedConvKernel(direction, dtype, ndim, *tile, *waves, *warp_tile, *vectors, **other)


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


def _ranks(tree: JsonTree) -> tuple[int, ...]:
    ranks = tree.integers(1)
    if any(rank not in (2, 3) for rank in ranks):
        raise tree.error("ndim is 2 or 3")
    return ranks


_KINDS = {
    "direction": (words(*DIRECTIONS), DIRECTIONS),
    "dtype": (words(*DTYPES), DTYPES),
    "ndim": (_ranks, (2, 3)),
}
_CHOICES = {
    "double_smem_buffer": (JsonTree.flags, (None,)),
    "split_image": (JsonTree.flags, (False,)),
    "num_groups_to_merge": (lambda tree: tree.integers(1), (1,)),
    "explicit_gemm": (JsonTree.flags, (False,)),
    "two_stage": (JsonTree.flags, (False,)),
    "vectors": (each(_vectors), (VectorRule(PUBLISHED_VECTORS),)),
    "specialization": (words(*SPECIALIZATIONS), ("Default",)),
}


def read_block(tree: JsonTree, tile_lists: Mapping[str, JsonTree]) -> ConvRuleBlock:
    """Reads a block of the list "blocks". Raises RuleError, which names the place."""
    return read_tiled_block(ConvRuleBlock, tree, tile_lists, _KINDS, _CHOICES)
