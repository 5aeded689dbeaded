"""Rule blocks: {"row_softmax": [{"arch": ["cpu"], "block": [1, 4, 16]}]}."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from row_softmax_operation.kernel import SoftmaxKernel
from tile_oracle.arch import Arch, known_archs
from tile_oracle.files.json_tree import JsonTree
from tile_oracle.operation import Kind


@dataclass(frozen=True)
class SoftmaxBlock:
    arch: tuple[str, ...]
    block: tuple[int, ...]

    @property
    def candidates(self) -> int:
        return len(self.block)

    def covers(self, kind: Kind, arch: str) -> bool:
        return arch in self.arch

    def kernels(self, kind: Kind, arch: Arch) -> Iterator[SoftmaxKernel]:
        return (SoftmaxKernel(kind.dtype, block) for block in self.block)


def read_block(tree: JsonTree, tile_lists: Mapping[str, JsonTree]) -> SoftmaxBlock:
    part = tree.known_members(("arch", "block"))
    return SoftmaxBlock(part["arch"].texts(known_archs()), part["block"].integers(1))


def refusals(arch: Arch, kernel: SoftmaxKernel) -> Iterator[str]:
    if arch.name != "cpu":
        yield f"arch: softmax has no kernels for {arch.name}"
