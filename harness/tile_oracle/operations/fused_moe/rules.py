"""Rule blocks of experts: {"fused_moe": [{"arch": ["cpu"], "rows": [1, 16], "columns": [4]}]}."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from tile_oracle.arch import Arch, known_archs
from tile_oracle.files.json_tree import JsonTree
from tile_oracle.operation import Kind
from tile_oracle.operations.fused_moe.kernel import FusedMoeKernel


@dataclass(frozen=True)
class FusedMoeBlock:
    """See tile_oracle.operation.descriptor.RuleBlock."""

    arch: tuple[str, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    @property
    def candidates(self) -> int:
        """Number of kernels of one kind."""
        return len(self.rows) * len(self.columns)

    def covers(self, kind: Kind, arch: str) -> bool:
        """Returns whether the block is for the architecture."""
        return arch in self.arch

    def kernels(self, kind: Kind, arch: Arch) -> Iterator[FusedMoeKernel]:
        """Returns one kernel per number of rows and columns. Raises KernelError."""
        words = kind.dtype, str(kind.words["product"])
        return (FusedMoeKernel(*words, *one) for one in product(self.rows, self.columns))


def read_block(tree: JsonTree, tile_lists: Mapping[str, JsonTree]) -> FusedMoeBlock:
    """Read a block, which uses no lists of tiles. Raises RuleError."""
    part = tree.known_members(("arch", "rows", "columns"))
    sizes = (part[name].integers(1) for name in ("rows", "columns"))
    return FusedMoeBlock(part["arch"].texts(known_archs()), *sizes)


def refusals(arch: Arch, kernel: FusedMoeKernel) -> Iterator[str]:
    """Yields why an architecture has no such kernel."""
    if arch.name != "cpu":
        yield (
            f"arch: fused_moe has no kernels of the project's own family for {arch.name}, only for cpu; "
            "--kernels triton has some for sm_90 and gfx950"
        )
