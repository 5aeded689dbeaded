"""Rule blocks of attention: {"attention": [{"arch": ["cpu"], "keys": [8, 32]}]}."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tile_oracle.arch import Arch, known_archs
from tile_oracle.files.json_tree import JsonTree
from tile_oracle.operation import Kind
from tile_oracle.operations.attention.kernel import AttentionKernel


@dataclass(frozen=True)
class AttentionBlock:
    """See tile_oracle.operation.descriptor.RuleBlock."""

    arch: tuple[str, ...]
    keys: tuple[int, ...]

    @property
    def candidates(self) -> int:
        """Number of kernels of one kind."""
        return len(self.keys)

    def covers(self, kind: Kind, arch: str) -> bool:
        """Returns whether the block is for the architecture."""
        return arch in self.arch

    def kernels(self, kind: Kind, arch: Arch) -> Iterator[AttentionKernel]:
        """Returns one kernel per number of keys. Raises KernelError."""
        words = kind.words
        return (
            AttentionKernel(kind.dtype, int(words["head_dim"]), int(words["causal"]), keys)
            for keys in self.keys
        )


def read_block(tree: JsonTree, tile_lists: Mapping[str, JsonTree]) -> AttentionBlock:
    """Read a block, which uses no lists of tiles. Raises RuleError."""
    part = tree.known_members(("arch", "keys"))
    return AttentionBlock(part["arch"].texts(known_archs()), part["keys"].integers(1))


def refusals(arch: Arch, kernel: AttentionKernel) -> Iterator[str]:
    """Yields why an architecture has no such kernel."""
    if arch.name != "cpu":
        yield f"arch: attention has no kernels of the project's own family for {arch.name}, only for cpu"
