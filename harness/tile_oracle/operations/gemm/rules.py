"""Rule blocks of GEMM kernels: the list "gemm" of a rule set (see tile_oracle.pool.rules)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tile_oracle.arch import Arch
from tile_oracle.files.json_tree import JsonTree
from tile_oracle.operation.kind import Kind
from tile_oracle.operations.gemm.kernel import GemmKernel
from tile_oracle.operations.gemm.problem import GEMM_DTYPES, GEMM_LAYOUTS
from tile_oracle.pool.rule_parts import TiledBlock, read_tiled_block, words

_KINDS = {"dtype": (words(*GEMM_DTYPES), GEMM_DTYPES), "layout": (words(*GEMM_LAYOUTS), GEMM_LAYOUTS)}


@dataclass(frozen=True)
class GemmRuleBlock(TiledBlock):
    """See TiledBlock. The K of a warp tile is computed for the pipeline."""

    def combined(self, kind: Kind, arch: Arch) -> Iterator[GemmKernel]:
        """Yields every combination of the lists. Raises KernelError."""
        for other in self.others():
            shuffled = other["pipeline"].startswith("preshuffle")
            listed = (arch.preshuffle_warp_tiles if shuffled else arch.warp_tiles).get(kind.dtype, ())
            for tile, waves, warp_tile in self.tilings(listed):
                yield GemmKernel(kind.dtype, str(kind.words["layout"]), *tile, *waves, *warp_tile, **other)


def read_block(tree: JsonTree, tile_lists: Mapping[str, JsonTree]) -> GemmRuleBlock:
    """Reads a block of the list "gemm". Raises RuleError, which names the place."""
    choices = {"persistent": (JsonTree.flags, (False,))}
    return read_tiled_block(GemmRuleBlock, tree, tile_lists, _KINDS, choices)
